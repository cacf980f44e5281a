package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/turns"
)

// DefaultTable is the table where Options name none.
const DefaultTable = "distlock"

const (
	defaultConns = 16
	maxConns     = 10_000
	renewConns   = 3                // for renewals alone: batches that are sent side by side have one each
	idleTime     = time.Minute      // after which a connection is closed; servers and firewalls do so after longer
	dialTimeout  = 5 * time.Second  // by default
	renewDial    = time.Second      // at the most, to connect for renewals: no lock can wait for longer, and the place is needed
	unasked      = time.Second      // for which a connection may be idle and is used without that question
	pingTimeout  = time.Second      // of the question to a connection that was idle whether it lives
	checkTimeout = 10 * time.Second // of what New asks the server
)

// rowWait is for how long a statement waits for a row that is locked, or the table, before it is undone and the
// engine asks again. A connection is busy meanwhile.
const rowWait = 100 * time.Millisecond

// Open returns a Locker with connections of its own, closed by Close, for a URL
//
//	postgres://user:password@host:port/database?table=locks&create=true
//
// Parameters are table, create, max_conns, dial_timeout, ttl, holder, token_base and those of TLS;
// one that contradicts o is an error. Of several hosts, host:port,host:port, it takes the one that
// accepts writes. A server that cannot be reached, or a table that cannot be used, fails here; ctx
// bounds that. Behind a pooler, such as PgBouncer, waiters poll.
func Open(ctx context.Context, rawURL string, o *Options) (_ *Locker, err error) {
	defer func() { err = openurl.Named(rawURL, err) }()
	config, opts, err := parseURL(rawURL, *cmp.Or(o, new(Options)))
	if err != nil {
		return nil, opened(err)
	}
	if n := opts.MaxConns; n < 0 || n > maxConns {
		return nil, opened(fmt.Errorf("%w: MaxConns is %d, allowed are 1 to %d", distlock.ErrInvalid, n, maxConns))
	}
	return openOwn(ctx, config, opts)
}

// openOwn returns a Locker with pools of its own.
func openOwn(ctx context.Context, config *pgxpool.Config, opts Options) (*Locker, error) {
	d := &store{own: true}
	config.MaxConns, config.MaxConnIdleTime = int32(cmp.Or(opts.MaxConns, defaultConns)), idleTime
	config.PingTimeout = cmp.Or(config.PingTimeout, pingTimeout)
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		asks := p.IdleDuration > unasked || ctx.Value(probed{}) != nil
		if asks {
			d.watch(ctx, p.Conn, config.PingTimeout)
		}
		return asks
	}
	config.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { d.answered(c); return true, nil }
	d.closeQuickly(config)
	config.AfterConnect, config.ConnConfig.OnNotice = settle, noteUnconfirmed
	if err := d.connect(config); err != nil {
		_ = d.Close()
		return nil, opened(err)
	}
	return open(ctx, d, opts, config.ConnConfig.ConnectTimeout+checkTimeout)
}

func parseURL(rawURL string, opts Options) (*pgxpool.Config, Options, error) {
	u, err := openurl.Parse(rawURL, "postgres", "postgresql")
	if err != nil {
		return nil, opts, err
	}
	u.Common(&opts.Options)
	openurl.Merge(u, "table", u.Text("table", DefaultTable), &opts.Table)
	openurl.Merge(u, "max_conns", u.Int("max_conns", defaultConns, 1, maxConns), &opts.MaxConns)
	openurl.Merge(u, "create", u.Bool("create", false), &opts.Create)
	timeout := u.Duration("dial_timeout", dialTimeout, time.Millisecond, time.Minute)
	secure, hosts := u.TLS(), u.HostsDefault("5432")
	if err := u.Err(); err != nil {
		return nil, opts, err
	}
	plain := url.URL{Scheme: "postgres", Host: strings.Join(hosts, ","), Path: u.Path(), RawQuery: urlAlone}
	if name, password, ok := u.User(); ok {
		plain.User = url.UserPassword(name, password)
	}
	if len(hosts) > 1 {
		plain.RawQuery += "&target_session_attrs=read-write"
	}
	config, err := pgxpool.ParseConfig(plain.String())
	if err == nil && strings.Trim(u.Path(), "/") == "" { // ~/.pgpass is asked by the name of the database
		plain.Path = "/" + config.ConnConfig.User
		config, err = pgxpool.ParseConfig(plain.String())
	}
	if err != nil { // its text may quote the password
		return nil, opts, fmt.Errorf("%w: pgx cannot parse the URL %s, or what PGSERVICE, PGPASSFILE or PGSSLROOTCERT names", distlock.ErrInvalid, u)
	}
	c := config.ConnConfig
	fromURL(c, strings.TrimPrefix(u.Path(), "/"))
	if len(hosts) == 1 {
		// Else each address of the host, such as the two of localhost, would have dial_timeout for itself. The dialer
		// gives each address a part of it.
		c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
		c.ValidateConnect = nil // of several, the URL says that it wants the one that accepts writes
	}
	c.ConnectTimeout = timeout
	if secure != nil {
		c.TLSConfig = secure.Clone()
		c.TLSConfig.ServerName = cmp.Or(secure.ServerName, c.Host)
		for _, f := range c.Fallbacks {
			f.TLSConfig = secure.Clone()
			f.TLSConfig.ServerName = cmp.Or(secure.ServerName, f.Host)
		}
	}
	return config, opts, nil
}

