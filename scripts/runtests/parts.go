package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// part is one test program and what became of it.
type part struct {
	name   string // the folder of the package from the root of the repository, and how it is run if that is special
	dir    string
	module string // folder of its module
	pkg    string // import path
	race   bool
	args   []string // besides those of all
	idle   bool     // in virtual time, never late: runs beside the others, on what they leave of the processors
	light  bool     // waits for longer than it computes: comes last, and beside the others once nothing idle is left

	batch   int
	program string
	kept    bool   // the program stays for the next run
	log     string // where its output goes
	result
}

// in is where the go command writes the program, if it is told that folder.
func (p *part) in(dir string) string { return filepath.Join(dir, path.Base(p.pkg)+".test") }

// longFirst has the packages that take longest, in the order in which they start. The whole ends soonest if nothing
// long begins late. The two that want most of the processors, pglock and zklock, are far from each other: side by side on a slow machine,
// ZooKeeper takes seconds for a lock, and little is learnt.
var longFirst = []string{"cmd/distlock", mutants, "mysqllock", "pglock", "redislock", "etcdlock", "conformance", "redislock/redlock",
	"zklock", "internal/chaos", "examples/ticks", "examples/account", "internal/compare/measure", "internal/mutants/stores",
	"internal/servers", "internal/compare/render", "examples/filelock", "bench", "scripts/runtests"}

// light packages use a processor for less than half of their time: a third one beside two others keeps none of them waiting.
var light = []string{"internal/mutants/processes", "internal/supervise", "examples/naive", "integrations/asynqrecipe",
	"integrations/cronlock", "integrations/gocronlock", "integrations/gooselock", "integrations/otellock"}

// heavy has what the packages of -light do not need: stores, their clients, a browser. To compile the clients takes longer
// than all tests without them.
var heavy = []string{modulePath + "/internal/servers", modulePath + "/backends", "github.com/chromedp/"}

// mutants has a target of its own, and takes minutes.
const mutants = "internal/mutants"

// plain packages run without -race, with which they take several times as long: the suite, the engine and the driver that the
// mutants are made from run under it in packages of their own, and what records for an oracle does so in every driver's suite.
// "make each" has filelock under it. None of them needs a client of a store: to compile those a second time takes longer.
var plain = []string{mutants, "conformance/oracle", "examples/filelock"}

const modulePath = "github.com/distlock-go/distlock"

// findParts lists the packages with tests in the order in which they are built and started.
func findParts(ctx context.Context, o options) ([]*part, error) {
	modules, err := findModules(".")
	if err != nil {
		return nil, err
	}
	var parts []*part
	for _, module := range modules {
		if module != "." && o.light {
			continue
		}
		found, err := listPackages(ctx, o, module)
		if err != nil {
			return nil, err
		}
		parts = append(parts, found...)
	}
	for _, pattern := range o.patterns {
		if !slices.ContainsFunc(parts, func(p *part) bool { return wanted(p.name, []string{pattern}) }) {
			return nil, fmt.Errorf("no package with tests matches %s", pattern)
		}
	}
	parts = slices.DeleteFunc(parts, func(p *part) bool { return !wanted(p.name, o.patterns) })
	slices.SortStableFunc(parts, func(a, b *part) int { return rank(a.name) - rank(b.name) })
	var all []*part
	for _, p := range parts {
		all = append(all, variants(p, o)...)
	}
	batches(all)
	return all, nil
}

// rank is a place in longFirst, or behind it.
func rank(name string) int {
	if i := slices.Index(longFirst, name); i >= 0 {
		return i
	}
	return len(longFirst)
}

// variants: most packages run once. The mutants run by the checks that have to kill them, and the drivers that are unusual and
// right by half of the suite each: see "make matrix". What conformance has in virtual time runs apart from what it has in real time.
func variants(p *part, o options) []*part {
	p.race = p.race && !slices.Contains(plain, p.name)
	p.light = slices.Contains(light, p.name)
	another := func(how string, args ...string) *part {
		q := *p
		q.name, q.args, q.idle = p.name+" ("+how+")", args, true
		return &q
	}
	switch {
	case p.name == mutants:
		unusual := another("unusual", "-test.short", "-test.run=TestTolerated")
		p.args, p.idle = []string{"-test.short", "-test.skip=TestTolerated"}, true
		return []*part{p, unusual}
	case p.name == "conformance" && o.run == "" && o.skip == "":
		const inVirtualTime = "^(TestMemlock|TestAbsentIsNotUsed|TestFar)$"
		virtual := another("virtual", "-test.run="+inVirtualTime)
		p.args = []string{"-test.skip=" + inVirtualTime}
		return []*part{p, virtual}
	}
	return []*part{p}
}

// batches numbers what one go command builds: packages of one module, of different names, the long ones before the others.
// A small batch lets the first tests begin soon, a large one asks the go command less often for the same graph: so the short ones,
// which nobody waits for, come in large ones.
func batches(parts []*part) {
	type batch struct {
		module string
		race   bool
		long   bool
		names  map[string]bool
	}
	var all []batch
	for _, p := range parts {
		folder, _, _ := strings.Cut(p.name, " ")
		long := rank(folder) < len(longFirst)
		most := 16
		if long {
			most = 4
		}
		name := path.Base(p.pkg)
		i := slices.IndexFunc(all, func(b batch) bool {
			return b.module == p.module && b.race == p.race && b.long == long && !b.names[name] && len(b.names) < most
		})
		if i < 0 {
			i = len(all)
			all = append(all, batch{p.module, p.race, long, map[string]bool{}})
		}
		all[i].names[name] = true
		p.batch = i
	}
}

// findModules returns the folders of the modules below root, in the order of their names.
func findModules(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.Name() == "go.mod" {
			dirs = append(dirs, filepath.Dir(file))
		}
		return nil
	})
	return dirs, err
}

// listPackages asks the go command.
func listPackages(ctx context.Context, o options, module string) ([]*part, error) {
	args := []string{"list", "-f", `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`}
	if o.light { // the dependencies are those of the test programs, which bear the package's path and .test
		args = []string{"list", "-test", "-f", `{{.ImportPath}} {{.Dir}} {{join .Deps ","}}`}
	}
	cmd := exec.CommandContext(ctx, o.goCommand, append(args, "./...")...)
	cmd.Dir = module
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", module, err, errs.Bytes())
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var parts []*part
	for line := range strings.Lines(string(out)) {
		pkg, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		dir, deps, _ := strings.Cut(rest, " ")
		if o.light {
			program := false
			if pkg, program = strings.CutSuffix(pkg, ".test"); !program || isHeavy(pkg, deps) {
				continue
			}
		}
		if pkg == "" {
			continue
		}
		name, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		parts = append(parts, &part{name: filepath.ToSlash(name), dir: dir, module: module, pkg: pkg, race: o.race})
	}
	return parts, nil
}

// isHeavy tells by the import path of a package and those of its dependencies.
func isHeavy(pkg, deps string) bool {
	return pkg == modulePath+"/"+mutants || slices.ContainsFunc(heavy, func(h string) bool { return strings.Contains(","+deps, ","+h) })
}

// wanted matches a package's folder with patterns such as ./redislock and ./integrations/...; none is all.
func wanted(name string, patterns []string) bool {
	for _, pattern := range patterns {
		pattern = path.Clean(filepath.ToSlash(pattern))
		below, tree := strings.CutSuffix(pattern, "...")
		below = strings.TrimSuffix(below, "/")
		if name == pattern || tree && (below == "" || name == below || strings.HasPrefix(name, below+"/")) {
			return true
		}
	}
	return len(patterns) == 0
}
