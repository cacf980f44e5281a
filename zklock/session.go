package zklock

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// session is what the locks on one connection share: one write renews all of them. If
// the servers' session expires, the next one follows.
type session struct {
	store   *store
	conn    *wire.Conn
	watches watches

	loggedIn   bool // the library has the credentials; guarded by the semaphore of the class
	leftovers  leftovers
	confirming semaphore
	mu         sync.Mutex
	confirmed  confirmation
}

// confirmation is a write in a session that the servers have answered.
type confirmation struct {
	session int64
	sent    time.Time // before it was sent
}

func newSession(d *store, conn *wire.Conn) *session {
	return &session{store: d, conn: conn, watches: watches{byPath: make(map[string]*watch)},
		leftovers: leftovers{claims: make(map[string]leftover)}, confirming: make(semaphore, 1)}
}

// handshake makes the first requests of a connection, and again if it breaks under them. But
// if no server can be reached, the caller is told at once. The library keeps credentials
// that were accepted, and sends them with each connection, so it gets them once. One handshake
// runs at a time.
func (s *session) handshake(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	_, err := again(ctx, s, func() (struct{}, error) {
		var err error
		if auth := s.store.auth; auth != "" && !s.loggedIn {
			err = s.conn.AddAuth("digest", []byte(auth))
			s.loggedIn = err == nil
		}
		if err == nil {
			_, _, err = s.conn.Exists("/")
		}
		if errors.Is(err, zk.ErrNoServer) {
			stop()
		}
		return struct{}{}, err
	})
	return err
}

// semaphore lets one call run at a time.
type semaphore chan struct{}

