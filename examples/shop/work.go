package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/patterns"
)

// worker is one process of a scene.
type worker struct {
	job
	connection
	locker distlock.Locker // nil in a scene without a lock
}

// work does the job that text holds.
func work(ctx context.Context, text string) error {
	var w worker
	if err := json.Unmarshal([]byte(text), &w.job); err != nil {
		return err
	}
	w.connection = connection{w.Database, w.Worker}
	if w.Locked {
		locker, err := backends.Open(ctx, w.URL)
		if err != nil {
			return err
		}
		defer locker.Close()
		// The database is as new as the run, so its locks have names of their own.
		w.locker = patterns.Prefix(locker, w.Database+"/")
	}
	if err := w.begin(ctx, workers); err != nil {
		return err
	}
	return map[string]func(context.Context) error{
		"flashsale": w.sell, "packets": w.grab, "migration": w.migrate, "payments": w.pay,
	}[w.Scene](ctx)
}

// under runs f with the locks on names, or, in a scene without locks, just so.
func (w *worker) under(ctx context.Context, f func(context.Context) error, names ...string) error {
	if w.locker == nil {
		return f(ctx)
	}
	locks, err := patterns.LockAll(ctx, w.locker, names)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx), locks.Unlock(ctx))
}

// sell takes the clicks of all users, each twice over all processes. Stock and user are
// two locks: the same user may click at another process.
func (w *worker) sell(ctx context.Context) error {
	for i := range users {
		u := (i + w.Worker*5) % users
		if (u+w.Worker)%2 == 0 {
			continue // this click comes at another process
		}
		user := fmt.Sprintf("user %d", u)
		err := w.under(ctx, func(ctx context.Context) error {
			stock, err := w.read(ctx, "stock")
			if err != nil || stock == 0 {
				return err
			}
			ordered, err := w.read(ctx, user)
			if err != nil || ordered > 0 {
				return err
			}
			compute()
			if err := errors.Join(w.write(ctx, "stock", stock-1), w.add(ctx, user, 1)); err != nil {
				return err
			}
			return w.tell(ctx, "sold one to %s", user)
		}, "stock", user)
		if err != nil {
			return err
		}
	}
	return nil
}

// grab tries to get a packet, six times.
func (w *worker) grab(ctx context.Context) error {
	for range 6 {
		err := w.under(ctx, func(ctx context.Context) error {
			next, err := w.read(ctx, "next packet")
			if err != nil || next == packets {
				return err
			}
			compute()
			if err := w.write(ctx, "next packet", next+1); err != nil {
				return err
			}
			return w.tell(ctx, "grabbed packet %d", next)
		}, "packets")
		if err != nil {
			return err
		}
	}
	return nil
}

// migrate brings the schema to version 1, unless it has it.
func (w *worker) migrate(ctx context.Context) error {
	return w.under(ctx, func(ctx context.Context) error {
		version, err := w.read(ctx, "version")
		if err != nil || version == 1 {
			return err
		}
		time.Sleep(100 * time.Millisecond) // ALTER TABLE
		if err := w.add(ctx, "version", 1); err != nil {
			return err
		}
		return w.tell(ctx, "migrated to version 1")
	}, "migration")
}
