package redislock

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/distlock-go/distlock/redislock/internal/endpoint"
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
