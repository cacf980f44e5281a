package zklock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// Open returns a Locker on connections of its own. Close closes them, and with them
// their sessions:
//
//	zk://[user:password@]host[:2181][,host...][/prefix][?parameter=value&...]
//
// The scheme zks means TLS. The parameters are ttl, holder, token_base, session_timeout, tick_time,
// dial_timeout, acl, tls and the tls_ ones. acl is world or creator; with creator, only this
// user may touch the nodes. If both o and rawURL give a value, the two must be the
// same.
//
// Open connects before it returns. It fails with distlock.ErrInvalid for a wrong URL or
// option. If it can reach no server, it fails with the library's error, such as
// zk.ErrNoServer, and the reason. It fails with the error of ctx if that ends; ctx
// bounds this call alone.
func Open(ctx context.Context, rawURL string, o *Options) (_ *Locker, err error) {
	defer func() { err = openurl.Named(rawURL, err) }()
	d, err := parse(rawURL, o)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, opened(err)
	}
	if err := d.open(ctx); err != nil {
		d.closeAll(0)
		return nil, opened(err)
	}
	return newLocker(d)
}

func opened(err error) error { return &distlock.Error{Op: "open zookeeper", Err: err} }

// open makes the session for the Locker's own TTL, and finds out what the servers
// grant. They shorten a timeout above their limit, and lengthen one below it. They
// tell their limits in no other way. So if the first session came as asked for, a
// second one asks for the longest, and is closed.
func (d *store) open(ctx context.Context) error {
	o := d.opts
	d.longest = cmp.Or(o.SessionTimeout, maxSession)
	tick := cmp.Or(o.TickTime, defaultTick)
	d.main = d.classOf(min(sessionOf(cmp.Or(o.TTL, distlock.DefaultTTL), tick), d.longest))
	d.main.keep = true
	s, err := d.main.use(ctx, 0)
	if err != nil {
		return err
	}
	granted := s.conn.Timeout()
	if granted < d.main.ask || granted >= d.longest {
		d.longest = granted
	} else {
		probe := d.classOf(d.longest)
		s, err := probe.use(ctx, 0)
		if err != nil {
			return err
		}
		d.longest = s.conn.Timeout()
		probe.leave(0)
		probe.closeIdle()
	}
	d.ttl = min(d.defaultTTL(), longestTTL(d.longest, tickOf(o.TickTime, d.longest)))
	d.mainTTL = longestTTL(granted, tickOf(o.TickTime, granted))
	d.declare(d.longest)
	return nil
}

const (
	defaultPort = "2181"
	defaultDial = 5 * time.Second
	maxSession  = 24 * time.Hour
)

// parse returns a store as a URL and options together say, not yet connected.
func parse(rawURL string, o *Options) (*store, error) {
	u, err := openurl.Parse(rawURL, "zk", "zks")
	if err != nil {
		return nil, err
	}
	opts := *cmp.Or(o, new(Options))
	u.Common(&opts.Options)
	openurl.Merge(u, "prefix", strings.TrimSuffix(u.Path(), "/"), &opts.Prefix)
	openurl.Merge(u, "session_timeout", u.Duration("session_timeout", 0, time.Millisecond, maxSession), &opts.SessionTimeout)
	openurl.Merge(u, "tick_time", u.Duration("tick_time", 0, time.Millisecond, time.Minute), &opts.TickTime)
	target := &wire.Target{Hosts: u.HostsDefault(defaultPort), Lookup: net.DefaultResolver.LookupHost, Dial: new(net.Dialer).DialContext,
		TLS: u.TLS(), DialTimeout: u.Duration("dial_timeout", defaultDial, time.Millisecond, time.Minute)}
	name, password, login := u.User()
	creator := u.OneOf("acl", "world", "creator") == "creator"
	if err := u.Err(); err != nil {
		return nil, err
	}
	if creator {
		if !login || password == "" || opts.ACL != nil {
			return nil, fmt.Errorf("%w: the URL %s: acl=creator needs a user and a password, and no ACL in the options", distlock.ErrInvalid, u)
		}
		opts.ACL = zk.AuthACL(zk.PermAll)
	}
	if opts, err = opts.checked(); err != nil {
		return nil, err
	}
	d := newStore(opts)
	if login {
		d.auth = name + ":" + password
	}
	target.Logger, target.Lease = opts.Logger, d.lease
	d.target = target
	return d, nil
}

// checked returns o with the defaults that need no server, or an ErrInvalid.
func (o *Options) checked() (Options, error) {
	out := *cmp.Or(o, new(Options))
	out.Prefix = cmp.Or(out.Prefix, DefaultPrefix)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	if out.ACL == nil {
		out.ACL = zk.WorldACL(zk.PermAll)
	}
	switch p := out.Prefix; {
	case p[0] != '/' || path.Clean(p) != p || p == "/":
		return out, fmt.Errorf("%w: the prefix is %q, allowed is a path like %q", distlock.ErrInvalid, p, DefaultPrefix)
	case out.SessionTimeout < 0 || out.TickTime < 0 || out.TickTime > 0 && out.TickTime < time.Millisecond:
		return out, fmt.Errorf("%w: the session timeout is %v and the tick %v, allowed is 0 or more, and for the tick 0 or a millisecond and more",
			distlock.ErrInvalid, out.SessionTimeout, out.TickTime)
	}
	return out, nil
}
