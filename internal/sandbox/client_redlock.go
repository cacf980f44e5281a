package sandbox

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/distlock-go/distlock/internal/openurl"
)

// bareRedlock is several Redis servers that know nothing of each other.
type bareRedlock []*bareRedis

func openBareRedlock(u *openurl.URL, prefix string) (Client, error) {
	o := redis.Options{
		TLSConfig:                u.TLS(),
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	o.Username, o.Password, _ = u.User()
	o.DB, _ = strconv.Atoi(strings.Trim(u.Path(), "/")) // the driver under test insists on a number
	addrs := u.HostsDefault("6379")
	if err := invalid(u); err != nil {
		return nil, err
	}
	var all bareRedlock
	for _, addr := range addrs {
		own := o
		own.Addr = addr
		all = append(all, &bareRedis{redis.NewClient(&own), prefix})
	}
	return all, nil
}

// each calls f for all servers, side by side.
func (b bareRedlock) each(f func(*bareRedis) error) error {
	errs := make([]error, len(b))
	var wg sync.WaitGroup
	for i, one := range b {
		wg.Go(func() { errs[i] = f(one) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (b bareRedlock) Commands() string { return "on each server " + b[0].Commands() }
func (b bareRedlock) Close() error     { return b.each((*bareRedis).Close) }

func (b bareRedlock) Pair(ctx context.Context, key string) error {
	return b.each(func(one *bareRedis) error { return one.Pair(ctx, key) })
}

func (b bareRedlock) Version(ctx context.Context) string { return b[0].Version(ctx) }

func (b bareRedlock) Remove(ctx context.Context) error {
	return b.each(func(one *bareRedis) error { return one.Remove(ctx) })
}
