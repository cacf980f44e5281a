.DEFAULT_GOAL := help
GO ?= go

.PHONY: help
help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

.PHONY: servers
servers: ## install what is missing of Redis, MariaDB, Postgres, ZooKeeper and etcd (local binaries; nothing keeps running)
	@scripts/install-servers.sh

.PHONY: tools
tools: ## what the tests need: the same, PgBouncer, libfaketime, and a C compiler for -race
	@scripts/install-servers.sh redis mysql pg zk etcd cc test

compare compare-docs: export DISTLOCK_REQUIRE ?= all
.PHONY: compare
compare: servers ## the comparison of all five backends on this machine (5 to 6 minutes)
	$(GO) run -ldflags "$$(scripts/commit-flag.sh)" ./cmd/distlock compare --html report.html $(ARGS)

.PHONY: compare-docs
compare-docs: servers ## the same, into docs/reports/comparison.md
	scripts/comparison-report.sh $(ARGS)

.PHONY: bench
bench: servers ## side-by-side benchmarks against other lock libraries, and docs/reports/performance.md of them (half an hour; ARGS=-quick: three, into bench/quick.json)
	cd bench && $(GO) run . $(ARGS)
	cd bench && $(GO) run . -render results.json

.PHONY: bench-scale
bench-scale: servers ## 100,000 locks held for ten minutes on each store, and 10,000 waiters in 100 processes, beside the results of bench (half an hour)
	cd bench && $(GO) run . -scale $(ARGS)
	cd bench && $(GO) run . -render results.json

# Everything that a change may break. What is long by nature is sampled here and whole in a target of its own, below.
RUNTESTS = DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) run ./scripts/runtests -go '$(GO)'
# A garbage collector that comes four times less often: the compiler and -race take a fifth less of the processors, the
# mutants almost half. The limit is above the 1.7 GB that the tests of zklock keep, in buffers of its client: below that, the
# collector takes as much as the tests.
test test-short mutants matrix flakes lint: export GOGC ?= 400
test test-short mutants matrix flakes lint: export GOMEMLIMIT ?= 2GiB
# A cold build takes a tenth less if the compiler makes no DWARF. This program, the tests without -race and etcd have the same
# flags, so that the library of Go is compiled once for all.
test test-short mutants flakes lint: export GOFLAGS += -gcflags=all=-dwarf=false
# The suite of a driver runs with one check in SHARE, by chance, and all of what the driver promises first: mutual exclusion,
# expiry, owner-safe unlock. On memlock, in a plain go test, and where -run names checks, nothing is left out.
SHARE ?= 3
test: export DISTLOCK_CONFORMANCE_SHARE = $(SHARE)
.PHONY: test
test: tools ## all tests of all modules under -race, with every backend required, and a third of each driver's suite, by chance (15 minutes on 2 cores, 25 where nothing is compiled yet; SHARE=1: all of it; PKG='./redislock ./bench/...' only these; ARGS=-v)
	$(RUNTESTS) $(ARGS) $(PKG)

# One after the other: two of these suites take three times as long side by side on two cores, and leases end meanwhile.
DRIVERS ?= ./redislock ./redislock/redlock ./mysqllock ./pglock ./zklock ./etcdlock
.PHONY: suites
suites: ## all tests of the drivers, with the whole suite on each; test has a third of that, by chance (15 minutes)
	$(MAKE) test SHARE=1 ARGS='-p 1 $(ARGS)' PKG='$(DRIVERS)'

.PHONY: test-short
test-short: ## the tests that need no server and no C compiler, without the mutants (half a minute, two where nothing is compiled yet)
	CGO_ENABLED=0 $(GO) run ./scripts/runtests -go '$(GO)' -light -race=false -short $(ARGS)

STORE ?= redis
.PHONY: quick
quick: test-short ## while working: test-short, and the driver of one store (STORE=redis, mysql, pg, zk or etcd; some minutes)
	@scripts/install-servers.sh $(STORE) test
	DISTLOCK_REQUIRE=$(STORE) $(GO) test -count 1 $(ARGS) ./$(STORE)lock

ROUNDS ?= 10
.PHONY: flakes
flakes: tools ## the tests of PKG=./redislock ROUNDS=10 times, every other time beside two busy loops: which failed how often (it says how long it takes)
	@test -n '$(PKG)' || { echo 'make flakes: PKG=./redislock says which package, ROUNDS=10 how often'; exit 2; }
	DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) run ./scripts/flakes -go '$(GO)' -rounds $(ROUNDS) $(ARGS) $(PKG)

.PHONY: mutants
mutants: ## the broken drivers by the checks that have to kill them, and the unusual ones by half of the suite each: a part of test (2 minutes)
	$(RUNTESTS) $(ARGS) ./internal/mutants/...

.PHONY: matrix
matrix: ## each broken driver, and each that is unusual but right, by the whole suite (half an hour)
	DISTLOCK_CONFORMANCE_PAIRS=all $(GO) test -run 'TestMatrix|TestGenerated|TestTolerated|TestReference' -count 1 -timeout 80m $(ARGS) ./internal/mutants

