package processes_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// childVariable has the kind of mutant and its folder, for a child process.
const childVariable = "DISTLOCK_MUTANT_CHILD"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childVariable); ok {
		kind, dir, _ := strings.Cut(text, ":")
		os.Exit(conformance.ChildMain(func(context.Context) (distlock.Locker, error) { return openProcess(kind, dir) }))
	}
	os.Exit(m.Run())
}

// TestProcesses: mutants with a flaw that shows only between processes, or when one is
// killed. Each is caught by its check and passes the other's. It is in real time, so it is
// a program of its own: the others, in virtual time, have to leave the processors to such.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a TTL of real time")
	}
	checks := []string{"core/cross-process", "expiry/killed-holder"}
	for kind, says := range map[string]map[string]string{
		"InProcess": {"core/cross-process": "although a child process holds it"},
		"PidFile":   {"expiry/killed-holder": "still cannot have"},
		"WallClock": {"core/acquire-release": "without a reading of the monotonic clock"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := processes{kind: kind, dir: t.TempDir(), store: memlock.NewStore(nil)}
			report := conformance.Collect(t, h, &conformance.Options{Artifacts: t.TempDir(), Filter: func(k conformance.Check) bool {
				return says[k.ID] != "" || kind == "PidFile" && k.ID == checks[0]
			}})
			for _, r := range report.Results {
				want, must := says[r.ID]
				if must != (r.Status == conformance.Failed) || !strings.Contains(r.Reason, want) {
					t.Errorf("want it caught: %v, saying %q, but: %s", must, want, r.Text())
				}
			}
			if len(report.Results) == 0 {
				t.Error("no check was run")
			}
		})
	}
}

// processes is the harness for them. The store is of this process, the folder of all.
type processes struct {
	kind, dir string
	store     *memlock.Store
}

var _ conformance.Child = processes{}

func (h processes) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	switch h.kind {
	case "InProcess":
		return memlock.New(h.store, nil)
	case "WallClock":
		return driver.New(wallClock{memlock.NewDriver(h.store)}, nil)
	}
	return openProcess(h.kind, h.dir)
}

// wallClock is a driver with locks that compute their deadline from a date.
type wallClock struct{ driver.Driver }

func (wallClock) WrapLock(h *driver.Handle, _ driver.Claim) distlock.Lock { return dated{h} }

type dated struct{ *driver.Handle }

func (l dated) Deadline() time.Time { return l.Handle.Deadline().Round(0) }

// openProcess is what a child process does, with a store of its own.
func openProcess(kind, dir string) (distlock.Locker, error) {
	if kind == "InProcess" {
		return memlock.New(memlock.NewStore(nil), nil)
	}
	return driver.New(pidFiles{dir}, nil)
}

func (h processes) Child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+h.kind+":"+h.dir)
	return cmd
}

func (h processes) capabilities() driver.Capabilities {
	if h.kind == "PidFile" {
		return pidFiles{}.Capabilities()
	}
	return memlock.NewDriver(h.store).Capabilities()
}

func (h processes) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.capabilities())
	caps.Child = conformance.Yes
	caps.Inspector, caps.Proxy, caps.Process, caps.ServerClock = conformance.No, conformance.No, conformance.No, conformance.No
	caps.Failover, caps.Namespaces = conformance.No, conformance.No
	return caps
}

func (h processes) Timing() conformance.Timing { return conformance.TimingFrom(h.capabilities()) }

// pidFiles is the lock file of daemons and package managers: created if it is not
// there, removed on the way out, and left behind by a process that is killed.
type pidFiles struct{ dir string }

func (d pidFiles) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "lock file", Durability: driver.Restart}
}

func (d pidFiles) Claim(r driver.Request) driver.Claim {
	return &pidFile{file: filepath.Join(d.dir, r.Name), asked: r}
}

func (d pidFiles) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(_ context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*pidFile).renew(ttl)
	})
}

type pidFile struct {
	file  string
	asked driver.Request
	token int64
}

func (c *pidFile) held() bool {
	text, err := os.ReadFile(c.file)
	return err == nil && string(text) == c.asked.Owner
}

func (c *pidFile) Try(context.Context) (driver.Grant, error) {
	if !c.held() {
		// Written aside, then linked, so that its owner is in it from the first moment
		// on.
		mine := c.file + "." + c.asked.Owner
		if err := os.WriteFile(mine, []byte(c.asked.Owner), 0o600); err != nil {
			return driver.Grant{}, err
		}
		err := os.Link(mine, c.file)
		if err := errors.Join(err, os.Remove(mine)); errors.Is(err, os.ErrExist) {
			return driver.Grant{}, distlock.ErrHeld
		} else if err != nil {
			return driver.Grant{}, err
		}
		c.token = time.Now().UnixNano()
	}
	return driver.Grant{Token: c.token, TTL: c.asked.TTL}, nil
}

func (c *pidFile) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *pidFile) renew(ttl time.Duration) (driver.Grant, error) {
	if !c.held() {
		return driver.Grant{}, distlock.ErrLost
	}
	return driver.Grant{Token: c.token, TTL: ttl}, nil
}

func (c *pidFile) Release(context.Context) error {
	if c.held() {
		return os.Remove(c.file)
	}
	if c.token != 0 {
		return distlock.ErrLost
	}
	return nil
}
