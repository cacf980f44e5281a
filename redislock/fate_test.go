package redislock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// said is what a server has answered.
type said string

func (s said) Error() string { return string(s) }
func (s said) RedisError()   {}

var _ redis.Error = said("")

// What a request may have done is told by its error alone, in the words of all servers.
func TestFates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want driver.Fate
	}{
		{io.EOF, driver.Unknown},
		{context.Canceled, driver.Unknown},
		{&net.OpError{Op: "read", Err: io.EOF}, driver.Unknown},
		{&net.OpError{Op: "dial", Err: errDown}, driver.Unknown}, // the sender knows more
		{said("NOSCRIPT No matching script."), driver.Again},
		{said("MOVED 1 127.0.0.1:1"), driver.Again},
		{said("ASK 1 127.0.0.1:1"), driver.Again},
		{said("READONLY You can't write against a read only replica."), driver.NotNow},
		{said("ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica."), driver.NotNow},
		{said("ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command not allowed when used memory > 'maxmemory'."), driver.NotNow},
		{said("NOREPLICAS Not enough good replicas to write."), driver.NotNow},
		{said("ERR CLUSTERDOWN Hash slot not served"), driver.NotNow},
		{said("ERR max number of clients reached"), driver.NotNow},
		{said("ERR Script attempted to execute a command while the cluster is down"), driver.NotNow},
		{said("ERR Script attempted to access a non local key in a cluster node script: f_1"), driver.Unknown},
		{said("NOPERM this user has no permissions"), driver.Answered},
		{said("WRONGTYPE Operation against a key holding the wrong kind of value"), driver.Answered},
		{said("ERR unknown command 'EVALSHA'"), driver.Answered},
		{said("ERR Error compiling script (new function): user_script:1: '=' expected"), driver.Answered},
		{said("ERR Error running script (call to f_1): @user_script:3: @user_script: 3: The user executing the script can't run this command or subcommand"), driver.Answered},
		{said("ERR ACL failure in script: User u has no permissions to run the 'set' command script: 0184, on @user_script:31."), driver.Answered}, // Redis 7.2 and later
		{said("ERR upstream failure"), driver.Unknown},                                                                                             // a proxy's
		{said("ERR Error running script (call to f_1): @user_script:3: @user_script: 3: Unknown Redis command called from Lua script"), driver.Unknown},
		{said("@user_script: 32: -READONLY You can't write against a read only replica."), driver.NotNow}, // caught by a script
		{said("UNHEARD of"), driver.Unknown},
		{said(""), driver.Unknown},
		{fmt.Errorf("wrapped: %w", said("LOADING Redis is loading the dataset in memory")), driver.NotNow},
	} {
		if got := endpoint.FateOf(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}

// A server that is up and refuses has run nothing: one request for a call, nothing left behind, and nothing
// to be refused later.
func TestRefusedBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	for code, refuse := range map[string]func(c *redis.Client) error{
		"NOREPLICAS": func(c *redis.Client) error { return c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err() },
		"READONLY":   func(c *redis.Client) error { return c.ReplicaOf(t.Context(), "127.0.0.1", "1").Err() },
		"OOM":        func(c *redis.Client) error { return c.ConfigSet(t.Context(), "maxmemory", "1").Err() },
		"right":      func(c *redis.Client) error { return c.ACLSetUser(t.Context(), "default", "-set").Err() },
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			_, c := own(t)
			d := driverOn(t, c, freshPrefix())
			warmUp(t, d)
			testkit.Must(t, refuse(c))
			ran := scriptRuns(t, d)
			a := d.tryOnly("x", long)
			_, err := a.Try(t.Context())
			want := driver.NotNow
			if code == "right" {
				want = driver.Answered
			} else if !redis.HasErrorPrefix(err, code) {
				t.Errorf("Try: %v, want %s", err, code)
			}
			if driver.FateOf(err) != want || a.ambiguous {
				t.Errorf("Try: %v, which is %v, want %v; ambiguous %v", err, driver.FateOf(err), want, a.ambiguous)
			}
			if n := scriptRuns(t, d) - ran; n != 1 {
				t.Errorf("%d requests for a Try", n)
			}
			_ = a.Release(t.Context()) // nothing may follow from it
			if left := leftovers(t, c, d.prefix); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// A request that was not sent has left nothing, and will leave nothing: its release has nothing to refuse. Whether
// it was sent is what go-redis does, whatever the error says.
func TestNotSent(t *testing.T) {
	t.Parallel()
	closing := testkit.Serve(t, nil, func(net.Conn) {})
	for what, o := range map[string]redis.Options{
		"refused":            {Addr: "127.0.0.1:1"},
		"closed at once":     {Addr: closing},
		"a dialer's error":   {Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }},
		"a limiter's error":  {Addr: server(t).Addr(), Limiter: closedLimiter{}},
		"a connection's own": {Addr: server(t).Addr(), OnConnect: func(context.Context, *redis.Conn) error { return errDown }},
	} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, direct %v", what, direct), func(t *testing.T) {
				t.Parallel()
				c := redis.NewClient(&o)
				t.Cleanup(func() { _ = c.Close() })
				c.AddHook(new(reader))
				d := driverOn(t, c, freshPrefix())
				if direct {
					d.sender.SendDirectly(c.Options())
				}
				a := d.tryOnly("x", long)
				if _, err := a.Try(t.Context()); driver.FateOf(err) != driver.NotSent || a.ambiguous {
					t.Errorf("Try: %v, which is %v; ambiguous %v", err, driver.FateOf(err), a.ambiguous)
				}
			})
		}
	}
}

