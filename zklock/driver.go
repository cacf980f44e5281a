package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
)

// driver makes claims on names. All of them live by the one session of the
// connection.
type driver struct {
	conn    *zk.Conn
	prefix  string
	acl     []zk.ACL
	granted func() time.Duration // the session time-out
	tick    time.Duration        // of the servers, at the most
	caps    distlock.Capabilities
	close   func() // nil if the connection is the user's
	watches watches
	parents parents
	proving turn

	mu    sync.Mutex
	proof proof
}

// proof is a write in a session that the servers have confirmed.
type proof struct {
	session int64
	sent    time.Time // before it was sent
}

var (
	_ distlock.Driver       = (*driver)(nil)
	_ distlock.BatchRenewer = (*driver)(nil)
	_ distlock.LockWrapper  = (*driver)(nil)
	_ distlock.Inspector    = (*driver)(nil)
	_ distlock.Breaker      = (*driver)(nil)
)

// defaultTick is the tickTime of servers that are not configured otherwise.
const defaultTick = 3 * time.Second

// leaseOf returns for how long the servers keep a session, at the least, counted
// from before the sending of a write that they have confirmed. It is not the
// time-out of the session, because only the leader decides on expiry, and hears of
// a client of another server late: such a server passes on who has been there each
// time the leader pings it, every half a tick. If it dies, or is cut off from the
// leader together with us, just after it has answered us, then what counts is not
// this answer but the request before it, which the ping before that has carried.
// The library sends one, if nobody else does, every third of the time-out.
//
// Answers that a server gives by itself prove nothing: one that is cut off from
// the leader keeps answering reads for several ticks, and an old leader without a
// majority answers even a sync. Only what a majority has confirmed shows that no
// new leader had been elected; one that is elected later gives every session its
// full time-out.
func leaseOf(session, tick time.Duration) time.Duration {
	return session - session/3 - tick/2
}

func (d *driver) lease() time.Duration { return leaseOf(d.granted(), d.tick) }

// sharing is the part of a TTL for which one proof serves all: a hundred batches of
// renewals that are due together send one request, not a hundred. The longest TTL
// is shorter than a lease by so much.
const sharing = 20

// finish fills in what follows from the session time-out.
func (d *driver) finish(tick time.Duration) {
	session := d.granted()
	if tick == 0 {
		// By default no session is shorter than two ticks.
		tick = min(defaultTick, session/2)
	}
	d.tick = tick
	d.proving = make(turn, 1)
	d.watches.conn, d.watches.byPath = d.conn, make(map[string]*watch)
	lease := d.lease()
	d.caps = distlock.Capabilities{
		Backend:    "zookeeper",
		Fair:       true,
		Push:       true,
		Durability: distlock.Quorum,
		MaxTTL:     (lease - lease/sharing).Truncate(time.Millisecond),
		// The node of a holder that dies stays for as long as its session, even
		// if it was to be a fixed term of a millisecond. The leader learns of
		// the last request half a tick late, and then rounds up by a tick.
		ExpiryLag: session + 2*tick,
	}
}

// Capabilities implements distlock.Driver.
func (d *driver) Capabilities() distlock.Capabilities { return d.caps }

// Claim implements distlock.Driver.
func (d *driver) Claim(r distlock.Request) distlock.Claim {
	return &claim{driver: d, stem: stemOf(d.nodeOf(r.Name), r.Owner), holder: r.Holder, ttl: r.TTL, noWait: r.NoWait}
}

// WrapLock implements distlock.LockWrapper.
func (d *driver) WrapLock(h *distlock.Handle, c distlock.Claim) distlock.Lock {
	return &Lock{Handle: h, path: c.(*claim).path}
}

// Close implements io.Closer.
func (d *driver) Close() error {
	if d.close != nil {
		d.close()
	}
	return nil
}

func (d *driver) nodeOf(name string) string { return d.prefix + "/" + encode(name) }

// RenewBatch implements distlock.BatchRenewer. One write proves the session and so
// renews all; that a node is still there is known from a watch on it, which is set
// with the first renewal. The servers send what a watch has to tell before the
// reply to any later write; but for one that goes out just when the connection is back,
// before the library has renewed its watches. Then the next renewal tells.
func (d *driver) RenewBatch(ctx context.Context, batch []distlock.Renewal) {
	d.listenAll(batch)
	for i := range batch {
		r, c := &batch[i], batch[i].Claim.(*claim)
		if r.Err = d.check(ctx, c); r.Err != nil {
			continue
		}
		if r.Err = d.prove(ctx, c.session, r.TTL, r.TTL/sharing); errors.Is(r.Err, zk.ErrSessionExpired) {
			r.Err = distlock.ErrLost
		}
		if r.Err == nil && !c.silent() {
			d.listenAll(batch[i : i+1]) // which waits for nobody: this is for many
			r.Err = d.check(ctx, c)
		}
		if r.Err == nil {
			r.Grant = distlock.Grant{Token: c.czxid, TTL: r.TTL}
		}
	}
}

// listenParallel bounds the requests of one batch that are under way at once.
const listenParallel = 16

// listenAll subscribes to the nodes of the claims, as far as they are not. It does
// not wait for the servers.
func (d *driver) listenAll(batch []distlock.Renewal) {
	var todo []func()
	for _, r := range batch {
		c := r.Claim.(*claim)
		if set := c.prepare(); set != nil {
			todo = append(todo, set)
		}
	}
	var next atomic.Int64
	for range min(listenParallel, len(todo)) {
		go func() {
			for i := next.Add(1); i <= int64(len(todo)); i = next.Add(1) {
				todo[i-1]()
			}
		}()
	}
}

