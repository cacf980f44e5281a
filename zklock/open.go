package zklock

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

// Open returns a Locker on a connection of its own, which Close closes, and with
// it the session:
//
//	zk://[user:password@]host[:2181][,host...][/prefix][?parameter=value&...]
//
// The scheme zks means TLS. The parameters are ttl, holder, session_timeout,
// tick_time, dial_timeout, acl (world, or creator: only this user may touch the
// nodes) and the tls_ ones; what both o and rawURL give must be the same.
//
// It connects before it returns. It fails with distlock.ErrInvalid for a wrong URL
// or option, also for a TTL that is too long for the session the servers grant;
// with the library's error, such as zk.ErrNoServer, if no server can be reached;
// or with the error of ctx, which bounds this call alone.
func Open(ctx context.Context, rawURL string, o *Options) (*Locker, error) {
	t, opts, err := parse(rawURL, o)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, opened(err)
	}
	l := &link{tls: t.tls, limit: t.dial}
	l.life, l.end = context.WithCancel(context.Background())
	conn, events, err := zk.Connect(t.hosts, opts.session(),
		zk.WithDialer(l.dial), zk.WithHostProvider(&rota{}), zk.WithLogger(debugLog{opts.Logger}))
	if err != nil {
		return nil, opened(err)
	}
	l.events = events
	if _, err := await(ctx, make(turn, 1), func() (struct{}, error) { return struct{}{}, t.check(conn) }); err != nil {
		l.close(conn)
		return nil, opened(err)
	}
	locker, err := newLocker(&driver{conn: conn, granted: l.granted, close: func() { l.close(conn) }}, opts)
	if err != nil {
		l.close(conn)
	}
	return locker, err
}

// target is what a URL says beyond the options.
type target struct {
	hosts []string
	tls   *tls.Config
	dial  time.Duration
	auth  string // user:password
}

// check makes the first requests of a connection.
func (t *target) check(conn *zk.Conn) error {
	if t.auth != "" {
		if err := conn.AddAuth("digest", []byte(t.auth)); err != nil {
			return err
		}
	}
	_, _, err := conn.Exists("/")
	return err
}

const (
	defaultPort = "2181"
	defaultDial = 5 * time.Second
	maxSession  = 24 * time.Hour
)

func parse(rawURL string, o *Options) (*target, Options, error) {
	u, err := openurl.Parse(rawURL, "zk", "zks")
	if err != nil {
		return nil, Options{}, err
	}
	var opts Options
	if o != nil {
		opts = *o
	}
	u.Common(&opts.Options)
	t := &target{
		hosts: u.HostsDefault(defaultPort),
		tls:   u.TLS(),
		dial:  u.Duration("dial_timeout", defaultDial, time.Millisecond, time.Minute),
	}
	name, password, login := u.User()
	if login {
		t.auth = name + ":" + password
	}
	err = cmp.Or(
		either(u, "prefix", strings.TrimSuffix(u.Path(), "/"), &opts.Prefix),
		either(u, "session_timeout", u.Duration("session_timeout", 0, time.Millisecond, maxSession), &opts.SessionTimeout),
		either(u, "tick_time", u.Duration("tick_time", 0, time.Millisecond, time.Minute), &opts.TickTime))
	if u.OneOf("acl", "world", "creator") == "creator" {
		if !login || opts.ACL != nil {
			err = cmp.Or(err, fmt.Errorf("%w: the URL %s: acl=creator needs a user, and no ACL in the options",
				distlock.ErrInvalid, u))
		}
		opts.ACL = zk.AuthACL(zk.PermAll)
	}
	if err := cmp.Or(u.Err(), err); err != nil {
		return nil, opts, err
	}
	opts, err = opts.checked()
	return t, opts, err
}

// either sets an option to what the URL gives, if it does. Neither overrides the
// other silently.
func either[T comparable](u *openurl.URL, what string, inURL T, option *T) error {
	var none T
	if inURL != none && *option != none && inURL != *option {
		return fmt.Errorf("%w: the %s is %v in the URL %s and %v in the options",
			distlock.ErrInvalid, what, inURL, u, *option)
	}
	*option = cmp.Or(inURL, *option)
	return nil
}

