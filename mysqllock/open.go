package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
)

const (
	defaultConns     = 16
	maxConns         = 10_000
	defaultWaitConns = 8
	maxWaitConns     = 1000
	idleTime         = time.Minute      // after which a connection is closed; servers and firewalls do so after longer
	dialTimeout      = 5 * time.Second  // by default; bounds all that it takes to have a connection
	checkTimeout     = 10 * time.Second // of what New asks the server
)

// Open returns a Locker with connections of its own, closed by Close, for a URL
//
//	mysql://user:password@host:port/schema?table=locks&create=true
//
// or mysqls:// for TLS. Parameters are table, create, max_conns, wait_conns,
// dial_timeout, ttl, holder, token_base and those of TLS; one that contradicts o is an
// error. A server that cannot be reached, or a table that
// cannot be used, fails here; ctx bounds that.
func Open(ctx context.Context, rawURL string, o *Options) (_ *Locker, err error) {
	defer func() { err = openurl.Named(rawURL, err) }()
	config, opts, err := parseURL(rawURL, o)
	if err != nil {
		return nil, opened(err)
	}
	return openConfig(ctx, config, opts)
}

// parseURL reads a URL. What it says in contradiction to the options, Merge finds.
func parseURL(rawURL string, o *Options) (*mysql.Config, Options, error) {
	opts := *cmp.Or(o, new(Options))
	u, err := openurl.Parse(rawURL, "mysql", "mysqls")
	if err != nil {
		return nil, opts, err
	}
	u.Common(&opts.Options)
	openurl.Merge(u, "table", u.Text("table", DefaultTable), &opts.Table)
	openurl.Merge(u, "max_conns", u.Int("max_conns", defaultConns, 1, maxConns), &opts.MaxConns)
	waitConns := u.Int("wait_conns", defaultWaitConns, 0, maxWaitConns)
	if waitConns == 0 {
		waitConns = -1 // none, in the options
	}
	openurl.Merge(u, "wait_conns", waitConns, &opts.WaitConns)
	openurl.Merge(u, "create", u.Bool("create", false), &opts.Create)
	config := mysql.NewConfig()
	config.Timeout = u.Duration("dial_timeout", dialTimeout, time.Millisecond, time.Minute)
	config.TLS = u.TLS()
	config.DBName = strings.TrimPrefix(u.Path(), "/")
	config.User, config.Passwd, _ = u.User()
	hosts := u.HostsDefault("3306")
	if err := u.Err(); err != nil {
		return nil, opts, err
	}
	if len(hosts) != 1 {
		return nil, opts, fmt.Errorf("%w: the URL %s names %d hosts, allowed is one", distlock.ErrInvalid, u, len(hosts))
	}
	config.Net, config.Addr = "tcp", hosts[0]
	return config, opts, nil
}

// OpenDSN is Open for a DSN of github.com/go-sql-driver/mysql, for what a URL
// cannot say, such as a socket: "user:password@unix(/run/mysqld.sock)/schema".
func OpenDSN(ctx context.Context, dsn string, o *Options) (*Locker, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		// The parser's error may quote any part of the DSN, also the password.
		return nil, opened(fmt.Errorf("%w: the DSN is not one that github.com/go-sql-driver/mysql can parse", distlock.ErrInvalid))
	}
	return openConfig(ctx, config, *cmp.Or(o, new(Options)))
}

// openConfig makes the pools. Connections are opened when they are needed.
func openConfig(ctx context.Context, config *mysql.Config, o Options) (*Locker, error) {
	if o.WaitDB != nil {
		return nil, opened(fmt.Errorf("%w: WaitDB is set, allowed for New alone", distlock.ErrInvalid))
	}
	if err := o.check(nil); err != nil {
		return nil, opened(err)
	}
	if config.DBName == "" && !strings.Contains(o.Table, ".") {
		return nil, opened(fmt.Errorf("%w: %s", distlock.ErrInvalid, noSchema))
	}
	connector, err := newConnector(config)
	if err != nil {
		return nil, opened(fmt.Errorf("%w: %w", distlock.ErrInvalid, err))
	}
	d := &store{db: newPool(connector, cmp.Or(o.MaxConns, defaultConns))}
	own := newPool(connector, renewConns)
	d.renewals = newRenewals(own, d.db, renewConns)
	d.pools = []*sql.DB{d.db, own}
	if o.WaitConns >= 0 {
		o.WaitDB = newPool(connector.patient(), cmp.Or(o.WaitConns, defaultWaitConns)+1)
		d.pools = append(d.pools, o.WaitDB)
	}
	return open(ctx, d, &o, config.Timeout+checkTimeout)
}

// check refuses forbidden options; db is the pool of New.
func (o *Options) check(db *sql.DB) error {
	switch {
	case o.MaxConns < 0 || o.MaxConns > maxConns:
		return fmt.Errorf("%w: MaxConns is %d, allowed are 1 to %d", distlock.ErrInvalid, o.MaxConns, maxConns)
	case o.WaitConns > maxWaitConns:
		return fmt.Errorf("%w: WaitConns is %d, allowed are up to %d", distlock.ErrInvalid, o.WaitConns, maxWaitConns)
	case o.WaitDB != nil && o.WaitDB == db:
		return fmt.Errorf("%w: WaitDB is the pool itself, it must be another", distlock.ErrInvalid)
	}
	return nil
}

// open returns a Locker on a store that has its pools. It closes the pools if it fails.
func open(ctx context.Context, d *store, o *Options, limit time.Duration) (_ *Locker, err error) {
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	if err := d.prepare(o); err != nil {
		return nil, err
	}
	if err := driver.Bounded(ctx, "the server", limit, func(ctx context.Context) error { return d.start(ctx, o.Create) }); err != nil {
		return nil, opened(err)
	}
	c, err := driver.New(d, &o.Options) // last: it asks once for what its driver can do
	if err != nil {
		return nil, err
	}
	return &Locker{c}, nil
}

// prepare makes what the store needs besides its pools, and has the options checked before the
// server is asked.
func (d *store) prepare(o *Options) error {
	var err error
	if d.sql, err = newStatements(cmp.Or(o.Table, DefaultTable)); err != nil {
		return opened(err)
	}
	if o.WaitDB != nil && o.WaitConns >= 0 {
		limit, renewing := cmp.Or(o.WaitConns, defaultWaitConns), 0
		if d.renewals != nil && d.renewals.db == o.WaitDB {
			renewing = renewShare(o.WaitDB)
		}
		if open := o.WaitDB.Stats().MaxOpenConnections; open > 0 {
			limit = max(min(limit, open-1-renewing), 0) // one has the named locks that need no connection of their own
		}
		d.locks = newNamedLocks(o.WaitDB, d.sql, limit)
		d.locks.lent = d.lent
	}
	d.log = o.Logger
	return driver.CheckOptions(d, &o.Options)
}
