package redislock

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// sideBySide is how many checks run at once: they mostly wait.
const sideBySide = 12

func openURL(ctx context.Context, url, namespace string) (distlock.Locker, error) {
	return Open(ctx, url, &Options{Prefix: namespace})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	h := pin.New(t, servers.Redis, openURL)
	o := pin.Pinned(h.Server, "sweep/held")
	o.Parallel = sideBySide
	pin.Run(t, harness{h, client(t, h.URL())}, o)
}

// The way without wake-ups: the server's rules forbid channels, so waiters poll. The
// checks of waiting and fairness must hold all the same.
func TestConformanceWithoutWakeUps(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "silent", "on", ">secret", "~*", "+@all", "resetchannels").Err())
	h := pin.OnStore(t, pin.Store{Servers: []*servers.Server{s}, Addrs: s.Addrs(),
		URL: func(addrs ...string) string { return "redis://silent:secret@" + addrs[0] }}, openURL)
	pin.Run(t, silentHarness{harness{h, admin}}, &conformance.Options{Parallel: sideBySide, Filter: func(c conformance.Check) bool {
		family, _, _ := strings.Cut(c.ID, "/")
		return family == "wait" || family == "fair" || c.ID == "stress/pool-starvation"
	}})
}

// silentHarness opens clients that cannot subscribe.
type silentHarness struct{ harness }

func (h silentHarness) Caps() conformance.Caps {
	caps := h.harness.Caps()
	caps.Push = conformance.No
	return caps
}

func (h silentHarness) Timing() conformance.Timing {
	caps := new(store).Capabilities()
	caps.Push = false
	return conformance.TimingFrom(caps)
}

// harness looks into the server without the driver.
type harness struct {
	*pin.Harness
	admin *redis.Client
}

// Records counts what the keys of the name say, without a script of the driver.
func (h harness) Records(ctx context.Context, name string) (int, error) {
	holders, err := h.admin.Exists(ctx, keyOf(defaultPrefix, name).entry()).Result()
	if err != nil {
		return 0, err
	}
	waiters, err := h.Waiters(ctx, name)
	return int(holders) + waiters, err
}

func (h harness) Waiters(ctx context.Context, name string) (int, error) {
	n, err := h.admin.LLen(ctx, keyOf(defaultPrefix, name).queue()).Result()
	return int(n), err
}

// BlockName implements conformance.NameBlocker: another program uses the key for a
// list, so that every request for the name fails.
func (h harness) BlockName(ctx context.Context, name string) (func() error, error) {
	key := keyOf(defaultPrefix, name).entry()
	undo := func() error { return h.admin.Del(context.Background(), key).Err() }
	if err := undo(); err != nil {
		return nil, err
	}
	return undo, h.admin.RPush(ctx, key, "not a lock").Err()
}

func (h harness) Delete(ctx context.Context, name string) error {
	return h.admin.Del(ctx, keyOf(defaultPrefix, name).entry()).Err()
}
