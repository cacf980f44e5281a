// Package servers gives tests and tools a real Redis, MySQL, Postgres, ZooKeeper or etcd, and the power to do it harm.
//
// [Start] takes the first of three ways that works. [Server.Origin] names it. First comes a URL the user gave in
// DISTLOCK_REDIS_URL, DISTLOCK_MYSQL_URL, DISTLOCK_PG_URL, DISTLOCK_ZK_URL or DISTLOCK_ETCD_URL. Second comes a container, where a
// Docker engine answers and has or can pull the image. Third comes a local process on a free loopback port with its
// data in a temporary folder. DISTLOCK_SERVERS=container or =local leaves only that way (a given URL still comes
// first); =auto is the default.
//
// A server started here can be paused, resumed, killed and restarted on the same port and the same data.
//
// # What a started server keeps
//
// Every acknowledged write outlives a SIGKILL of the process, but not a power cut: the write reaches the kernel
// before the reply, no fsync is waited for. A killed process does not take the page cache with it, so the fault
// checks lose nothing by it. A shared disk does not set the pace of every check. Throughput measured on such a server
// is that of the protocol and the code, not of the disk. The exceptions are a Redis of [StartConfigured] and the
// servers of [StartDurable].
//
// # What stays behind
//
// Nothing after [Server.Close]. If the test binary dies without it, the kernel kills its local servers with it. The
// next run that starts a server removes the folders and containers left over.
package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Kind names one of the five stores. Its text is also what DISTLOCK_REQUIRE and scripts/install-servers.sh take.
type Kind string

// The five kinds of server.
const (
	Redis     Kind = "redis"
	MySQL     Kind = "mysql"
	Postgres  Kind = "pg"
	ZooKeeper Kind = "zk"
	Etcd      Kind = "etcd"
)

// Kinds lists every kind, in the project's order.
var Kinds = []Kind{Redis, MySQL, Postgres, ZooKeeper, Etcd}

// ErrNoControl is what Pause, Resume, Kill and Restart return for a server given by URL: it is somebody else's.
var ErrNoControl = errors.New("servers: a server given by URL cannot be paused, killed or restarted")

// ErrUnavailable is in the error of [Start] where nothing could be tried: no URL, no engine or image, nothing
// installed. If a server was found and then failed to start, the error is another: a fault, not an absence.
var ErrUnavailable = errors.New("no server available")

// EnvURL is the environment variable that may hold a URL of this kind.
func (k Kind) EnvURL() string { return "DISTLOCK_" + strings.ToUpper(string(k)) + "_URL" }

// closeBound ends a Close that the Docker engine never answers. Removing a container takes well under a second;
// ten times the engine's own grace period leaves no doubt that it hangs.
const closeBound = 100 * time.Second

// control is power over one server, be it a process or a container. Server serialises the calls.
type control interface {
	start(ctx context.Context) error  // runs it on its port and data; not yet ready when start returns
	pause(ctx context.Context) error  // stops every thread of it
	resume(ctx context.Context) error // lets them go on
	kill(ctx context.Context) error   // SIGKILL, also when paused; its port is closed when kill returns
	remove(ctx context.Context) error // takes away it and its data; it has been killed before
	exited() <-chan struct{}          // closed once the present run has ended; nil where that cannot be told
	logTail(ctx context.Context) string
}

type state string

const (
	running state = "running"
	paused  state = "paused"
	killed  state = "killed"
	closed  state = "closed"
)

// Server is one server of a kind, ready for use. Its methods are safe for concurrent use.
type Server struct {
	kind    Kind
	url     endpoint
	admin   string
	origin  string
	note    string
	version string
	ctl     control // nil for a given URL
	probe   probe   // nil if only reach can be asked

	mu       sync.Mutex // held while the state changes, also across a restart
	state    state
	ahead    time.Duration // of the clock of the machine, by Jump
	closeErr error
}

// Kind returns the kind the server was started as.
func (s *Server) Kind() Kind { return s.kind }

// URL returns the URL a locker is opened with, password included: redis://…, mysql://user:pw@host:port/distlock,
// postgres://user:pw@host:port/postgres, zk://host:port or etcd://host:port. A given URL is returned as it was given, missing ports filled in.
func (s *Server) URL() string { return s.url.String() }

// URLVia returns the same URL with the server's address (all of them, if a given URL lists several) replaced by addr,
// a host:port: the place of a fault proxy.
func (s *Server) URLVia(addr string) string { return s.url.at(addr).String() }

// AdminURL returns the URL of a user with the right to create other users, for tests of missing rights. It is empty
// except for a MySQL or MariaDB server started here.
func (s *Server) AdminURL() string { return s.admin }

