package redislock

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
)

const (
	// idle is after how long without a message a connection is checked, and closed if
	// nobody has needed it for as long.
	idle = 30 * time.Second

	// minPause is the pause after a connection that failed before a subscription was confirmed. It doubles up to maxPause.
	minPause = 50 * time.Millisecond
	maxPause = 30 * time.Second

	// testEvery is how often the scripts are asked to publish on a channel without a message
	// so far.
	testEvery = time.Second

	// maxConnect bounds a step towards a subscription, also where the client has no timeouts, if
	// its dialer and its reads heed contexts: that of go-redis with TLS does not, nor does a ReadTimeout
	// of -2. There the timeouts of the client count, and Close waits for maxClose.
	maxConnect = 5 * time.Second

	// maxFailures is for how many addresses failures are counted: more than a cluster has servers.
	maxFailures = 1000
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
	failures map[string]int   // by address: connections and subscriptions in a row that came to nothing
	closed   bool
}

// channel is one subscription.
type channel struct {
	conn    *conn
	state   atomic.Int32       // changes under the mutex of the subscriber
	tested  time.Time          // when a script was last asked to publish there
	waiters map[string]*waiter // by owner
	used    time.Time          // when the last waiter left, or the channel was made
}

// The states of a channel.
const (
	subscribing int32 = iota // the server has not confirmed it
	unproven                 // confirmed; nothing that a script has published has arrived
	proven                   // what scripts publish arrives: waiters rely on it
	broken                   // forgotten
)

// conn is one connection.
type conn struct {
	addr   string
	pubsub *redis.PubSub
	ctx    context.Context // ends when the connection is dropped
	cancel context.CancelFunc

	pausing bool // before what is not confirmed begins anew
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
		failures: make(map[string]int),
	}
}

func (s *subscriber) newWaiter(k key, r driver.Request) *waiter {
	w := &waiter{owner: r.Owner, ttl: r.TTL, channel: s.home, wake: make(chan struct{}, 1)}
	if s.cluster != nil {
		w.channel = k.entry() + ":wake:" + s.id // in the slot of the name
	}
	return w
}

// enlist is called before each Try of a claim that queues. It returns a fresh grant by a release; then
// no request is needed. Else the Try sees all that the claim was woken for before, and waiter.listens
// says whether the claim hears what is published on its channel from now on. test says that the script
// is to publish there. Nothing is subscribed to before the claim was refused, as the name may be free.
//
// Wait calls it as well, and not before a Try. Then it sees to it that the claim is woken: by what is
// published on its channel, if that was in its latest Try; else by the confirmation of the
// subscription, so that the next Try has it. Nothing may ever come where the server's rules forbid to
// subscribe, or scripts to publish.
func (s *subscriber) enlist(ctx context.Context, c *claim, beforeTry bool) (grant driver.Grant, test bool) {
	if c.waiter == nil {
		if beforeTry && !s.inUse() {
			return grant, false
		}
		c.waiter = s.newWaiter(c.key, c.request)
	}
	w := c.waiter
	server, addr, err := s.master(ctx, w.channel) // without the mutex: it may ask the cluster
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[w.channel]
	if ch != nil && err == nil && addr != ch.conn.addr { // the old master may be unable to tell
		s.forget(w.channel, ch)
		ch = nil
	}
	if ch == nil && !beforeTry && err == nil && !s.closed {
		ch = s.open(w.channel, server, addr)
	}
	if w.ch = ch; ch != nil {
		ch.waiters[w.owner] = w
	}
	confirmed := ch != nil && ch.state.Load() != subscribing
	if !beforeTry {
		if w.asleep = w.relies(); confirmed && !w.listens {
			w.notify() // confirmed since the Try
		}
		return grant, false
	}
	select {
	case <-w.wake:
		w.asleep = false
	default:
	}
	// When a grant is no longer fresh, another Try renews it.
	if w.grant.Token != 0 && time.Until(w.grant.Sent.Add(w.grant.TTL)) > w.ttl*3/4 {
		return w.grant, false
	}
	w.number.Store(0) // what comes during the request may be over when that is answered
	w.listens, w.sent, w.grant = confirmed, time.Now(), driver.Grant{}
	if confirmed && ch.state.Load() == unproven && time.Since(ch.tested) >= testEvery {
		ch.tested, test = time.Now(), true
	}
	return grant, test
}

// retire ends what enlist has begun. If w was granted its name and not told, though
// it relied on that, its channel is tested anew. The holder may just have died; but the subscription
// may also be at a server that hangs and is no master any more, and then the next waiters
// must not rely on it.
func (s *subscriber) retire(w *waiter, granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := w.ch
	if ch == nil {
		return
	}
	if granted && w.asleep && ch.state.CompareAndSwap(proven, unproven) {
		ch.tested = time.Time{}
	}
	delete(ch.waiters, w.owner)
	ch.used = time.Now()
}

// inUse reports whether anybody has waited lately.
func (s *subscriber) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.channels) > 0
}

// master returns the server of a channel.
func (s *subscriber) master(ctx context.Context, name string) (server redis.UniversalClient, addr string, err error) {
	if s.cluster == nil {
		return s.client, "", nil
	}
	m, err := s.cluster.MasterForKey(ctx, name)
	if err != nil {
		return nil, "", err // the next Try says what is wrong
	}
	return m, m.Options().Addr, nil
}

// forget removes a channel and wakes its waiters; s.mu is held.
func (s *subscriber) forget(name string, ch *channel) {
	delete(s.channels, name)
	ch.state.Store(broken)
	for _, w := range ch.waiters {
		w.notify()
	}
}

// open starts to subscribe at the server, on an existing connection or a new one; s.mu is held.
func (s *subscriber) open(name string, server redis.UniversalClient, addr string) *channel {
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
			s.fail(c, err)
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
