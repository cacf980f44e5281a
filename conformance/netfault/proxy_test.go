package netfault

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/testkit"
)

// echo is a server that answers every line with itself and keeps what it got.
type echo struct {
	net.Listener
	mu    sync.Mutex
	lines []string
	ends  int // connections that the client has ended
}

func newEcho(t *testing.T) *echo {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		e.mu.Lock()
		if err != nil {
			e.ends++
		} else {
			e.lines = append(e.lines, strings.TrimSpace(line))
		}
		e.mu.Unlock()
		if err != nil {
			return
		}
		io.WriteString(c, line)
	}
}

func (e *echo) got() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.lines, " ")
}

func (e *echo) ended() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends
}

// caller is a client of the echo through a proxy.
type caller struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func call(t *testing.T, p *TCPProxy) *caller {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &caller{t, c, bufio.NewReader(c)}
}

func (c *caller) send(line string) { io.WriteString(c, line+"\n") }

// answer waits for a line, for as long as the test may run unless patience says less.
func (c *caller) answer(patience time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(patience))
	line, err := c.r.ReadString('\n')
	return strings.TrimSpace(line), err
}

// say sends a line and demands its echo.
func (c *caller) say(line string) {
	c.t.Helper()
	c.send(line)
	if got, err := c.answer(time.Minute); got != line || err != nil {
		c.t.Fatalf("said %q, heard %q, %v", line, got, err)
	}
}

// broken demands that the connection is reset or ended, not silent.
func (c *caller) broken() {
	c.t.Helper()
	if got, err := c.answer(time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %q, %v, want a broken connection", got, err)
	}
}

// silent demands that nothing comes. A slow machine can only make it pass.
func (c *caller) silent() {
	c.t.Helper()
	if got, err := c.answer(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %q, %v, want silence", got, err)
	}
}