// Addr returns the host:port clients connect to; of several in a given URL, the first.
func (s *Server) Addr() string { return s.url.addr() }

// Addrs returns all of them.
func (s *Server) Addrs() []string { return s.url.addrs() }

// Origin says where the server comes from: "given URL", "container redis:8", "local process redis-server".
func (s *Server) Origin() string { return s.origin }

// Note says why an earlier way was passed over, such as "no container: no Docker engine answers"; empty if none was.
func (s *Server) Note() string { return s.note }

// Version is what the server calls itself, asked by its own protocol; empty where it does not say.
func (s *Server) Version() string { return s.version }

// PIDs returns that of [Server.PID], if there is one. Postgres starts a child of it for each connection.
func (s *Server) PIDs() []int {
	if pid := s.PID(); pid != 0 {
		return []int{pid}
	}
	return nil
}

// PID returns the process ID of a local process started here that has been neither killed nor closed; 0 for all
// others.
func (s *Server) PID() int {
	p := s.local()
	if p == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == killed || s.state == closed {
		return 0
	}
	return p.cmd.Process.Pid
}

// local is the process of a server that was started here as one, otherwise nil.
func (s *Server) local() *process {
	switch ctl := s.ctl.(type) {
	case *process:
		return ctl
	case *member:
		return &ctl.process
	}
	return nil
}

// Controlled reports whether Pause, Resume, Kill and Restart work: false for a given URL.
func (s *Server) Controlled() bool { return s.ctl != nil }

// Pause freezes the server: connections stay open, nothing is answered, and no thread of it runs once Pause has
// returned. Pausing a paused server does nothing; pausing a killed one is an error.
func (s *Server) Pause(ctx context.Context) error {
	return s.change(ctx, "pause", func(from state) (state, error) {
		switch from {
		case paused:
			return paused, nil
		case running:
			return paused, s.ctl.pause(ctx)
		}
		return from, errors.New("it is not running")
	})
}

// Resume lets a paused server go on. Resuming a running server does nothing; resuming a killed one is an error.
func (s *Server) Resume(ctx context.Context) error {
	return s.change(ctx, "resume", func(from state) (state, error) {
		switch from {
		case running:
			return running, nil
		case paused:
			return running, s.ctl.resume(ctx)
		}
		return from, errors.New("it is not running")
	})
}

// Kill ends the server at once, paused or not, without letting it tidy up. Its port is closed when Kill returns; its
// data stays. Killing a killed server does nothing.
func (s *Server) Kill(ctx context.Context) error {
	return s.change(ctx, "kill", func(from state) (state, error) {
		if from == killed {
			return killed, nil
		}
		if err := s.ctl.kill(ctx); err != nil {
			return from, err
		}
		return killed, nil
	})
}

// Restart starts the server again on the same port and data, after killing it if it still runs, and returns once it
// answers by its protocol. If it fails the server counts as killed, and Restart may be called again.
func (s *Server) Restart(ctx context.Context) error {
	return s.change(ctx, "restart", func(from state) (state, error) {
		if from != killed {
			if err := s.ctl.kill(ctx); err != nil {
				return from, err
			}
		}
		if err := s.ctl.start(ctx); err != nil {
			return killed, s.advise(err)
		}
		if _, err := s.awaitReady(ctx); err != nil {
			return killed, errors.Join(s.advise(err), s.ctl.kill(context.WithoutCancel(ctx)))
		}
		return running, nil
	})
}

// change runs one step of the server's life under the lock and keeps the state it led to. A step that fails keeps the
// old state unless it says otherwise, so that a failed pause can still be followed by a kill.
func (s *Server) change(ctx context.Context, verb string, step func(from state) (state, error)) error {
	if s.ctl == nil {
		return ErrNoControl
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("servers: %s %s: %w", verb, s.kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == closed {
		return fmt.Errorf("servers: %s %s: it was closed", verb, s.kind)
	}
	to, err := step(s.state)
	if err == nil || to == killed {
		s.state = to
	}
	if err != nil {
		return fmt.Errorf("servers: %s %s: %w", verb, s.kind, err)
	}
	return nil
}

// Close kills the server and removes its data, whatever state it is in; a given URL is left alone. Further calls do
// nothing and return what the first one returned.
func (s *Server) Close() error {
	if s.ctl == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == closed {
		return s.closeErr
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	err := errors.Join(s.ctl.kill(ctx), s.ctl.remove(ctx))
	if err != nil {
		err = fmt.Errorf("servers: close %s: %w", s.kind, err)
	}
	s.state, s.closeErr = closed, err
	return err
}
