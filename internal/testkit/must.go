package testkit

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"
)

// Must ends the test if there is an error. It is inconclusive if nobody has answered because the machine was late.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(told(t, err, final))
	}
}

// Should fails the test if there is an error, and goes on. It words it as Must does.
func Should(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(told(t, err, ""))
	}
}

// Inconclusivef ends a test that has learnt nothing, for a reason that is not of what it tests: "make test" runs it once more
// when all else has ended. A test that has failed before has learnt something, and is not run again.
func Inconclusivef(t testing.TB, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	if t.Failed() {
		t.Fatalf("nothing more is known: %s", why)
	}
	t.Fatal(inconclusive + final + why)
}

// inconclusive begins what such a test says. What is in final follows where the test ends by it: what its clean-ups say
// afterwards is of the same machine.
const (
	inconclusive = "inconclusive: "
	final        = "nothing more is tested: "
)

// told words an error for a test, as Inconclusivef does if that is so. end is final, or nothing if the test goes on.
func told(t testing.TB, err error, end string) string {
	if t.Failed() {
		return err.Error()
	}
	return words(err, end, machine.Between)
}

// Owner returns an owner of a claim as the engine makes them: 32 hexadecimal digits that no other has.
func Owner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
