package servers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestBuildEtcd builds twice at a time, as two test binaries do on a fresh machine. "make tools" has built the same etcd
// by the same commands, so only make chaos and make topologies do it again.
func TestBuildEtcd(t *testing.T) {
	if os.Getenv("DISTLOCK_CHAOS_EVENTS") == "" {
		t.Skip("links etcd anew, some 20 s: make chaos does it")
	}
	golang, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	// Go's own caches have their place under the folders moved below; keep the ones there are.
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.CommandContext(t.Context(), golang, "env", name).Output()
		must(t, err)
		t.Setenv(name, strings.TrimSpace(string(value)))
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)

	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			path, err := buildEtcd(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if !strings.HasPrefix(path, cache) {
				t.Errorf("built as %s, not under %s", path, cache)
			}
			out, err := RunTool(t.Context(), cache, path, "--version")
			if err != nil || !strings.Contains(string(out), strings.TrimPrefix(etcdVersion(), "v")) {
				t.Errorf("got %q (%v), want version %s", out, err, etcdVersion())
			}
		})
	}
	wg.Wait()
	left, err := filepath.Glob(filepath.Join(cache, "*", "bin", "*"))
	must(t, err)
	more, err := filepath.Glob(filepath.Join(cache, "*", "*", "bin", "*")) // macOS: Library/Caches
	must(t, err)
	if left = append(left, more...); len(left) != 1 {
		t.Errorf("the build left %v, want the binary alone", left)
	}
}

// TestNoEtcd: without etcd and without Go there is nothing to be had. That is no fault.
func TestNoEtcd(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv("PATH", "")
	if _, err := buildEtcd(t.Context()); !errors.As(err, new(unavailable)) || !strings.Contains(err.Error(), "go command") {
		t.Fatalf("got %v, want that it is unavailable for want of a go command", err)
	}
}
