package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
)

const (
	// quiet is after how long without a message a connection is checked, and
	// closed if nobody has needed it for as long.
	quiet = 30 * time.Second

	// A connection that did not get as far as to a subscription is given up after
	// minPause, the next after twice that, up to maxPause.
	minPause = 50 * time.Millisecond
	maxPause = 30 * time.Second

	// deafPoll is how often, on average, a claim looks that has no subscription.
	deafPoll = 100 * time.Millisecond
)

// bell listens for wake-ups on behalf of the waiting claims of one Locker. A claim
// leaves its channel with its place in the queue, and the scripts publish there the
// owner whose turn it is.
//
// Messages get lost when a connection breaks, so a wake-up is a hint. A claim is also
// woken when its subscription has been confirmed, to look for what came before, and
// when the connection is lost. It then tries again, and joins again, and that
// subscribes anew: there is no other repair.
//
// A single server, also one behind Sentinel, needs one connection and one channel
// for all names. On a cluster it is a connection to each server that has names to
// wait for, and a channel per name, because a sharded message goes to one slot and
// does not leave its server. The connections are there while somebody waits, and
// half a minute longer. They are beside the client's pool, not out of it.
type bell struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the client, if it is one of a cluster
	logger  *slog.Logger
	id      string         // of the Locker, in the names of its channels
	home    string         // the channel, where there is one for all names
	running sync.WaitGroup // the goroutines

	mu       sync.Mutex
	channels map[string]*channel
	lines    map[string]*line // by address; "" where there is one server
	failures int              // connections in a row that were of no use
	closed   bool
}

// channel is one subscription.
type channel struct {
	line   *line
	heard  bool              // it has been confirmed
	claims map[string]*claim // by owner
	used   time.Time         // when the last claim left, or the channel was made
}

// line is one connection.
type line struct {
	addr   string
	pubsub *redis.PubSub
	ctx    context.Context // ends when the line is dropped
	cancel context.CancelFunc
}

func newBell(d *driver, logger *slog.Logger) *bell {
	id := rand.Text()
	return &bell{
		client:   d.client,
		cluster:  d.cluster,
		logger:   logger,
		id:       id,
		home:     d.prefix + "wake:" + id,
		channels: make(map[string]*channel),
		lines:    make(map[string]*line),
	}
}

// channelFor returns the channel on which the claims on a name are woken.
func (b *bell) channelFor(k key) string {
	if b.cluster == nil {
		return b.home
	}
	return k.entry() + ":wake:" + b.id // in the slot of the name
}

