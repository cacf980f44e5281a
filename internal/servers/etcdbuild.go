package servers

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// etcdModule is the go.mod and go.sum of a module that only requires the etcd server. They bear other names: files of
// a nested module cannot be embedded. So a distlock installed with "go install …@version", without its sources at
// hand, builds the same etcd with the same checksums. A module apart keeps etcd's hundred dependencies out of
// everybody's go.sum.
//
// To move to another release, in an empty folder: go mod init, go get -tool go.etcd.io/etcd/server/v3@RELEASE, go mod
// tidy; then copy the two files here.
//
//go:embed etcd/etcd.mod etcd/etcd.sum
var etcdModule embed.FS

const etcdPackage = "go.etcd.io/etcd/server/v3"

// buildBound is for a first build on a slow machine with everything still to be downloaded.
const buildBound = 15 * time.Minute

// etcdVersion is the release that etcd.mod requires, such as v3.7.3.
func etcdVersion() string {
	mod, err := etcdModule.ReadFile("etcd/etcd.mod")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(regexp.MustCompile(regexp.QuoteMeta(etcdPackage) + ` (v\S+)`).FindSubmatch(mod)[1])
}

// buildEtcd returns the path of an etcd built from its module, building it if no earlier run has.
// scripts/install-servers.sh puts it in the same place.
func buildEtcd(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", unavailable{"no etcd 3.5 or newer in PATH, and no place to build one: " + err.Error()}
	}
	dir := filepath.Join(cache, "distlock", "bin")
	binary := filepath.Join(dir, "etcd-"+etcdVersion())
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	golang, err := exec.LookPath("go")
	if err != nil {
		return "", unavailable{"no etcd 3.5 or newer in PATH, and no go command to build one"}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, buildBound)
	defer cancel()
	lock, err := waitLock(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("etcd is being built by another process: %w", err)
	}
	defer lock.Close()
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := compileEtcd(ctx, golang, dir, binary); err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return "", unavailable{"no etcd 3.5 or newer in PATH, and building one failed (if for a certificate, x509, install ca-certificates): " + err.Error()}
	}
	return binary, nil
}

// compileEtcd builds into a folder beside the binary's and renames: nobody ever sees half a file. The caller holds
// the lock on dir, so folders of killed builds may go.
func compileEtcd(ctx context.Context, golang, dir, binary string) error {
	work := filepath.Join(dir, "build")
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for from, to := range map[string]string{"etcd/etcd.mod": "go.mod", "etcd/etcd.sum": "go.sum"} {
		text, err := etcdModule.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, to), text, 0o644); err != nil {
			return err
		}
	}
	built := filepath.Join(work, "etcd")
	// The flags override what the user's environment may say for other modules.
	if _, err := RunTool(ctx, work, "env", "CGO_ENABLED=0", "GOWORK=off",
		golang, "build", "-mod=readonly", "-buildvcs=false", "-o", built, etcdPackage); err != nil {
		return err
	}
	return os.Rename(built, binary)
}

// waitLock locks a folder, and waits for its present holder.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		lock, err := lockPath(path)
		if err == nil || !errors.Is(err, errLocked) {
			return lock, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
