package servers

import (
	"bufio"
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

var redisRecipe = recipe{
	kind:  Redis,
	port:  "6379",
	image: "redis:8",
	local: func(_ context.Context, at site) (launch, error) {
		path, ok := findProgram("redis-server")
		if !ok {
			return launch{}, unavailable{"redis-server is not installed"}
		}
		args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(at.port), "--dir", at.dir}, redisArgs...)
		return launch{name: "redis-server", path: path, args: args}, nil
	},
	container: func(site) containerSpec {
		return containerSpec{cmd: append([]string{"redis-server"}, redisArgs...)}
	},
	url:   func(at site) endpoint { return endpoint{scheme: "redis", hosts: at.addr()} },
	probe: probeRedis,
}

// redisArgs: the append-only file keeps tokens and locks across a kill. With "appendfsync no" each write is handed to
// the kernel before its reply goes out, always. "everysec", the customary choice, holds the write back for up to two
// seconds while an fsync is under way. It replies none the less, and loses acknowledged writes when killed just then.
// No snapshots and no rewrites: either forks a child that outlives a killed server.
var redisArgs = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"}

func probeRedis(ctx context.Context, at endpoint) (string, error) {
	user, password := at.login()
	db, _ := strconv.Atoi(at.path()) // no number, no database: 0
	client := redis.NewClient(&redis.Options{
		Addr:                  at.addr(),
		Username:              user,
		Password:              password,
		DB:                    db,
		PoolSize:              1,
		MaxRetries:            -1, // none: awaitReady asks again by itself
		ContextTimeoutEnabled: true,
	})
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return "", err
	}
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(strings.NewReader(info))
	for lines.Scan() {
		if version, ok := strings.CutPrefix(lines.Text(), "redis_version:"); ok {
			return version, nil
		}
	}
	return "", nil
}
