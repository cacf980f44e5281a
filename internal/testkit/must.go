package testkit

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

// Must ends the test if there is an error. It is inconclusive if nobody has answered because the machine was late.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(ending(told(t, err)))
	}
}

// Should fails the test if there is an error, and goes on. It words it as Must does.
func Should(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(told(t, err))
	}
}

// told words an error for a test. One that has failed before has learnt something: "make test" must not run it again.
func told(t testing.TB, err error) string {
	if t.Failed() {
		return err.Error()
	}
	return words(err, machine.Between)
}

// inconclusive begins what a test says that has learnt nothing. What is in final follows where the test ends by it: what its clean-ups say
// afterwards is of the same machine.
const (
	inconclusive = "inconclusive: "
	final        = "nothing more is tested: "
)

func ending(text string) string {
	if rest, ok := strings.CutPrefix(text, inconclusive); ok {
		return inconclusive + final + rest
	}
	return text
}

// Owner returns an owner of a claim as the engine makes them: 32 hexadecimal digits that no other has.
func Owner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
