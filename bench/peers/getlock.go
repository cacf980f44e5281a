package peers

import (
	"context"
	"database/sql"
	"errors"

	"github.com/distlock-go/distlock/internal/servers"
)

// getLockConns stays below the 500 connections that the servers of a run allow.
const getLockConns = 400

var getLock = Contender{
	Name: "GET_LOCK", Backend: servers.MySQL, Role: Peer, Most: getLockConns,
	Note: "Written here, forty lines: GET_LOCK on a connection of its own for each lock, which a pool lends; nothing survives the connection, no token.",
	Open: func(_ context.Context, t Target) (Client, error) {
		db, err := openMySQL(t.URLs[0], getLockConns)
		return &getLockClient{db}, err
	},
}

type getLockClient struct{ *sql.DB }

type getLockHeld struct {
	conn *sql.Conn
	name string
}

func (c *getLockClient) Lock(ctx context.Context, name string) (Held, error) {
	conn, err := c.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 86400)", name).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = errors.New("GET_LOCK timed out")
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &getLockHeld{conn, name}, nil
}

func (h *getLockHeld) Unlock(ctx context.Context) error {
	var freed sql.NullInt64
	err := h.conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", h.name).Scan(&freed)
	return errors.Join(refused(freed.Int64 == 1, err), h.conn.Close())
}

// Lost implements Held: a lock lives as long as its connection, which nobody watches.
func (h *getLockHeld) Lost() bool { return false }
