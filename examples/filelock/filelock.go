//go:build unix

// Package filelock is a complete third-party driver for distlock: locks for the processes of one machine, in a directory.
// It is an example to begin from; docs/writing-a-driver.md says how to begin with it.
//
// Every name has a record, a JSON file replaced as a whole. Beside it is a file for
// flock(2): that makes each operation atomic. The flock is held for microseconds and says
// nothing about the holder of the lock. The record names the holder, and the time when it
// expires. So a process that dies loses its locks when their TTL has passed, and not
// before.
package filelock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Open returns a Locker for the names in dir. It makes dir if missing.
func Open(dir string, o *distlock.Options) (*driver.Client, error) {
	return OpenStepped(dir, o, func() {})
}

// OpenStepped is Open for tests: step is called before each step that touches a file.
func OpenStepped(dir string, o *distlock.Options, step func()) (*driver.Client, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return driver.New(&store{dir, step}, o)
}

type store struct {
	dir  string
	step func()
}

// Capabilities promises no more than there is: waiters are not queued and not
// woken, so the engine polls.
func (d *store) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Backend:    "files",
		Durability: driver.Restart,
		MinTTL:     50 * time.Millisecond,
	}
}

func (d *store) Claim(r driver.Request) driver.Claim { return &claim{driver: d, request: r} }

// record is what the store keeps of a name. It stays when the lock is released,
// because the next token must be higher.
type record struct {
	Name     string    `json:"name"`
	Owner    string    `json:"owner"` // empty: free
	Holder   string    `json:"holder"`
	Token    int64     `json:"token"`
	Acquired time.Time `json:"acquired"`
	Expires  time.Time `json:"expires"`
}

// held reports whether somebody holds the name now. All processes share the clock
// of the machine, so here it is the store's clock.
func (r *record) held() bool { return r.Owner != "" && time.Now().Before(r.Expires) }

// path returns the file of a name. A name may be 512 bytes long and hold any
// character; a hash of 256 bits is short, and two names never have the same.
func (d *store) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(d.dir, beginning(name)+"-"+hex.EncodeToString(sum[:]))
}

// beginning is what the files begin with of names that begin like this one: so that List reads those alone.
func beginning(name string) string { return hex.EncodeToString([]byte(name[:min(len(name), 60)])) }

// update runs f on the record of name while no other process can. It stores what f has
// made of it if f returns nil, and returns what f does.
//
// A flock is held for microseconds, unless its process is stopped just then; and flock(2)
// knows no contexts. So all this is detached. What its caller has left changes nothing if
// it has to wait, and what the caller does next waits for what it does change.
func update[T any](ctx context.Context, d *store, name string, f func(*record) (T, error)) (T, error) {
	return driver.Detach(ctx, func() (none T, err error) {
		path := d.path(name)
		d.step()
		lock, err := os.OpenFile(path+".flock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return none, err
		}
		defer lock.Close() // releases the flock
		if err := cmp.Or(flock(lock), ctx.Err()); err != nil {
			return none, err
		}
		d.step()
		r, err := read(path)
		if err != nil {
			return none, err
		}
		r.Name = name
		value, err := f(r)
		if err != nil {
			return none, err
		}
		d.step()
		return value, write(path, r)
	})
}

func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

func read(path string) (*record, error) {
	r := new(record)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(text, r)
}

// write replaces the record in one step: a process that dies here leaves the old
// one or the new one, never half of it.
func write(path string, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

type claim struct {
	driver  *store
	request driver.Request
	won     bool
}

// Try implements driver.Claim: owner, token and expiry change in one step.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	g, err := update(ctx, c.driver, c.request.Name, func(r *record) (driver.Grant, error) {
		if r.held() && r.Owner != c.request.Owner {
			return driver.Grant{}, &distlock.HeldError{Remaining: time.Until(r.Expires), Holder: r.Holder, Token: r.Token}
		}
		if !r.held() {
			r.Token++
			r.Acquired = time.Now()
		}
		r.Owner, r.Holder = c.request.Owner, c.request.Holder
		r.Expires = time.Now().Add(c.request.TTL)
		return driver.Grant{Token: r.Token, TTL: c.request.TTL}, nil
	})
	c.won = c.won || err == nil
	return g, err
}

// Wait implements driver.Claim. Nothing could wake it: the engine ends ctx when it is
// time to look again.
func (c *claim) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Renew implements driver.Driver: each record is a file of its own.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*claim).renew(ctx, ttl)
	})
}

func (c *claim) renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	return update(ctx, c.driver, c.request.Name, func(r *record) (driver.Grant, error) {
		if !r.held() || r.Owner != c.request.Owner {
			return driver.Grant{}, distlock.ErrLost
		}
		if end := time.Now().Add(ttl); end.After(r.Expires) {
			r.Expires = end
		}
		return driver.Grant{Token: r.Token, TTL: ttl}, nil
	})
}

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	won := c.won
	_, err := update(ctx, c.driver, c.request.Name, func(r *record) (none struct{}, err error) {
		switch {
		case r.held() && r.Owner == c.request.Owner:
			r.Owner = ""
		case won:
			err = distlock.ErrLost
		}
		return none, err
	})
	return err
}

// Inspect implements driver.Inspector.
func (d *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	return update(ctx, d, name, func(r *record) (distlock.Status, error) { return status(r), nil })
}

func status(r *record) distlock.Status {
	st := distlock.Status{Name: r.Name, Token: r.Token, Waiters: -1}
	if r.held() {
		st.Held, st.Holder, st.AcquiredAt, st.Remaining = true, r.Holder, r.Acquired, time.Until(r.Expires)
	}
	return st
}

// List implements driver.Inspector. It goes by the files for flock(2), which are never
// replaced: what reads a directory may miss a file that is renamed over meanwhile. On Linux'
// tmpfs it may also be told twice of one, while others are made.
func (d *store) List(ctx context.Context, prefix string) (sts []distlock.Status, err error) {
	dir, err := os.Open(d.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	files, err := dir.Readdirnames(0) // os.ReadDir would sort the files of all names that ever were
	if err != nil {
		return nil, err
	}
	begin := beginning(prefix)
	for _, f := range files {
		file, is := strings.CutSuffix(f, ".flock")
		if !is || !strings.HasPrefix(file, begin) {
			continue
		}
		r, err := read(filepath.Join(d.dir, file))
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(r.Name, prefix) && r.held() {
			sts = append(sts, status(r))
		}
	}
	slices.SortFunc(sts, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(sts, func(a, b distlock.Status) bool { return a.Name == b.Name }), ctx.Err()
}

// Break implements driver.Breaker. The token rises, so that the victim is fenced
// off at once.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	_, err := update(ctx, d, name, func(r *record) (none struct{}, err error) {
		if !r.held() || r.Token != token {
			return none, distlock.ErrLost
		}
		r.Owner = ""
		r.Token++
		return none, nil
	})
	return err
}
