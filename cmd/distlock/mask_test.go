package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/testkit"
)

func TestMask(t *testing.T) {
	m := newMask("--url=mysql://me:s3cret@h/db", "job", "zk://me:pw@h", `redis://me:wo"rd it@h?tt1=secr3t&ttl=3s`)
	for text, want := range map[string]string{
		"denied with s3cret on mysql://me:s3cret@h/db": "denied with xxxxx on mysql://me:xxxxx@h/db",
		"a pw of zk://me:pw@h:":                        "a pw of zk://me:xxxxx@h:", // too short to be looked for
		`quoted "redis://me:wo\"rd it@h?tt1=secr3t"`:   `quoted "redis://me:xxxxx@h?tt1=xxxxx"`,
		`wo"rd it and secr3t`:                          "xxxxx and xxxxx",
		"(etcd://a:1,[::1]:2/x?ttl=1s), and so on":     "(etcd://a:1,[::1]:2/x?ttl=1s), and so on",
		"[redis://h:1 redis://h:2]":                    "[redis://h:1 redis://h:2]",
		"redis://h?pw=other":                           "redis://h?pw=xxxxx",
		`"{\"redis://me:pa\\\"ss@h\"}"`:                `"{\"redis://me:xxxxx@h\"}"`,
		"unknown flag: --redis://me:oth":               "unknown flag: --redis://xxxxx",
		"https://example.org/a?b=c#d":                  "https://example.org/a?b=c#d",
		"two\nlines\tand \x1b]0;title\x07\r\u009b1m":   "two\nlines\tand ?]0;title???1m",
		"\u202etxt.exe \xff":                           "?txt.exe ?",
		"Grüße, 世界":                                    "Grüße, 世界",
	} {
		if got := m.message(text); got != want {
			t.Errorf("message(%q) is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		`{"name":"s3cret/1","holder":"zk://me:pw@h","token":3}`: `{"name":"s3cret/1","holder":"zk://me:xxxxx@h","token":3}`,
		`{"name":"redis://me:pa\"ss@h/1","holder":"x@y"}`:       `{"name":"redis://me:xxxxx@h/1","holder":"x@y"}`,
		`{"name":"redis://me:pw\\","holder":"x@y"}`:             `{"name":"redis://me:pw\\","holder":"x@y"}`,
		`"redis://me:pa\"ss@h/1"  held`:                         `"redis://me:xxxxx@h/1"  held`,
		"redis://h?id=3":                                        "redis://h?id=3",
		"docker://nginx@sha256:ab s3://b/k@v2 ssh://git@h/a":    "docker://nginx@sha256:ab s3://b/k@v2 ssh://git@h/a",
		"redis://:pw@h redis://me:p/w@h":                        "redis://:xxxxx@h redis://xxxxx",
		"\x1b[1mbold":                                           "?[1mbold",
	} {
		if got := m.data(text); got != want {
			t.Errorf("data(%q) is %q, want %q", text, got, want)
		}
	}
	if got := newMask("zk://me:distlock@h").message("distlock: distlock was refused"); got != "distlock: xxxxx was refused" {
		t.Errorf("the name of the program is a password: %q", got)
	}
	if got, want := m.painted("\x1b[1mzk://me:pw@h\x1b[0m\x1b]0;x\x07"), "\x1b[1mzk://me:xxxxx@h\x1b[0m?]0;x?"; got != want {
		t.Errorf("painted: %q, want %q", got, want)
	}
}

// A name is whole in JSON, whatever it has: what a terminal would act on is escaped. The passwords
// of URLs are hidden all the same.
func TestJSONLosesNothing(t *testing.T) {
	for _, name := range []string{"a\u202eb", "a\u2066b", "a\x7fb", "a\u0085b", "a\ufffdb", "a\U000e0001b", "a\x1b[2Jb", "a\tb\nc", `a"b\c`, "世界"} {
		var out bytes.Buffer
		must(t, showJSON(&masked{&out, given.data}, []distlock.Status{{Name: name, Held: true, Holder: name, Waiters: -1}}))
		var got struct{ Name, Holder string }
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Name != name || got.Holder != name {
			t.Errorf("%q: %v, %q from %s", name, err, got, &out)
		}
		for _, r := range out.String() {
			if !harmless(r) {
				t.Errorf("%q is written as it is: %s", r, &out)
			}
		}
	}
	var out bytes.Buffer
	must(t, showJSON(&masked{&out, given.data}, []distlock.Status{{Name: "redis://me:s3\u202ecret@h/1", Waiters: -1}}))
	if strings.Contains(out.String(), "cret") || !json.Valid(out.Bytes()) {
		t.Errorf("a password is shown, or this is no JSON: %s", &out)
	}
}

// schemes are those that the command has, without those of the tests.
var schemes = backends.Default.Schemes()

// Every parameter that a backend takes is shown with its value; what none takes is not.
func TestKnownParametersAreShown(t *testing.T) {
	for _, scheme := range schemes {
		_, err := backends.Open(t.Context(), scheme+"://h/1?no_such=1")
		var unknown *openurl.UnknownParamError
		if !errors.As(err, &unknown) {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		for _, p := range unknown.Known {
			if url := scheme + "://h/1?" + p.Name + "=1"; openurl.Redact(url) != url {
				t.Errorf("the value of %s, which %s takes, is hidden", p.Name, scheme)
			}
		}
	}
}

// Nothing is written past the mask: only what asks about the terminal, and the progress bar, know
// the files.
func TestOneWayOut(t *testing.T) {
	files, err := filepath.Glob("*.go")
	testkit.Must(t, err)
	for _, name := range files {
		if name == "mask.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		testkit.Must(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			direct := strings.Contains(line, "os.Stdout") || strings.Contains(line, "os.Stderr") ||
				strings.Contains(line, "fmt.Print")
			if direct && !strings.Contains(line, "term.IsTerminal(") && !strings.Contains(line, "term.GetSize(") && !strings.Contains(line, "progressbar.") {
				t.Errorf("%s:%d writes past the mask: %s", name, i+1, line)
			}
		}
	}
}

// A false server may answer with anything.
func TestServerCannotPlayWithTheTerminal(t *testing.T) {
	url := "redis://me:s3cret@" + hostile(t)
	for _, args := range [][]string{
		{"run", "job", "--", "true"}, {"inspect"}, {"break", "--yes", "job"}, {"check"},
		{"compare", "--safety=false", "--workloads", "solo", "--rounds", "1", "--duration", "50ms", url},
	} {
		cmd := exec.CommandContext(t.Context(), "distlock", args...)
		cmd.Env = append(os.Environ(), "DISTLOCK_URL="+url)
		out, _ := cmd.CombinedOutput() // that it fails is no news
		if strings.ContainsAny(string(out), "\x1b\x07\r\u009b") || strings.Contains(string(out), "s3cret") {
			t.Errorf("%v prints %q", args, out)
		}
		if !strings.Contains(string(out), "boo") {
			t.Errorf("%v does not say what the server has answered: %q", args, out)
		}
	}
}

// hostile is a server that answers every command of the protocol of Redis with an error
// that has all that a terminal acts on, and a password.
func hostile(t *testing.T) string {
	return testkit.Serve(t, nil, func(conn net.Conn) {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "*") {
				fmt.Fprint(conn, "-ERR boo \x1b]0;owned\x07\x1b[2J\u009b31m mysql://me:s3cret@h\r\n")
			}
		}
	})
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		testkit.Must(t, err)
	}
}
