//go:build unix

package files_test

import (
	"os"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/mutants/files"
)

// TestFiles: a driver over files that reads and then writes in one operation, and is right
// in all others, fails the mandatory check of that operation, and the first line of the
// failure says what is wrong. One that is right passes.
func TestFiles(t *testing.T) {
	also := map[string]string{"try-released": "pair/lock-held", "unlock": "pair/close"} // the same operation, on other ways to it
	for _, loose := range append(files.Loose, "") {
		t.Run("loose "+loose, func(t *testing.T) {
			t.Parallel()
			report := conformance.Verify(t.Context(), files.New(folder(t), loose, true), &conformance.Options{
				Artifacts: t.TempDir(), Filter: func(k conformance.Check) bool { return k.Group() == "pair" }})
			for _, r := range report.Results {
				line, _, _ := strings.Cut(r.Reason, "\n")
				switch wrong := r.ID == "pair/"+loose; {
				case wrong && (r.Status != conformance.Failed || !r.Mandatory || !strings.Contains(line, "looks in one step and acts in another")):
					t.Errorf("SURVIVED: %s", r.Text())
				case !wrong && r.ID != also[loose] && r.Status == conformance.Failed:
					t.Errorf("accused: %s", r.Text())
				}
			}
		})
	}
}

// folder is in memory where there is such a place: a rename on a disk waits for what others write there.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "files")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
