package hazard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// trial is one repetition of a hazard.
type trial struct {
	value time.Duration
	flaw  string        // what breaks the contract; empty if nothing does
	also  time.Duration // a second value, for the detail
	slow  bool          // later than the TTL, though not than what the driver declares
	kept  bool          // the lock survived
	ttl   time.Duration // of the holder
}

// repeat runs a hazard several times at once, each on a name of its own. If the machine
// was too slow for one, it is repeated with twice the TTL.
func (e *env) repeat(ctx context.Context, what string, f func(ctx context.Context, name string, ttl time.Duration) (trial, error)) ([]trial, error) {
	trials := make([]trial, e.repeats)
	err := each(e.repeats, func(i int) error {
		var err error
		for attempt := range e.maxAttempts {
			name := fmt.Sprintf("%s%s/%d-%d", e.prefix, what, i, attempt)
			trials[i], err = f(ctx, name, e.ttl<<attempt)
			if trials[i].ttl = e.ttl << attempt; !errors.Is(err, errStall) {
				return err
			}
		}
		return err
	})
	return trials, err
}

// values returns the measured values; a trial that was cut short by a flaw has none.
func values(trials []trial) (ds []time.Duration) {
	for _, t := range trials {
		if t.flaw == "" {
			ds = append(ds, t.value)
		}
	}
	return ds
}

// longestAlso writes the greatest of the second values.
func longestAlso(trials []trial) string {
	longest := time.Duration(0)
	for _, t := range trials {
		longest = max(longest, t.also)
	}
	return span(longest)
}

// judge makes an outcome of trials: of the first flaw, or else by what good says.
func judge(trials []trial, detail string, good func(ds []time.Duration) (report.Verdict, string)) report.Outcome {
	ds := values(trials)
	o := report.Outcome{Values: series(ds), Unit: "ms"}
	for _, t := range trials {
		if t.flaw != "" && o.Verdict == "" {
			o.Verdict, o.Text = report.Bad, t.flaw
		}
	}
	if o.Verdict == "" {
		o.Verdict, o.Text = good(ds)
	}
	if len(ds) == 0 {
		o.Unit = ""
	} else {
		detail = fmt.Sprintf("%s: %s", spans(ds), detail)
	}
	o.Detail = detail
	return o
}

// before words the margin between a holder's knowledge and its successor.
func before(ds []time.Duration) (report.Verdict, string) {
	return report.Good, "told " + span(slices.Min(ds)) + " before"
}

// successor is the client that gets the name next.
type successor struct {
	lock distlock.Lock
	at   time.Duration // when Lock had returned
	err  error
}

// succeed has a client wait for a name. The client's Close ends it.
func succeed(ctx context.Context, c distlock.Locker, name string, ttl time.Duration) <-chan successor {
	got := make(chan successor, 1) // one element: nobody may be there any more
	go func() {
		lock, err := c.Lock(ctx, name, distlock.TTL(ttl))
		got <- successor{lock, machineNow(), err}
	}()
	return got
}

// errStuck says that nobody got the name for longer than any lease can last.
var errStuck = errors.New("the name stayed held")

// awaitNext waits for the successor for as long as a lease may last, and then some.
func (e *env) awaitNext(ctx context.Context, c distlock.Locker, got <-chan successor, lease time.Duration) (successor, error) {
	limit := lease + lagOf(c) + e.patience
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case h := <-got:
		return h, h.err
	case <-late.C:
		return successor{}, fmt.Errorf("%w for %s", errStuck, span(limit))
	case <-ctx.Done():
		return successor{}, ctx.Err()
	}
}

// lagOf is how long a dead holder's name may outlast its TTL. It may depend on the
// TTL that the client was opened for.
func lagOf(c distlock.Locker) time.Duration {
	if k, ok := c.(capable); ok {
		return k.Capabilities().ExpiryLag
	}
	return 0
}

// release closes clients of a hazard. What they cannot release, because of what was
// done to them, ends with its TTL, and nobody else uses the name.
func release(ls ...distlock.Locker) {
	_ = each(len(ls), func(i int) error { return ls[i].Close() })
}

// lease is what a holder was granted, at the least.
func (b belief) lease(ttl time.Duration) time.Duration { return max(ttl, b.Deadline-b.Asked) }