// closedLimiter lets nothing pass.
type closedLimiter struct{}

func (closedLimiter) Allow() error       { return errDown }
func (closedLimiter) ReportResult(error) {}

// reader is a hook that looks at all that a request has, as a tracer does.
type reader struct{ checkpoint }

func (*reader) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = fmt.Sprint(cmd.Args()...)
		return next(ctx, cmd)
	}
}

// What go-redis has not sent when its caller leaves does nothing when it is sent after all, and disturbs none of its
// pipeline.
func TestLeftBeforeItWasSent(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan struct{})
	p := &checkpoint{pipeline: func(_ int, next func() error) error {
		leave()
		<-left
		return next()
	}}
	d, free := busyStore(t, p, time.Hour)
	a, b := d.tryOnly("left", long), d.tryOnly("stays", long)
	var both sync.WaitGroup
	both.Go(func() {
		defer close(left)
		if _, err := a.Try(ctx); driver.FateOf(err) != driver.NotSent || a.ambiguous {
			t.Errorf("Try: %v, which is %v; ambiguous %v", err, driver.FateOf(err), a.ambiguous)
		}
	})
	waiting(t, d, 1)
	both.Go(func() {
		if _, err := b.Try(t.Context()); err != nil {
			t.Errorf("Try in the same pipeline: %v", err)
		}
	})
	waiting(t, d, 2)
	free()
	both.Wait()
	grants(t, d.tryOnly("left", long))
	releases(t, b)
}

// A message that a script published proves the channel, be it a wake-up or a grant; and what a Try would have
// asked a script to publish is asked for by the next one, if that Try needs no request. Otherwise few clients that
// alternate look ten times a second instead of being woken.
func TestGrantsProveTheChannel(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	near, far := drivers[0], drivers[1]
	unproven := func() {
		far.subscriber.mu.Lock()
		defer far.subscriber.mu.Unlock()
		for _, ch := range far.subscriber.channels {
			ch.state.Store(unproven)
			ch.tested = time.Time{}
		}
	}
	a, b := near.claim("x", long), far.claim("x", long)
	grants(t, a)
	queues(t, b)
	testkit.Until(t, "the channel works", func() bool { return far.subscriber.relies(b) })
	unproven()
	releases(t, a)
	hears(t, b)
	if !far.subscriber.relies(b) {
		t.Error("a grant has come, and the channel is not relied on")
	}
	unproven()
	forget(t, far, b) // without a request
	next := near.claim("x", long)
	queues(t, next)
	releases(t, b)
	hears(t, next)
	grants(t, next)
	c := far.claim("x", long)
	refuses(t, c)
	testkit.Until(t, "the channel was tested", func() bool { return far.subscriber.relies(c) })
	releases(t, c)
	releases(t, next)
}

// instant cancels a context when an answer has come and nobody has it yet.
type instant struct {
	net.Conn
	cancel *atomic.Pointer[context.CancelFunc]
}

func (c instant) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if cancel := c.cancel.Swap(nil); cancel != nil {
		(*cancel)()
		for c.SetDeadline(time.Time{}) == nil { // until the caller has cut the connection
			time.Sleep(time.Millisecond)
		}
	}
	return n, err
}

// An answer may come at the instant of a cancel. It counts, and go-redis has nothing to say of it on the standard
// error of the program.
func TestAnswerAtTheInstantOfACancel(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	var cancel atomic.Pointer[context.CancelFunc]
	o := *c.Options()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return instant{conn, &cancel}, err
	}
	d.sender.SendDirectly(&o)
	warmUp(t, d)
	for i := range 5 {
		a := d.tryOnly(fmt.Sprint("x", i), long)
		ctx, end := context.WithCancel(t.Context())
		cancel.Store(&end)
		if g, err := a.Try(ctx); err != nil || g.Token == 0 || ctx.Err() == nil {
			t.Errorf("Try: %+v, %v; its context: %v", g, err, ctx.Err())
		}
		releases(t, a)
	}
	if text := libraryLog.String(); strings.Contains(text, "Unexpected conn") {
		t.Errorf("go-redis has logged: %s", text)
	}
}

