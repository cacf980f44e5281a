package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/compare"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/servers"
)

// findTargets returns the backends to compare: those of the URLs, or else what
// this machine has. closeAll stops what was started.
func findTargets(ctx context.Context, urls []string) (ts []compare.Target, missing map[string]string, closeAll func(), err error) {
	missing = make(map[string]string)
	if len(urls) > 0 {
		for _, u := range urls {
			parsed, err := openurl.Parse(u)
			if err != nil {
				return nil, nil, nil, err
			}
			ts = append(ts, target(parsed.Scheme(), u, "given URL", ""))
		}
		return ts, missing, func() {}, nil
	}
	ts = append(ts, target("memory", "mem://compare", "in this process", ""))
	var started []*servers.Server
	for _, kind := range servers.Kinds {
		fmt.Fprintf(os.Stderr, "starting %s ...\n", kind)
		s, err := servers.Start(ctx, kind)
		if err != nil {
			missing[string(kind)] = err.Error()
			continue
		}
		started = append(started, s)
		ts = append(ts, target(string(kind), backendURL(s), s.Origin(), s.Version()))
	}
	return ts, missing, func() {
		for _, s := range started {
			if err := s.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "distlock: stopping a server:", err)
			}
		}
	}, nil
}

func target(name, url, origin, version string) compare.Target {
	return compare.Target{
		Name: name, URL: openurl.Redact(url), Origin: origin, Version: version,
		Open: func(ctx context.Context) (distlock.Locker, error) { return backends.Open(ctx, url) },
		Bare: func(ctx context.Context) (compare.Bare, error) { return compare.OpenBare(ctx, url) },
	}
}

// backendURL has the table made on a MySQL server that has none yet.
func backendURL(s *servers.Server) string {
	switch {
	case s.Kind() != servers.MySQL || !s.Controlled():
		return s.URL()
	case strings.Contains(s.URL(), "?"):
		return s.URL() + "&create=true"
	}
	return s.URL() + "?create=true"
}
