package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// maxSilent is how many requests may be under way to a server that does not answer, before locks
// are taken without it, by a majority that does. They find out when it is back. More would only
// pile up.
const maxSilent = 8

// resends is how often a request without an answer is sent again.
const resends = 1

// errSilent is the error of a request that was not sent.
var errSilent = errors.New("it has not answered the requests before, so this one was not sent")

// node is one of the servers. All its methods are safe for concurrent use.
type node struct {
	addr    string
	client  *redis.Client
	sender  *endpoint.Sender
	timeout time.Duration // of a copy of a request
	wait    time.Duration // how long after its start its grants do not count; 0 means that they always do

	running atomic.Int32
	silent  atomic.Bool           // the latest request that ended has timed out
	mu      sync.Mutex            // of changes to what is below
	trusted atomic.Int64          // in ns since epoch: from then on its grants count
	run     atomic.Pointer[runID] // of the server's process, once it is known
	heard   atomic.Int64          // in ns since epoch: its last answer

	left     []*leftover // it has not answered their release; under mu
	cleaning bool        // cleanUp runs; under mu
}

// runID is what a server calls its present run.
type runID string

// epoch makes monotonic times of numbers.
var epoch = time.Now()

// newNode makes the client. It resends nothing by itself: each copy of a request must be known,
// because it may arrive late.
func newNode(o redis.Options, wait time.Duration) *node {
	n := &node{addr: o.Addr, timeout: o.ReadTimeout, wait: wait}
	o.MaxRetries, o.PoolTimeout = -1, o.ReadTimeout
	if wait > 0 {
		o.OnConnect = n.connected
	}
	n.client = redis.NewClient(&o)
	n.sender = endpoint.NewSender(n.client, resends)
	return n
}

// connected looks how long the server has been up. A restart breaks all connections, so the first
// request to a restarted server comes after this.
func (n *node) connected(ctx context.Context, conn *redis.Conn) error {
	text, err := conn.Info(ctx, "server").Result()
	if err != nil {
		if endpoint.Answered(err) {
			err = fmt.Errorf("%w (to see restarts, it needs the right to INFO; or set after_restart=trust)", err)
		}
		return err
	}
	seconds, err := strconv.ParseInt(infoField(text, "uptime_in_seconds"), 10, 64)
	if err != nil {
		return errors.New("it does not say how long it has been up: set after_restart=trust")
	}
	up := time.Duration(max(seconds-1, 0)) * time.Second // the server counts whole seconds
	n.started(runOf(text), time.Since(epoch)-up)
	return nil
}

// started notes when a run of the server began, by epoch. The latest start counts: the answers of
// two connections may come here in the wrong order. Of one run the first answer counts, because
// uptimes are rounded: a server that is trusted stays so. A run that began before the last answer
// of another is of a server that was put at this address, with none of the locks: it counts from
// now.
func (n *node) started(run runID, at time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.run.Swap(&run)
	if old != nil && *old != run && int64(at) < n.heard.Load() {
		at = time.Since(epoch)
	}
	if old == nil || *old != run || run == "" {
		n.trusted.Store(max(n.trusted.Load(), int64(at+n.wait)))
	}
}

func runOf(info string) runID { return runID(infoField(info, "run_id")) }

func infoField(text, name string) string {
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// young returns an error if the server has started so recently that it may have forgotten locks.
// It is asked after the answer: a request may be the first to reach the restarted server.
func (n *node) young() error {
	left := time.Duration(n.trusted.Load()) - time.Since(epoch)
	if n.wait == 0 || left <= 0 {
		return nil
	}
	return &driver.Fault{Fate: driver.NotNow, Err: fmt.Errorf("%s: it has restarted and may have forgotten locks: it takes part again in %v "+
		"(max_ttl after its start; after_restart=trust is for servers that forget nothing)", n.addr, left.Round(time.Second/10))}
}

// ask runs a script and returns its answer. late reports whether a copy of the request may still be
// applied, or has been without an answer. A server that does not answer is asked a second time, on another connection: the
// first may have been cut off.
func (n *node) ask(ctx context.Context, s endpoint.Script, keys []string, args ...any) (answer any, late bool, err error) {
	n.running.Add(1)
	defer n.running.Add(-1)
	began := time.Now()
	ctx, cancel := endpoint.Until(ctx, time.Now().Add((1+resends)*n.timeout), "it")
	defer cancel()
	answer, late, err = n.sender.Run(ctx, s, keys, args...)
	if err == nil || endpoint.Answered(err) {
		n.silent.Store(false)
		n.heard.Store(int64(time.Since(epoch)))
	} else if end := endpoint.EndOf(ctx); errors.Is(end, context.Canceled) {
		n.silent.Store(false) // at the end of the Locker, which says nothing of the server
	} else if end != nil && time.Since(began) >= n.timeout { // nor does a request that had less, as renewals of a short TTL do
		n.silent.Store(true)
	}
	return answer, late, n.named(err)
}

func (n *node) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", n.addr, err)
}

// awaited tells which answers are worth waiting for: of the nodes that have answered lately, if
// they are a majority, else of all. So a node that hangs delays nobody after the first time.
type awaited struct {
	ignored []bool // by node
	missing int
}

func (d *store) awaited() awaited {
	a := awaited{ignored: make([]bool, len(d.nodes)), missing: len(d.nodes)}
	for i, n := range d.nodes {
		if n.silent.Load() {
			a.ignored[i] = true
			a.missing--
		}
	}
	if a.missing < d.quorum {
		return awaited{ignored: make([]bool, len(d.nodes)), missing: len(d.nodes)}
	}
	return a
}

// crowded reports whether a request to node i would only pile up.
func (d *store) crowded(i int) bool {
	return d.nodes[i].running.Load() >= maxSilent && d.awaited().ignored[i]
}

// answered notes the answer of a node, or its failure.
func (a *awaited) answered(i int) {
	if !a.ignored[i] {
		a.missing--
	}
}