// succession is a holder in a child process and the client here that comes next.
type succession struct {
	env    *env
	holder *holder
	lease  time.Duration // what the store granted
	client distlock.Locker
	next   <-chan successor
}

// begin starts a child process that holds a name, and a waiter here. It returns when
// the child has renewed its lock, and so has had the store's word twice.
func (e *env) begin(ctx context.Context, name string, ttl time.Duration) (*succession, error) {
	w, err := e.open(ctx, ttl)
	if err != nil {
		return nil, err
	}
	h, held, err := e.startHolder(ctx, name, ttl)
	if err != nil {
		release(w)
		return nil, err
	}
	s := &succession{env: e, holder: h, lease: held.lease(ttl), client: w, next: succeed(ctx, w, name, ttl)}
	if _, err := h.await(ctx, eventRenewed, ttl+patience); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *succession) awaitNext(ctx context.Context) (successor, error) {
	return s.env.awaitNext(ctx, s.client, s.next, s.lease)
}

func (s *succession) end() {
	s.holder.leave()
	release(s.client)
}

func killedHolder(ctx context.Context, e *env) (report.Outcome, error) {
	trials, err := e.repeat(ctx, "killed", func(ctx context.Context, name string, ttl time.Duration) (t trial, err error) {
		s, err := e.begin(ctx, name, ttl)
		if err != nil {
			return t, err
		}
		defer s.end()
		killed := machineNow()
		if err := s.holder.cmd.Process.Kill(); err != nil {
			return t, err
		}
		n, err := s.awaitNext(ctx)
		if errors.Is(err, errStuck) {
			return trial{flaw: "still held after " + span(machineNow()-killed)}, nil
		}
		t.value = n.at - killed
		t.slow = t.value > s.lease+time.Second
		return t, err
	})
	if err != nil {
		return report.Outcome{}, err
	}
	detail := fmt.Sprintf("from SIGKILL of a process that held with a TTL of %v to the return of Lock in a waiting client", e.ttl)
	if e.caps.ExpiryLag > 0 {
		detail += fmt.Sprintf("; the driver declares up to %v on top of the TTL", e.caps.ExpiryLag)
	}
	if i := slices.IndexFunc(trials, func(t trial) bool { return t.ttl != e.ttl }); i >= 0 {
		detail += fmt.Sprintf("; the machine was too slow, so one held with a TTL of %v", trials[i].ttl)
		for i := range trials { // in that of the others, which other stores have
			trials[i].value = time.Duration(float64(trials[i].value) * float64(e.ttl) / float64(trials[i].ttl))
		}
	}
	return judge(trials, detail, func(ds []time.Duration) (report.Verdict, string) {
		text := fmt.Sprintf("free after %s", span(slices.Max(ds)))
		if slices.ContainsFunc(trials, func(t trial) bool { return t.slow }) {
			return report.Caution, text
		}
		return report.Good, text
	}), nil
}

func stalledHolder(ctx context.Context, e *env) (report.Outcome, error) {
	trials, err := e.repeat(ctx, "stalled", e.stall)
	if err != nil {
		return report.Outcome{}, err
	}
	return judge(trials, fmt.Sprintf("from the deadline of a process that was stopped (SIGSTOP) while it held with a TTL of %v, "+
		"to the return of Lock in a waiting client, on the clock of the machine; after SIGCONT it knew within %s", e.ttl, longestAlso(trials)), before), nil
}

func (e *env) stall(ctx context.Context, name string, ttl time.Duration) (t trial, err error) {
	s, err := e.begin(ctx, name, ttl)
	if err != nil {
		return t, err
	}
	defer s.end()
	stopped := machineNow()
	if err := stopProcess(s.holder.cmd.Process); err != nil {
		return t, err
	}
	n, err := s.awaitNext(ctx)
	if errors.Is(err, errStuck) {
		return trial{flaw: "nobody else could hold within " + span(machineNow()-stopped)}, nil
	}
	if err != nil {
		return t, err
	}
	resumed := machineNow()
	if err := resumeProcess(s.holder.cmd.Process); err != nil {
		return t, err
	}
	end, err := s.holder.await(ctx, eventLost, e.patience)
	switch {
	case errors.Is(err, errSilent):
		return trial{flaw: fmt.Sprintf("NOT told: %s after it went on it still believes", span(machineNow()-resumed))}, nil
	case err != nil:
		return t, err
	case end.Knew < stopped:
		return t, errStall
	}
	t.value, t.flaw = end.margin(n)
	t.also = end.Knew - resumed
	return t, nil
}

