package distlock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/distlock-go/distlock"

// Budgets of the code that is not test code, in lines.
const (
	maxFile = 400
	maxFunc = 60
)

// importRule says what the packages of a directory may import besides the standard
// library. Packages of this module are written from its root: ".", "memlock". A
// name ending in "/..." stands for everything below it, "..." alone for anything.
type importRule struct {
	dir     string
	imports []string
	tests   []string // what its tests may import in addition, besides testImports
	testing bool     // may use package testing in code that is not a test
}

// importRules has a rule for each package; a package without one fails the test.
// The rules keep a user's binary small, and a driver replaceable: the binary has the
// client of its own store, and no code of another store.
var importRules = []importRule{
	{dir: "."},
	{dir: "patterns", imports: []string{"."}},
	{dir: "driver", imports: []string{".", "internal/stack"}},
	{dir: "memlock", imports: []string{".", "driver"}},
	{dir: "redislock", imports: []string{".", "driver", "internal/openurl", "redislock/internal/...", "github.com/redis/go-redis/v9/..."}},
	{dir: "redislock/redlock", imports: []string{".", "driver", "internal/openurl", "redislock/internal/...", "github.com/redis/go-redis/v9/..."}},
	// What both drivers for Redis need: how a client is made and a script sent, and what its error says. Both have go-redis
	// anyway, so its use here makes no binary larger. Nothing here knows of locks; of driver it has the words for a fate.
	{dir: "redislock/internal/...", imports: []string{".", "driver", "internal/openurl", "internal/stack", "github.com/redis/go-redis/v9/..."}},
	{dir: "mysqllock", imports: []string{".", "driver", "internal/openurl", "internal/sqltext", "internal/turns", "github.com/go-sql-driver/mysql"}},
	{dir: "pglock", imports: []string{".", "driver", "internal/openurl", "internal/sqltext", "internal/turns", "github.com/jackc/pgx/v5/..."}},
	{dir: "zklock", imports: []string{".", "driver", "internal/openurl", "zklock/internal/...", "github.com/go-zookeeper/zk"}},
	// The connection to the servers, with the flaws of the library worked around. It knows nothing of locks.
	{dir: "zklock/internal/...", imports: []string{"github.com/go-zookeeper/zk"}},
	{dir: "etcdlock", imports: []string{
		".", "driver", "internal/openurl", "etcdlock/internal/...", "go.etcd.io/etcd/...",
		// The etcd client speaks in values of these: error codes, and a logger that it insists on.
		"google.golang.org/grpc/...", "go.uber.org/zap/...",
	}},
	// What the etcd client does not do well. Nothing here knows of locks.
	{dir: "etcdlock/internal/...", imports: []string{"go.etcd.io/etcd/...", "google.golang.org/grpc/..."}, tests: []string{"go.uber.org/zap"}},
	{dir: "backends",
		imports: []string{".", "driver", "internal/openurl", "memlock", "redislock", "redislock/redlock", "mysqllock", "pglock", "zklock", "etcdlock"},
		// Decodes a Config as a user's loader would, and compiles the code of the README.
		tests: []string{"go.yaml.in/yaml/v3", "fence"}},
	// Knows no store: what a table or a script has to compare is the same for all clients. Its tests are the
	// examples of docs/fencing.md, which run on the stores.
	{dir: "fence", tests: []string{"backends", "redislock", "mysqllock", "zklock", "etcdlock", "github.com/redis/go-redis/v9/...",
		"github.com/go-sql-driver/mysql", "github.com/go-zookeeper/zk", "go.etcd.io/etcd/..."}},
	{dir: "conformance", imports: []string{".", "driver", "patterns", "conformance/oracle", "conformance/netfault", "internal/canary"}, testing: true},
	// porcupine judges histories for linearizability; a checker of our own would need one, too.
	{dir: "conformance/oracle", imports: []string{".", "github.com/anishathalye/porcupine"}},
	{dir: "conformance/netfault"},
	// A network and a server in virtual time, for the reference driver and for what is made from it.
	{dir: "conformance/virtual", imports: []string{".", "driver", "memlock", "conformance/netfault"}},
	// What the suite must catch: a driver on real stores, as a stranger writes it, straight on their clients;
	{dir: "internal/mutants/stores", tests: []string{".", "driver", "conformance", "conformance/netfault", "github.com/redis/go-redis/v9/...",
		"github.com/go-sql-driver/mysql", "go.etcd.io/etcd/...", "go.uber.org/zap"}},
	// and broken drivers, made from the good one.
	{dir: "internal/mutants/processes", tests: []string{".", "driver", "memlock", "conformance"}},
	{dir: "internal/mutants", imports: []string{".", "driver", "patterns", "memlock", "conformance", "conformance/netfault", "conformance/virtual"}, testing: true},
	{dir: "internal/openurl", imports: []string{"."}},
	{dir: "internal/sqltext", imports: []string{"."}},
	// How the statements of a driver share a pool of connections; of driver it has the words for a fate.
	{dir: "internal/turns", imports: []string{"driver"}},
	{dir: "internal/stack"},
	// How late this process is woken: for the suite's bounds, and those of tests.
	{dir: "internal/canary"},
	{dir: "internal/testkit", testing: true, imports: []string{"internal/canary"}},
	// What Linux says of the processes of a server.
	{dir: "internal/procstat"},
	// Starts servers and asks them by their own clients whether they are ready; knows nothing of locks.
	{dir: "internal/servers/...", testing: true, imports: []string{"conformance/netfault", "internal/procstat",
		"github.com/redis/go-redis/v9/...", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5/...", "github.com/go-zookeeper/zk",
		"go.etcd.io/etcd/...", "go.uber.org/zap/...", "google.golang.org/grpc/...", "golang.org/x/sys/...",
		"github.com/testcontainers/testcontainers-go/...", "github.com/containerd/errdefs/...", "github.com/moby/moby/...",
	}},
	{dir: "internal/harness/...", testing: true,
		imports: []string{"./...", "github.com/redis/go-redis/v9/...", "github.com/go-sql-driver/mysql", "github.com/go-zookeeper/zk", "go.etcd.io/etcd/..."},
		tests:   []string{"go.uber.org/zap"}},
	// Makes and removes a part of a server of its own, by the server's own client.
	{dir: "internal/sandbox", imports: []string{".", "internal/openurl", "github.com/redis/go-redis/v9/...", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5/...",
		"github.com/go-zookeeper/zk", "go.etcd.io/etcd/...", "google.golang.org/grpc/...", "go.uber.org/zap/..."}},
	{dir: "internal/sandbox/lookinto", testing: true, imports: []string{"internal/openurl", "internal/servers", "github.com/redis/go-redis/v9/...",
		"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "github.com/go-zookeeper/zk", "go.etcd.io/etcd/...", "go.uber.org/zap/..."}},
	// What a comparison has found, as data: measuring and rendering know nothing of each other.
	{dir: "internal/compare/report", imports: []string{"internal/openurl"}},
	// Reads the CPU clocks of processes.
	{dir: "internal/compare/measure", imports: []string{".", "backends", "conformance/netfault", "internal/openurl", "internal/procstat", "internal/sandbox", "internal/compare/report", "golang.org/x/sys/..."},
		tests: []string{"internal/sandbox/lookinto"}},
	// Reads the clock that processes share.
	{dir: "internal/compare/hazard", imports: []string{".", "driver", "backends", "conformance", "conformance/netfault", "internal/openurl", "internal/sandbox", "internal/compare/report", "golang.org/x/sys/..."}},
	{dir: "internal/compare/render", imports: []string{"internal/compare/report"},
		// Drives a browser that opens the page of a report.
		tests: []string{"github.com/chromedp/..."}},
	// Breaks a store while clients lock on it, and has the suite's oracles judge.
	{dir: "internal/chaos", imports: []string{".", "conformance/oracle"},
		tests: []string{"backends", "fence", "internal/sandbox", "github.com/redis/go-redis/v9/...", "go.etcd.io/etcd/..."}},
	{dir: "internal/compare", imports: []string{".", "driver", "internal/compare/measure", "internal/compare/hazard", "internal/compare/report"}},
	// Runs a program in a process group of its own, and ends it with everything it has started.
	{dir: "internal/supervise", imports: []string{".", "golang.org/x/sys/...", "golang.org/x/term"}},
	// A command is a whole program: flags, configuration files, terminals are what other modules are for.
	{dir: "cmd/...", imports: []string{"..."}},
	// Makes the archives of a release.
	{dir: "scripts/dist"},
	// Make test, and the search for tests that fail now and then.
	{dir: "scripts/runtests", imports: []string{"internal/procstat"}},
	{dir: "scripts/flakes"},
	// An example imports what its readers can import.
	{dir: "examples/naive", imports: []string{".", "backends", "github.com/redis/go-redis/v9"}}, // shows locks by bare commands
	{dir: "examples/...", imports: []string{".", "driver", "patterns", "backends"}},
}

// testImports is what every test may import: the suite and what it runs on. A test
// of one driver still imports no other.
var testImports = []string{
	".", "driver", "patterns", "memlock", "conformance", "conformance/netfault", "conformance/virtual", "internal/openurl", "internal/servers", "internal/harness/...", "internal/testkit",
	"go.uber.org/goleak", // finds what outlives a Close
}

// source is a parsed file of this module.
type source struct {
	name, dir string // slash-separated, from the root of the module
	test      bool
	file      *ast.File
	fset      *token.FileSet
}

func TestImports(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range sources(t) {
		i := slices.IndexFunc(importRules, func(r importRule) bool { return covers(r.dir, s.dir) })
		if i < 0 {
			t.Errorf("%s: add a rule for %s to importRules", s.name, s.dir)
			continue
		}
		rule := importRules[i]
		used[rule.dir] = true
		for _, spec := range s.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if why := rule.refuses(s, imported); why != "" {
				t.Errorf("%s imports %s: %s", s.fset.Position(spec.Pos()), imported, why)
			}
		}
	}
	for _, r := range importRules {
		if !used[r.dir] {
			t.Errorf("the rule for %s applies to nothing", r.dir)
		}
	}
}

// refuses returns why the rule does not let s import a path, or "".
func (r importRule) refuses(s source, imported string) string {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		if imported == "testing" && !s.test && !r.testing {
			return "package testing is for tests"
		}
		return ""
	}
	name := imported
	if imported == module {
		name = "."
	} else if below, ok := strings.CutPrefix(imported, module+"/"); ok {
		name = below
	}
	allowed := slices.Clone(r.imports)
	if s.test {
		allowed = append(append(append(allowed, s.dir), r.tests...), testImports...)
	}
	if !slices.ContainsFunc(allowed, func(pattern string) bool { return covers(pattern, name) }) {
		return "allowed are the standard library and " + strings.Join(allowed, ", ")
	}
	if covers("cmd/...", name) || covers("examples/...", name) {
		return "it is a command"
	}
	return ""
}

