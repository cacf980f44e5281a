package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
)

const (
	// idle is after how long without a message a connection is checked, and closed if
	// nobody has needed it for as long.
	idle = 30 * time.Second

	// minPause is the pause after a connection that was of no use. It doubles up to maxPause.
	minPause = 50 * time.Millisecond
	maxPause = 30 * time.Second

	// testEvery is how often the scripts are asked to publish on a channel without a message
	// so far.
	testEvery = time.Second

	// maxConnect bounds a step towards a subscription, also where the client has no
	// time-outs.
	maxConnect = 5 * time.Second
)

// subscriber receives messages for the waiters of one Locker.
//
// A single server, also one behind Sentinel, needs one connection and one channel for all names.
// A cluster needs a connection to each master with awaited names, and a channel per name, because
// a sharded message goes to one slot and does not leave its server. Connections are beside the
// client's pool, not out of it. Each has a goroutine, because go-redis delivers messages to a
// caller that reads them; it ends idle seconds after the last waiter.
//
// The channels of go-redis (PubSub.ChannelWithSubscriptions) subscribe again by themselves,
// but will not do: they tell nothing when a connection is lost; they send pings and do not
// miss the answer, so a server that hangs keeps its subscribers; they reconnect without a
// bound, to the same server of a cluster, holding the lock that Close needs.
type subscriber struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the client, if it is one of a cluster
	logger  *slog.Logger
	id      string         // of the Locker, in the names of its channels
	home    string         // the channel, where there is one for all names
	running sync.WaitGroup // goroutines

	mu       sync.Mutex
	channels map[string]*channel
	conns    map[string]*conn // by address; "" where there is one server
	failures int              // connections in a row that were of no use
	closed   bool
}

// channel is one subscription.
type channel struct {
	conn      *conn
	confirmed bool
	tested    time.Time          // when a script was last asked to publish there
	works     bool               // what a script publishes there arrives
	waiters   map[string]*waiter // by owner
	used      time.Time          // when the last waiter left, or the channel was made
}

// conn is one connection.
type conn struct {
	addr   string
	pubsub *redis.PubSub
	ctx    context.Context // ends when the connection is dropped
	cancel context.CancelFunc
}

func newSubscriber(d *store, logger *slog.Logger) *subscriber {
	id := rand.Text()
	return &subscriber{
		client:   d.client,
		cluster:  d.cluster,
		logger:   logger,
		id:       id,
		home:     d.prefix + "wake:" + id,
		channels: make(map[string]*channel),
		conns:    make(map[string]*conn),
	}
}

func (s *subscriber) newWaiter(k key, r driver.Request) *waiter {
	w := &waiter{owner: r.Owner, ttl: r.TTL, channel: s.home, wake: make(chan struct{}, 1)}
	if s.cluster != nil {
		w.channel = k.entry() + ":wake:" + s.id // in the slot of the name
	}
	return w
}

// prepare is called before each Try of a claim that queues. It returns what a release has
// granted, if anything, and sets listens: whether the claim hears what is published on its
// channel from now on. The Try sees all that the claim was woken for before. If the channel is
// untested, the script is asked to publish there; not where there is a grant, because such a Try
// may need no request. Nothing is prepared for a first Try while nobody waits, as the name may be
// free.
func (s *subscriber) prepare(ctx context.Context, c *claim) (grant driver.Grant, untested bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.waiter == nil {
		if len(s.channels) == 0 {
			return driver.Grant{}, false
		}
		c.waiter = s.newWaiter(c.key, c.request)
	}
	w := c.waiter
	ch := s.channels[w.channel]
	if ch != nil && s.moved(ctx, w.channel, ch) {
		s.forget(w.channel, ch)
		ch = nil
	}
	select {
	case <-w.wake:
		w.asleep = false
	default:
	}
	if w.listens = ch != nil && ch.confirmed; !w.listens {
		return w.grant, false
	}
	ch.waiters[w.owner] = w
	if !ch.works && w.grant.Token == 0 && time.Since(ch.tested) >= testEvery {
		ch.tested, untested = time.Now(), true
	}
	return w.grant, untested
}

// placed notes that the Try with this number has put w into the queue, and reports whether a
// release will wake it up. An earlier grant of w is over, or w would not be in the queue.
func (s *subscriber) placed(w *waiter, number int, sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.number, w.sent, w.grant = 0, sent, driver.Grant{}
	if w.listens {
		w.number = number
	}
	ch := s.channels[w.channel]
	return w.listens && ch != nil && ch.works
}

// join sees to it that w is woken: by what is published on its channel, if that was in its
// latest Try; else by the confirmation of the subscription, so that the next Try has it.
// Nothing may ever come where the server's rules forbid to subscribe, or scripts to publish.
func (s *subscriber) join(ctx context.Context, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[w.channel]
	if ch == nil {
		if ch = s.open(ctx, w.channel); ch == nil {
			return
		}
	}
	ch.waiters[w.owner] = w
	w.asleep = w.listens && ch.works
	if ch.confirmed && !w.listens {
		w.notify() // confirmed since the Try
	}
}

// leave ends what prepare and join have begun. If w was granted its name and not told, though
// it listened, its channel is tested anew. The holder may just have died; but the subscription
// may also be at a server that hangs and is no master any more, and then the next waiters
// must not rely on it.
func (s *subscriber) leave(w *waiter, granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[w.channel]
	if ch == nil {
		return
	}
	if granted && w.asleep {
		ch.works, ch.tested = false, time.Time{}
	}
	delete(ch.waiters, w.owner)
	ch.used = time.Now()
}

// moved reports whether another server has become the master of a channel. The old master may be
// unable to tell.
func (s *subscriber) moved(ctx context.Context, name string, ch *channel) bool {
	if s.cluster == nil {
		return false
	}
	master, err := s.cluster.MasterForKey(ctx, name)
	return err == nil && master.Options().Addr != ch.conn.addr
}

