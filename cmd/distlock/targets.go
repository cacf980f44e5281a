package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/compare"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/servers"
)

// unsynced is what package servers says about all that it starts.
const unsynced = "started for this run: it acknowledges a write before the disk has it (no fsync), " +
	"so rates are those of the protocol and the code, not of the disk; and it shares the processors with its clients"

// findTargets returns the backends to compare: those of the URLs, or else what
// this machine has. closeAll stops what was started.
func findTargets(ctx context.Context, urls []string, ttl time.Duration) (ts []compare.Target, missing map[string]string, closeAll func(), err error) {
	missing = make(map[string]string)
	if len(urls) > 0 {
		for _, u := range urls {
			if err := refused(u); err != nil {
				return nil, nil, nil, usage(err)
			}
			t, err := compare.NewTarget(openurl.Scheme(u), u, "given URL", "", ttl)
			if err != nil {
				return nil, nil, nil, usage(err)
			}
			t.Rig.Child = holder
			ts = append(ts, t)
		}
		return ts, missing, func() {}, nil
	}
	var started []*servers.Server
	closeAll = func() {
		for _, s := range started {
			if err := s.Close(); err != nil {
				fmt.Fprintln(stderr, "distlock: stopping a server:", err)
			}
		}
	}
	memory, err := compare.NewTarget("memory", "mem://compare", "in this process", "", ttl)
	if err != nil {
		return nil, nil, nil, err
	}
	ts = append(ts, memory)
	for _, kind := range servers.Kinds {
		if ctx.Err() != nil {
			missing[string(kind)] = "interrupted"
			continue
		}
		fmt.Fprintf(stderr, "starting %s ...\n", kind)
		s, err := servers.Start(ctx, kind)
		if err != nil {
			missing[string(kind)] = err.Error()
			continue
		}
		started = append(started, s)
		t, err := compare.NewTarget(string(kind), s.URL(), s.Origin(), s.Version(), ttl)
		if err != nil {
			closeAll()
			return nil, nil, nil, err
		}
		t.Rig.Child = holder
		t.PIDs = s.PIDs()
		if s.Controlled() {
			t.Notes = append(t.Notes, unsynced)
			t.Rig.Control = s
			t.RunsOwn = true
		}
		ts = append(ts, t)
	}
	return ts, missing, closeAll, nil
}

// refused returns what is wrong with a URL, before anything is measured. No server is
// asked, as the context is done: whether one answers is part of the report.
func refused(url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l, err := backends.Open(ctx, url)
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, distlock.ErrInvalid):
		return err
	}
	return nil
}