// check returns ErrLost if the servers have said that the claim is no more: its
// session has expired, or its node is not there.
func (d *driver) check(ctx context.Context, c *claim) error {
	if d.conn.SessionID() != c.session {
		return distlock.ErrLost
	}
	err := c.settle(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return distlock.ErrLost
	}
	return err
}

// prove makes sure that the servers keep the session for ttl from now, by a proof
// that is not older than maxAge, or a new one.
func (d *driver) prove(ctx context.Context, session int64, ttl, maxAge time.Duration) error {
	lease := d.lease()
	if ttl > lease {
		return fmt.Errorf("the servers have cut the session time-out to %v, which allows TTLs up to %v", d.granted(), lease)
	}
	maxAge = min(maxAge, lease-ttl)
	if d.proven(session, maxAge) {
		return nil
	}
	_, err := await(ctx, d.proving, func() (struct{}, error) {
		if d.proven(session, maxAge) {
			return struct{}{}, nil // by the one whose turn was before
		}
		return struct{}{}, d.proveNow(ctx, session)
	})
	return err
}

func (d *driver) proveNow(ctx context.Context, session int64) error {
	if d.conn.SessionID() != session {
		return zk.ErrSessionExpired
	}
	var sent time.Time
	err := again(ctx, func() error {
		sent = time.Now()
		return d.write()
	})
	// The session has no way back: if it is the same afterwards, it was so when
	// the servers answered.
	if err == nil && d.conn.SessionID() != session {
		err = zk.ErrSessionExpired
	}
	if err == nil {
		d.proved(session, sent)
	}
	return err
}

func (d *driver) proven(session int64, maxAge time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proof.session == session && time.Since(d.proof.sent) <= maxAge
}

func (d *driver) proved(session int64, sent time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proof.session != session || d.proof.sent.Before(sent) {
		d.proof = proof{session, sent}
	}
}

// write makes the servers agree on something that changes nothing. They do so too
// if there is nothing to check, and answer that.
func (d *driver) write() error {
	_, err := d.conn.Multi(&zk.CheckVersionRequest{Path: d.prefix, Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// children lists what is below a node.
func (d *driver) children(ctx context.Context, parent string) (children []string, err error) {
	err = again(ctx, func() (err error) {
		children, _, err = d.conn.Children(parent)
		return err
	})
	return children, err
}

// makeNode makes a node that holds no data, and those above it as needed. They
// stay, while a container is removed by the servers some time after its last child.
func (d *driver) makeNode(ctx context.Context, p string, flag int32) error {
	for ctx.Err() == nil {
		err := again(ctx, func() (err error) {
			if flag == zk.FlagContainer {
				_, err = d.conn.CreateContainer(p, nil, flag, d.acl)
			} else {
				_, err = d.conn.Create(p, nil, flag, d.acl)
			}
			return err
		})
		switch above := path.Dir(p); {
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode) && above != "/":
			if err := d.makeNode(ctx, above, zk.FlagPersistent); err != nil {
				return err
			}
		case unimplemented(err) && flag == zk.FlagContainer:
			flag = zk.FlagPersistent // servers before 3.5; there the node stays
		default:
			return err
		}
	}
	return ctx.Err()
}

// Inspect implements distlock.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	return await(ctx, make(turn, 1), func() (distlock.Status, error) {
		if _, err := d.conn.Sync(d.prefix); err != nil {
			return distlock.Status{}, err
		}
		return d.inspect(ctx, name)
	})
}

func (d *driver) inspect(ctx context.Context, name string) (distlock.Status, error) {
	status := distlock.Status{Name: name}
	children, err := d.children(ctx, d.nodeOf(name))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return status, err
	}
	line := lineup(children)
	for i, n := range line {
		data, stat, err := d.conn.Get(d.nodeOf(name) + "/" + n.name)
		if errors.Is(err, zk.ErrNoNode) {
			continue // it has just left; the next one has the name now
		}
		if err != nil {
			return status, err
		}
		status.Held = true
		status.Holder = string(data)
		status.Token = stat.Czxid
		status.AcquiredAt = time.UnixMilli(stat.Ctime)
		status.Waiters = len(line) - i - 1
		break
	}
	return status, nil
}

// List implements distlock.Inspector.
func (d *driver) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return await(ctx, make(turn, 1), func() (held []distlock.Status, err error) {
		if _, err := d.conn.Sync(d.prefix); err != nil {
			return nil, err
		}
		elements, err := d.children(ctx, d.prefix)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		for _, element := range elements {
			name, ours := decode(element)
			if !ours || !strings.HasPrefix(name, prefix) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			status, err := d.inspect(ctx, name)
			if err != nil {
				return nil, err
			}
			if status.Held {
				held = append(held, status)
			}
		}
		slices.SortFunc(held, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
		return held, nil
	})
}

// Break implements distlock.Breaker.
func (d *driver) Break(ctx context.Context, name string) error {
	_, err := await(ctx, make(turn, 1), func() (struct{}, error) {
		if _, err := d.conn.Sync(d.prefix); err != nil {
			return struct{}{}, err
		}
		children, err := d.children(ctx, d.nodeOf(name))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return struct{}{}, err
		}
		err = distlock.ErrLost
		if line := lineup(children); len(line) > 0 {
			err = d.conn.Delete(d.nodeOf(name)+"/"+line[0].name, -1)
		}
		if errors.Is(err, zk.ErrNoNode) {
			err = distlock.ErrLost
		}
		return struct{}{}, err
	})
	return err
}
