//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkout makes a module of two packages the working directory, and returns options with which their programs are kept. Its
// go command is a script that writes to a file how it was called, and whether the lock was handed to it.
func checkout(t *testing.T) (options, *strings.Builder) {
	t.Helper()
	t.Chdir(t.TempDir())
	keep := t.TempDir()
	put(t, "go.mod", "module example.org/kept\n\ngo 1.26\n")
	put(t, "a/a_test.go", fmt.Sprintf(says, "a", "one"))
	put(t, "b/b_test.go", fmt.Sprintf(says, "b", "one"))
	put(t, "gocmd", "#!/bin/sh\ntest -e /dev/fd/3 && locked=locked\necho $1 $locked >> $(dirname $0)/calls\n"+
		"test $1 = test && rm $(dirname $0)/kill 2>&- && for last; do test x$before = x-o && echo torn > $last/a.test && kill -9 $$; before=$last; done\n"+
		"exec go \"$@\"\n")
	if err := os.Chmod("gocmd", 0o700); err != nil {
		t.Fatal(err)
	}
	golang, err := filepath.Abs("gocmd")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder // not the standard output, as in TestRunAgain
	return options{goCommand: golang, side: 1, parallel: 1, timeout: time.Minute, out: &out, light: true, keep: keep, free: has(2 * keptRoom)}, &out
}

// has is a disk with that much left, whatever this machine has.
func has(room uint64) func(string) (uint64, error) {
	return func(string) (uint64, error) { return room, nil }
}

// says is a test that writes to a file which version of it was run.
const says = `package %s

import ("os"; "testing")

func Test(t *testing.T) {
	if err := os.WriteFile("said", []byte(%q), 0o600); err != nil { t.Fatal(err) }
}
`

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// expect runs all, and wants this of a and b: what was said, or "" of one that was not run.
func expect(t *testing.T, o options, want bool, a, b string) {
	t.Helper()
	said := map[string]string{"a": a, "b": b}
	for name := range said {
		_ = os.Remove(name + "/said")
	}
	_ = os.Remove("calls")
	if ok, err := runAll(t.Context(), o); err != nil || ok != want {
		t.Errorf("got %v, %v, want %v: %q", ok, err, want, o.out)
	}
	for name, want := range said {
		if got, _ := os.ReadFile(name + "/said"); string(got) != want {
			t.Errorf("the program of %s said %q, want %q", name, got, want)
		}
	}
}

// program is what is kept of a package, and nil if nothing is.
func program(o options, name string) fs.FileInfo {
	root, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	info, err := os.Stat(filepath.Join(keptDir(o, root), "plain", name, name+".test"))
	if err != nil {
		return nil
	}
	return info
}