// listening reports whether c is sure to be woken by what is published on its channel
// from now on. It is called before the Try that leaves the channel in the queue; that
// Try sees all that c was woken for before.
func (b *bell) listening(c *claim) bool {
	if c.wake != nil {
		select {
		case <-c.wake:
		default:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ch := b.channels[c.channel]
	if ch == nil || !ch.heard {
		return false
	}
	ch.add(c)
	return true
}

// join sees to it that c is woken: by what is published on its channel, if it has
// left that in the queue; else by the confirmation of the subscription, so that it
// does. It reports false if the subscription is not confirmed: it may never be, where
// the server's rules forbid it.
func (b *bell) join(ctx context.Context, c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ch := b.channels[c.channel]
	if ch == nil {
		if ch = b.open(ctx, c.channel); ch == nil {
			return false
		}
	}
	ch.add(c)
	if ch.heard && !c.listens {
		c.ring() // confirmed since the Try
	}
	return ch.heard
}

// offer notes that c has a place in the queue by its latest Try, which was sent then. What
// it had been granted before that is over, or it would not wait.
func (b *bell) offer(c *claim, sent time.Time) {
	if c.wake == nil {
		return // it has not listened yet
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.offer = nil
	if c.listens {
		c.offer = &offer{number: c.tries, sent: sent}
	}
}

// granted returns what c has been granted while it waited, or a Grant without a token.
func (b *bell) granted(c *claim) distlock.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.offer == nil {
		return distlock.Grant{}
	}
	return c.offer.grant
}

// leave ends what listening and join have begun.
func (b *bell) leave(c *claim) {
	if c.wake == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if ch := b.channels[c.channel]; ch != nil {
		delete(ch.claims, c.request.Owner)
		ch.used = time.Now()
	}
	c.wake, c.offer = nil, nil // a held lock does not need them
}

// open starts to subscribe, on a connection that is there or a new one; b.mu is
// held. It returns nil if that cannot be.
func (b *bell) open(ctx context.Context, name string) *channel {
	if b.closed {
		return nil
	}
	server, addr := b.client, ""
	if b.cluster != nil {
		master, err := b.cluster.MasterForKey(ctx, name)
		if err != nil {
			return nil // the next Try says what is wrong
		}
		server, addr = master, master.Options().Addr
	}
	l := b.lines[addr]
	if l == nil {
		l = &line{addr: addr}
		l.ctx, l.cancel = context.WithCancel(context.Background())
		l.pubsub = server.Subscribe(l.ctx) // to nothing yet; it connects when it is used
		b.lines[addr] = l
		b.running.Go(func() { b.listen(l) })
	}
	ch := &channel{line: l, claims: make(map[string]*claim), used: time.Now()}
	b.channels[name] = ch
	subscribe := l.pubsub.Subscribe
	if b.cluster != nil {
		subscribe = l.pubsub.SSubscribe
	}
	// Not here, because it may have to wait for the connection. If that fails it
	// fails for listen as well.
	b.running.Go(func() { _ = subscribe(l.ctx, name) })
	return ch
}

// listen receives on one connection until that is lost, or dropped.
func (b *bell) listen(l *line) {
	defer b.drop(l)
	checked, swept := false, time.Now()
	for {
		msg, err := l.pubsub.ReceiveTimeout(l.ctx, quiet)
		var silence net.Error
		if !checked && errors.As(err, &silence) && silence.Timeout() {
			checked = true
			err = l.pubsub.Ping(l.ctx)
		} else {
			checked = false
		}
		if err != nil {
			b.pause(l, err)
			return
		}
		b.deliver(l, msg)
		if time.Since(swept) >= quiet {
			swept = time.Now()
			if !b.sweep(l) {
				return
			}
		}
	}
}

// pause waits, unless l was of use, so that what made it fail has time to pass.
func (b *bell) pause(l *line, err error) {
	b.mu.Lock()
	for _, ch := range b.channels {
		if ch.line == l && ch.heard {
			b.mu.Unlock()
			return
		}
	}
	if l.ctx.Err() == nil && b.failures == 0 {
		b.logger.Warn("cannot subscribe to wake-ups, waiting calls have to poll", "error", err)
	}
	d := min(minPause<<min(b.failures, 10), maxPause)
	b.failures++
	b.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
}

func (b *bell) deliver(l *line, msg any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch m := msg.(type) {
	case *redis.Message:
		owner, grant, _ := strings.Cut(m.Payload, " ")
		if ch := b.channels[m.Channel]; ch != nil && ch.claims[owner] != nil {
			c := ch.claims[owner]
			c.accept(grant)
			c.ring()
		}
	case *redis.Subscription:
		ch := b.channels[m.Channel]
		if ch == nil || ch.line != l {
			return
		}
		if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
			ch.heard, b.failures = true, 0
		} else {
			delete(b.channels, m.Channel) // the slot has moved to another server
		}
		ch.ringAll()
	}
}

// sweep ends the subscriptions of l that nobody has needed for a while. It reports
// whether any is left.
func (b *bell) sweep(l *line) bool {
	var old []string
	left := false
	b.mu.Lock()
	for name, ch := range b.channels {
		switch {
		case ch.line != l:
		case len(ch.claims) == 0 && time.Since(ch.used) >= quiet:
			old = append(old, name)
			delete(b.channels, name)
		default:
			left = true
		}
	}
	b.mu.Unlock()
	// Only a cluster has more than one to a connection.
	return left && (len(old) == 0 || l.pubsub.SUnsubscribe(l.ctx, old...) == nil)
}

// drop closes a connection and wakes who relied on it.
func (b *bell) drop(l *line) {
	b.mu.Lock()
	if b.lines[l.addr] != l {
		b.mu.Unlock()
		return // has been dropped
	}
	delete(b.lines, l.addr)
	for name, ch := range b.channels {
		if ch.line == l {
			delete(b.channels, name)
			ch.ringAll()
		}
	}
	b.mu.Unlock()
	l.cancel() // ends an attempt to connect, for which Close would wait
	_ = l.pubsub.Close()
}

// close returns when nothing is left running.
func (b *bell) close() {
	b.mu.Lock()
	b.closed = true
	lines := make([]*line, 0, len(b.lines))
	for _, l := range b.lines {
		lines = append(lines, l)
	}
	b.mu.Unlock()
	for _, l := range lines {
		b.drop(l)
	}
	b.running.Wait()
}

func (ch *channel) add(c *claim) {
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	ch.claims[c.request.Owner] = c
}

func (ch *channel) ringAll() {
	for _, c := range ch.claims {
		c.ring()
	}
}

// accept takes in the grant "<token> <number> <waited>", if it is by the latest Try that
// is known to have been answered: by an earlier one it may be over, and the next Try
// tells. The lease began waited ms after that Try was run, by the server's clock. If
// that has jumped forward, what this machine measured is less.
func (c *claim) accept(grant string) {
	part := strings.Split(grant, " ")
	if len(part) != 3 {
		return
	}
	token, err1 := strconv.ParseInt(part[0], 10, 64)
	number, err2 := strconv.Atoi(part[1])
	waited, err3 := strconv.ParseUint(part[2], 10, 31)
	if errors.Join(err1, err2, err3) != nil || token <= 0 || c.offer == nil || number != c.offer.number {
		return
	}
	ttl := time.Duration(millis(c.request.TTL)+int64(waited)) * time.Millisecond
	c.offer.grant = distlock.Grant{
		Token: token,
		TTL:   min(ttl, c.request.TTL+time.Since(c.offer.sent)),
		Sent:  c.offer.sent,
	}
}

// ring wakes the claim, or keeps the wake-up for its next Wait.
func (c *claim) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
