package redlock

import (
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/redislock/internal/names"
)

// script is a Lua script and its digest. A server knows it by the digest, once it has seen the
// source.
type script struct{ source, digest string }

func newScript(source string) script { return script{source, redis.NewScript(source).Hash()} }

var (
	//go:embed take.lua
	takeLua string
	//go:embed confirm.lua
	confirmLua string
	//go:embed release.lua
	releaseLua string
	//go:embed renew.lua
	renewLua string
	//go:embed break.lua
	breakLua string
	//go:embed inspect.lua
	inspectLua string

	takeScript    = newScript(takeLua)
	confirmScript = newScript(confirmLua)
	releaseScript = newScript(releaseLua)
	renewScript   = newScript(renewLua)
	breakScript   = newScript(breakLua)
	inspectScript = newScript(inspectLua)
)

// key is the key of a name on each server: a string, the entry of its holder, that lives as long
// as the lease:
//
//	"<owner> <round> <token> <acquired> <holder text>"
//
// token is 0 until phase 2. acquired is in µs of the server's clock.
type key string

func keyOf(prefix, name string) key { return key(names.Key(prefix, name)) }

func (k key) entry() string { return string(k) }
func (k key) token() string { return string(k) + ":token" } // string: the last token written here

// tombstone is the key of a string: the last round of this owner that is over. A request of the
// rounds up to it is refused.
func (k key) tombstone(owner string) string { return string(k) + ":gone:" + owner }

// millis rounds up: an entry must never end sooner than was asked for.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