// TestKept: a second run links only what has changed, and never runs the program of an earlier source.
func TestKept(t *testing.T) {
	o, _ := checkout(t)
	expect(t, o, true, "one", "one")
	if calls, _ := os.ReadFile("calls"); string(calls) != "list\ntest locked\n" {
		t.Errorf("the go command was called as %q", calls)
	}
	a, b := program(o, "a"), program(o, "b")
	put(t, "a/a_test.go", fmt.Sprintf(says, "a", "two"))
	expect(t, o, true, "two", "one")
	if os.SameFile(a, program(o, "a")) || !os.SameFile(b, program(o, "b")) {
		t.Errorf("a has changed, and b has not; linked anew: a %v, b %v", !os.SameFile(a, program(o, "a")), !os.SameFile(b, program(o, "b")))
	}

	put(t, "a/a_test.go", "package a\n\nimport \"testing\"\n\nfunc Test(t *testing.T) { t = 1 }\n")
	expect(t, o, false, "", "one")
	if program(o, "a") != nil {
		t.Error("the program of what does not build any more is still there")
	}

	if err := os.RemoveAll("a"); err != nil {
		t.Fatal(err)
	}
	o.patterns = []string{"./b"}
	put(t, filepath.Join(keptDir(o, must(os.Getwd())), "plain/gone/gone.test"), "")
	expect(t, o, true, "", "one")
	if program(o, "gone") == nil {
		t.Error("a run of some packages has removed the programs of others")
	}
	o.patterns = nil
	expect(t, o, true, "", "one")
	if program(o, "gone") != nil {
		t.Error("the program of a package that is gone was kept")
	}
	if !os.SameFile(b, program(o, "b")) {
		t.Error("b was linked anew, although nothing has changed in it")
	}
	if err := clean(o); err != nil || program(o, "b") != nil {
		t.Errorf("clean has left the programs: %v", err)
	}
	if err := clean(o); err != nil {
		t.Error("nothing to be cleaned:", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestNotKept: a run has programs of its own where nothing can be kept, or is not to be trusted.
func TestNotKept(t *testing.T) {
	o, out := checkout(t)
	expect(t, o, true, "one", "one")
	a, dir := program(o, "a"), keptDir(o, must(os.Getwd()))

	t.Run("another run has them", func(t *testing.T) {
		lock := must(lockKept(dir))
		defer lock.Close()
		put(t, "a/a_test.go", fmt.Sprintf(says, "a", "two"))
		expect(t, o, true, "two", "one")
		if !os.SameFile(a, program(o, "a")) || !strings.Contains(out.String(), "another run uses "+dir) {
			t.Errorf("it has used what another has locked: %q", out)
		}
		if err := clean(o); err == nil || program(o, "a") == nil {
			t.Error("what another has locked was cleaned:", err)
		}
	})
	t.Run("a killed run has left a part of one", func(t *testing.T) {
		torn := filepath.Join(dir, "building", "0", "a.test")
		if err := errors.Join(os.MkdirAll(filepath.Dir(torn), 0o700), os.Rename(filepath.Join(dir, "plain", "a", "a.test"), torn),
			os.Truncate(torn, a.Size()/8)); err != nil {
			t.Fatal(err)
		}
		put(t, "a/a_test.go", fmt.Sprintf(says, "a", "one")) // it has the build ID of that
		o.patterns = []string{"./..."}                       // such a run leaves what other packages have
		expect(t, o, true, "one", "one")
	})
	t.Run("no place for one", func(t *testing.T) {
		if err := os.RemoveAll(filepath.Join(dir, "plain", "a")); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, "plain", "a"), "a file, where a folder has to be")
		b := program(o, "b")
		expect(t, o, true, "one", "one")
		if program(o, "a") != nil || !os.SameFile(b, program(o, "b")) {
			t.Error("the other program was not kept")
		}
	})
	t.Run("no folder", func(t *testing.T) {
		none := o
		none.keep = filepath.Join(o.keep, "file")
		put(t, none.keep, "")
		expect(t, none, true, "one", "one")
	})
	t.Run("the go command was killed, as for want of memory", func(t *testing.T) {
		put(t, "kill", "the next go command")
		expect(t, o, true, "one", "one")
		if _, err := os.Stat("kill"); err == nil {
			t.Error("it was not killed")
		}
	})
	t.Run("the folder is relative", func(t *testing.T) {
		here := o
		here.keep = "keep"
		expect(t, here, true, "one", "one")
		if _, err := os.Stat(filepath.Join("keep", filepath.Base(dir), "plain", "b", "b.test")); err != nil {
			t.Error(err)
		}
	})
	t.Run("the disk is full", func(t *testing.T) {
		for _, full := range []struct {
			room uint64
			kept bool
		}{{keptRoom, true}, {keptRoom - 1, false}, {keptRoom + keptSize - 1, false}, {keptRoom + keptSize, true}} {
			o.free = has(full.room)
			k, err := openKept(o)
			if (err == nil) != full.kept || !full.kept && program(o, "b") != nil {
				t.Errorf("%d bytes are left: want the programs to be kept: %v; got %v", full.room, full.kept, err)
			}
			if err == nil {
				_ = k.lock.Close()
			}
		}
	})
}

// TestForgetOthers: no programs stay of a checkout that is gone or unused, as long as no run has them.
func TestForgetOthers(t *testing.T) {
	keep, root := t.TempDir(), t.TempDir()
	for name, tc := range map[string]struct {
		root string
		age  time.Duration
		used bool
		stay bool
	}{
		"used":          {root, time.Hour, false, true},
		"unused":        {root, keptFor + time.Hour, false, false},
		"gone":          {root + "/gone", time.Hour, false, false},
		"gone, running": {root + "/gone", time.Hour, true, true},
		"mine":          {root, keptFor + time.Hour, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(keep, name)
			file := filepath.Join(dir, checkoutFile)
			put(t, file, tc.root)
			if err := os.Chtimes(file, time.Time{}, time.Now().Add(-tc.age)); err != nil {
				t.Fatal(err)
			}
			if tc.used {
				defer must(lockKept(dir)).Close()
			}
			forgetOthers(filepath.Join(keep, "mine"))
			if _, err := os.Stat(dir); tc.stay == errors.Is(err, fs.ErrNotExist) {
				t.Errorf("want it to stay: %v; got %v", tc.stay, err)
			}
		})
	}
}

// TestForgetTorn: what a killed removal has left of programs is removed, and nothing that is not of this command.
func TestForgetTorn(t *testing.T) {
	keep := t.TempDir()
	torn, other := filepath.Join(keep, "0123456789abcdef"), filepath.Join(keep, "documents")
	put(t, filepath.Join(torn, "plain", "a", "a.test"), "a program")
	put(t, filepath.Join(other, "plain", "a", "a.test"), "a program")
	forgetOthers(filepath.Join(keep, "mine"))
	if _, err := os.Stat(torn); err == nil {
		t.Error("what is left of programs stays for ever")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("a folder that nobody has made for programs is gone:", err)
	}
}
