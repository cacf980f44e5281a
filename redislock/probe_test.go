package redislock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A missing right shows at Open, and its error names the page. Rights that only make locks slower
// do not prevent it.
func TestOpenFindsMissingRights(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	rights := aclRule(t, false)
	rule := append([]string{"reset", "on", ">secret", "~distlock:*", "resetchannels", "&distlock:*"}, rights...)
	for _, right := range rights {
		testkit.Must(t, admin.ACLSetUser(t.Context(), "locker", append(slices.Clone(rule), "-"+right[1:])...).Err())
		var book logBook
		l, err := Open(t.Context(), "redis://locker:secret@"+s.Addr(), &Options{Options: distlock.Options{Logger: book.logger()}})
		if err == nil {
			testkit.Must(t, l.Close())
		}
		switch right {
		case "+publish":
			if err != nil || !strings.Contains(book.String(), "may not publish") {
				t.Errorf("without %s: %v; the log is %q", right, err, book.String())
			}
		case "+subscribe", "+pubsub|numsub", "+scan": // see the page
			if err != nil {
				t.Errorf("without %s: %v", right, err)
			}
		default:
			if err == nil || !strings.Contains(err.Error(), "docs/redis.md") || !strings.Contains(strings.ToLower(err.Error()), right[1:]) {
				t.Errorf("without %s: %v, want an error that names it and the page", right, err)
			}
		}
	}
}

// The rule has no right that no script and no request of the driver needs, and the probe
// tries all of them.
func TestRightsAreNeeded(t *testing.T) {
	t.Parallel()
	called := regexp.MustCompile(`(?:call|run)\('([A-Z]+)'`)
	commands := func(sources ...string) (list []string) {
		for _, source := range sources {
			for _, m := range called.FindAllStringSubmatch(source, -1) {
				list = append(list, "+"+strings.ToLower(m[1]))
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	scripts := commands(tryScript.Source, releaseScript.Source, renewScript.Source, breakScript.Source, inspectScript.Source)
	// The driver's own, and what the scripts ask for under two names.
	scripts = slices.DeleteFunc(scripts, func(c string) bool { return c == "+pubsub" })
	probed := slices.DeleteFunc(commands(probeScript.Source), func(c string) bool { return c == "+pubsub" })
	if !slices.Equal(scripts, probed) {
		t.Errorf("the scripts use %v, the probe tries %v", scripts, probed)
	}
	want := append(scripts, "+eval", "+evalsha", "+ping", "+subscribe", "+publish", "+pubsub|numsub", "+scan")
	rights := aclRule(t, false)
	slices.Sort(want)
	slices.Sort(rights)
	if !slices.Equal(rights, want) {
		t.Errorf("the page has the rights %v, needed are %v", rights, want)
	}
}

// Open asks all that it wants to know in one request, and later calls ask nothing more.
func TestOpenSendsOneRequest(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	ran := func(f func()) map[string]string {
		t.Helper()
		testkit.Must(t, admin.ConfigResetStat(t.Context()).Err())
		f()
		stats := make(map[string]string)
		for _, m := range regexp.MustCompile(`cmdstat_(\S+?):calls=(\d+),`).FindAllStringSubmatch(admin.Info(t.Context(), "commandstats").Val(), -1) {
			stats[m[1]] = m[2]
		}
		return stats
	}
	var l *Locker
	stats := ran(func() {
		var err error
		l, err = Open(t.Context(), s.URL(), nil)
		testkit.Must(t, err)
	})
	for _, command := range []string{"hello", "ping", "evalsha", "eval", "config|get"} {
		if stats[command] != "1" {
			t.Errorf("Open sends %s %s times, want once", command, stats[command])
		}
	}
	defer l.Close()
	work := func() {
		lock, err := l.Lock(t.Context(), "x")
		testkit.Must(t, err)
		testkit.Must(t, lock.Unlock(t.Context()))
	}
	work() // the scripts are known
	stats = ran(work)
	if stats["evalsha"] != "2" || stats["ping"] != "" || stats["eval"] != "" || stats["config|get"] != "" {
		t.Errorf("Lock and Unlock of a free name: %v", stats)
	}
	if keys := admin.Keys(t.Context(), "*probe*").Val(); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}
}

// standIn is a server that speaks the protocol and answers as it is told; to what it is
// told nothing about, as one that does not know the command.
func standIn(t *testing.T, answers map[string]string) (addr string) {
	t.Helper()
	return testkit.Serve(t, nil, func(conn net.Conn) {
		for r := bufio.NewReader(conn); ; {
			name, err := readCommand(r)
			if err != nil {
				return
			}
			answer, ok := answers[strings.ToLower(name)]
			if !ok {
				answer = "-ERR unknown command '" + name + "'"
			}
			if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
				return
			}
		}
	})
}

// readCommand returns the name of the next command.
func readCommand(r *bufio.Reader) (name string, err error) {
	var n, size int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return "", err
	}
	for i := range n {
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return "", err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return "", err
		}
		if i == 0 {
			name = string(text[:size])
		}
	}
	return name, nil
}

// Servers that speak the protocol and cannot keep a lock are refused, with the reason.
func TestOpenRefusesWhatIsNoRedis(t *testing.T) {
	t.Parallel()
	const good = "*3\r\n:1795327616444465\r\n$0\r\n\r\n$0\r\n"
	for what, c := range map[string]struct {
		eval, want, log string
	}{
		"no fault":             {good, "", ""},
		"no clock in scripts":  {"*3\r\n:0\r\n$0\r\n\r\n$0\r\n", "tells no time", ""},
		"no scripts":           {"-ERR unknown command 'EVAL'", "unknown command", ""},
		"another answer":       {"+OK", "unexpected answer", ""},
		"no GETEX":             {"*3\r\n:1795327616444465\r\n$18\r\nGETEX: ERR no such\r\n$0\r\n", "GETEX", ""},
		"no PUBLISH there":     {"*3\r\n:1795327616444465\r\n$0\r\n\r\n$8\r\nERR nope", "", "may not publish"},
		"a replica":            {"-READONLY You can't write against a read only replica.", "READONLY", ""},
		"a server that begins": {"-LOADING Redis is loading the dataset in memory", "LOADING", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			addr := standIn(t, map[string]string{"ping": "+PONG", "eval": c.eval, "evalsha": "-NOSCRIPT No matching script."})
			var book logBook
			ctx := t.Context()
			if strings.Contains(c.eval, "LOADING") {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, 3*time.Second) // which it asks until
				defer cancel()
			}
			l, err := Open(ctx, "redis://"+addr, &Options{Options: distlock.Options{Logger: book.logger()}})
			if err == nil {
				testkit.Must(t, l.Close())
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Open: %v, want %q", err, c.want)
			}
			if !strings.Contains(book.String(), c.log) || err == nil && !strings.Contains(book.String(), "does not show its maxmemory-policy") {
				t.Errorf("the log is %q", book.String())
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is an end of a context", err)
			}
		})
	}
}

// A replica that takes writes is refused like one that does not: its master knows nothing of what is locked there.
func TestOpenRefusesAWritableReplica(t *testing.T) {
	t.Parallel()
	_, replica := newPair(t).servers()
	testkit.Must(t, client(t, replica.URL()).ConfigSet(t.Context(), "replica-read-only", "no").Err())
	l, err := Open(t.Context(), replica.URL(), nil)
	if err == nil {
		_ = l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "a replica that takes writes") {
		t.Errorf("Open: %v", err)
	}
}
