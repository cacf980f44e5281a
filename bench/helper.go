package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
)

// task is what a helper does.
type task struct {
	Role  string // "hold" or "wait"
	URL   string
	Locks int // names, each held or waited for
	TTL   time.Duration
}

// heldEnd is what a helper that has held locks says at the end.
type heldEnd struct {
	Lost               int
	Cause              string // of the first loss
	LeastLeft          float64
	Memory, Goroutines float64
	Freed              time.Duration
}

// turn is what one waiter has had.
type turn struct {
	Token      int64
	From, Till int64 // of the hold, in ns of the wall clock that all processes share
	Failed     string
}

// help does the task that comes on in. It says what it has done on out, and goes on
// when a line comes.
func help(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var t task
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	h := &helping{task: t, say: json.NewEncoder(out).Encode, heard: func() error {
		_, err := lines.ReadString('\n')
		return err
	}}
	h.queued.Add(t.Locks)
	h.least.Store(int64(t.TTL))
	observer := &distlock.Observer{
		Contended: func(distlock.Contended) { h.queued.Done() },
		Lost: func(l distlock.Lost) {
			if h.lost.Add(1) == 1 {
				cause := fmt.Sprintf("after %v: %v", l.Held.Round(time.Second), l.Cause)
				h.cause.Store(&cause)
			}
		},
		Renewed: func(r distlock.Renewed) {
			for least := h.least.Load(); r.Err == nil && int64(r.Left) < least && !h.least.CompareAndSwap(least, int64(r.Left)); {
				least = h.least.Load()
			}
		},
	}
	config := backends.Config{URL: t.URL, TTL: backends.Duration(t.TTL)}
	if h.locker, err = config.Open(context.Background(), backends.Observer(observer)); err != nil {
		return err
	}
	defer h.locker.Close()
	if t.Role == "hold" {
		return h.hold()
	}
	return h.wait()
}

type helping struct {
	task   task
	say    func(any) error
	heard  func() error
	locker distlock.Locker
	queued sync.WaitGroup
	lost   atomic.Int64
	cause  atomic.Pointer[string] // of the first loss
	least  atomic.Int64           // ns that a lock had left when its renewal was confirmed
}

// takers is how many goroutines take and free the locks.
const takers = 32

func (h *helping) each(f func(i int) error) error {
	errs := make([]error, takers)
	var all sync.WaitGroup
	for w := range takers {
		all.Go(func() {
			for i := w; i < h.task.Locks && errs[w] == nil; i += takers {
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func name(i int) string { return fmt.Sprintf("scale/%d", i) }

// hold takes all locks, says how long that took, holds them until it hears a line, and
// frees them.
func (h *helping) hold() error {
	ctx := context.Background()
	locks := make([]distlock.Lock, h.task.Locks)
	first, err := h.locker.Lock(ctx, name(0)) // what it opens is not the price of a lock
	if err != nil {
		return err
	}
	if err := first.Unlock(ctx); err != nil {
		return err
	}
	memory, goroutines := inUse()
	began := time.Now()
	err = h.each(func(i int) (err error) {
		locks[i], err = h.locker.Lock(ctx, name(i))
		return err
	})
	if err != nil {
		return err
	}
	if err := h.say(struct{ Took time.Duration }{time.Since(began)}); err != nil {
		return err
	}
	if err := h.heard(); err != nil {
		return err
	}
	full, running := inUse()
	began = time.Now()
	end := heldEnd{Memory: (full - memory) / float64(len(locks)), Goroutines: running - goroutines}
	end.LeastLeft = float64(h.least.Load()) / float64(h.task.TTL)
	var lost atomic.Int64
	_ = h.each(func(i int) error {
		if gone := locks[i].Err() != nil; locks[i].Unlock(ctx) != nil || gone {
			lost.Add(1)
		}
		return nil
	})
	end.Lost, end.Freed = int(max(lost.Load(), h.lost.Load())), time.Since(began)
	if cause := h.cause.Load(); cause != nil {
		end.Cause = *cause
	}
	return h.say(end)
}

// inUse returns the bytes and the goroutines of this process.
func inUse() (memory, goroutines float64) {
	runtime.GC()
	runtime.GC() // what has a finalizer, or sits in a sync.Pool, survives the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}

// wait has a goroutine wait for each name. It says when all have been told that the name
// is held, and at the end what turns they have had.
func (h *helping) wait() error {
	turns := make([]turn, h.task.Locks)
	var all sync.WaitGroup
	for i := range turns {
		all.Go(func() { turns[i] = h.turn(name(i)) })
	}
	h.queued.Wait()
	if err := h.say("queued"); err != nil {
		return err
	}
	all.Wait()
	return h.say(turns)
}

// held is how long a turn lasts. Two at a time could hardly meet in less.
const held = time.Millisecond

func (h *helping) turn(name string) (t turn) {
	ctx := context.Background()
	lock, err := h.locker.Lock(ctx, name)
	if err == nil {
		t.Token, t.From = lock.Token(), time.Now().UnixNano()
		time.Sleep(held)
		t.Till = time.Now().UnixNano()
		err = lock.Unlock(ctx)
	}
	if err != nil {
		t.Failed = err.Error()
	}
	return t
}
