package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// recipe is what differs between the kinds.
type recipe struct {
	kind      Kind
	port      string // the store's customary port, also the one inside the container
	image     string
	local     func(ctx context.Context, at site) (launch, error)
	container func(at site) containerSpec
	url       func(at site) endpoint
	admin     func(at site) string // nil where a started server has no second user
	probe     probe
}

// site is where one server is to be: what its recipe may use.
type site struct {
	dir    string // its folder, empty at first, ours alone
	port   int    // on 127.0.0.1, reserved for it
	secret string // a fresh password of letters and digits, for stores that want one
}

func (at site) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.port)) }

// newSecret is a password of 26 letters and digits: it needs no quoting in SQL, a URL or a shell.
func newSecret() string { return rand.Text() }

// launch is a local server ready to be run, its data prepared.
type launch struct {
	name  string // shown in Origin
	path  string
	args  []string
	env   []string // besides that of this process
	clock string   // the file with what its clock is ahead by; empty if it has that of the machine

	// again gives the arguments of a start that is not the first; nil if they are the same.
	again func(ctx context.Context) ([]string, error)

	user   int  // it runs as, if we are root; 0 means us
	family bool // it does its work in child processes, each in a group of its own
}

// containerSpec is what a container needs beyond its image.
type containerSpec struct {
	cmd   []string
	env   map[string]string
	files map[string]string // path in the container -> text
}

// probe exchanges one request that the store only answers when it serves, and returns the version it states.
type probe func(ctx context.Context, at endpoint) (version string, err error)

var recipes = map[Kind]recipe{
	Redis:     redisRecipe,
	MySQL:     mysqlRecipe,
	Postgres:  postgresRecipe,
	ZooKeeper: zookeeperRecipe,
	Etcd:      etcdRecipe,
}

// Bounds of a start. A healthy local server is ready within two seconds and a first MySQL container within twenty;
// the rest is for a busy machine. They only decide when a hopeless wait is given up.
const (
	probeBound = 5 * time.Second
	readyBound = 2 * time.Minute
	probeEvery = 25 * time.Millisecond
)

// unavailable is a way closed on this machine, as opposed to one that was tried and failed.
type unavailable struct{ reason string }

func (u unavailable) Error() string { return u.reason }

var sweepOnce sync.Once

// Start gives a server of the kind: the URL in the environment where set, else a container, else a local process, as
// the package comment says. The error names what was tried and what to install; it is [ErrUnavailable] if nothing
// could be tried at all. ctx bounds the start only, not the server's life: call [Server.Close] to end that.
func Start(ctx context.Context, kind Kind) (*Server, error) {
	r, ok := recipes[kind]
	if !ok {
		return nil, fmt.Errorf("servers: unknown kind %q: allowed are %v", kind, Kinds)
	}
	if raw := os.Getenv(kind.EnvURL()); raw != "" {
		s, err := r.given(ctx, raw)
		if err != nil {
			return nil, fmt.Errorf("servers: %s: %w", kind.EnvURL(), err)
		}
		return s, nil
	}
	way := os.Getenv("DISTLOCK_SERVERS")
	switch way {
	case "", "auto", "container", "local":
	default:
		return nil, fmt.Errorf("servers: DISTLOCK_SERVERS is %q: allowed are auto, container, local", way)
	}
	sweepOnce.Do(func() { sweep(ctx) })

	var noContainer, noLocal error
	var s *Server
	if way != "local" {
		if s, noContainer = r.startContainer(ctx); noContainer == nil {
			return s, nil
		}
	}
	if way != "container" && ctx.Err() == nil {
		if s, noLocal = r.startLocal(ctx); noLocal == nil {
			if noContainer != nil {
				s.note = "no container: " + noContainer.Error()
			}
			return s, nil
		}
	}
	return nil, startError(ctx, kind, noContainer, noLocal)
}