func proxied(t *testing.T) (*echo, *TCPProxy) {
	e := newEcho(t)
	p, err := NewTCPProxy(e.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return e, p
}

func TestProxyForwardsAndCounts(t *testing.T) {
	_, p := proxied(t)
	a, b := call(t, p), call(t, p)
	a.say("one")
	b.say("two")
	a.say("three")
	if p.Requests() != 3 || p.Bytes() != 2*(4+4+6) || p.Connections() != 2 || p.Fired() != 0 {
		t.Errorf("%d requests, %d bytes, %d connections, fired %d", p.Requests(), p.Bytes(), p.Connections(), p.Fired())
	}
	a.Close()
	testkit.Until(t, "one connection is left", func() bool { return p.Connections() == 1 })
}

func TestProxyCutReply(t *testing.T) {
	e, p := proxied(t)
	a := call(t, p)
	a.say("zero")
	p.CutReply(2)
	a.say("one")
	a.send("two")
	a.broken()
	if got := e.got(); got != "zero one two" {
		t.Errorf("the server got %q: the request must be applied", got)
	}
	call(t, p).say("three") // disarmed
	if p.Fired() != 1 {
		t.Errorf("fired %d times", p.Fired())
	}
}

func TestProxyCutRequest(t *testing.T) {
	e, p := proxied(t)
	a := call(t, p)
	p.CutRequest(2)
	a.say("one")
	a.send("two")
	a.broken()
	call(t, p).say("three")
	if got := e.got(); got != "one three" || p.Fired() != 1 || p.Requests() != 3 {
		t.Errorf("the server got %q, fired %d, %d requests", got, p.Fired(), p.Requests())
	}
}

// TestProxyDrop: one message of one connection is swallowed, with what follows it, and
// nobody hears of it until the link is healed.
func TestProxyDrop(t *testing.T) {
	for want, arm := range map[string]func(*TCPProxy, int){"one two four": (*TCPProxy).DropReply, "one four": (*TCPProxy).DropRequest} {
		e, p := proxied(t)
		a, b := call(t, p), call(t, p)
		arm(p, 2)
		a.say("one")
		a.send("two")
		a.silent()
		b.say("four")
		if got := e.got(); got != want || p.Fired() != 1 || p.Connections() != 2 {
			t.Errorf("the server got %q, want %q; fired %d, %d connections", got, want, p.Fired(), p.Connections())
		}
		p.Heal()
		a.broken()
		b.say("five")
	}
}

func TestProxyHold(t *testing.T) {
	e, p := proxied(t)
	a, b := call(t, p), call(t, p)
	p.HoldRequest(2)
	a.say("one")
	a.send("two")
	testkit.Until(t, "the fault has fired", func() bool { return p.Fired() == 1 })
	a.send("three")
	b.say("four")
	a.silent()
	p.Release()
	if x, err := a.answer(time.Minute); x != "two" {
		t.Fatalf("heard %q, %v", x, err)
	}
	if x, err := a.answer(time.Minute); x != "three" {
		t.Fatalf("heard %q, %v", x, err)
	}
	if got := e.got(); got != "one four two three" {
		t.Errorf("the server got %q", got)
	}
}

// TestProxyHoldFromNow: what a client has said since the last reply, and before the fault
// is armed, does not carry what it says next past the fault.
func TestProxyHoldFromNow(t *testing.T) {
	e, p := proxied(t)
	a := call(t, p)
	a.say("one")
	before := p.Bytes()
	a.Write([]byte("tw"))
	testkit.Until(t, "half a request has passed", func() bool { return p.Bytes() == before+2 })
	p.HoldRequest(1)
	a.send("o")
	testkit.Until(t, "the fault has fired", func() bool { return p.Fired() == 1 })
	a.silent()
	p.Release()
	if x, err := a.answer(time.Minute); x != "two" {
		t.Errorf("heard %q, %v", x, err)
	}
	if got := e.got(); got != "one two" {
		t.Errorf("the server got %q", got)
	}
}

// TestProxyHoldOutlivesClient: what a client has sent arrives although the client
// has gone meanwhile, even by a reset.
func TestProxyHoldOutlivesClient(t *testing.T) {
	e, p := proxied(t)
	a := call(t, p)
	p.HoldRequest(1)
	a.send("late")
	testkit.Until(t, "the fault has fired", func() bool { return p.Fired() == 1 })
	reset(a.Conn.(*net.TCPConn))
	testkit.Until(t, "the client has gone", func() bool { return p.Connections() == 0 })
	p.Heal()
	testkit.Until(t, "the request arrives", func() bool { return e.got() == "late" && e.ended() == 1 })
}

func TestProxyBlackHole(t *testing.T) {
	e, p := proxied(t)
	a := call(t, p)
	a.say("before")
	p.Drop(true, true)
	a.send("lost")
	a.silent()
	b := call(t, p) // accepted, and silent
	b.send("lost too")
	b.silent()
	c := call(t, p)
	c.send("and gone")
	testkit.Until(t, "bytes are counted", func() bool { return p.Requests() == 4 })
	c.Close()
	testkit.Until(t, "the client has gone", func() bool { return p.Connections() == 2 })
	if e.ended() != 0 {
		t.Errorf("the server heard of the end of a connection through a black hole")
	}
	p.Heal()
	a.broken()
	b.broken()
	call(t, p).say("after")
	if got := e.got(); got != "before after" || p.Fired() != 1 {
		t.Errorf("the server got %q, fired %d", got, p.Fired())
	}
}

func TestProxyDropOneDirection(t *testing.T) {
	e, p := proxied(t)
	a, idle := call(t, p), call(t, p)
	idle.say("idle")
	p.Drop(false, true)
	a.send("half open")
	testkit.Until(t, "the request arrives", func() bool { return e.got() == "idle half open" })
	testkit.Until(t, "its reply is dropped", func() bool { return p.Fired() == 1 })
	a.silent()
	p.Drop(false, false)
	a.broken()
	idle.say("has lost nothing")
}

func TestProxyDelay(t *testing.T) {
	_, p := proxied(t)
	a := call(t, p)
	p.Delay(60*time.Millisecond, 20*time.Millisecond)
	for range 3 {
		start := time.Now()
		a.say("slow")
		if took := time.Since(start); took < 40*time.Millisecond {
			t.Errorf("took %v, want 40ms at least", took)
		}
	}
	if p.Fired() != 1 {
		t.Errorf("fired %d times", p.Fired())
	}
	// In order, and not one after the other: pipelined lines share one delay.
	var sent []string
	for i := range 20 {
		sent = append(sent, strings.Repeat("x", i+1))
		a.send(sent[i])
	}
	for _, want := range sent {
		if got, err := a.answer(time.Minute); got != want {
			t.Fatalf("heard %q, %v, want %q", got, err, want)
		}
	}
}

func TestProxySlice(t *testing.T) {
	e, p := proxied(t)
	a := call(t, p)
	p.Slice(true)
	long := strings.Repeat("0123456789", 500)
	a.say(long)
	if e.got() != long || p.Fired() != 1 {
		t.Errorf("the server got %d bytes, fired %d", len(e.got()), p.Fired())
	}
}

func TestProxyCutAll(t *testing.T) {
	_, p := proxied(t)
	p.CutAll()
	if p.Fired() != 0 {
		t.Errorf("counted a cut of nothing")
	}
	a, b := call(t, p), call(t, p)
	a.say("one")
	b.say("two")
	p.CutAll()
	for _, c := range []*caller{a, b} {
		if _, err := c.answer(time.Minute); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error %v, want a reset", err)
		}
	}
	testkit.Until(t, "no connection is left", func() bool { return p.Connections() == 0 })
	call(t, p).say("three")
	if p.Fired() != 1 {
		t.Errorf("fired %d times", p.Fired())
	}
}

func TestProxyServerGone(t *testing.T) {
	e, p := proxied(t)
	e.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return // the reset was as fast as that
	}
	a := &caller{t, c, bufio.NewReader(c)}
	a.send("anybody?")
	a.broken()
}

// TestProxyClose: nothing runs any more, whatever the connections were doing.
func TestProxyClose(t *testing.T) {
	before := runtime.NumGoroutine()
	e, p := proxied(t)
	for range 5 {
		call(t, p).say("hello")
	}
	p.HoldRequest(1)
	call(t, p).send("held")
	p.Delay(time.Hour, 0)
	call(t, p).send("delayed")
	p.Drop(true, true)
	call(t, p).send("dropped")
	testkit.Until(t, "all has arrived", func() bool { return p.Requests() == 8 })
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("still listening")
	}
	e.Close()
	testkit.Until(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}