// do runs f detached, after the calls before it. If a call hangs, it goes on to hold
// the semaphore after its caller has left. So the next call finds its result. Waiting
// callers leave with their contexts.
func (one semaphore) do(ctx context.Context, f func() error) error {
	select {
	case one <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := driver.Detach(ctx, func() (struct{}, error) {
		defer func() { <-one }()
		return struct{}{}, f()
	})
	return err
}

// leaseOf returns for how long the servers keep a session, at the least. The lease
// counts from before the sending of a confirmed write. It is less than the timeout of
// the session. Only the leader decides on expiry, and it hears late of a client of
// another server. That server passes on the sessions it has heard of at each ping of
// the leader, every half a tick. It may be cut off from the leader just after it has
// answered us. Then the answer does not count. The last request before that ping
// counts:
//
//	          q           ping          w
//	us      --+------------|------------+-----------------------> believe until w + lease
//	server  heard q    passes q on    answers w, then is cut off
//	leader                 +------------------------------------> expires it at q + timeout
//
//	ping - q <= timeout/3    the library sends something at least that often
//	w - ping <= tick/2        the next ping would have passed w on
//
// A write is needed, because only that shows that no new leader had been elected. If a
// server is cut off from the leader, it keeps answering reads for several ticks. An old
// leader without a majority answers even a sync. A leader elected after the write gives
// every session its full timeout.
func leaseOf(session, tick time.Duration) time.Duration {
	return session - session/3 - tick/2
}

// sessionOf returns the timeout of a session with a lease longer than the TTL by a
// third.
func sessionOf(ttl, tick time.Duration) time.Duration { return 2*ttl + tick*3/4 }

// defaultTick is the tickTime of servers unless they are configured otherwise.
const defaultTick = 3 * time.Second

// tickOf returns the tickTime to reckon with. By default no session is shorter than
// two ticks.
func tickOf(given, session time.Duration) time.Duration {
	if given != 0 {
		return given
	}
	return min(defaultTick, session/2)
}

// lease returns the lease of a session with the timeout.
func (d *store) lease(session time.Duration) time.Duration {
	return leaseOf(session, tickOf(d.opts.TickTime, session))
}

func (s *session) lease() time.Duration { return s.store.lease(s.conn.Timeout()) }

// sharing is the part of a TTL for which one confirmation serves all. So a hundred
// batches of renewals due together send one request, not a hundred. The longest TTL is
// shorter than a lease by so much.
const sharing = 20

// longestTTL returns the longest TTL in a session.
func longestTTL(session, tick time.Duration) time.Duration {
	lease := leaseOf(session, tick)
	return (lease - lease/sharing).Truncate(time.Millisecond)
}

// confirmSession makes sure that the session was alive at a write sent at oldest or
// later. It uses a known write, or sends a new one.
func (s *session) confirmSession(ctx context.Context, session int64, oldest time.Time) error {
	if s.confirmedSince(session, oldest) {
		return nil
	}
	return s.fault(s.confirming.do(ctx, func() error {
		if s.confirmedSince(session, oldest) {
			return nil // by the call before
		}
		if !s.lives(session) {
			return zk.ErrSessionExpired
		}
		sent, err := again(ctx, s, s.write)
		// An expired session never comes back: if it is the same afterwards, it was so
		// when the servers answered.
		if err == nil && !s.lives(session) {
			err = zk.ErrSessionExpired
		}
		if err == nil {
			s.confirm(session, sent)
		}
		return err
	}))
}

// lives reports whether a session is the present one, as far as this client knows.
func (s *session) lives(session int64) bool { return s.conn.SessionID() == session }

// confirmedSince reports whether the session was alive at a write sent at an instant, or
// later.
func (s *session) confirmedSince(session int64, oldest time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed.session == session && !s.confirmed.sent.Before(oldest)
}

func (s *session) confirm(session int64, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed.session != session || s.confirmed.sent.Before(sent) {
		s.confirmed = confirmation{session, sent}
	}
}

// write makes the servers agree on something that changes nothing, and returns an instant
// before. If the node of the prefix is missing, they agree on that.
func (s *session) write() (sent time.Time, err error) {
	sent = time.Now()
	_, err = s.conn.Multi(&zk.CheckVersionRequest{Path: s.store.opts.Prefix, Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return sent, err
}

// catchUp returns when our server knows what the leader had agreed on before the call.
func (s *session) catchUp(ctx context.Context) error {
	_, err := request(ctx, s, func() (string, error) { return s.conn.Sync(s.store.opts.Prefix) })
	return err
}

// children lists the names of the nodes below a node.
func (s *session) children(ctx context.Context, parent string) ([]string, error) {
	return request(ctx, s, func() ([]string, error) {
		children, _, err := s.conn.Children(parent)
		return children, err
	})
}

// exists returns what is known of a node, and nil if it is not there.
func (s *session) exists(ctx context.Context, path string) (*zk.Stat, error) {
	return request(ctx, s, func() (*zk.Stat, error) {
		there, stat, err := s.conn.Exists(path)
		if err != nil || !there {
			return nil, err
		}
		return stat, nil
	})
}

// remove returns the call that deletes a node.
func (s *session) remove(path string) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, s.conn.Delete(path, -1) }
}

// makeNode makes a node without data, and those above it as needed. They stay, while
// the servers remove a container some time after its last child. It fails with
// zk.ErrNodeExists if the node is there.
func (s *session) makeNode(ctx context.Context, p string, flag int32) error {
	err := s.createNode(ctx, p, flag)
	if above := path.Dir(p); errors.Is(err, zk.ErrNoNode) && above != "/" {
		if err = s.makeNode(ctx, above, zk.FlagPersistent); err == nil || errors.Is(err, zk.ErrNodeExists) {
			err = s.createNode(ctx, p, flag)
		}
	}
	return err
}

func (s *session) createNode(ctx context.Context, p string, flag int32) error {
	if flag == zk.FlagContainer {
		if until := s.store.noContainers.Load(); until == nil || time.Now().After(*until) {
			known, err := s.createContainer(ctx, p)
			if known {
				return err
			}
			again := time.Now().Add(noContainersFor)
			s.store.noContainers.Store(&again)
		}
		flag = zk.FlagPersistent // the node stays
	}
	_, err := request(ctx, s, func() (string, error) { return s.conn.Create(p, nil, flag, s.store.opts.ACL) })
	return err
}

// noContainersFor is how long servers are taken not to know containers. Then they are
// asked again: they may be others by now, or bad luck may have looked like their answer.
const noContainersFor = time.Hour

// createContainer reports false if the servers do not know containers. Servers before
// 3.5 say so; the library has no value for the code -6. ClickHouse Keeper before 26.7
// drops the connection at that request, each time, but answers another. That other one
// is a write: without a majority, servers answer reads and no write. A request that was
// not sent tells nothing.
func (s *session) createContainer(ctx context.Context, p string) (known bool, err error) {
	for dropped := 0; dropped < 3; {
		_, err = requestOnce(ctx, s, func() (struct{}, error) {
			return struct{}{}, s.conn.CreateContainer(p, s.store.opts.ACL)
		})
		if dropped > 0 && errors.Is(err, zk.ErrNodeExists) {
			err = nil // made by an earlier copy, as far as we know
		}
		if !unanswered(err) {
			return err == nil || err.Error() != codeUnimplemented, err
		}
		if driver.FateOf(err) != driver.NotSent {
			dropped++
		}
		if _, err = request(ctx, s, s.write); err != nil {
			return true, err
		}
	}
	return false, nil
}
