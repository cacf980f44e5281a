package testkit

import (
	"crypto/rand"
	"encoding/hex"
	"testing"
)

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Should fails the test if there is an error, and goes on.
func Should(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Owner returns an owner of a claim as the engine makes them: 32 hexadecimal digits that no other has.
func Owner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
