package backends_test

import (
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/etcdlock"
	"github.com/distlock-go/distlock/mysqllock"
	"github.com/distlock-go/distlock/pglock"
	"github.com/distlock-go/distlock/redislock"
	"github.com/distlock-go/distlock/zklock"
)

// New of nothing is an error on every store, and no panic.
func TestNewOfNothing(t *testing.T) {
	for name, open := range map[string]func() error{
		"redis":     func() error { _, err := redislock.New(nil, nil); return err },
		"mysql":     func() error { _, err := mysqllock.New(nil, nil); return err },
		"postgres":  func() error { _, err := pglock.New(nil, nil); return err },
		"zookeeper": func() error { _, err := zklock.New(nil, nil); return err },
		"etcd":      func() error { _, err := etcdlock.New(nil, nil); return err },
	} {
		t.Run(name, func(t *testing.T) { wantError(t, open(), distlock.ErrInvalid, "nil") })
	}
}