// forget removes a channel and wakes its waiters; s.mu is held.
func (s *subscriber) forget(name string, ch *channel) {
	delete(s.channels, name)
	for _, w := range ch.waiters {
		w.notify()
	}
}

// open starts to subscribe, on an existing connection or a new one; s.mu is held. It returns nil
// if that cannot be.
func (s *subscriber) open(ctx context.Context, name string) *channel {
	if s.closed {
		return nil
	}
	server, addr := s.client, ""
	if s.cluster != nil {
		master, err := s.cluster.MasterForKey(ctx, name)
		if err != nil {
			return nil // the next Try says what is wrong
		}
		server, addr = master, master.Options().Addr
	}
	ch := &channel{waiters: make(map[string]*waiter), used: time.Now(), conn: s.conns[addr]}
	s.channels[name] = ch
	if c := ch.conn; c != nil {
		// Not here, because it may have to wait for the connection. If it fails, receive
		// fails as well.
		s.running.Go(func() { _ = s.subscribe(c, name) })
		return ch
	}
	c := &conn{addr: addr}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.pubsub = server.Subscribe(c.ctx) // to nothing yet; it connects when it is used
	s.conns[addr], ch.conn = c, c
	s.running.Go(func() {
		defer s.drop(c)
		err := s.subscribe(c, name)
		if err == nil {
			err = s.receive(c)
		}
		if err != nil {
			s.pause(c, err)
		}
	})
	return ch
}

func (s *subscriber) subscribe(c *conn, name string) error {
	ctx, cancel := context.WithTimeout(c.ctx, maxConnect)
	defer cancel()
	if s.cluster != nil {
		return c.pubsub.SSubscribe(ctx, name)
	}
	return c.pubsub.Subscribe(ctx, name)
}

// noReconnect is a context that has ended. With it, go-redis does not make a lost connection anew
// by itself: it has no bound for that.
var noReconnect = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive reads one connection until it is lost, dropped, or no longer needed: then it
// returns nil. The first silence has a ping sent, the second is the end.
func (s *subscriber) receive(c *conn) error {
	checked, swept := false, time.Now()
	for {
		msg, err := c.pubsub.ReceiveTimeout(noReconnect, idle)
		var silence net.Error
		if !checked && errors.As(err, &silence) && silence.Timeout() {
			checked = true
			ctx, cancel := context.WithTimeout(c.ctx, maxConnect)
			err = c.pubsub.Ping(ctx)
			cancel()
		} else {
			checked = false
		}
		if err != nil {
			return err
		}
		s.deliver(c, msg)
		if time.Since(swept) >= idle {
			swept = time.Now()
			if !s.sweep(c) {
				return nil
			}
		}
	}
}

func (s *subscriber) deliver(c *conn, msg any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := msg.(type) {
	case *redis.Message:
		ch := s.channels[m.Channel]
		if ch == nil || ch.conn != c {
			return
		}
		ch.works = true // scripts alone publish here: the test of try.lua, a wake-up or a grant
		owner, grant, _ := strings.Cut(m.Payload, " ")
		if w := ch.waiters[owner]; w != nil {
			w.accept(grant)
			w.notify()
		}
	case *redis.Subscription:
		ch := s.channels[m.Channel]
		if ch == nil || ch.conn != c {
			return
		}
		if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
			ch.confirmed, s.failures = true, 0
			for _, w := range ch.waiters {
				w.notify()
			}
			return
		}
		s.forget(m.Channel, ch) // the slot has moved to another server
	}
}

// sweep ends the subscriptions of c that nobody has needed for a while. It reports whether
// any is left.
func (s *subscriber) sweep(c *conn) bool {
	var old []string
	left := false
	s.mu.Lock()
	for name, ch := range s.channels {
		switch {
		case ch.conn != c:
		case len(ch.waiters) == 0 && time.Since(ch.used) >= idle:
			old = append(old, name)
			delete(s.channels, name)
		default:
			left = true
		}
	}
	s.mu.Unlock()
	if !left || len(old) == 0 {
		return left
	}
	ctx, cancel := context.WithTimeout(c.ctx, maxConnect)
	defer cancel()
	return c.pubsub.SUnsubscribe(ctx, old...) == nil // only a cluster has more than one to a connection
}

// pause keeps a connection that was of no use for a while, so that what made it fail has
// time to pass before the next is made.
func (s *subscriber) pause(c *conn, err error) {
	s.mu.Lock()
	for _, ch := range s.channels {
		if ch.conn == c && ch.confirmed {
			s.mu.Unlock()
			return // it was of use
		}
	}
	first := c.ctx.Err() == nil && s.failures == 0
	d := min(minPause<<min(s.failures, 10), maxPause)
	s.failures++
	s.mu.Unlock()
	if first { // without the mutex, since the handler may hang, or take a lock itself
		s.logger.Warn("cannot subscribe to wake-ups, waiting calls have to poll", "err", err)
	}
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// drop closes a connection and wakes the waiters that relied on it.
func (s *subscriber) drop(c *conn) {
	s.mu.Lock()
	if s.conns[c.addr] == c {
		delete(s.conns, c.addr)
	}
	for name, ch := range s.channels {
		if ch.conn == c {
			s.forget(name, ch)
		}
	}
	s.mu.Unlock()
	c.cancel() // ends an attempt to connect, for which Close would wait
	_ = c.pubsub.Close()
}

// close returns when nothing is left running.
func (s *subscriber) close() {
	s.mu.Lock()
	// First, so that open makes no connection after this.
	s.closed = true
	conns := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		s.drop(c)
	}
	s.running.Wait()
}
