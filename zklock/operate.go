package zklock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
)

// upToDate returns the session of operators' requests, after its server has caught up
// with the leader. It is the main session, because that one is never closed while idle.
func (d *store) upToDate(ctx context.Context) (*session, error) {
	s := d.main.session
	return s, s.catchUp(ctx)
}

// Inspect implements driver.Inspector.
func (d *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	s, err := d.upToDate(ctx)
	if err != nil {
		return distlock.Status{}, err
	}
	status, _, err := s.inspect(ctx, name)
	return status, err
}

// inspect returns what is known of a name, and the path of the first claim on it.
func (s *session) inspect(ctx context.Context, name string) (distlock.Status, string, error) {
	free, parent := distlock.Status{Name: name}, s.store.nodeOf(name)
	queue, err := s.queue(ctx, parent)
	if err != nil {
		return free, "", err
	}
	for i, n := range queue {
		path := parent + "/" + n.name
		status, err := request(ctx, s, func() (distlock.Status, error) {
			data, stat, err := s.conn.Get(path)
			if errors.Is(err, zk.ErrNoAuth) { // everybody may know that it is there, and since when
				var there bool
				if there, stat, err = s.conn.Exists(path); err == nil && !there {
					err = zk.ErrNoNode
				}
			}
			if err != nil {
				return free, err
			}
			return distlock.Status{Name: name, Held: true, Holder: string(data), Token: stat.Czxid, Waiters: len(queue) - i - 1}, nil
		})
		if !errors.Is(err, zk.ErrNoNode) { // it has just left; the next one has the name now
			return status, path, err
		}
	}
	return free, "", nil
}

// List implements driver.Inspector. A name that may not be read does not keep the
// others from being shown.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	s, err := d.upToDate(ctx)
	if err != nil {
		return nil, err
	}
	elements, err := s.children(ctx, d.opts.Prefix)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	var names []string
	for _, element := range elements {
		if name, ours := decode(element); ours && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	held, err := s.inspectAll(ctx, names)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(held, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
	return held, nil
}

// inspectAll returns the names that are held. Each is two round trips: a thousand names one after the other took seconds
// on a busy server.
func (s *session) inspectAll(ctx context.Context, names []string) ([]distlock.Status, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var held []distlock.Status
	each(names, func(name string) {
		if ctx.Err() != nil {
			return
		}
		status, _, err := s.inspect(ctx, name)
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			s.store.opts.Logger.WarnContext(ctx, "a name may not be read, and is not listed", "lock", name)
		case err != nil:
			cancel(err) // the first one stays
		case status.Held:
			mu.Lock()
			held = append(held, status)
			mu.Unlock()
		}
	})
	return held, context.Cause(ctx)
}

// Break implements driver.Breaker. The path of a claim is never used again, as it has
// its owner in it: so what is seen here is what is deleted.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	s, err := d.upToDate(ctx)
	if err != nil {
		return err
	}
	status, path, err := s.inspect(ctx, name)
	if err != nil {
		return err
	}
	if !status.Held || status.Token != token {
		return distlock.ErrLost
	}
	_, err = requestOnce(ctx, s, s.remove(path))
	if errors.Is(err, zk.ErrNoNode) {
		return distlock.ErrLost
	}
	return err
}