// session returns the time-out to ask for: the lease of it is longer than the TTL
// by a third, if the servers grant it.
func (o *Options) session() time.Duration {
	ttl, tick := cmp.Or(o.TTL, distlock.DefaultTTL), cmp.Or(o.TickTime, defaultTick)
	return cmp.Or(o.SessionTimeout, min(2*ttl+tick*3/4, maxSession))
}

// link makes the connections of one session.
type link struct {
	tls    *tls.Config
	limit  time.Duration
	events <-chan zk.Event

	session atomic.Int64    // the time-out that was granted with the last connection
	life    context.Context // ends with the driver's
	end     context.CancelFunc
}

func (l *link) granted() time.Duration { return time.Duration(l.session.Load()) }

// dial is a zk.Dialer. The library's own limit of a second is too short for TLS
// over a long way.
func (l *link) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.life, l.limit)
	defer cancel()
	var (
		conn net.Conn
		err  error
	)
	if l.tls != nil {
		conn, err = (&tls.Dialer{Config: l.tls}).DialContext(ctx, network, addr)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
	}
	if err != nil {
		return nil, err
	}
	g := &greeting{Conn: conn, link: l}
	g.forget = context.AfterFunc(l.life, func() { conn.Close() })
	return g, conn.SetReadDeadline(time.Now().Add(l.limit))
}

// close ends the session and returns when nothing of the library runs any more.
// The library waits for a second, at the most, for the servers to confirm.
func (l *link) close(conn *zk.Conn) {
	conn.Close()
	l.end()
	for range l.events { // closed by the last goroutine of the library
	}
}

// greeting is a connection that reads along until the servers have answered the
// first request, the one for a session. Their answer names the time-out, which the
// library does not tell. Until then it also keeps to its own deadline: the library
// would give a server that accepts connections and says nothing seven sessions.
type greeting struct {
	net.Conn
	link   *link
	seen   []byte // of the answer: its length, a version, the time-out, the session's id, and more
	done   bool
	forget func() bool
}

// greetingHead is how much of the answer is of interest; more always follows.
const greetingHead = 4 + 4 + 4 + 8

// Read implements net.Conn.
func (g *greeting) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if !g.done {
		g.look(p[:n])
	}
	return n, err
}

func (g *greeting) look(p []byte) {
	g.seen = append(g.seen, p...)
	if len(g.seen) < greetingHead || len(g.seen) < 4+int(binary.BigEndian.Uint32(g.seen)) {
		return
	}
	if binary.BigEndian.Uint64(g.seen[12:]) != 0 { // 0: the session has expired
		timeout := time.Duration(binary.BigEndian.Uint32(g.seen[8:])) * time.Millisecond
		g.link.session.Store(int64(timeout))
	}
	g.done, g.seen = true, nil
}

// SetReadDeadline implements net.Conn.
func (g *greeting) SetReadDeadline(t time.Time) error {
	if !g.done {
		return nil
	}
	return g.Conn.SetReadDeadline(t)
}

// Close implements net.Conn.
func (g *greeting) Close() error {
	g.forget()
	return g.Conn.Close()
}

// rota is a zk.HostProvider that does not resolve names, so that each dial finds
// the address of the day, and that lets the library reconnect at once. The one of
// the library resolves only once, and with a single server it waits for a second
// before it reconnects.
type rota struct {
	mu    sync.Mutex
	hosts []string
	next  int
	tried int // since the last connection
}

// Init implements zk.HostProvider.
func (r *rota) Init(hosts []string) error {
	r.hosts = hosts
	return nil
}

// Len implements zk.HostProvider.
func (r *rota) Len() int { return len(r.hosts) }

// Next implements zk.HostProvider. When all have been tried, the library waits for
// a second, and fails what has queued up.
func (r *rota) Next() (host string, allTried bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	host = r.hosts[r.next%len(r.hosts)]
	if allTried = r.tried == len(r.hosts); allTried {
		r.tried = 0
	}
	r.next, r.tried = r.next+1, r.tried+1
	return host, allTried
}

// Connected implements zk.HostProvider.
func (r *rota) Connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = 0
}

// debugLog takes the messages of the library, which has but one level and puts
// them on standard error otherwise.
type debugLog struct{ *slog.Logger }

// Printf implements zk.Logger.
func (l debugLog) Printf(format string, args ...any) {
	if l.Logger != nil {
		l.Debug(fmt.Sprintf(format, args...))
	}
}
