package main

import (
	"context"
	"errors"

	"github.com/distlock-go/distlock/bench/meter"
	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

// fleet are the servers of one backend: the one that all contenders share, and
// more for those that lock on a majority.
type fleet struct{ nodes []*servers.Server }

// launch starts as many servers as any contender on the backend needs.
func launch(ctx context.Context, backend servers.Kind, contenders []peers.Contender) (*fleet, error) {
	nodes := 1
	for _, c := range contenders {
		nodes = max(nodes, c.Nodes)
	}
	f := new(fleet)
	for range nodes {
		s, err := servers.Start(ctx, backend)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.nodes = append(f.nodes, s)
		if !s.Controlled() {
			break // a given URL is one server, however often it is asked for
		}
	}
	return f, nil
}

func (f *fleet) urls(nodes int) []string {
	var urls []string
	for _, s := range f.nodes[:max(nodes, 1)] {
		urls = append(urls, s.URL())
	}
	return urls
}

// pids returns the processes of the servers that a contender uses, or nothing if not
// all of them are known.
func (f *fleet) pids(nodes int) []int {
	var pids []int
	for _, s := range f.nodes[:max(nodes, 1)] {
		if s.PID() == 0 {
			return nil
		}
		pids = append(pids, s.PID())
	}
	return pids
}

func (f *fleet) describe() string {
	s := f.nodes[0]
	text := s.Version() + ", " + s.Origin()
	if s.Version() == "" {
		text = s.Origin()
	}
	return text
}

func (f *fleet) close() error {
	var errs []error
	for _, s := range f.nodes {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// gauge are the proxies of one job.
type gauge struct {
	urls    []string
	proxies []*meter.Proxy
}

// measured puts proxies before the servers that a contender uses.
func (f *fleet) measured(nodes int) (*gauge, error) {
	g := new(gauge)
	for _, s := range f.nodes[:max(nodes, 1)] {
		p, err := meter.New(s.Kind(), s.Addr())
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.proxies = append(g.proxies, p)
		g.urls = append(g.urls, s.URLVia(p.Addr()))
	}
	return g, nil
}

func (g *gauge) requests() int64 {
	var n int64
	for _, p := range g.proxies {
		n += p.Requests()
	}
	return n
}

func (g *gauge) close() error {
	var errs []error
	for _, p := range g.proxies {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
