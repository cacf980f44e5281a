package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// What is in a file stays until there is something else for it.
func TestReportFileStays(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.json")
	must(t, os.WriteFile(file, []byte("of last week"), 0o600), tryFiles(file))
	if err := toFile(file, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, errors.ErrUnsupported)
	}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a report that cannot be made: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "of last week" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if err := tryFiles(filepath.Join(file, "x")); err == nil {
		t.Error("a file that cannot be written was accepted")
	}
}
