//go:build unix

// Package files is a newcomer's driver over files, right but for one operation at a time that looks in one step and acts in
// another. The suite has to fail each, in real time: so it is apart from the mutants in virtual time.
package files

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
)

// Loose are the operations that a newcomer's driver over files does in two steps: it reads
// the record, and writes it afterwards, while others may do the same. The others are right.
var Loose = []string{"try-free", "try-released", "try-expired", "unlock", "renewal", "extend"}

// New is the harness of such a driver, in real time; loose is one of Loose, or empty for a
// driver that is right. With steps the suite is told of each step.
func New(dir, loose string, steps bool) conformance.Harness {
	h := &fileHarness{dir, loose}
	if steps {
		return &steppedFiles{h}
	}
	return h
}

type fileHarness struct{ dir, loose string }

func (h *fileHarness) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	return driver.New(&fileDriver{h, func() {}}, nil)
}

func (h *fileHarness) Caps() conformance.Caps {
	caps := conformance.CapsFrom((*fileDriver)(nil).Capabilities())
	caps.Inspector, caps.Proxy, caps.Process, caps.ServerClock = conformance.No, conformance.No, conformance.No, conformance.No
	caps.Failover, caps.Namespaces, caps.Child = conformance.No, conformance.No, conformance.No
	return caps
}

func (h *fileHarness) Timing() conformance.Timing {
	return conformance.TimingFrom((*fileDriver)(nil).Capabilities())
}

type steppedFiles struct{ *fileHarness }

// OpenStepped implements conformance.Stepped.
func (h *steppedFiles) OpenStepped(_ context.Context, _ *conformance.C, step func()) (distlock.Locker, error) {
	return driver.New(&fileDriver{h.fileHarness, step}, nil)
}

type fileDriver struct {
	*fileHarness
	step func()
}

// Capabilities implements driver.Driver.
func (*fileDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "files", Durability: driver.Restart, MinTTL: 50 * time.Millisecond}
}

// Claim implements driver.Driver.
func (d *fileDriver) Claim(r driver.Request) driver.Claim { return &fileClaim{d, r, false} }

// Renew implements driver.Driver.
func (d *fileDriver) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*fileClaim).renew(ctx, ttl)
	})
}

type fileRecord struct {
	Owner   string
	Token   int64
	Expires time.Time
}

func (r fileRecord) held() bool { return r.Owner != "" && time.Now().Before(r.Expires) }

type fileClaim struct {
	*fileDriver
	request driver.Request
	won     bool
}

// update changes the record by f: under a lock on the file, unless the operation is done
// loosely. That may depend on what is in the record.
func (c *fileClaim) update(ctx context.Context, loosely func(fileRecord) bool, f func(*fileRecord) error) (token int64, err error) {
	return driver.Detach(ctx, func() (int64, error) {
		path := filepath.Join(c.dir, hex.EncodeToString([]byte(c.request.Name)))
		r, err := c.read(path)
		if err != nil {
			return 0, err
		}
		if !loosely(r) {
			lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return 0, err
			}
			defer lock.Close()
			for err = syscall.EINTR; err == syscall.EINTR; err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX) {
				c.step()
			}
			if err := cmp.Or(err, ctx.Err()); err != nil {
				return 0, err
			}
			if r, err = c.read(path); err != nil {
				return 0, err
			}
		}
		if err := f(&r); err != nil {
			return 0, err
		}
		return r.Token, c.write(path, r)
	})
}

func (c *fileClaim) read(path string) (r fileRecord, err error) {
	c.step()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

func (c *fileClaim) write(path string, r fileRecord) error {
	c.step()
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fresh := path + "." + c.request.Owner
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// Try implements driver.Claim.
func (c *fileClaim) Try(ctx context.Context) (driver.Grant, error) {
	loosely := func(r fileRecord) bool {
		return c.loose == "try-free" && r.Token == 0 || c.loose == "try-released" && r.Token > 0 && r.Owner == "" ||
			c.loose == "try-expired" && r.Owner != "" && !r.held()
	}
	token, err := c.update(ctx, loosely, func(r *fileRecord) error {
		if r.held() && r.Owner != c.request.Owner {
			return &distlock.HeldError{Remaining: time.Until(r.Expires)}
		}
		if !r.held() {
			r.Token++
		}
		r.Owner, r.Expires = c.request.Owner, time.Now().Add(c.request.TTL)
		return nil
	})
	c.won = c.won || err == nil
	return driver.Grant{Token: token, TTL: c.request.TTL}, err
}

// Wait implements driver.Claim.
func (c *fileClaim) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// mine is what an operation does to the record if it belongs to c, and ErrLost otherwise.
func (c *fileClaim) mine(f func(*fileRecord)) func(*fileRecord) error {
	return func(r *fileRecord) error {
		if !r.held() || r.Owner != c.request.Owner {
			return distlock.ErrLost
		}
		f(r)
		return nil
	}
}

func (c *fileClaim) renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	loosely := func(fileRecord) bool {
		return c.loose == "renewal" && ttl <= c.request.TTL || c.loose == "extend" && ttl > c.request.TTL
	}
	token, err := c.update(ctx, loosely, c.mine(func(r *fileRecord) {
		if end := time.Now().Add(ttl); end.After(r.Expires) {
			r.Expires = end
		}
	}))
	return driver.Grant{Token: token, TTL: ttl}, err
}

// Release implements driver.Claim.
func (c *fileClaim) Release(ctx context.Context) error {
	loosely := func(fileRecord) bool { return c.loose == "unlock" }
	_, err := c.update(ctx, loosely, c.mine(func(r *fileRecord) { r.Owner = "" }))
	if !c.won && errors.Is(err, distlock.ErrLost) {
		return nil
	}
	return err
}
