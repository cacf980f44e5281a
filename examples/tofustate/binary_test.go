package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// slow is a resource that is made once there is a file named go. It needs no provider, so
// nothing is downloaded. The shell ends with the folder, whatever becomes of the run.
const slow = `
terraform {
  backend "http" {}
}

resource "terraform_data" "slow" {
  input = "BY"

  provisioner "local-exec" {
    command = "touch begun; while [ -e begun ] && [ ! -e go ]; do sleep 0.1; done"
  }
}
`

// program is the command with a folder of its own, at one of the servers.
type program struct {
	t    *testing.T
	path string
	dir  string
	url  string
}

func newProgram(t *testing.T, path, by, url string) program {
	t.Helper()
	p := program{t, path, t.TempDir(), url + "/prod"}
	p.write("main.tf", strings.Replace(slow, "BY", by, 1))
	if out, err := p.start("init"); <-err != nil {
		t.Fatalf("init: %s", out)
	}
	return p
}

func (p program) write(file, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, file), []byte(text), 0o600); err != nil {
		p.t.Error(err)
	}
}

// start runs the command. The output is to be read after the channel has been.
func (p program) start(args ...string) (*bytes.Buffer, <-chan error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, p.path, append(args, "-no-color")...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "HOME="+p.dir, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0",
		"TF_HTTP_ADDRESS="+p.url, "TF_HTTP_LOCK_ADDRESS="+p.url, "TF_HTTP_UNLOCK_ADDRESS="+p.url)
	cmd.WaitDelay = 5 * time.Second // the shell of a run that was killed has its output, too
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- cmd.Run()
	}()
	return &out, ended
}

// Two runs of the real program at two servers over one folder. The second is refused and
// told of the first. Once it has taken the lock by force, the first can write no more.
func TestBinary(t *testing.T) {
	for _, name := range []string{"tofu", "terraform"} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("%s is not on PATH; TestProtocol has its messages", name)
			}
			servers.Each(t, func(t *testing.T, url string) { testBinary(t, path, url) })
		})
	}
}

func testBinary(t *testing.T, path, url string) {
	states := t.TempDir()
	a := newProgram(t, path, "a", newServer(t, states, url))
	b := newProgram(t, path, "b", newServer(t, states, url))

	first, firstEnded := a.start("apply", "-auto-approve")
	for _, err := os.Stat(filepath.Join(a.dir, "begun")); err != nil; _, err = os.Stat(filepath.Join(a.dir, "begun")) {
		select {
		case err := <-firstEnded:
			t.Fatalf("the first run has ended: %v\n%s", err, first)
		case <-time.After(50 * time.Millisecond):
		}
	}
	defer a.write("go", "") // if the test fails before that: let the run end

	out, ended := b.start("apply", "-auto-approve")
	if err := <-ended; err == nil {
		t.Fatalf("two runs at once:\n%s", out)
	}
	id := regexp.MustCompile(`ID: +(\S+)`).FindStringSubmatch(out.String())
	if id == nil || !regexp.MustCompile(`Who: +\S+@\S+`).MatchString(out.String()) {
		t.Fatalf("the second run is not told of the first:\n%s", out)
	}
	if out, ended = b.start("force-unlock", "-force", id[1]); <-ended != nil {
		t.Fatalf("force-unlock: %s", out)
	}
	b.write("go", "")
	if out, ended = b.start("apply", "-auto-approve"); <-ended != nil {
		t.Fatalf("a run after force-unlock: %s", out)
	}

	a.write("go", "")
	if err := <-firstEnded; err == nil || !strings.Contains(first.String(), "423") {
		t.Errorf("a run that has lost the lock was not refused its write: %v\n%s", err, first)
	}
	state, err := os.ReadFile(filepath.Join(states, "prod.tfstate"))
	if err != nil || !regexp.MustCompile(`"value":\s*"b"`).Match(state) || bytes.Contains(state, []byte(`"a"`)) {
		t.Errorf("the state is not that of the second run: %v\n%s", err, state)
	}
}
