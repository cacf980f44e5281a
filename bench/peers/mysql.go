package peers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// openMySQL returns a pool of up to conns connections that are kept once made, as
// those of the library under test are.
func openMySQL(rawURL string, conns int) (*sql.DB, error) {
	connector, err := mysqlConnector(rawURL)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func mysqlConnector(rawURL string) (driver.Connector, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.InterpolateParams = true // one round trip a statement
	c.Logger = &mysql.NopLogger{}
	return mysql.NewConnector(c)
}

// openTable opens a pool and makes a table.
func openTable(ctx context.Context, rawURL string, conns int, create string) (*sql.DB, error) {
	db, err := openMySQL(rawURL, conns)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, create); err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// poolSize is that of the library under test by default.
const poolSize = 16