// covers reports whether a pattern of importRules stands for name.
func covers(pattern, name string) bool {
	switch first, _, _ := strings.Cut(name, "/"); pattern {
	case "...":
		return true
	case "./...":
		return name == "." || !strings.Contains(first, ".")
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == tree || strings.HasPrefix(name, tree+"/")
	}
	return name == pattern
}

// A rule that lets everything pass would not be noticed otherwise.
func TestImportRulesRefuse(t *testing.T) {
	for _, tc := range []struct {
		dir      string
		test     bool
		imported string
		refused  bool
	}{
		{".", false, "net/http", false},
		{".", false, "testing", true},
		{".", false, module + "/memlock", true},
		{".", false, module + "/driver", true},
		{".", false, module + "/patterns", true},
		{"patterns", false, module, false},
		{"patterns", false, module + "/driver", true},
		{"driver", false, module, false},
		{"driver", false, module + "/memlock", true},
		{"redislock", false, module + "/driver", false},
		{".", true, module + "/memlock", false},
		{".", false, "github.com/redis/go-redis/v9", true},
		{"redislock", false, module, false},
		{"redislock", false, "github.com/redis/go-redis/v9", false},
		{"redislock", false, "github.com/redis/go-redis/v9/maintnotifications", false},
		{"redislock", false, "github.com/redis/go-redis/v99", true},
		{"redislock", false, "github.com/go-zookeeper/zk", true},
		{"redislock", false, module + "/zklock", true},
		{"redislock", true, module + "/zklock", true},
		{"redislock", true, module + "/conformance", false},
		{"redislock", false, module + "/internal/servers", true},
		{"conformance", false, module + "/memlock", true},
		{"fence", false, module, true},
		{"fence", true, module + "/etcdlock", false},
		{"conformance", false, module + "/internal/servers", true},
		{"backends", false, module + "/internal/servers", true},
		{"backends", false, "github.com/redis/go-redis/v9", true},
		{"cmd/distlock", false, module + "/internal/servers", false},
		{"cmd/distlock", false, module + "/examples/account", true},
		{"cmd/distlock", false, "github.com/spf13/cobra", false},
		{"examples/account", false, "github.com/spf13/cobra", true},
	} {
		i := slices.IndexFunc(importRules, func(r importRule) bool { return covers(r.dir, tc.dir) })
		why := importRules[i].refuses(source{dir: tc.dir, test: tc.test}, tc.imported)
		if (why != "") != tc.refused {
			t.Errorf("%s (test %v) imports %s: refused %v, want %v: %s", tc.dir, tc.test, tc.imported, why != "", tc.refused, why)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if n := s.fset.Position(s.file.FileEnd).Line - 1; n > maxFile {
			t.Errorf("%s has %d lines, at most %d are allowed", s.name, n, maxFile)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			f, ok := n.(*ast.FuncDecl)
			if !ok {
				return true
			}
			first, last := s.fset.Position(f.Pos()), s.fset.Position(f.End()).Line
			if n := last - first.Line + 1; n > maxFunc {
				t.Errorf("%s: %s has %d lines, at most %d are allowed", first, f.Name.Name, n, maxFunc)
			}
			return true
		})
	}
}

// sources parses every Go file of this module, for whatever system it is; nested
// modules make their own rules.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, noModule := os.Stat(filepath.Join(name, "go.mod"))
			hidden := name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"))
			if name != "." && noModule == nil || hidden || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		name = filepath.ToSlash(name)
		all = append(all, source{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), file, fset})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d files only", len(all))
	}
	return all
}