// FuzzAnswers feeds everything that reads what a script or a message says. No answer makes it panic, and none but a
// token is a grant.
func FuzzAnswers(f *testing.F) {
	for _, text := range []string{"", "[]", "[0 ]", "7", "0", "-1", "[5 'o_7_8_h ]", "[5 'o_7_8_h [[]]]", "['x 5 '7 0 ]", "['o_7_8_h 5 '7 1 ]",
		"[1795327616444465 ' ' ]", "e", "[e ]", "[n ]", " 7 3 5", "[[1 ] [2 ] ]", "[0 0 0 0 ]", "[9223372036854775807 99999999999999999999 ]"} {
		f.Add(text)
	}
	d, err := newStore(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), new(Options).clone(), false)
	testkit.Must(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		val, _ := parseAnswer(text)
		for _, noWait := range []bool{false, true} {
			c := d.Claim(driver.Request{Name: "x", Owner: testkit.Owner(), TTL: long, NoWait: noWait}).(*claim)
			g, err := c.decide(t.Context(), val)
			if token, ok := val.(int64); (err == nil) != (ok && token > 0) || err == nil && g.Token != token {
				t.Errorf("%q: %+v, %v", text, g, err)
			}
			r := driver.Renewal{Claim: c, TTL: long}
			if lasts, err := answers(val, 1); err == nil {
				if renewed(&r, lasts[0]); r.Err == nil && r.Grant.TTL > long {
					t.Errorf("%q: renewed for %v", text, r.Grant.TTL)
				}
			}
			c.stopWaiting(false)
		}
		if list, err := answers(val, 4); err == nil {
			_, _ = statusOf("x", list)
		}
		if err := judge(val, (*Options)(nil).clone().Logger); err == nil && len(val.([]any)) != 3 {
			t.Errorf("%q is taken for the answer of a server that can", text)
		}
		w := &waiter{ttl: long, sent: time.Now()}
		w.number.Store(3)
		if w.accept(text); w.grant.Token < 0 || w.grant.TTL > long {
			t.Errorf("%q is taken for the grant %+v", text, w.grant)
		}
	})
}

// parseAnswer makes an answer as go-redis gives it: "[" begins a list and "]" ends it, "n " is nil, "e " an error, digits
// are a number, and all else is a text; a blank ends each. It returns what is left of text.
func parseAnswer(text string) (val any, rest string) {
	if list, ok := strings.CutPrefix(text, "["); ok {
		all := []any{}
		for list != "" && len(all) < 100 {
			if rest, ok := strings.CutPrefix(list, "]"); ok {
				return all, rest
			}
			val, list = parseAnswer(list)
			all = append(all, val)
		}
		return all, ""
	}
	word, rest, _ := strings.Cut(text, " ")
	var n int64
	switch _, err := fmt.Sscanf(word, "%d", &n); {
	case word == "n":
		return nil, rest
	case word == "e":
		return errors.New("ERR"), rest
	case err == nil:
		return n, rest
	}
	return strings.ReplaceAll(strings.TrimPrefix(word, "'"), "_", " "), rest
}

// A Try that is only queued, as somebody has begun a MULTI on the connection, may be applied later: its claim is left with a
// tombstone. A Break that is queued has not found the hold gone.
func TestQueuedRequests(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: server(t).Addr(), PoolSize: 1, PipelinePoolSize: -1})
	t.Cleanup(func() { _ = c.Close() })
	d := driverOn(t, c, freshPrefix())
	a := d.tryOnly("x", long)
	testkit.Must(t, c.Do(t.Context(), "MULTI").Err())
	if _, err := a.Try(t.Context()); driver.FateOf(err) != driver.Unknown || !a.ambiguous {
		t.Errorf("Try: %v, which is %v; ambiguous %v", err, driver.FateOf(err), a.ambiguous)
	}
	if err := d.Break(t.Context(), "x", 1); err == nil || errors.Is(err, distlock.ErrLost) {
		t.Errorf("Break: %v", err)
	}
	testkit.Must(t, c.Do(t.Context(), "EXEC").Err())
	testkit.Must(t, a.Release(t.Context()))
	grants(t, d.tryOnly("x", long))
}
