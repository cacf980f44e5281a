package servers

import (
	"context"
	"slices"
)

// withoutFsync has the settings that keep the servers of [Start] from waiting for the disk.
var withoutFsync = map[Kind][]string{
	Redis:     redisArgs,
	MySQL:     {"--innodb-flush-log-at-trx-commit=2"},
	Postgres:  {"--fsync=off", "--full-page-writes=off"},
	ZooKeeper: {"-Dzookeeper.forceSync=no"},
	Etcd:      {"--unsafe-no-fsync"},
}

// StartDurable is [Start] for a local process with the default durability of its store. MySQL, Postgres, ZooKeeper and etcd
// wait for the disk at each write, Redis takes snapshots now and then. The error is [ErrUnavailable] where the server
// is not installed.
func StartDurable(ctx context.Context, kind Kind) (*Server, error) {
	r := recipes[kind]
	local := r.local
	r.local = func(ctx context.Context, at site) (launch, error) {
		run, err := local(ctx, at)
		run.args = slices.DeleteFunc(slices.Clone(run.args), func(arg string) bool { return slices.Contains(withoutFsync[kind], arg) })
		return run, err
	}
	sweepOnce.Do(func() { sweep(ctx) })
	s, err := r.startLocal(ctx)
	if err != nil {
		return nil, startError(ctx, kind, nil, err)
	}
	return s, nil
}
