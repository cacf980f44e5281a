package zklock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// TestGarbledAnswer: an answer that does not fit the request is no grant, and its fate is
// not known.
func TestGarbledAnswer(t *testing.T) {
	t.Parallel()
	stem := "/p/x/claim-" + strings.Repeat("0", ownerDigits) + "-"
	good := []zk.MultiResponse{{String: stem + "0000000007"}, {Stat: &zk.Stat{Mzxid: 9, NumChildren: 1}}}
	if n := new(creation); n.take(stem, good) != nil || n.path != good[0].String || n.czxid != 9 || !n.alone {
		t.Errorf("a good answer was taken for %+v", n)
	}
	for what, results := range map[string][]zk.MultiResponse{
		"nothing": nil, "one": good[:1], "three": append(good[:2:2], good[0]),
		"no state": {good[0], {}}, "no path": {{}, good[1]}, "a path of somebody else": {{String: "/p/x/claim-1"}, good[1]},
	} {
		n := new(creation)
		if err := n.take(stem, results); !errors.Is(err, errGarbled) || driver.FateOf(err) != driver.Unknown || fateOf(err) != driver.Unknown || n.path != "" {
			t.Errorf("%s: %v, %+v", what, err, n)
		}
	}
}

// FuzzChildren: whatever children a server lists, those that are taken for claims are so.
func FuzzChildren(f *testing.F) {
	owner := strings.Repeat("a", ownerDigits)
	f.Add(claimPrefix+owner+"-0000000001", claimPrefix+owner+"--2147483648")
	f.Add(claimPrefix+owner, "claim-")
	f.Add("", claimPrefix+owner+"-000000000x")
	f.Fuzz(func(t *testing.T, a, b string) {
		queue := queueOf([]string{a, b, a})
		for _, n := range queue {
			if n.name != a && n.name != b || len(n.owner) != ownerDigits || !strings.HasPrefix(n.name, claimPrefix+n.owner+"-") {
				t.Errorf("%q and %q: %+v", a, b, n)
			}
		}
		if name, ours := decode(a); ours && encode(name) != a {
			t.Errorf("%q is taken for the name %q", a, name)
		}
	})
}

// TestFates: what each error of the library says of the request.
func TestFates(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]driver.Fate{
		zk.ErrConnectionClosed:                driver.Unknown,
		zk.ErrSessionExpired:                  driver.Unknown,
		&net.OpError{Err: io.EOF}:             driver.Unknown,
		errGarbled:                            driver.Unknown,
		zk.ErrNoServer:                        driver.NotSent,
		zk.ErrNoNode:                          driver.Again,
		zk.ErrNoAuth:                          driver.Answered,
		fmt.Errorf("x: %w", zk.ErrInvalidACL): driver.Answered,
		distlock.ErrInvalid:                   driver.Answered,
		errPlaceLost:                          driver.Answered,
		errors.New(codeUnimplemented):         driver.Answered,
		errors.New(codeThrottled):             driver.NotNow,
		errors.New(codeNotReadOnly):           driver.NotNow,
		errors.New("unknown error: -7"):       driver.Unknown,
	} {
		if got := fateOf(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// TestFateOfRepeats: a copy that was not served says nothing of the one before it.
func TestFateOfRepeats(t *testing.T) {
	t.Parallel()
	s := &session{conn: &wire.Conn{}}
	for last, want := range map[error]driver.Fate{
		nil:                       driver.Answered,
		zk.ErrNoServer:            driver.Unknown,
		errors.New(codeThrottled): driver.Unknown,
		zk.ErrNodeExists:          driver.Answered,
	} {
		answers := []error{zk.ErrConnectionClosed, last, last}
		_, err := again(t.Context(), s, func() (none struct{}, err error) {
			err, answers = answers[0], answers[1:]
			return none, err
		})
		if got := driver.FateOf(err); got != want {
			t.Errorf("no answer, then %v: %v, want %v", last, got, want)
		}
	}
}
