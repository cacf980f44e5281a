package redislock

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

func newScript(source string) endpoint.Script {
	source = strings.Replace(source, "-- include grant.lua\n", grantLua, 1)
	return endpoint.NewScript(strings.Replace(source, "-- include queue.lua\n", queueLua, 1))
}

var (
	//go:embed queue.lua
	queueLua string
	//go:embed grant.lua
	grantLua string
	//go:embed try.lua
	tryLua string
	//go:embed release.lua
	releaseLua string
	//go:embed renew.lua
	renewLua string
	//go:embed break.lua
	breakLua string
	//go:embed inspect.lua
	inspectLua string
	//go:embed probe.lua
	probeLua string

	tryScript     = newScript(tryLua)
	releaseScript = newScript(releaseLua)
	renewScript   = newScript(renewLua)
	breakScript   = newScript(breakLua)
	inspectScript = newScript(inspectLua)
	probeScript   = newScript(probeLua)
)

// answers returns the list that a script has answered. Its length is looked at here, so that it may be indexed.
func answers(answer any, n int) ([]any, error) {
	list, ok := answer.([]any)
	if !ok || len(list) != n {
		return nil, fmt.Errorf("redislock: unexpected answer to a script: %v, want a list of %d", answer, n)
	}
	return list, nil
}

// key is the key of a name: a string, the entry of its holder, that lives as long as
// the lease. The other keys of the name are derived from it.
type key string

func keyOf(prefix, name string) key { return key(names.Key(prefix, name)) }

func (k key) entry() string   { return string(k) }
func (k key) token() string   { return string(k) + ":token" }   // string: the last token
func (k key) queue() string   { return string(k) + ":queue" }   // list: the owners that wait, in order
func (k key) waiters() string { return string(k) + ":waiters" } // hash: their places; see queue.lua