.PHONY: pairs
pairs: tools ## all of the groups pair and after, on all five stores, Redlock and memlock; test has a sample of them (an hour)
	DISTLOCK_CONFORMANCE_PAIRS=all DISTLOCK_REQUIRE=all DISTLOCK_SERVERS=local $(GO) test -v -count 1 -p 1 -timeout 1h \
		-run 'Test(Conformance|Memlock)/(pair|serving)/(pair|try|lock|unlock|extend|renewal|close|break|sweep|request|reply|left|hand-over|herd|stopped)|Test(Conformance|Memlock)/after|TestConformance/serving/after' $(ARGS) \
		./conformance ./redislock ./redislock/redlock ./mysqllock ./pglock ./zklock ./etcdlock

LOOK = DISTLOCK_LOOK_THEN_ACT=all DISTLOCK_REQUIRE=all DISTLOCK_SERVERS=local $(GO) test -timeout 2h $(ARGS)
.PHONY: look-then-act
look-then-act: tools ## drivers that look in one request and act in another, ROUNDS=10 times each on Redis, MySQL, etcd and files: the suite has to fail all of them; then once none that is right, and those on files without steps (a minute a round, and a quarter of an hour)
	$(LOOK) -count $(ROUNDS) -run TestLookThenAct ./internal/mutants/stores
	$(LOOK) -count 1 -skip TestLookThenAct ./internal/mutants/stores

# Before the faults, what the tests of the servers themselves leave out: elections, and etcd built anew.
EVENTS ?= 70
SEED ?= 1
CHAOS = export DISTLOCK_REQUIRE=all DISTLOCK_SERVERS=local DISTLOCK_CHAOS_EVENTS=$(EVENTS) DISTLOCK_CHAOS_SEED=$(SEED); failed=; \
	$(GO) test -count 1 -run 'TestCut|TestBuildEtcd' ./internal/servers || failed=1; \
	$(GO) test -count 1 -timeout 60m -parallel 4 $(ARGS) ./internal/chaos || failed=1; test -z "$$failed"
.PHONY: chaos
chaos: tools ## EVENTS=70 faults by SEED=1 on each topology; test has four (15 minutes)
	@$(CHAOS)

.PHONY: topologies
topologies: tools ## the same, before it the suite on each deployment, and docs/reports/topologies.md of both (40 minutes)
	@export DISTLOCK_CHAOS_PAGE=$(CURDIR)/docs/reports/topologies.md; $(CHAOS)

.PHONY: each
each: export DISTLOCK_EACH = all
each: export DISTLOCK_CONFORMANCE_NEW = all
each: tools ## what does not know which store it has, on all five: integrations, examples, the command, the comparison; and the suite on clients of the user's own. test has each on one store or two, and an eighth of the checks on half of the clients, by chance (10 minutes)
	$(RUNTESTS) $(ARGS) ./integrations/... ./examples/... ./internal/harness ./internal/servers ./internal/compare/measure
	cd examples/filelock && $(GO) test -race -count 1 $(ARGS) ./...
	DISTLOCK_REQUIRE=all $(GO) test -race -count 1 -timeout 10m \
		-run 'TestServerScripts|TestServers|TestKeeps|TestHarmed|TestCheckAccusesNobody|TestCompareConvicts' $(ARGS) ./cmd/distlock

.PHONY: hazards
hazards: ## what compare says of the hazards, on the drivers with such a flaw and on sound ones (1 minute)
	$(GO) test -race -count 1 -timeout 10m $(ARGS) ./internal/compare/hazard

.PHONY: examples
examples: export DISTLOCK_EACH = all
examples: servers ## the worked examples on all five backends, with what they print (3 minutes)
	DISTLOCK_REQUIRE=all $(GO) test -count 1 -v $(ARGS) ./examples/...
	cd examples/filelock && $(GO) test -count 1 $(ARGS) ./...
	cd examples/service && $(GO) test -count 1 $(ARGS) ./...

# One goroutine at a time, and two busy loops compete with it for the machine in every other round.
.PHONY: tolerated
tolerated: ROUNDS = 20
tolerated: ## the drivers that are unusual but right, ROUNDS=20 times: -race, one processor (it says how long it takes)
	GOMAXPROCS=1 $(GO) run ./scripts/flakes -go '$(GO)' -rounds $(ROUNDS) -run 'TestTolerated|TestReference' $(ARGS) ./internal/mutants

.PHONY: clean
clean: ## remove the test programs that test and test-short keep for their next run in this checkout (1.9 GB, in the cache folder of the user)
	$(GO) run ./scripts/runtests -clean

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, go mod tidy, actionlint, misspell (4 minutes, 8 where nothing is compiled yet)
	@scripts/lint.sh

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: dist
dist: ## archives of the static command for Linux, macOS and Windows, in dist/, the same bytes for the same commit
	@$(GO) run ./scripts/dist

COMPOSE = $$(docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
PROFILE ?= single
.PHONY: up
up: ## start the five servers as containers on loopback ports (PROFILE=sentinel and others: see docker-compose.yml)
	$(COMPOSE) --profile $(PROFILE) up -d

.PHONY: down
down: ## stop and remove those of all profiles
	$(COMPOSE) $(shell grep -o 'profiles: \[[a-z-]*' docker-compose.yml | sort -u | sed 's/.*\[/--profile /') down -v
