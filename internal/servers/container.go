package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// ContainerLabel is on every container started here, so that a script can find leftovers. Its value is that of the
// environment variable DISTLOCK_RUN, or 1: docker ps -aq --filter label=distlock.test=1.
const ContainerLabel = "distlock.test"

// engineBound is for an engine that accepts connections and says nothing; a healthy one answers in milliseconds.
const engineBound = 10 * time.Second

// dockerd is the engine, reached through testcontainers: that knows the many places where an engine may listen.
type dockerd struct {
	provider *testcontainers.DockerProvider
	client.APIClient
}

// engine returns the Docker engine, if one answers.
func engine(ctx context.Context) (*dockerd, error) {
	// The library reports each step on stderr, in the middle of a tool's progress display. What matters is in errors.
	quietOnce.Do(func() { log.SetDefault(log.NewNoopLogger()) })
	if engineSilent.Load() {
		return nil, unavailable{"the Docker engine does not answer"}
	}
	bounded, cancel := context.WithTimeout(ctx, engineBound)
	defer cancel()
	type answer struct {
		provider *testcontainers.DockerProvider
		err      error
	}
	answered := make(chan answer, 1) // buffered: a late answer finds nobody
	go func() {
		// Takes no context and waits for the engine for ever.
		p, err := testcontainers.ProviderDefault.GetProvider()
		docker, _ := p.(*testcontainers.DockerProvider) // the one there is, also for Podman
		answered <- answer{docker, err}
	}()
	select {
	case a := <-answered:
		if a.err != nil {
			return nil, unavailable{"no Docker engine answers: " + strings.ReplaceAll(a.err.Error(), "\n", "; ")}
		}
		return &dockerd{a.provider, a.provider.Client()}, nil
	case <-bounded.Done():
		// Remembered, or each test of the binary would wait anew; unless the caller gave up.
		engineSilent.Store(ctx.Err() == nil)
		return nil, unavailable{"the Docker engine does not answer"}
	}
}

var (
	quietOnce    sync.Once
	engineSilent atomic.Bool
)

// startContainer runs the store's official image, published on 127.0.0.1 only.
func (r recipe) startContainer(ctx context.Context) (*Server, error) {
	docker, err := engine(ctx)
	if err != nil {
		return nil, err
	}
	defer docker.provider.Close()
	config := testcontainers.ReadConfig().Config
	if err := docker.ensureImage(ctx, withHub(config.HubImageNamePrefix, r.image)); err != nil {
		return nil, err
	}
	if !config.RyukDisabled {
		// testcontainers pulls its helper by itself, but tries for a quarter of an hour where there is no registry.
		//lint:ignore SA1019 the name now lives in a package that cannot be imported, and the library still uses this one
		helper := withHub(config.HubImageNamePrefix, testcontainers.ReaperDefaultImage)
		if err := docker.ensureImage(ctx, helper); err != nil {
			return nil, unavailable{err.Error() + " (TESTCONTAINERS_RYUK_DISABLED=true does without it)"}
		}
	}
	for try := 1; ; try++ {
		s, err := r.tryContainer(ctx, docker)
		if err == nil || !portTaken(err) || try == 3 {
			return s, err
		}
	}
}

func (r recipe) tryContainer(ctx context.Context, docker *dockerd) (*Server, error) {
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	// The mark comes before the container: if we are killed between the two, the sweeper finds a mark without a
	// container, never the reverse.
	if err := os.WriteFile(filepath.Join(f.path, containerMark), nil, 0o600); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	at := site{dir: f.path, port: f.port, secret: newSecret()}
	made, err := testcontainers.GenericContainer(ctx, r.request(at, f.name()))
	b := &box{docker: docker, folder: f, container: made, unwatch: func() {}}
	if err != nil {
		return nil, errors.Join(err, b.remove(context.WithoutCancel(ctx)))
	}
	s := &Server{
		kind:   r.kind,
		url:    r.url(at),
		origin: "container " + r.image,
		ctl:    b,
		probe:  r.probe,
	}
	return s.boot(ctx, r, at)
}

// request describes the container. The port is chosen by us and fixed: one chosen by Docker changes with a restart.
func (r recipe) request(at site, name string) testcontainers.GenericContainerRequest {
	spec := r.container(at)
	inside := network.MustParsePort(r.port + "/tcp")
	var files []testcontainers.ContainerFile
	for path, text := range spec.files {
		files = append(files, testcontainers.ContainerFile{
			Reader: strings.NewReader(text), ContainerFilePath: path, FileMode: 0o644,
		})
	}
	return testcontainers.GenericContainerRequest{ContainerRequest: testcontainers.ContainerRequest{
		Name:         name,
		Image:        r.image,
		Cmd:          spec.cmd,
		Env:          spec.env,
		Files:        files,
		Labels:       map[string]string{ContainerLabel: cmp.Or(os.Getenv("DISTLOCK_RUN"), "1")},
		ExposedPorts: []string{inside.String()},
		HostConfigModifier: func(host *container.HostConfig) {
			host.PortBindings = network.PortMap{inside: {{
				HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(at.port),
			}}}
		},
	}}
}

