package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile finds the files that must be passed on with a program.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.\-_].*)?$`)

// embedded is what the command contains that is no Go module, by the folder that it
// and its licences are in.
var embedded = map[string]string{"Apache ECharts, in the pages of distlock compare": "internal/compare/render/html/echarts"}

// thirdParty returns the licences and notices of all that is linked into the
// command on any target, and of Go's own library.
func thirdParty() ([]byte, error) {
	folders := make(map[string]map[string]bool) // by the module
	for _, t := range targets {
		if err := linked(t, folders); err != nil {
			return nil, err
		}
	}
	for name, folder := range embedded {
		folders[name] = map[string]bool{folder: true}
	}
	var b bytes.Buffer
	fmt.Fprint(&b, "The distlock command contains the following software, under the terms below each.\n")
	for _, module := range slices.Sorted(maps.Keys(folders)) {
		if err := notice(&b, module, slices.Sorted(maps.Keys(folders[module]))); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// linked adds the folders of the packages that the command needs on t, and of the
// modules that they are in: a part of a module may have a licence of its own.
func linked(t target, folders map[string]map[string]bool) error {
	cmd := exec.Command("go", "list", "-deps", "-f",
		`{{if .Standard}}Go's standard library|{{$.Root}}|{{$.Root}}{{else if not .Module.Main}}{{.Module.Path}} {{.Module.Version}}|{{.Module.Dir}}|{{.Dir}}{{end}}`, command)
	cmd.Env, cmd.Stderr = t.environ(), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		module, rest, ok := strings.Cut(strings.TrimSpace(line), "|")
		if !ok {
			continue
		}
		root, dir, _ := strings.Cut(rest, "|")
		if folders[module] == nil {
			folders[module] = make(map[string]bool)
		}
		for folders[module][root] = true; len(dir) > len(root); dir = filepath.Dir(dir) {
			folders[module][dir] = true
		}
	}
	return nil
}

// notice writes what the folders of a module have of licences. A module without
// any is an error: nobody may pass it on.
func notice(b *bytes.Buffer, module string, folders []string) error {
	found := false
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return err
			}
			name, err := filepath.Rel(folders[0], filepath.Join(folder, e.Name()))
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), module, filepath.ToSlash(name), bytes.TrimSpace(text))
			found = true
		}
	}
	if !found {
		return fmt.Errorf("no licence found in %s", module)
	}
	return nil
}
