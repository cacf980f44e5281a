package testkit

import (
	"crypto/rand"
	"encoding/hex"
	"testing"
)

// Must ends the test if there is an error. It is inconclusive if nobody has answered because the machine was late.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(words(err, machine.Between))
	}
}

// Should fails the test if there is an error, and goes on. It words it as Must does.
func Should(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(words(err, machine.Between))
	}
}

// Owner returns an owner of a claim as the engine makes them: 32 hexadecimal digits that no other has.
func Owner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
