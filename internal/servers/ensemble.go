package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Ensemble is several servers that keep one store together, by majority: local processes, each with the power over it
// that a Server gives.
type Ensemble struct {
	Members []*Server

	// User and Password are those of an administrator, for [Ensemble.Leader]. A test that gives etcd users sets them.
	User, Password string

	plan *plan
}

// Setup says what an ensemble has besides its members. The zero value is nothing.
type Setup struct {
	Links  bool     // between the members, for [Ensemble.Cut]
	TLS    bool     // clients find a second port with TLS, by [Ensemble.TLSAddrs]
	Clocks bool     // of their own, for [Server.Jump], on MariaDB
	Extra  []string // flags of etcd and MariaDB, lines of ZooKeeper's configuration
}

// plan is all that the members are told of each other before the first one starts.
type plan struct {
	Setup
	sites   []memberSite
	mesh    *mesh             // nil without Links
	ballots map[[2]int]string // ZooKeeper's election ports over the mesh: from, to
	cert    string            // for TLS, with its key, and both in one file
	key     string
	both    string
	learner bool // the last site is that of a member which joins without a vote
}

// StartEnsemble starts n members of an etcd cluster, a ZooKeeper ensemble or, as MySQL, a Galera cluster of MariaDB. It
// returns when all of them serve. Links and TLS are not for Galera. The error is [ErrUnavailable] where the server is not installed.
func StartEnsemble(ctx context.Context, kind Kind, n int, setup Setup) (*Ensemble, error) {
	sweepOnce.Do(func() { sweep(ctx) })
	for try := 1; ; try++ {
		e, err := tryEnsemble(ctx, kind, n, setup)
		if err == nil {
			return e, nil
		}
		if !portTaken(err) || try == 3 {
			return nil, startError(ctx, kind, nil, err)
		}
	}
}

// Serves returns nil once a member answers as it does when it is ready: there is a quorum then, unless it is a learner.
// All are asked, side by side.
func (e *Ensemble) Serves(ctx context.Context) error {
	answers := make(chan error, len(e.Members))
	for _, s := range e.Members {
		go func() {
			_, err := s.ask(ctx)
			answers <- err
		}()
	}
	var errs []error
	for range e.Members {
		err := <-answers
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Revive kills all members and starts them again, side by side: none is ready before a majority is there.
func (e *Ensemble) Revive(ctx context.Context) error {
	var errs []error
	for _, s := range e.Members {
		errs = append(errs, s.Kill(ctx))
	}
	done := make(chan error)
	for _, s := range e.Members {
		go func() { done <- s.Restart(ctx) }()
	}
	for range e.Members {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

// tryEnsemble prepares all members before it starts the first: each one is told of the others' ports.
func tryEnsemble(ctx context.Context, kind Kind, n int, setup Setup) (e *Ensemble, err error) {
	configure := map[Kind]func(context.Context, *plan, int) (launch, error){Etcd: etcdMember, ZooKeeper: zookeeperMember, MySQL: galeraMember}[kind]
	if configure == nil {
		return nil, fmt.Errorf("servers: no ensemble of %s servers: allowed are %s, %s and %s", kind, MySQL, ZooKeeper, Etcd)
	}
	e = &Ensemble{plan: &plan{Setup: setup}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
			e = nil
		}
	}()
	if err := e.prepare(kind, n); err != nil {
		return e, err
	}
	for i, s := range e.Members {
		m := s.ctl.(*member)
		if m.process.launch, err = configure(ctx, e.plan, i); err != nil {
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

// join reserves the place of one member more.
func (e *Ensemble) join(r recipe) (*Server, error) {
	m, err := newMember()
	if err != nil {
		return nil, err
	}
	if len(e.Members) > 0 {
		m.site.secret = e.plan.sites[0].secret // the users of one store are those of all its members
	}
	s := &Server{kind: r.kind, url: r.url(m.site.site), probe: r.probe, ctl: m, state: killed}
	e.plan.sites, e.Members = append(e.plan.sites, m.site), append(e.Members, s)
	return s, nil
}

// prepare reserves the members' places, and makes what is between them.
func (e *Ensemble) prepare(kind Kind, n int) (err error) {
	p, r := e.plan, recipes[kind]
	if kind == MySQL {
		r.probe = probeGalera
	}
	for range n {
		if _, err := e.join(r); err != nil {
			return err
		}
	}
	if p.TLS {
		if p.cert, p.key, p.both, err = newCertificate(p.sites[0].dir); err != nil {
			return err
		}
	}
	if !p.Links {
		return nil
	}
	if p.mesh, err = newMesh(p.sites); err != nil || kind != ZooKeeper {
		return err
	}
	p.ballots = make(map[[2]int]string)
	for i := range p.sites {
		for j := range p.sites {
			if i == j {
				continue
			}
			back := func() string { return p.ballots[[2]int{j, i}] }
			if p.ballots[[2]int{i, j}], err = p.mesh.ballots(i, j, p.sites, back); err != nil {
				return err
			}
		}
	}
	return nil
}

// URL names all members. A client of MariaDB takes one of the Members' URLs: it connects to one host.
func (e *Ensemble) URL() string { return e.Members[0].URLVia(strings.Join(e.Addrs(), ",")) }

// Addrs are the members' addresses for clients.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Members {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// TLSAddrs are the members' addresses for clients that speak TLS, of a [Setup] with it. The file has the certificate of
// the authority to trust.
func (e *Ensemble) TLSAddrs() (addrs []string, authority string) {
	for _, at := range e.plan.sites {
		addrs = append(addrs, loopback(at.tls))
	}
	return addrs, e.plan.cert
}

// Cut takes one member's links to all others away: what is sent over them is lost without a word. It needs a [Setup]
// with Links. Clients still reach the member.
func (e *Ensemble) Cut(s *Server) { e.plan.mesh.cut(e.index(s), true) }

// Heal gives a member back what Cut has taken.
func (e *Ensemble) Heal(s *Server) { e.plan.mesh.cut(e.index(s), false) }

func (e *Ensemble) index(s *Server) int { return slices.Index(e.Members, s) }

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
	if e.plan.mesh != nil {
		errs = append(errs, e.plan.mesh.Close())
	}
	return errors.Join(errs...)
}

// EnsembleForTest is [ForTest] for an ensemble of n members.
func EnsembleForTest(t testing.TB, kind Kind, n int, setup Setup) *Ensemble {
	t.Helper()
	var e *Ensemble
	forTest(t, kind, func(ctx context.Context, kind Kind) (s *Server, err error) {
		if e, err = StartEnsemble(ctx, kind, n, setup); err != nil {
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
	peer, election, tls int
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
	for range 4 {
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
		peer: folders[1].port, election: folders[2].port, tls: folders[3].port,
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