// urlAlone has for the library what it would take from the environment, and cannot be undone or would fail there.
const urlAlone = "sslmode=disable&sslcertmode=allow&channel_binding=prefer&require_auth=&min_protocol_version=3.0&max_protocol_version=3.0"

// fromURL undoes what the library has taken from the environment and from files, such as PGOPTIONS with another search_path:
// two processes with one URL must have one table. The user and the password, by PGUSER, PGPASSWORD and ~/.pgpass, stay.
func fromURL(c *pgx.ConnConfig, database string) {
	c.RuntimeParams = map[string]string{"application_name": "distlock"}
	c.Database = cmp.Or(database, c.User)
	c.TLSConfig, c.SSLNegotiation = nil, ""
	for _, f := range c.Fallbacks {
		f.TLSConfig = nil
	}
}

// connect makes the pools.
func (d *store) connect(config *pgxpool.Config) (err error) {
	renewals := config.Copy()
	// No renewal has time to prepare a statement or to ask first whether the connection lives, and the first none to dial.
	renewals.MaxConns, renewals.MinConns, renewals.ConnConfig.DefaultQueryExecMode = renewConns, 1, pgx.QueryExecModeExec
	renewals.ConnConfig.ConnectTimeout = min(renewals.ConnConfig.ConnectTimeout, renewDial)
	renewals.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > idleTime }
	if d.pool, err = pgxpool.NewWithConfig(context.Background(), config); err == nil {
		d.renewals, err = pgxpool.NewWithConfig(context.Background(), renewals)
	}
	return err
}

// watch closes the idle connections of the pool just before the limit of one that is asked whether it lives, and says nothing:
// all may be dead, as after a fault of the network, and to ask each takes limit. So the next is a new one.
func (d *store) watch(ctx context.Context, c *pgx.Conn, limit time.Duration) {
	silence, answered := context.WithTimeout(ctx, limit*9/10)
	d.asked.Store(c, answered)
	context.AfterFunc(silence, func() {
		if errors.Is(silence.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
			d.pool.Reset()
		}
	})
}

// answered is called once a connection has answered, or is closed.
func (d *store) answered(c *pgx.Conn) {
	if f, asked := d.asked.LoadAndDelete(c); asked {
		f.(context.CancelFunc)()
	}
}

// settle bounds also the waits for the table itself, which a statement begins before it runs, and takes the isolation that
// the statements are made for. A session that is a pooler's may be another's next: it stays as it is.
// The server notices within half a minute that a client is gone: rows that were locked by half a request are free then.
//
// A server that goes silent just after the login must not keep the connection's place in the pool. The pool's own context
// ends with the pool alone. So the answer has as long as the connection had.
func settle(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, c.Config().ConnectTimeout)
	defer cancel()
	_, err := c.Exec(ctx, "SELECT set_config('lock_timeout', $1, false), set_config('default_transaction_isolation', 'read committed', false),"+
		" set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false)"+
		" WHERE pg_backend_pid() = $2::bigint", pgx.QueryExecModeExec, strconv.FormatInt(rowWait.Milliseconds(), 10), int64(c.PgConn().PID()))
	cut(c)
	return err
}

// closeQuickly has a pool close connections at once. The library asks the server to cancel a request that was given up, and
// sends Terminate: at a silent server for 15 seconds, in which nobody else has the connection's place in the pool. Of one that
// the pool closes, Close waits for that, so it has a second.
func (d *store) closeQuickly(config *pgxpool.Config) {
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		cancelNothing(c)
		return nil
	}
	config.BeforeClose = func(c *pgx.Conn) {
		d.answered(c)
		cut(c)
		_ = c.PgConn().Conn().SetDeadline(time.Now().Add(pingTimeout))
	}
}

// cancelNothing keeps one connection that is made by a config from asking for a cancel later.
func cancelNothing(c *pgx.ConnConfig) {
	var connected atomic.Bool
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("nothing is cancelled: a statement that waits for a lock gives up soon")
		}
		return dial(ctx, network, addr)
	}
	c.AfterConnect = func(context.Context, *pgconn.PgConn) error { connected.Store(true); return nil }
}

// cut ends what the library goes on with in the background once it has closed a connection.
func cut(c *pgx.Conn) {
	if c.IsClosed() {
		_ = c.PgConn().Conn().Close()
	}
}

// Close gives back what the store has on the server.
func (d *store) Close() error {
	if d.listener != nil {
		d.listener.close()
	}
	d.disconnect()
	return nil
}

func (d *store) disconnect() {
	for _, pool := range []*pgxpool.Pool{d.pool, d.renewals} {
		if d.own && pool != nil {
			pool.Close()
		}
	}
}

// open returns a Locker on a store that has its pools. It closes them if it fails.
func open(ctx context.Context, d *store, o Options, limit time.Duration) (_ *Locker, err error) {
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	o.Table = cmp.Or(o.Table, DefaultTable)
	if err := driver.CheckOptions(d, &o.Options); err != nil {
		return nil, err
	}
	d.turns = turns.New(int(d.pool.Config().MaxConns), rowWait, func(err error) bool { return hasCode(err, rowLocked) })
	d.turns.OnlyBlocked = true // rowWait is short, and where the server is far, one TryLock of a name after the other would be few
	if err := driver.Bounded(ctx, "the server", limit, func(ctx context.Context) error { return d.start(ctx, &o) }); err != nil {
		return nil, opened(err)
	}
	c, err := driver.New(d, &o.Options) // last: it asks once for what its driver can do
	if err != nil {
		return nil, err
	}
	return &Locker{c}, nil
}
