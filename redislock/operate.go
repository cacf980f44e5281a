package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

// Inspect implements driver.Inspector. One script reads both, so that entry and waiters are of
// the same moment.
func (d *store) Inspect(ctx context.Context, name string) (st distlock.Status, err error) {
	k := keyOf(d.prefix, name)
	found, _, err := d.sender.Run(ctx, inspectScript, []string{k.entry(), k.token(), k.waiters()})
	if err != nil {
		return st, err
	}
	answer, err := answers(found, 4)
	if err != nil {
		return st, err
	}
	return statusOf(name, answer)
}

// statusOf reads what inspect.lua returns.
func statusOf(name string, answer []any) (st distlock.Status, err error) {
	text, ok1 := answer[0].(string)
	lasts, ok2 := answer[1].(int64)
	token, ok3 := answer[2].(string)
	waiters, ok4 := answer[3].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return st, fmt.Errorf("redislock: unexpected answer to an inspection: %v", answer)
	}
	st.Name, st.Waiters = name, int(waiters)
	st.Token, _ = strconv.ParseInt(token, 10, 64)
	if text == "" {
		return st, nil
	}
	st.Held = true
	st.Remaining = time.Duration(max(lasts, 0)) * time.Millisecond
	// An entry counts as held even if no script has written it. Its text is shown as the
	// holder then.
	st.Holder = text
	if e, ok := names.ParseEntry(text); ok {
		st.Token, st.AcquiredAt, st.Holder = e.Token, e.Acquired, e.Holder
	}
	return st, nil
}

// Break implements driver.Breaker. The script compares the token. So a Break ends no later hold
// if it arrives twice or late.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	k := keyOf(d.prefix, name)
	answer, late, err := d.sender.Run(ctx, breakScript, []string{k.entry(), k.token(), k.queue(), k.waiters()},
		token, d.memory, d.publish)
	if err != nil {
		return err
	}
	switch {
	case answer == int64(1), answer == int64(0) && late: // the first copy may have ended the hold
		return nil
	case answer == int64(0):
		return distlock.ErrLost
	}
	return fmt.Errorf("redislock: unexpected answer to a Break: %v", answer)
}
