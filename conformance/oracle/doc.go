// Package oracle records what clients do to locks, and judges from the record whether
// a correct lock can have answered so.
//
//	r := oracle.NewRecorder(oracle.History{Backend: "mine"})
//	lock, err := r.Acquire(ctx, oracle.OpLock, "A", locker, "name", distlock.TTL(ttl))
//	...
//	verdict := oracle.Judge(r.History())
//
// Three rules look at single facts: the intervals in which holders believed in their
// locks, the deadlines, and the order of the tokens. The model then searches for an
// order of all operations that explains all answers (linearizability, by porcupine).
//
// Every comparison takes the stamp that favours the lock. So a slow machine can hide
// a fault, but it cannot make one up.
package oracle