// startError tells of both ways. The result is ErrUnavailable only if neither was really tried, ctx's error if it ended.
func startError(ctx context.Context, kind Kind, noContainer, noLocal error) error {
	var tried, hints []string
	absent := true // then the hint is to install it; one that was there and failed has advice of its own
	for _, way := range []struct {
		name, hint string
		err        error
	}{{"container", "start a Docker engine", noContainer}, {"local process", `run "make servers"`, noLocal}} {
		if way.err == nil {
			continue
		}
		tried = append(tried, way.name+": "+way.err.Error())
		if errors.As(way.err, new(unavailable)) {
			hints = append(hints, way.hint)
		} else {
			absent = false
		}
	}
	hints = append(hints, "set "+kind.EnvURL())
	cause := errors.Join(noContainer, noLocal)
	if ctx.Err() != nil {
		cause = ctx.Err() // why the rest of it failed
	} else if absent {
		cause = ErrUnavailable
	}
	return &startFailure{
		text:  fmt.Sprintf("servers: no %s server: %s; %s", kind, strings.Join(tried, "; "), strings.Join(hints, " or ")),
		cause: cause,
	}
}

// startFailure shows one text, while errors.Is sees what is behind it, a context's error among others.
type startFailure struct {
	text  string
	cause error
}

func (f *startFailure) Error() string { return f.text }
func (f *startFailure) Unwrap() error { return f.cause }

// awaitReady asks the server until it answers by its protocol. An open port is no proof: Docker's proxy opens it
// before the server does, and MariaDB listens before its tables are there.
func (s *Server) awaitReady(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		version, err := s.askLiving(ctx)
		select {
		case <-s.ctl.exited():
			// Judged before the answer: it may have come from a stranger that took the port.
			return "", fmt.Errorf("it ended before it was ready%s", s.ctl.logTail(ctx))
		default:
		}
		if err == nil {
			return version, nil
		}
		select {
		case <-tick.C:
		case <-s.ctl.exited():
		case <-ctx.Done():
			last := context.WithoutCancel(ctx)
			return "", fmt.Errorf("it does not answer at %s: %w (last try: %w)%s", s.Addr(), ctx.Err(), err, s.ctl.logTail(last))
		}
	}
}

// askLiving is ask, but for a server that ends meanwhile: a stranger that took its port may leave the question without an
// answer, and not every client looks at a context while it waits for one.
func (s *Server) askLiving(ctx context.Context) (string, error) {
	type answer struct {
		version string
		err     error
	}
	answered := make(chan answer, 1) // a late answer finds nobody
	go func() {
		version, err := s.ask(ctx)
		answered <- answer{version, err}
	}()
	select {
	case a := <-answered:
		return a.version, a.err
	case <-s.ctl.exited():
		return "", errors.New("it ended")
	}
}

// ask is one bounded exchange. A plain dial comes first: the clients meet a refused address with retries, pauses and
// lines on stderr.
func (s *Server) ask(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeBound)
	defer cancel()
	if err := reach(ctx, s.url); err != nil || s.probe == nil {
		return "", err
	}
	return s.probe(ctx, s.url)
}

// given takes a server that somebody else runs, once it has answered.
func (r recipe) given(ctx context.Context, raw string) (*Server, error) {
	e, err := parseEndpoint(raw, r.port)
	if err != nil {
		return nil, err
	}
	scheme := r.url(site{}).scheme
	if !strings.HasPrefix(e.scheme, scheme) {
		return nil, fmt.Errorf("scheme %q is not of a %s server: allowed are %s:// and its variants", e.scheme, r.kind, scheme)
	}
	s := &Server{kind: r.kind, url: e, origin: "given URL", probe: r.probe}
	if e.scheme != scheme || e.tls() {
		// rediss, redis+sentinel and their like: the driver knows how to read such a URL and where the certificates
		// are, this package does not. It only looks whether somebody is there.
		s.probe = nil
	}
	if s.version, err = s.ask(ctx); err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", e.redacted(), err)
	}
	return s, nil
}

// reach returns nil once one of the addresses takes a connection.
func reach(ctx context.Context, at endpoint) error {
	var errs []error
	for _, addr := range at.addrs() {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
