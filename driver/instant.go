package driver

import "time"

// instant is a time on the Client's own monotonic clock: nanoseconds since New. It has a
// third of the size of a time.Time, and a lock keeps five. 0 is no time.
type instant time.Duration

// now returns the present instant.
func (c *Client) now() instant { return instant(time.Since(c.began)) }

// instant returns t as the Client counts it.
func (c *Client) instant(t time.Time) instant { return instant(t.Sub(c.began)) }

// time is the reverse of instant. Its wall clock is that of today, whatever was set since New.
func (c *Client) time(i instant) time.Time {
	now := time.Now()
	return now.Add(i.sub(c.instant(now)))
}

func (i instant) add(d time.Duration) instant { return i + instant(d) }
func (i instant) sub(o instant) time.Duration { return time.Duration(i - o) }
