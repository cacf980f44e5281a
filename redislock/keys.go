package redislock

import "github.com/distlock-go/distlock/redislock/internal/names"

// key is the key of a name: a string, the entry of its holder, that lives as long as
// the lease. The other keys of the name are derived from it.
type key string

func keyOf(prefix, name string) key { return key(names.Key(prefix, name)) }

func (k key) entry() string   { return string(k) }
func (k key) token() string   { return string(k) + ":token" }   // string: the last token
func (k key) queue() string   { return string(k) + ":queue" }   // list: the owners that wait, in order
func (k key) waiters() string { return string(k) + ":waiters" } // hash: their places; see queue.lua
