package testkit

import (
	"os"
	"strings"
	"testing"
)

// Quoted fails the test unless a page of Markdown has n blocks of Go code, and code has each of them, letter by
// letter: what readers copy has to compile.
func Quoted(t testing.TB, page string, n int, code string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "\n```go\n")[1:]
	if len(blocks) != n {
		t.Errorf("%s has %d blocks of Go code, want %d", page, len(blocks), n)
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "\n```")
		if !strings.Contains(code, "\n"+block+"\n") {
			t.Errorf("a block of %s is not compiled by this test:\n%s", page, block)
		}
	}
}
