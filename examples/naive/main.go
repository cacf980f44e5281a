// Command naive plays four locks on Redis that many services were built with. It plays
// each in the one moment where it goes wrong, and then the same story with this library.
//
//	go run ./examples/naive --url redis://localhost:6379
//
// The moments are staged, not waited for: a process that stops between two lines does so
// here for certain. It needs a Redis of your own; it touches keys under naive: only.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
)

func main() {
	url := flag.String("url", os.Getenv(backends.EnvURL), "`URL` of a Redis; without it, that in $DISTLOCK_URL")
	flag.Parse()
	if err := demonstrate(context.Background(), *url, os.Stdout, lease, stories); err != nil {
		fmt.Fprintln(os.Stderr, "naive:", err)
		os.Exit(1)
	}
}

// lease is the TTL in all stories: short, so that nobody waits long to see one end. The tests have a longer one: what a
// story tells of its holder has to come before its end.
const lease = 300 * time.Millisecond

// story is one way to get it wrong.
type story struct {
	title string
	play  func(context.Context, *stage) error
}

var stories = []story{
	{"SETNX, then EXPIRE: a crash in between leaves the name taken for ever", crashBetween},
	{"DEL at the end: a holder that was too slow frees the lock of the next", blindDelete},
	{"GET, compare, DEL: the same, for a process that stops in between", getThenDelete},
	{"GETSET of a timestamp: two clocks, two holders", getSet},
}

// demonstrate plays the stories. Its error says what did not go as the story tells.
func demonstrate(ctx context.Context, url string, w io.Writer, lease time.Duration, stories []story) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return errors.New("the URL is none of a single Redis, like redis://localhost:6379")
	}
	client := redis.NewClient(o)
	defer client.Close()
	locker, err := backends.Open(ctx, url)
	if err != nil {
		return err
	}
	defer locker.Close()
	for _, s := range stories {
		fmt.Fprintf(w, "%s\n", s.title)
		st := &stage{Client: client, locker: locker, w: w, key: "naive:" + rand.Text(), lease: lease, began: time.Now()}
		err := s.play(ctx, st)
		if err = errors.Join(err, client.Del(ctx, st.key).Err()); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
		fmt.Fprintln(w)
	}
	return nil
}

// stage is where a story is played: a server, a key, and a clock for the timeline.
type stage struct {
	*redis.Client
	locker distlock.Locker
	w      io.Writer
	key    string
	lease  time.Duration
	began  time.Time
}

func (s *stage) say(who, what string, args ...any) {
	fmt.Fprintf(s.w, "%7.3fs  %-9s %s\n", time.Since(s.began).Seconds(), who, fmt.Sprintf(what, args...))
}

// expect ends the story if something went otherwise than it tells.
func expect(ok bool, what string, err error) error {
	if err == nil && ok {
		return nil
	}
	return errors.Join(fmt.Errorf("expected that %s", what), err)
}
