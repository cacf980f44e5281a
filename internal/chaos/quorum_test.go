package chaos_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock/internal/chaos"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// outage is about how long a majority is gone: mostly for longer than the locks' TTL.
const outage = 3 * time.Second

// quorum has the stores that keep locks by majority.
var quorum = []topology{
	{"zookeeper, three servers", "an ensemble of three: its leader or a follower is killed or frozen, or all are restarted in turn", "", true, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.ZooKeeper, 3, servers.Setup{})
		return ensemble(e, inTurn(e)...)
	}},
	{"etcd, three members", "a cluster of three: its leader or a follower is killed or frozen, or all are restarted in turn", "", true, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.Etcd, 3, servers.Setup{})
		return ensemble(e, inTurn(e)...)
	}},
}

// whole are more of those. Only a run that says how many faults it wants has them.
var whole = []topology{
	{"zookeeper, partitions", "an ensemble of three: its leader, a follower or all are cut off from each other, not from the clients", "", false, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.ZooKeeper, 3, servers.Setup{Links: true})
		return ensemble(e, partitions(e)...)
	}},
	{"zookeeper, no quorum", "an ensemble of three: two are killed or frozen, mostly for longer than a TTL", "", false, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.ZooKeeper, 3, servers.Setup{})
		return ensemble(e, majority(e)...)
	}},
	{"zookeeper, TLS and ACL", "an ensemble of three, over TLS, with nodes that only their user may touch (digest)", "", true, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.ZooKeeper, 3, servers.Setup{TLS: true})
		return secure(e, "zks://app:secret@", "/locks"+sessions+"&acl=creator&", inTurn(e)...)
	}},
	{"etcd, partitions", "a cluster of three: its leader, a follower or all are cut off from each other, not from the clients", "", false, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.Etcd, 3, servers.Setup{Links: true})
		return ensemble(e, partitions(e)...)
	}},
	{"etcd, no quorum", "a cluster of three: two are killed or frozen, mostly for longer than a TTL", "", false, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.Etcd, 3, servers.Setup{})
		return ensemble(e, majority(e)...)
	}},
	{"etcd, TLS and a learner", "a cluster of three, over TLS, with a learner among the endpoints; it is compacted and defragmented as well", "", true, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.Etcd, 3, servers.Setup{TLS: true})
		if err := e.AddLearner(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := adminOf(t, e.Addrs()[:3], "", "")
		return secure(e, "etcds://", "?", append(inTurn(e), compacted(c), defragmented(c, e.Addrs()[:3]))...)
	}},
	{"etcd, simple tokens", "a cluster of three with users: a login is good for a second after its last use, on each member by itself", "", false, func(t *testing.T) deployment {
		return loggedIn(t, "--auth-token=simple", "--auth-token-ttl=1")
	}},
	{"etcd, JWT", "a cluster of three with users: a login is good for five seconds", "", true, func(t *testing.T) deployment {
		key, err := os.CreateTemp("", "distlock-key-") // not t.TempDir: a comma would end the flag
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(key.Name()) })
		if _, err := key.WriteString(rand.Text()); err != nil || key.Close() != nil {
			t.Fatal("writing the key:", err)
		}
		return loggedIn(t, "--auth-token=jwt,sign-method=HS256,ttl=5s,priv-key="+key.Name())
	}},
}

// sampled are the topologies that a run breaks for which DISTLOCK_CHAOS_EVENTS does not say how often:
// one of each store.
var sampled = []string{"redis, bad network", "mysql", "postgres", "zookeeper", "etcd"}

// chosen are the topologies of this run.
func chosen() []topology {
	all := slices.Concat(topologies, whole, galera)
	if os.Getenv("DISTLOCK_CHAOS_EVENTS") == "" {
		all = slices.DeleteFunc(all, func(top topology) bool { return !slices.Contains(sampled, top.name) })
	}
	return all
}

// secure is a store of several servers that clients reach by TLS; its URL is between before and after.
func secure(e *servers.Ensemble, before, after string, faults ...chaos.Fault) deployment {
	addrs, ca := e.TLSAddrs()
	return deployment{ensemble: e, Store: harness.Store{Servers: e.Members, Addrs: addrs, URL: func(addrs ...string) string {
		return before + strings.Join(addrs, ",") + after + "tls_ca=" + url.QueryEscape(ca)
	}}, faults: faults}
}

// inTurn breaks one member at a time, so that a majority goes on.
func inTurn(e *servers.Ensemble) []chaos.Fault {
	v := &victims{ensemble: e}
	return []chaos.Fault{
		v.fault("leader killed", v.leader, (*servers.Server).Kill, (*servers.Server).Restart),
		v.fault("leader frozen", v.leader, (*servers.Server).Pause, (*servers.Server).Resume),
		v.fault("follower killed", v.follower, (*servers.Server).Kill, (*servers.Server).Restart),
		v.fault("follower frozen", v.follower, (*servers.Server).Pause, (*servers.Server).Resume),
		v.fault("all restarted in turn", v.all, (*servers.Server).Restart, nothing),
	}
}

