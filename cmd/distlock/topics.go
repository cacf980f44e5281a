package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// topics are the texts of "distlock help TOPIC": what several commands have in common, and what few want to read.
func topics() []*cobra.Command {
	return []*cobra.Command{
		topic("backend", "Where the URL of the backend comes from", configHelp),
		topic("exit", "The exit statuses", exitHelp),
		topic("running", "run: signals, terminals, losses, and what keeps a name", runningHelp),
		topic("chaos", "check --chaos: clients lock while commands of yours break the store", chaosHelp),
		topic("workloads", "compare: the workloads and the profiles", workloadHelp+"\n"+profileHelp()),
	}
}

func topic(name, short, text string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: strings.TrimSpace(text)}
}

const runningHelp = `The command of run gets a process group of its own, and the terminal if there is one.
INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are passed on to the whole group; HUP, and INT
with QUIT, stay ignored if they were, as after nohup(1). The rest of the environment is
handed down, with DISTLOCK_URL if set. What has left the group, as by setsid(1), is
neither signalled nor ended.
Under systemd say KillMode=mixed, or the command gets TERM twice.
What the command leaves in the background is not waited for, and runs on without the lock.

At a terminal the command is in the foreground: Ctrl-C reaches it alone, and Ctrl-Z stops
both it and distlock. Nothing renews the lock then: after the TTL the name is free, and fg
or bg ends the command, with status 75, instead of waking it. In a pipeline the command
gets the terminal if it asks for it.

A lock is being lost when the backend does not answer, or somebody broke it. The whole
group gets TERM and KILL, both before the lease can be granted to another, unless
somebody broke it, or distlock alone was stopped: then KILL comes when it goes on. If
distlock itself is killed, the name is free after the TTL, and on Linux the command dies
with it, but not what that has started, nor a setuid command.

On Windows, which has no such groups, only the command itself is ended, at once and not
what it has started, and it runs on if distlock is killed. Use a program, not a script.

--once-per and --min-hold keep the name after a command that has succeeded, counted from
its start. The period of --once-per ends early, since cron never starts a job at the same
instant. If the store can keep the name to the end by its own clock, distlock ends. It stays
where that would be wrong by more than a twentieth: on ZooKeeper, where a name lives by the
session of a process, on Redlock beyond its max_ttl, and for what is shorter than the TTL, on
etcd than 80s. While it stays, a signal ends it, with status 128+n; if the command has succeeded upon a signal, a second one
does. The name is then free after the TTL, which may be later than the period: give such a
run a TTL shorter than that.`

const chaosHelp = `With --chaos, check does not run the suite. Clients lock, hold and unlock three names, while
the commands of --faults break the store, one after the other, for up to four seconds each,
and mend it. It is for a staging cluster that nobody else uses. The suite judges all that
the clients did. The file says how to break and how to mend:

  - name: leader killed
    break: kubectl delete pod etcd-0 --now
    mend: kubectl wait pod/etcd-0 --for=condition=Ready --timeout=50s

Each command is run by sh, and has a minute. Where the store may forget locks (durability
volatile or restart), two holders at a time are counted and are no failure, as long as the
tokens tell them apart.`
