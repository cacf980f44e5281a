//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock/internal/servers"
)

// documentedRights leaves the user app with the rights that the pages of the drivers tell to grant,
// and no others.
var documentedRights = map[servers.Kind]func(*testing.T, string){servers.Etcd: restrictEtcd, servers.ZooKeeper: restrictZooKeeper}

// suffices: with these rights one may check and compare, since what that makes lies within the
// default prefix.
func suffices(t *testing.T, s *servers.Server, restrict func(*testing.T, string)) {
	restrict(t, s.Addr())
	url := string(s.Kind()) + "://app:s3cret@" + s.Addr()
	for _, args := range [][]string{
		{"check", "--run", "^core/acquire-release$"},
		{"compare", "--safety=false", "--workloads", "bare,solo", "--rounds", "1", "--duration", "50ms", url},
	} {
		cmd := exec.CommandContext(t.Context(), "distlock", args...)
		cmd.Env = append(os.Environ(), "DISTLOCK_URL="+url)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}

func restrictEtcd(t *testing.T, addr string) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	must(t, err)
	defer c.Close()
	ctx := t.Context()
	_, err1 := c.RoleAdd(ctx, "locks")
	_, err2 := c.RoleGrantPermission(ctx, "locks", "distlock/", clientv3.GetPrefixRangeEnd("distlock/"), clientv3.PermissionType(clientv3.PermReadWrite))
	_, err3 := c.UserAdd(ctx, "root", "r00t")
	_, err4 := c.UserGrantRole(ctx, "root", "root")
	_, err5 := c.UserAdd(ctx, "app", "s3cret")
	_, err6 := c.UserGrantRole(ctx, "app", "locks")
	_, err7 := c.AuthEnable(ctx)
	must(t, err1, err2, err3, err4, err5, err6, err7)
}

func restrictZooKeeper(t *testing.T, addr string) {
	conn, _, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogInfo(false))
	must(t, err)
	defer conn.Close()
	acl := zk.DigestACL(zk.PermRead|zk.PermCreate|zk.PermDelete, "app", "s3cret")
	_, err1 := conn.Create("/distlock", nil, 0, acl)
	if errors.Is(err1, zk.ErrNodeExists) {
		_, err1 = conn.SetACL("/distlock", acl, -1)
	}
	_, err2 := conn.SetACL("/", zk.DigestACL(zk.PermAll, "admin", "s3cret"), -1)
	must(t, err1, err2)
}
