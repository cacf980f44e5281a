package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Ensemble is several servers that keep one store together, by majority: local processes, each with the power over it
// that a Server gives.
type Ensemble struct {
	Members []*Server
}

// StartEnsemble starts n members of an etcd cluster or a ZooKeeper ensemble, and returns when all of them serve. The
// error is [ErrUnavailable] where the server is not installed.
func StartEnsemble(ctx context.Context, kind Kind, n int) (*Ensemble, error) {
	sweepOnce.Do(func() { sweep(ctx) })
	for try := 1; ; try++ {
		e, err := tryEnsemble(ctx, kind, n)
		if err == nil {
			return e, nil
		}
		if !portTaken(err) || try == 3 {
			return nil, startError(ctx, kind, nil, err)
		}
	}
}

// tryEnsemble prepares all members before it starts the first: each one is told of the others' ports.
func tryEnsemble(ctx context.Context, kind Kind, n int) (e *Ensemble, err error) {
	r := recipes[kind]
	configure := map[Kind]func(context.Context, []memberSite, int) (launch, error){Etcd: etcdMember, ZooKeeper: zookeeperMember}[kind]
	if configure == nil {
		return nil, fmt.Errorf("servers: no ensemble of %s servers: allowed are %s and %s", kind, ZooKeeper, Etcd)
	}
	e = new(Ensemble)
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
			e = nil
		}
	}()
	var sites []memberSite
	for range n {
		m, err := newMember()
		if err != nil {
			return e, err
		}
		sites = append(sites, m.site)
		e.Members = append(e.Members, &Server{kind: kind, url: r.url(m.site.site), probe: r.probe, ctl: m, state: killed})
	}
	for i, s := range e.Members {
		m := s.ctl.(*member)
		if m.process.launch, err = configure(ctx, sites, i); err != nil {
			return e, err
		}
		s.origin = "local process " + m.process.launch.name
		if err := s.ctl.start(ctx); err != nil {
			return e, err
		}
		s.state = running
	}
	for _, s := range e.Members {
		if s.version, err = s.awaitReady(ctx); err != nil {
			return e, err
		}
	}
	return e, nil
}

// URL names all members.
func (e *Ensemble) URL() string {
	var addrs []string
	for _, s := range e.Members {
		addrs = append(addrs, s.Addr())
	}
	return e.Members[0].URLVia(strings.Join(addrs, ","))
}

// Close kills all members and removes their data.
func (e *Ensemble) Close() error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for _, s := range e.Members {
		wg.Go(func() {
			err := s.Close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// EnsembleForTest is [ForTest] for an ensemble of n members.
func EnsembleForTest(t testing.TB, kind Kind, n int) *Ensemble {
	t.Helper()
	var e *Ensemble
	forTest(t, kind, func(ctx context.Context, kind Kind) (s *Server, err error) {
		if e, err = StartEnsemble(ctx, kind, n); err != nil {
			return nil, err
		}
		return e.Members[0], nil
	})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// memberSite is where a member is to be. The members talk to each other on ports of their own.
type memberSite struct {
	site
	peer, election int
}

// member is the process of a member, with the folders that reserve its other ports.
type member struct {
	process
	site  memberSite
	spare []*folder
}

func newMember() (*member, error) {
	m := new(member)
	var folders []*folder
	for range 3 {
		f, err := newFolder()
		if err != nil {
			for _, f := range folders {
				err = errors.Join(err, f.remove())
			}
			return nil, err
		}
		folders = append(folders, f)
	}
	m.process.folder, m.spare = folders[0], folders[1:]
	m.site = memberSite{
		site: site{dir: folders[0].path, port: folders[0].port, secret: newSecret()},
		peer: folders[1].port, election: folders[2].port,
	}
	return m, nil
}

func (m *member) remove(ctx context.Context) error {
	err := m.process.remove(ctx)
	for _, f := range m.spare {
		err = errors.Join(err, f.remove())
	}
	return err
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func etcdMember(ctx context.Context, sites []memberSite, i int) (launch, error) {
	at := sites[i]
	path, err := findEtcd(ctx, at.dir)
	if err != nil {
		return launch{}, err
	}
	var cluster []string
	for j, other := range sites {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", j, loopback(other.peer)))
	}
	client, peer := "http://"+at.addr(), "http://"+loopback(at.peer)
	return launch{name: "etcd", path: path, args: []string{
		fmt.Sprintf("--name=m%d", i),
		"--data-dir=" + filepath.Join(at.dir, "data"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + strings.Join(cluster, ","),
		"--unsafe-no-fsync",
		"--log-level=warn",
	}}, nil
}

// zookeeperMember counts leader elections and lost followers in ticks of 200 ms, as everything there. A follower that
// was not heard of for a second is left behind.
func zookeeperMember(ctx context.Context, sites []memberSite, i int) (launch, error) {
	at := sites[i]
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
	lines := string(text) + "initLimit=50\nsyncLimit=5\n"
	for j, other := range sites {
		lines += fmt.Sprintf("server.%d=127.0.0.1:%d:%d\n", j+1, other.peer, other.election)
	}
	return run, os.WriteFile(config, []byte(lines), 0o600)
}
