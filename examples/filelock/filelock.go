//go:build unix

// Package filelock is a complete third-party driver for distlock: locks for the
// processes of one machine, in a directory. It is an example to begin from; see
// docs/writing-a-driver.md, which builds it step by step.
//
// Every name has a record, a JSON file that is replaced as a whole, and beside it a
// file whose flock(2) makes each operation atomic. The flock is held for
// microseconds and says nothing about who holds the lock: that is in the record,
// with the time when it expires. So a process that dies loses its locks when their
// TTL has passed, and not before.
package filelock

import (
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
)

// Open returns a Locker for the names in dir, which is made if it is not there.
func Open(dir string, o *distlock.Options) (*distlock.Client, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return distlock.New(&driver{dir}, o)
}

type driver struct{ dir string }

// Capabilities promises no more than there is: waiters are not queued and not
// woken, so the portable half polls.
func (d *driver) Capabilities() distlock.Capabilities {
	return distlock.Capabilities{
		Backend:    "files",
		Durability: distlock.Restart,
		MinTTL:     50 * time.Millisecond,
	}
}

func (d *driver) Claim(r distlock.Request) distlock.Claim { return &claim{driver: d, request: r} }

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
func (d *driver) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:]))
}

// update runs f on the record of name while no other process can, and stores what
// f has made of it if f returns nil.
func (d *driver) update(ctx context.Context, name string, f func(*record) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := d.path(name)
	lock, err := os.OpenFile(path+".flock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // releases the flock
	// A flock is held for microseconds, unless its process is stopped just then.
	// The portable half bounds this call, so it may block.
	if err := flock(lock); err != nil {
		return err
	}
	r, err := read(path)
	if err != nil {
		return err
	}
	r.Name = name
	if err := f(r); err != nil {
		return err
	}
	return write(path, r)
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
	driver  *driver
	request distlock.Request
	won     bool
}

// Try implements distlock.Claim: owner, token and expiry change in one step.
func (c *claim) Try(ctx context.Context) (g distlock.Grant, err error) {
	err = c.driver.update(ctx, c.request.Name, func(r *record) error {
		if r.held() && r.Owner != c.request.Owner {
			return &distlock.HeldError{Remaining: time.Until(r.Expires)}
		}
		if !r.held() {
			r.Token++
			r.Acquired = time.Now()
		}
		r.Owner, r.Holder = c.request.Owner, c.request.Holder
		r.Expires = time.Now().Add(c.request.TTL)
		g = distlock.Grant{Token: r.Token, TTL: c.request.TTL}
		return nil
	})
	c.won = c.won || err == nil
	return g, err
}

// Wait implements distlock.Claim. Nobody could wake it: the portable half ends ctx
// when it is time to look again.
func (c *claim) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Renew implements distlock.Claim.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (g distlock.Grant, err error) {
	err = c.driver.update(ctx, c.request.Name, func(r *record) error {
		if !r.held() || r.Owner != c.request.Owner {
			return distlock.ErrLost
		}
		if end := time.Now().Add(ttl); end.After(r.Expires) {
			r.Expires = end
		}
		g = distlock.Grant{Token: r.Token, TTL: ttl}
		return nil
	})
	return g, err
}

// Release implements distlock.Claim.
func (c *claim) Release(ctx context.Context) error {
	return c.driver.update(ctx, c.request.Name, func(r *record) error {
		switch {
		case r.held() && r.Owner == c.request.Owner:
			r.Owner = ""
			return nil
		case c.won:
			return distlock.ErrLost
		}
		return nil
	})
}

// Inspect implements distlock.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (st distlock.Status, err error) {
	err = d.update(ctx, name, func(r *record) error {
		st = status(r)
		return nil
	})
	return st, err
}

func status(r *record) distlock.Status {
	st := distlock.Status{Name: r.Name, Token: r.Token, Waiters: -1}
	if r.held() {
		st.Held, st.Holder, st.AcquiredAt, st.Remaining = true, r.Holder, r.Acquired, time.Until(r.Expires)
	}
	return st
}

// List implements distlock.Inspector.
func (d *driver) List(ctx context.Context, prefix string) (sts []distlock.Status, err error) {
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) != "" {
			continue
		}
		r, err := read(filepath.Join(d.dir, f.Name()))
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(r.Name, prefix) && r.held() {
			sts = append(sts, status(r))
		}
	}
	slices.SortFunc(sts, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
	return sts, ctx.Err()
}

// Break implements distlock.Breaker. The token rises, so that the victim is fenced
// off at once.
func (d *driver) Break(ctx context.Context, name string) error {
	return d.update(ctx, name, func(r *record) error {
		if !r.held() {
			return distlock.ErrLost
		}
		r.Owner = ""
		r.Token++
		return nil
	})
}