// margin returns for how long a holder had known of its loss when its successor
// held, or what is wrong.
func (b belief) margin(next successor) (time.Duration, string) {
	// A belief ends at the deadline, also of a holder that cannot look at its clock.
	knew := b.Knew
	if b.Deadline != 0 {
		knew = min(knew, b.Deadline)
	}
	switch late := max(b.Last, b.Deadline) - next.at; {
	case late > 0:
		return 0, fmt.Sprintf("told too late: two holders for up to %s", span(late))
	case b.Deadline == 0:
		return 0, "has no deadline: nothing tells it but a request"
	case next.lock.Token() <= b.Token:
		return 0, fmt.Sprintf("a stale write goes through: token %d was followed by %d", b.Token, next.lock.Token())
	}
	return next.at - knew, ""
}

func cutOffHolder(ctx context.Context, e *env) (report.Outcome, error) {
	trials, err := e.repeat(ctx, "cutoff", e.cutOff)
	if err != nil {
		return report.Outcome{}, err
	}
	return judge(trials, fmt.Sprintf("from the end of the belief of a client that held with a TTL of %v and whose packets a proxy "+
		"began to swallow, to the return of Lock in a waiting client", e.ttl), before), nil
}

func (e *env) cutOff(ctx context.Context, name string, ttl time.Duration) (t trial, err error) {
	route, err := e.rig.Route()
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, route.Close()) }()
	a, err := route.Open(ctx, ttl)
	if err != nil {
		return t, err
	}
	w, err := e.open(ctx, ttl)
	if err != nil {
		release(a)
		return t, err
	}
	defer func() { route.Heal(); release(a, w) }()
	asked := machineNow()
	lock, err := a.Lock(ctx, name, distlock.TTL(ttl))
	if err != nil {
		return t, err
	}
	watch := watching(ctx, lock, asked)
	defer watch.stop()
	next := succeed(ctx, w, name, ttl)
	if err := watch.renewal(ctx, lock, ttl+patience); err != nil {
		return t, err
	}
	lease := belief{Asked: asked, Deadline: machineAt(lock.Deadline())}.lease(ttl)
	cut := machineNow()
	route.Drop(true, true)
	n, err := e.awaitNext(ctx, w, next, lease)
	if errors.Is(err, errStuck) {
		return trial{flaw: "nobody else could hold within " + span(machineNow()-cut)}, nil
	}
	if err != nil {
		return t, err
	}
	return watch.verdict(ctx, lock, n, cut, e.patience)
}

// watch follows a lock of this process.
type watch struct {
	stop context.CancelFunc
	end  chan belief // one element: what follow has returned
}

func watching(ctx context.Context, lock distlock.Lock, asked time.Duration) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel, make(chan belief, 1)}
	go func() { w.end <- follow(ctx, lock, asked, func(belief) {}) }()
	return w
}

// renewal waits until the lock has been renewed.
func (w *watch) renewal(ctx context.Context, lock distlock.Lock, within time.Duration) error {
	first := lock.Deadline()
	for limit := time.Now().Add(within); !lock.Deadline().After(first); {
		switch err := lock.Err(); {
		case errors.Is(err, distlock.ErrLost):
			return errStall
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(limit):
			return fmt.Errorf("the lock was not renewed within %v", within)
		}
		time.Sleep(look)
	}
	return nil
}

// verdict compares what the holder knew with when the next one held. What happened
// before the cut was not its doing.
func (w *watch) verdict(ctx context.Context, lock distlock.Lock, n successor, cut, within time.Duration) (t trial, err error) {
	if lock.Err() == nil { // the next one has held since before this look
		return trial{flaw: "NOT told: two holders at once"}, nil
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case end := <-w.end:
		if end.Err == "" {
			return t, ctx.Err()
		}
		if end.Knew < cut {
			return t, errStall
		}
		t.value, t.flaw = end.margin(n)
	case <-limit.C:
		t.flaw = fmt.Sprintf("NOT told: still believes %s after the next one held", span(within))
	}
	return t, nil
}
