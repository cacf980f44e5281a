package redlock

import (
	_ "embed"

	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

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

	takeScript    = endpoint.NewScript(takeLua)
	confirmScript = endpoint.NewScript(confirmLua)
	releaseScript = endpoint.NewScript(releaseLua)
	renewScript   = endpoint.NewScript(renewLua)
	breakScript   = endpoint.NewScript(breakLua)
	inspectScript = endpoint.NewScript(inspectLua)
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
