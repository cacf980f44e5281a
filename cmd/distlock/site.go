package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/sandbox"
)

// site is where a check takes place: in a part of the store of its own, or in what the
// URL names.
type site struct {
	backends.Config
	given  string         // URL of the user, without its password
	what   string         // of the store is the check's own
	client sandbox.Client // nil if nothing is
	made   bool           // something may be there
}

// settle makes a site. asIs keeps to what the URL names. So does a backend without a
// server, or with servers unknown here.
func settle(ctx context.Context, c backends.Config, asIs bool) (*site, error) {
	s := &site{Config: c, given: openurl.Redact(c.URL)}
	if asIs {
		return s, nil
	}
	p, err := sandbox.New(c.URL, "check")
	if err != nil {
		return nil, usage(fmt.Errorf("%w; --as-is checks in the prefix, table or node of the URL itself", err))
	}
	switch p.Store {
	case "":
		return s, nil
	case "zk":
		p = shortSessions(c, p)
	}
	s.Config.URL, s.what = p.URL(""), p.What
	if s.client, err = p.Open(ctx); err != nil {
		return nil, s.unsettled(err)
	}
	s.made = p.MadeByOpen()
	return s, nil
}

// shortSessions is p on ZooKeeper, where checks wait for sessions to end, for as long as the lag says: that of the longest TTL
// that the servers allow, a minute and more. A TTL that is given may need that.
func shortSessions(c backends.Config, p *sandbox.Sandbox) *sandbox.Sandbox {
	if c.TTL != 0 || p.Has("ttl") {
		return p
	}
	return p.With("ttl", "2s").With("session_timeout", "8s")
}

// open opens the backend there.
func (s *site) open(ctx context.Context) (*backend, error) {
	b, err := openConfig(ctx, s.Config, s.given, true)
	if err != nil {
		return nil, s.leave(s.unsettled(err))
	}
	s.made = true
	return b, nil
}

// noLogin is in errors of a server that is not of that kind, or does not know the user: no question of rights.
var noLogin = regexp.MustCompile("what listens there|Error 1045|authentication failed|WRONGPASS|NOAUTH")

// unsettled says of an error that it may be for want of rights.
func (s *site) unsettled(err error) error {
	if s.what == "" || errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrInvalid) || errors.Is(err, distlock.ErrUnsupported) {
		return err
	}
	text := strings.ReplaceAll(err.Error(), openurl.Redact(s.Config.URL), s.given)
	b := backend{url: s.given}
	if unanswered.MatchString(text) || noLogin.MatchString(text) {
		return b.failed(errors.New(text))
	}
	return b.failed(fmt.Errorf("%s (a check makes %s, and needs the rights to; with --as-is it does without)", text, s.what))
}

// leave removes what is the check's own, after its last client, and says so. It returns
// err, the result of the check, unless err is nil and something stays.
func (s *site) leave(err error) error {
	if s.client == nil {
		return err
	}
	if !s.made {
		_ = s.client.Close() // it has not been used either
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), sandbox.RemovePatience) // also after Ctrl-C
	defer cancel()
	left := errors.Join(s.client.Remove(ctx), s.client.Close())
	if left == nil {
		say("removed %s", s.what)
		return err
	}
	left = fmt.Errorf("%s: the check has left %s behind: %w", s.given, s.what, left)
	if err != nil {
		say("%v", left)
		return err
	}
	return &exit{status: statusFailed, err: left}
}
