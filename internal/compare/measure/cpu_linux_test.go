package measure

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The children of a server count, as those that Postgres has for its connections, while they run and when they have ended.
func TestServerTimeCountsChildren(t *testing.T) {
	t.Parallel()
	const busy = `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done`
	cmd := exec.Command("sh", "-c", "read go; sh -c '"+busy+"; echo ended; read go'; echo collected; read go")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	pids := []int{cmd.Process.Pid}
	before, ok := ServerTime(pids)
	for _, word := range []string{"ended", "collected"} {
		_, err := in.Write([]byte("go\n"))
		must(t, err)
		said := make([]byte, 20)
		n, err := out.Read(said)
		must(t, err)
		own, _ := CPUTime(pids)
		all, known := ServerTime(pids)
		if !ok || !known || strings.TrimSpace(string(said[:n])) != word || all-before < 20*time.Millisecond || own >= all {
			t.Errorf("%q: the server and its children took %v, known: %v; alone %v", said[:n], all-before, known, own)
		}
	}
	if _, ok := ServerTime(nil); ok {
		t.Error("the time of no process is known")
	}
}