// withHub is the name under which testcontainers will look for an image of the Docker Hub, if the user has told it to
// use a mirror. Images that name their registry are not touched.
func withHub(prefix, image string) string {
	if first, _, many := strings.Cut(image, "/"); prefix == "" || many && strings.ContainsAny(first, ".:") {
		return image
	}
	return path.Join(prefix, image)
}

// pulls remembers what came of pulling each image. A registry that could not be reached a moment ago is not asked
// again by every test of the binary.
var pulls struct {
	sync.Mutex
	failed map[string]error
}

// ensureImage sees to it that the engine has the image, by one attempt to pull it.
func (d *dockerd) ensureImage(ctx context.Context, image string) error {
	_, err := d.ImageInspect(ctx, image)
	if err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	pulls.Lock()
	defer pulls.Unlock()
	if err := pulls.failed[image]; err != nil {
		return err
	}
	if err := d.pull(ctx, image); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = unavailable{fmt.Sprintf("image %s is not here and cannot be pulled: %v", image, err)}
		if pulls.failed == nil {
			pulls.failed = map[string]error{}
		}
		pulls.failed[image] = err
		return err
	}
	return nil
}

// pull asks once; testcontainers would ask again for a quarter of an hour.
func (d *dockerd) pull(ctx context.Context, image string) error {
	answer, err := d.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer answer.Close()
	return answer.Wait(ctx)
}

// box is a server in a container.
type box struct {
	docker    *dockerd
	folder    *folder
	container testcontainers.Container // nil if it could not even be created
	ended     chan struct{}            // closed when the run is seen to have ended; nil before the first start
	unwatch   func()                   // stops looking
}

func (b *box) id() string { return b.container.GetContainerID() }

func (b *box) start(ctx context.Context) error {
	if _, err := b.docker.ContainerStart(ctx, b.id(), client.ContainerStartOptions{}); err != nil {
		return err
	}
	b.unwatch()
	b.watch()
	return nil
}

// watch waits for the end of the present run, so that a server that gives up at once is not waited for.
func (b *box) watch() {
	ctx, cancel := context.WithCancel(context.Background()) // the run outlives the call that started it
	ended := make(chan struct{})
	b.ended, b.unwatch = ended, cancel
	wait := b.docker.ContainerWait(ctx, b.id(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	go func() {
		select {
		case <-wait.Result:
			close(ended)
		case <-wait.Error: // the engine went away, or nobody looks any more: nothing is known
		}
	}()
}

// pause tries ten times: under cgroup v1 whether a busy container freezes is a matter of chance. runc gives up after
// some hundred looks, thaws the container again and says "unable to freeze" (opencontainers/runc pull request 2791).
func (b *box) pause(ctx context.Context) error {
	const tries = 10
	for try := 1; ; try++ {
		_, err := b.docker.ContainerPause(ctx, b.id(), client.ContainerPauseOptions{})
		if err == nil || try == tries || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
	}
}

func (b *box) resume(ctx context.Context) error {
	_, err := b.docker.ContainerUnpause(ctx, b.id(), client.ContainerUnpauseOptions{})
	return err
}

// kill also ends a paused container: the engine sends the signal first and lets go of it afterwards.
func (b *box) kill(ctx context.Context) error {
	if b.container == nil {
		return nil
	}
	_, err := b.docker.ContainerKill(ctx, b.id(), client.ContainerKillOptions{Signal: "SIGKILL"})
	if errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		return nil // it does not run
	}
	if err != nil {
		return err
	}
	// The engine answers when the signal is sent. The port is closed once the container counts as stopped.
	wait := b.docker.ContainerWait(ctx, b.id(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return err
	}
}

// remove goes through testcontainers once the container is dead, so that its helper's connection is closed too.
func (b *box) remove(ctx context.Context) error {
	b.unwatch()
	var err error
	if b.container != nil {
		err = b.container.Terminate(ctx, testcontainers.StopTimeout(0))
	}
	if err != nil {
		// Unlock the folder but keep its mark: the next run sweeps the container away.
		return errors.Join(err, b.folder.lock.Close())
	}
	return b.folder.remove()
}

func (b *box) exited() <-chan struct{} { return b.ended }

func (b *box) logTail(ctx context.Context) string {
	if b.container == nil {
		return ""
	}
	logs, err := b.container.Logs(ctx)
	if err != nil {
		return ""
	}
	defer logs.Close()
	text, _ := io.ReadAll(io.LimitReader(logs, 1<<20))
	return tail(text)
}

// removeContainer removes what a killed run left behind.
func removeContainer(ctx context.Context, name string) error {
	docker, err := engine(ctx)
	if err != nil {
		return err
	}
	defer docker.provider.Close()
	_, err = docker.ContainerRemove(ctx, name, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
