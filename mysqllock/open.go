package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

const (
	defaultConns = 16
	maxConns     = 10_000
	idleTime     = time.Minute     // after which a connection is closed; servers and firewalls do so after longer
	dialTimeout  = 5 * time.Second // by default
)

// Open returns a Locker with connections of its own, closed by Close, for a URL
//
//	mysql://user:password@host:port/schema?table=locks&create=true
//
// or mysqls:// for TLS. Parameters are table, create, max_conns, doorbells,
// dial_timeout, ttl, holder and the TLS parameters of docs/config.md; one that
// contradicts o is an error. A server that cannot be reached, or a table that
// cannot be used, fails here; ctx bounds that.
func Open(ctx context.Context, rawURL string, o *Options) (*Locker, error) {
	config, opts, err := parseURL(rawURL, o)
	if err != nil {
		return nil, opened(err)
	}
	return openConfig(ctx, config, opts)
}

func parseURL(rawURL string, o *Options) (*mysql.Config, Options, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	u, err := openurl.Parse(rawURL, "mysql", "mysqls")
	if err != nil {
		return nil, opts, err
	}
	u.Common(&opts.Options)
	config := mysql.NewConfig()
	config.Timeout = u.Duration("dial_timeout", dialTimeout, time.Millisecond, time.Minute)
	config.TLS = u.TLS()
	config.DBName = strings.TrimPrefix(u.Path(), "/")
	config.User, config.Passwd, _ = u.User()
	hosts := u.HostsDefault("3306")
	table := u.Text("table", cmp.Or(opts.Table, DefaultTable))
	conns := u.Int("max_conns", cmp.Or(opts.MaxConns, defaultConns), 1, maxConns)
	doorbells := u.Int("doorbells", max(cmp.Or(opts.Doorbells, defaultDoorbells), 0), 0, maxDoorbells)
	opts.Create = u.Bool("create", opts.Create)
	if err := u.Err(); err != nil {
		return nil, opts, err
	}
	if len(hosts) != 1 {
		return nil, opts, fmt.Errorf("%w: the URL %s names %d hosts, allowed is one", distlock.ErrInvalid, u, len(hosts))
	}
	config.Net, config.Addr = "tcp", hosts[0]
	if opts.Table != "" && opts.Table != table {
		return nil, opts, contradiction("table", table, opts.Table)
	}
	if opts.MaxConns != 0 && opts.MaxConns != conns {
		return nil, opts, contradiction("max_conns", conns, opts.MaxConns)
	}
	if opts.Doorbells != 0 && max(opts.Doorbells, 0) != doorbells {
		return nil, opts, contradiction("doorbells", doorbells, opts.Doorbells)
	}
	opts.Table, opts.MaxConns, opts.Doorbells = table, conns, doorbells
	if doorbells == 0 {
		opts.Doorbells = -1
	}
	return config, opts, nil
}

// contradiction refuses to let either of the two override the other.
func contradiction(what string, url, options any) error {
	return fmt.Errorf("%w: %s is %v in the URL and %v in the options", distlock.ErrInvalid, what, url, options)
}

// OpenDSN is Open for a DSN of github.com/go-sql-driver/mysql, for what a URL
// cannot say, such as a socket: "user:password@unix(/run/mysqld.sock)/schema".
func OpenDSN(ctx context.Context, dsn string, o *Options) (*Locker, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		// The parser's error may quote any part of the DSN, also the password.
		return nil, opened(fmt.Errorf("%w: the DSN is not one that github.com/go-sql-driver/mysql can parse", distlock.ErrInvalid))
	}
	var opts Options
	if o != nil {
		opts = *o
	}
	return openConfig(ctx, config, opts)
}

func openConfig(ctx context.Context, config *mysql.Config, o Options) (*Locker, error) {
	o.MaxConns = cmp.Or(o.MaxConns, defaultConns)
	o.Doorbells = cmp.Or(o.Doorbells, defaultDoorbells)
	switch {
	case o.MaxConns < 1 || o.MaxConns > maxConns:
		return nil, opened(fmt.Errorf("%w: MaxConns is %d, allowed are 1 to %d", distlock.ErrInvalid, o.MaxConns, maxConns))
	case o.Waiting != nil:
		return nil, opened(fmt.Errorf("%w: Waiting is set, allowed for New alone", distlock.ErrInvalid))
	}
	// After a fail-over, connections to what is a replica now are dropped.
	config.RejectReadOnly = true
	// What the client would print, a broken connection mostly, is in the errors.
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, opened(fmt.Errorf("%w: %w", distlock.ErrInvalid, err))
	}
	db := newPool(connector, o.MaxConns)
	closers := []io.Closer{db}
	if o.Doorbells > 0 {
		o.Waiting = newPool(connector, o.Doorbells+1)
		closers = append(closers, o.Waiting)
	}
	return open(ctx, db, &o, closers...)
}

// newPool opens no connection yet.
func newPool(c sqldriver.Connector, conns int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(idleTime)
	return db
}