// partitions takes links between the members away.
func partitions(e *servers.Ensemble) []chaos.Fault {
	v := &victims{ensemble: e}
	cut := func(s *servers.Server, _ context.Context) error { e.Cut(s); return nil }
	heal := func(s *servers.Server, _ context.Context) error { e.Heal(s); return nil }
	apart := v.fault("all cut off", v.all, cut, heal)
	apart.Length = outage
	return []chaos.Fault{
		v.fault("leader cut off", v.leader, cut, heal),
		v.fault("follower cut off", v.follower, cut, heal),
		apart,
	}
}

// majority breaks two of three.
func majority(e *servers.Ensemble) []chaos.Fault {
	v := &victims{ensemble: e}
	killed := v.fault("two killed", v.two, (*servers.Server).Kill, (*servers.Server).Restart)
	frozen := v.fault("two frozen", v.two, (*servers.Server).Pause, (*servers.Server).Resume)
	killed.Length, frozen.Length = outage, outage
	return []chaos.Fault{killed, frozen}
}

// victims are the members that the present fault breaks.
type victims struct {
	ensemble *servers.Ensemble
	present  []*servers.Server
}

func (v *victims) fault(name string, choose func(context.Context) ([]*servers.Server, error), do, undo step) chaos.Fault {
	return chaos.Fault{
		Name: name,
		Break: func(ctx context.Context) (err error) {
			if v.present, err = choose(ctx); err != nil {
				return err
			}
			for _, s := range v.present {
				err = errors.Join(err, do(s, ctx))
			}
			return err
		},
		// Side by side: one member is not ready before a majority is there.
		Mend: func(ctx context.Context) error {
			done := make(chan error)
			for _, s := range v.present {
				go func() { done <- undo(s, ctx) }()
			}
			var errs []error
			for range v.present {
				errs = append(errs, <-done)
			}
			return errors.Join(errs...)
		},
	}
}

func nothing(*servers.Server, context.Context) error { return nil }

func (v *victims) leader(ctx context.Context) ([]*servers.Server, error) {
	s, err := v.ensemble.Leader(ctx)
	return []*servers.Server{s}, err
}

// voters are the members, but for a learner.
func (v *victims) voters() []*servers.Server { return v.ensemble.Members[:3] }

func (v *victims) all(context.Context) ([]*servers.Server, error) { return v.voters(), nil }

func (v *victims) followers(ctx context.Context) ([]*servers.Server, error) {
	leader, err := v.ensemble.Leader(ctx)
	return slices.DeleteFunc(slices.Clone(v.voters()), func(s *servers.Server) bool { return s == leader }), err
}

func (v *victims) follower(ctx context.Context) ([]*servers.Server, error) {
	followers, err := v.followers(ctx)
	return followers[:1], err
}

// two are the leader and a follower.
func (v *victims) two(ctx context.Context) ([]*servers.Server, error) {
	followers, err := v.followers(ctx)
	return slices.DeleteFunc(slices.Clone(v.voters()), func(s *servers.Server) bool { return s == followers[1] }), err
}

// compacted forgets what was before the present revision, with what locks waited for.
func compacted(c *clientv3.Client) chaos.Fault {
	return chaos.Fault{
		Name: "compacted",
		Break: func(ctx context.Context) error {
			now, err := c.Get(ctx, "x")
			if err == nil {
				_, err = c.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
			}
			return err
		},
		Mend: func(context.Context) error { return nil },
	}
}

// defragmented has one member after the other rewrite its file, which it does not serve meanwhile.
func defragmented(c *clientv3.Client, addrs []string) chaos.Fault {
	return chaos.Fault{
		Name: "defragmented",
		Break: func(ctx context.Context) error {
			var errs []error
			for _, addr := range addrs {
				_, err := c.Defragment(ctx, addr)
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
		Mend: func(context.Context) error { return nil },
	}
}

// loggedIn has a cluster with users. They log in again and again, as their tokens do not last.
func loggedIn(t *testing.T, flags ...string) deployment {
	e := servers.EnsembleForTest(t, servers.Etcd, 3, servers.Setup{Extra: append(flags, "--bcrypt-cost=4")})
	c := adminOf(t, e.Addrs(), "", "")
	ctx := t.Context()
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "secret")),
		second(c.UserGrantRole(ctx, "root", "root")),
		second(c.RoleAdd(ctx, "locks")),
		second(c.RoleGrantPermission(ctx, "locks", "distlock/", clientv3.GetPrefixRangeEnd("distlock/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(c.UserAdd(ctx, "app", "secret")),
		second(c.UserGrantRole(ctx, "app", "locks")),
		second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	e.User, e.Password = "root", "secret"
	root := adminOf(t, e.Addrs(), "root", "secret")
	d := ensemble(e, append(inTurn(e), compacted(root))...)
	d.URL = func(addrs ...string) string { return "etcd://app:secret@" + strings.Join(addrs, ",") }
	return d
}

func second[T any](_ T, err error) error { return err }

func adminOf(t *testing.T, addrs []string, user, password string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, Username: user, Password: password, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(fmt.Errorf("the administrator's client: %w", err))
		}
	})
	return c
}
