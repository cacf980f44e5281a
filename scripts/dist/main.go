// Command dist makes what a release consists of, in the folder dist/: for each
// system an archive with the static command, its manual pages and the licences of
// all that is linked into it, and the checksums of the archives.
//
//	go run ./scripts/dist
//
// The same commit and the same Go give the same bytes, on any machine and by any
// user: no path, no clock, no user and no C compiler goes into them.
// The version is that of the commit, as Go stamps it; where there is no git, as in
// a tarball of the sources, VERSION in the environment names it.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	command = "./cmd/distlock"
	output  = "dist"
)

// target is a system that the command is built for.
type target struct{ os, arch string }

var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// environ is this process's environment without what could change the bytes.
func (t target) environ() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
}

// program is what the command is called on t.
func (t target) program() string {
	if t.os == "windows" {
		return "distlock.exe"
	}
	return "distlock"
}

func main() {
	licences := flag.Bool("licences", false, "only print the licences of what is linked into the command")
	flag.Parse()
	do := dist
	if *licences {
		do = func() error {
			text, err := thirdParty()
			if err == nil {
				_, err = os.Stdout.Write(text)
			}
			return err
		}
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func dist() error {
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "distlock-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var programs [][]byte
	for _, t := range targets {
		path := filepath.Join(work, t.os+"-"+t.arch, t.program())
		if err := run(t.environ(), "go", "build", "-trimpath", "-buildvcs=auto", "-ldflags", ldflags(), "-o", path, command); err != nil {
			return err
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		programs = append(programs, program)
	}
	version, changed, err := stamped(programs[0])
	if err != nil {
		return err
	}
	common, err := commonFiles(work, changed)
	if err != nil {
		return err
	}
	if err := os.Mkdir(output, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for i, t := range targets {
		files := append([]file{{t.program(), 0o755, programs[i]}}, common...)
		name, data, err := pack(fmt.Sprintf("distlock_%s_%s_%s", version, t.os, t.arch), t, files, changed)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(output, name), data, 0o644); err != nil {
			return err
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name)
		fmt.Print(line)
		sums.WriteString(line)
	}
	return os.WriteFile(filepath.Join(output, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// pack makes the kind of archive that can be unpacked on t without other tools.
func pack(folder string, t target, files []file, changed time.Time) (name string, data []byte, err error) {
	if t.os == "windows" {
		data, err = packZip(folder, files, changed)
		return folder + ".zip", data, err
	}
	data, err = packTar(folder, files, changed)
	return folder + ".tar.gz", data, err
}

// ldflags leaves out what no user of the command needs, and the build ID, which
// would tell apart programs that are the same.
func ldflags() string {
	flags := "-s -w -buildid="
	if v := os.Getenv("VERSION"); v != "" {
		flags += " -X github.com/distlock-go/distlock/internal/compare.version=" + v
	}
	return flags
}

// stamped returns the version in a built command, and the time of its commit.
func stamped(program []byte) (version string, changed time.Time, err error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return "", changed, err
	}
	changed = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of sources without a commit
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if changed, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return "", changed, err
			}
		}
	}
	version = info.Main.Version
	if v := os.Getenv("VERSION"); v != "" {
		version = v
	}
	return strings.Trim(version, "()"), changed.UTC(), nil
}

// commonFiles are those that every archive has.
func commonFiles(work string, changed time.Time) ([]file, error) {
	var files []file
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "docs/cli.md", "docs/config.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("not at the root of the module: %w", err)
		}
		files = append(files, file{name, 0o644, text})
	}
	notices, err := thirdParty()
	if err != nil {
		return nil, err
	}
	files = append(files, file{"THIRD_PARTY_LICENSES", 0o644, notices})
	man := filepath.Join(work, "man")
	if err := os.Mkdir(man, 0o755); err != nil {
		return nil, err
	}
	// The pages are made from the flags, which only the command itself knows.
	environ := append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", changed.Unix()))
	if err := run(environ, "go", "test", "-count=1", "-run=^TestManPages$", command, "-args", "-man="+man); err != nil {
		return nil, fmt.Errorf("the manual pages: %w", err)
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.1"))
	if err != nil || len(pages) == 0 {
		return nil, fmt.Errorf("no manual pages were written (error %v)", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"man/man1/" + filepath.Base(page), 0o644, text})
	}
	return files, nil
}

func run(environ []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
