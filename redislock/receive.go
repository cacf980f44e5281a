package redislock

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// This file has what becomes of a connection of a subscriber, from its first message to its end.

// noReconnect is a context that has ended. With it, go-redis does not make a lost connection anew
// by itself: it has no bound for that. With a dialer that heeds no context, as its own with TLS, it does
// once all the same, in the timeouts of the client, and waiters are woken after that.
var noReconnect = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive reads one connection until it is lost, fails before a subscription is confirmed, is dropped, or is no longer needed: then it
// returns nil. After a time without a message it sends a ping, and ends if that has no answer. It does not end for an answer that is an
// error: that may be about one name, and wake-ups for others come by the same connection.
func (s *subscriber) receive(c *conn) error {
	checked, swept := false, time.Now()
	for {
		msg, err := c.pubsub.ReceiveTimeout(noReconnect, idle)
		var silence net.Error
		if !checked && errors.As(err, &silence) && silence.Timeout() {
			checked = true
			ctx, cancel := context.WithTimeout(c.ctx, maxConnect)
			err = c.pubsub.Ping(ctx)
			cancel()
		} else {
			checked = false
		}
		switch {
		case err == nil:
			s.deliver(c, msg)
		case !endpoint.Answered(err) || !s.survives(c, err):
			return err
		}
		if time.Since(swept) >= idle {
			swept = time.Now()
			if !s.sweep(c) {
				return nil
			}
		}
	}
}

func (s *subscriber) deliver(c *conn, msg any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := msg.(type) {
	case *redis.Message:
		ch := s.channels[m.Channel]
		if ch == nil || ch.conn != c {
			return
		}
		ch.state.Store(proven) // scripts alone publish here: the test of try.lua, a wake-up or a grant
		owner, grant, _ := strings.Cut(m.Payload, " ")
		if w := ch.waiters[owner]; w != nil {
			w.accept(grant)
			w.notify()
		}
	case *redis.Subscription:
		ch := s.channels[m.Channel]
		if ch == nil || ch.conn != c {
			return
		}
		if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
			ch.state.CompareAndSwap(subscribing, unproven)
			delete(s.failures, c.addr)
			for _, w := range ch.waiters {
				w.notify()
			}
			return
		}
		s.forget(m.Channel, ch) // the slot has moved to another server
	}
}

// sweep ends the subscriptions of c that nobody has needed for a while. It reports whether
// any is left.
func (s *subscriber) sweep(c *conn) bool {
	var old []string
	left := false
	s.mu.Lock()
	for name, ch := range s.channels {
		switch {
		case ch.conn != c:
		case len(ch.waiters) == 0 && time.Since(ch.used) >= idle:
			old = append(old, name)
			s.forget(name, ch)
		default:
			left = true
		}
	}
	s.mu.Unlock()
	if !left || len(old) == 0 {
		return left
	}
	ctx, cancel := context.WithTimeout(c.ctx, maxConnect)
	defer cancel()
	for _, name := range old { // each alone: they are in different slots
		if c.pubsub.SUnsubscribe(ctx, name) != nil { // only a cluster has more than one to a connection
			return false
		}
	}
	return true
}

// survives judges an error that the server has answered, as to a subscription in a slot that it has given away. It
// reports whether c has other subscriptions. Those that the server has not confirmed after a pause begin anew then.
func (s *subscriber) survives(c *conn, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, confirmed := s.standing(c)
	if asked && confirmed && !c.pausing {
		c.pausing = true
		s.running.Go(func() {
			s.pause(c, err)
			s.mu.Lock()
			defer s.mu.Unlock()
			c.pausing = false
			for name, ch := range s.channels {
				if ch.conn == c && ch.state.Load() == subscribing {
					s.forget(name, ch)
				}
			}
		})
	}
	return confirmed
}

// standing reports whether c has subscriptions that are not confirmed, and such that are; s.mu is held.
func (s *subscriber) standing(c *conn) (asked, confirmed bool) {
	for _, ch := range s.channels {
		if ch.conn == c {
			unconfirmed := ch.state.Load() == subscribing
			asked, confirmed = asked || unconfirmed, confirmed || !unconfirmed
		}
	}
	return asked, confirmed
}

// fail ends a connection. One that failed before a subscription was confirmed stays registered for
// a pause, and takes no subscription: so nobody dials anew at once.
func (s *subscriber) fail(c *conn, err error) {
	s.mu.Lock()
	_, confirmed := s.standing(c)
	s.mu.Unlock()
	if !confirmed {
		_ = c.pubsub.Close()
		s.pause(c, err)
	}
}

// pause waits, so that what made a subscription fail has time to pass before the next attempt. A connection that was
// dropped has not failed.
func (s *subscriber) pause(c *conn, err error) {
	s.mu.Lock()
	failures, dropped := s.failures[c.addr], c.ctx.Err() != nil
	if !dropped {
		if len(s.failures) >= maxFailures && failures == 0 {
			clear(s.failures) // most are of servers that are no more
		}
		s.failures[c.addr]++
	}
	s.mu.Unlock()
	if dropped {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, min(minPause<<min(failures, 10), maxPause))
	defer cancel()
	if failures == 0 { // without the mutex, and not waited for: the handler may hang, or take a lock itself
		_, _ = driver.Detach(ctx, func() (none struct{}, _ error) {
			s.logger.Warn("cannot subscribe to wake-ups, waiting calls have to poll", "err", err)
			return none, nil
		})
	}
	<-ctx.Done()
}

// dropAll drops all connections: for good in Close, else because the server that the requests go to is a replica now.
// Behind an address that has moved, the connections of go-redis are made anew, but one that messages come by would stay
// at the old master, where nobody counts it.
func (s *subscriber) dropAll(forGood bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = forGood // open makes no connection after this
	for _, c := range s.conns {
		s.abandon(c)
		s.running.Go(func() { _ = c.pubsub.Close() }) // it may wait for a server that says nothing
	}
}

// abandon forgets a connection and wakes the waiters that relied on it; s.mu is held.
func (s *subscriber) abandon(c *conn) {
	if s.conns[c.addr] == c {
		delete(s.conns, c.addr)
	}
	for name, ch := range s.channels {
		if ch.conn == c {
			s.forget(name, ch)
		}
	}
	c.cancel() // ends an attempt to connect, for which Close would wait
}

// drop closes a connection.
func (s *subscriber) drop(c *conn) {
	s.mu.Lock()
	s.abandon(c)
	s.mu.Unlock()
	_ = c.pubsub.Close()
}
