package compare

import (
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// The facts of a report, in their order.
var factTitles = []struct{ id, title string }{
	{"exclusion", "mechanism of exclusion"},
	{"crashed_holder", "what frees a crashed holder's name"},
	{"durability", "what survives"},
	{"fairness", "order of service"},
	{"ttl", "TTL"},
	{"token", "fencing token"},
	{"clock", "clocks"},
	{"replication", "replication"},
}

// facts returns what a driver promises, and what its page in docs/ says of its store. A
// driver unknown here has only the promises.
func facts(c driver.Capabilities) []report.Fact {
	texts := map[string]string{
		"durability": durabilityFact(c.Durability),
		"fairness":   fairnessFact(c),
		"ttl":        ttlFact(c),
	}
	for id, text := range storeFacts[c.Backend] {
		if own := texts[id]; own != "" {
			text = own + "; " + text
		}
		texts[id] = text
	}
	var all []report.Fact
	for _, f := range factTitles {
		if texts[f.id] != "" {
			all = append(all, report.Fact{ID: f.id, Title: f.title, Text: texts[f.id]})
		}
	}
	return all
}

func durabilityFact(d driver.Durability) string {
	switch d {
	case driver.Volatile:
		return "volatile: a crash of the server may lose locks"
	case driver.Restart:
		return "restart: a restarted server has its locks and tokens"
	case driver.Quorum:
		return "quorum: locks and tokens survive the loss of a minority of servers"
	}
	return "not declared"
}

func fairnessFact(c driver.Capabilities) string {
	text := "no order across clients"
	if c.Fair {
		text = "first come, first served across clients"
	}
	if c.Push {
		return text + "; waiters are told of a release"
	}
	return text + "; waiters poll"
}

func ttlFact(c driver.Capabilities) string {
	text := fmt.Sprintf("from %v, in steps of %v", max(c.MinTTL, time.Millisecond), max(c.TTLGranularity, 1))
	if 0 < c.MaxTTL && c.MaxTTL < distlock.MaxTTL {
		text += fmt.Sprintf(", up to %v in the session of this run", c.MaxTTL.Round(time.Millisecond))
	}
	if c.ExpiryLag > 0 {
		text += fmt.Sprintf("; a dead holder's name may stay held for %v more", c.ExpiryLag)
	}
	return text
}

// storeFacts say of each store what its driver's capabilities cannot.
var storeFacts = map[string]map[string]string{
	"redis": {
		"exclusion":      "one Lua script per step: it sets owner, expiry and token at once",
		"crashed_holder": "the expiry of the key; a process that waited is passed over when its connection breaks",
		"durability":     "an append-only file with appendfsync always keeps them across a restart of the same server",
		"token":          "from the server's clock in microseconds, above the last one, which is remembered for an hour",
		"clock":          "leases by the wall clock of the server: a jump forward ends them early, unnoticed until the next renewal",
		"replication":    "asynchronous: a failover may lose the latest locks, and so lead to two holders until the first one's deadline",
	},
	"mysql": {
		"exclusion":      "a unique index: one upsert decides on owner, expiry and token of a row",
		"crashed_holder": "the expiry column, judged by the server's clock",
		"durability":     "with innodb_flush_log_at_trx_commit = 1, the default",
		"token":          "a column that each grant raises; the row stays until it is swept",
		"clock":          "leases by the wall clock of the server: a jump forward ends them early, unnoticed until the next renewal",
		"replication":    "a failover to an asynchronous or semi-synchronous replica may lose the latest locks, and so lead to two holders until the first one's deadline",
	},
	"postgres": {
		"exclusion":      "a unique index: one upsert decides on owner, expiry and token of a row",
		"crashed_holder": "the expiry column, judged by the server's clock",
		"durability":     "unless synchronous_commit is off",
		"token":          "a column that each grant raises; the row stays until it is swept",
		"clock":          "leases by the wall clock of the server: a jump forward ends them early, unnoticed until the next renewal",
		"replication":    "a failover to an asynchronous replica may lose the latest locks, and so lead to two holders until the first one's deadline",
	},
	"zookeeper": {
		"exclusion":      "ephemeral sequential nodes: the lowest number holds",
		"crashed_holder": "the end of its session, of about twice its TTL, four ticks at the least",
		"token":          "the transaction number (czxid) of the node",
		"clock":          "sessions by the leader's ticks, which are monotonic; no wall clock",
		"replication":    "by majority; a lease counts for two thirds of a session less half a tick, since followers report to the leader late",
	},
	"etcd": {
		"exclusion":      "one transaction: the oldest key of a name holds",
		"crashed_holder": "the expiry of its lease",
		"token":          "the create revision of the key; a restore from a snapshot needs --bump-revision, or tokens fall",
		"clock":          "leases by the leader's monotonic clock; no wall clock",
		"replication":    "by majority; a new leader restarts leases in full, so a dead holder may block for a TTL longer",
	},
	"memory": {
		"exclusion":      "a mutex of this process",
		"crashed_holder": "nothing needs to: the locks end with the process; a stuck holder loses its own by the TTL",
		"token":          "a counter of the store",
		"clock":          "the monotonic clock of the process, for both sides",
		"replication":    "none: there is one process",
	},
}
