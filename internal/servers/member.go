package servers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func etcdMember(ctx context.Context, p *plan, i int) (launch, error) {
	at := p.sites[i]
	path, err := findEtcd(ctx, at.dir)
	if err != nil {
		return launch{}, err
	}
	var cluster, env []string
	for j, other := range p.sites {
		cluster = append(cluster, fmt.Sprintf("m%d=%s", j, p.etcdPeer(j, other)))
	}
	listen, client := "http://"+loopback(at.peer), "http://"+at.addr()
	args := append([]string{"--unsafe-no-fsync", "--log-level=warn"}, p.Extra...)
	if p.mesh != nil {
		proxy, err := p.mesh.tunnels(i, p.sites)
		if err != nil {
			return launch{}, err
		}
		// With TLS, the library asks its proxy for a tunnel, and whatever goes through it is no matter of the proxy.
		listen = "https://" + loopback(at.peer)
		args = append(args, "--peer-auto-tls")
		env = append(env, "HTTPS_PROXY=http://"+proxy, "https_proxy=", "NO_PROXY=", "no_proxy=")
	}
	if p.learner {
		args = append(args, "--initial-cluster-state=existing")
	}
	if p.TLS {
		client += ",https://" + loopback(at.tls)
		args = append(args, "--cert-file="+p.cert, "--key-file="+p.key)
	}
	return launch{name: "etcd", path: path, env: env, args: append(args,
		fmt.Sprintf("--name=m%d", i),
		"--data-dir="+filepath.Join(at.dir, "data"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+listen,
		"--initial-advertise-peer-urls="+p.etcdPeer(i, at),
		"--initial-cluster="+strings.Join(cluster, ","),
	)}, nil
}

// etcdPeer is the URL by which the other members reach one.
func (p *plan) etcdPeer(i int, at memberSite) string {
	if p.mesh == nil {
		return "http://" + loopback(at.peer)
	}
	return fmt.Sprintf("https://%s:%d", etcdHost(i), at.peer)
}

// AddLearner adds a member without a vote to an etcd cluster of a [Setup] without Links, as the last of the Members. It
// returns when the member answers.
func (e *Ensemble) AddLearner(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Members[0].Addr()}, Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	// Members that come later refuse to start before the first ones have agreed on a version.
	if err := poll(ctx, func() bool { return agreed(ctx, e.Members[0]) }); err != nil {
		return err
	}
	s, err := e.join(etcdRecipe)
	if err != nil {
		return err
	}
	s.probe = func(ctx context.Context, at endpoint) (string, error) { // it refuses the read of the others' probe
		c, err := clientv3.New(clientv3.Config{Endpoints: at.addrs(), Context: ctx, Logger: zap.NewNop()})
		if err != nil {
			return "", err
		}
		defer c.Close()
		st, err := c.Status(ctx, at.addr())
		if err == nil && !st.IsLearner {
			err = errors.New("it is no learner yet")
		}
		return "", err
	}
	i := e.index(s)
	// Members that have been together for some seconds only take in no other.
	late := poll(ctx, func() bool {
		_, err = c.MemberAddAsLearner(ctx, []string{e.plan.etcdPeer(i, e.plan.sites[i])})
		return !errors.Is(err, rpctypes.ErrUnhealthy)
	})
	if err := cmp.Or(err, late); err != nil {
		return err
	}
	e.plan.learner = true
	m := s.ctl.(*member)
	if m.process.launch, err = etcdMember(ctx, e.plan, i); err != nil {
		return err
	}
	if err := s.ctl.start(ctx); err != nil {
		return err
	}
	s.state = running
	_, err = s.awaitReady(ctx)
	return err
}

// agreed reports whether the members of an etcd cluster know which version all of them speak.
func agreed(ctx context.Context, s *Server) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/version", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var version struct {
		Cluster string `json:"etcdcluster"`
	}
	return json.NewDecoder(resp.Body).Decode(&version) == nil && strings.Contains(version.Cluster, ".")
}

// poll asks again and again, until it is so.
func poll(ctx context.Context, so func() bool) error {
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(probeEvery):
		}
	}
	return nil
}

// zookeeperMember counts leader elections and lost followers in ticks of 200 ms, as everything there. A follower that
// was not heard of for a second is left behind.
func zookeeperMember(ctx context.Context, p *plan, i int) (launch, error) {
	at := p.sites[i]
	run, err := localZooKeeper(ctx, at.site)
	if err != nil {
		return launch{}, err
	}
	data := filepath.Join(at.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return launch{}, err
	}
	if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(i+1)), 0o600); err != nil {
		return launch{}, err
	}
	config := run.args[len(run.args)-1]
	text, err := os.ReadFile(config)
	if err != nil {
		return launch{}, err
	}
	lines := append([]string{"initLimit=50", "syncLimit=5"}, p.Extra...)
	for j, other := range p.sites {
		peer, election := other.peer, strconv.Itoa(other.election)
		if p.mesh != nil && j != i {
			peer = portOf(p.mesh.links[i][j][other.peer].Addr())
			election = strconv.Itoa(portOf(p.ballots[[2]int{i, j}]))
		}
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%s", j+1, peer, election))
	}
	if p.TLS {
		lines = append(lines, fmt.Sprintf("secureClientPort=%d", at.tls), "secureClientPortAddress=127.0.0.1",
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth=none",
			"ssl.keyStore.location="+p.both, "ssl.keyStore.type=PEM", "ssl.trustStore.location="+p.cert, "ssl.trustStore.type=PEM")
	}
	return run, os.WriteFile(config, append(text, strings.Join(lines, "\n")+"\n"...), 0o600)
}

func portOf(addr string) int {
	_, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	return n
}

// Leader waits until one of the members says that it leads, and returns it. The word of those in except is not asked
// for: one that is cut off may not have heard that others have elected another.
func (e *Ensemble) Leader(ctx context.Context, except ...*Server) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	var leader *Server
	var last error
	late := poll(ctx, func() bool {
		for _, s := range e.Members {
			if slices.Contains(except, s) {
				continue
			}
			leads, err := s.leads(ctx, e.User, e.Password)
			if leads {
				leader = s
				return true
			}
			last = cmp.Or(err, last)
		}
		return false
	})
	if late != nil {
		return nil, fmt.Errorf("servers: no member leads: %w (last: %w)", late, last)
	}
	return leader, nil
}

// leads asks one member.
func (s *Server) leads(ctx context.Context, user, password string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeBound)
	defer cancel()
	if s.kind == ZooKeeper {
		text, err := fourLetters(ctx, s.Addr(), "srvr")
		return strings.Contains(text, "Mode: leader"), err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: user, Password: password, Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		return false, err
	}
	defer c.Close()
	st, err := c.Status(ctx, s.Addr())
	return err == nil && st.Leader == st.Header.MemberId, err
}
