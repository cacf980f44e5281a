.DEFAULT_GOAL := help
GO ?= go

.PHONY: help
help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

.PHONY: servers
servers: ## install what is missing of Redis, MariaDB, ZooKeeper and etcd (local binaries; nothing keeps running)
	@scripts/install-servers.sh

.PHONY: tools
tools: ## what the tests need: the same, and a C compiler for -race
	@scripts/install-servers.sh redis mysql zk etcd cc

.PHONY: compare
compare: servers ## the comparison of all four backends on this machine
	$(GO) run ./cmd/distlock compare --html report.html $(ARGS)

.PHONY: compare-docs
compare-docs: servers ## the same, into docs/comparison.md
	scripts/comparison-docs.sh $(ARGS)

.PHONY: bench
bench: servers ## side-by-side benchmarks against other lock libraries, and docs/performance.md of them (ARGS=-quick: a few minutes, into bench/quick.json)
	cd bench && $(GO) run . $(ARGS)
	cd bench && $(GO) run . -render results.json > ../docs/performance.md

.PHONY: bench-scale
bench-scale: servers ## 100,000 locks held for ten minutes on each store, and 10,000 waiters in 100 processes, beside the results of bench (about 20 minutes)
	cd bench && $(GO) run . -scale $(ARGS)
	cd bench && $(GO) run . -render results.json > ../docs/performance.md

# The mutants run under -race by the checks that have to kill them, the unusual drivers by the whole suite. See matrix.
.PHONY: test
test: tools ## all tests under -race, with every backend required
	DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) test -race -p 2 -parallel 4 -count 1 -timeout 30m $(ARGS) \
		$$($(GO) list ./... | grep -v /internal/mutants)
	$(GO) test -race -short -skip TestTolerated -count 1 -timeout 15m $(ARGS) ./internal/mutants
	$(GO) test -skip TestMatrix -count 1 -timeout 15m $(ARGS) ./internal/mutants
	cd examples/filelock && $(GO) test -race -count 1 -timeout 10m $(ARGS) ./...
	cd examples/service && DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) test -race -count 1 -timeout 10m $(ARGS) ./...
	cd bench && DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) test -race -p 1 -count 1 -timeout 10m $(ARGS) ./...
	for m in integrations/*/; do (cd $$m && DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) test -race -count 1 -timeout 10m $(ARGS) ./...) || exit 1; done

.PHONY: matrix
matrix: ## each broken driver by the whole suite: besides its killers it trips no check that it is not said to (about 12 minutes)
	$(GO) test -run TestMatrix -count 1 -timeout 45m $(ARGS) ./internal/mutants

EVENTS ?= 70
SEED ?= 1
.PHONY: topologies
topologies: servers ## the suite on each deployment, and EVENTS=70 faults by SEED=1 on each topology, into docs/topologies.md (about 40 minutes)
	@export DISTLOCK_REQUIRE=all DISTLOCK_SERVERS=local DISTLOCK_CHAOS_EVENTS=$(EVENTS) DISTLOCK_CHAOS_SEED=$(SEED); failed=; \
	$(GO) test -count 1 -run TestCut ./internal/servers || failed=1; \
	DISTLOCK_CHAOS_PAGE=$(CURDIR)/docs/topologies.md $(GO) test -count 1 -timeout 60m -parallel 4 $(ARGS) ./internal/chaos || failed=1; \
	test -z "$$failed"

.PHONY: examples
examples: servers ## the worked examples on all four backends, with what they print
	DISTLOCK_REQUIRE=all $(GO) test -count 1 -v $(ARGS) ./examples/...
	cd examples/filelock && $(GO) test -count 1 $(ARGS) ./...
	cd examples/service && $(GO) test -count 1 $(ARGS) ./...

STORE ?= redis
.PHONY: quick
quick: ## some minutes, while working: what needs no server, and the driver of one store (STORE=redis, mysql, zk or etcd)
	@scripts/install-servers.sh $(STORE)
	$(GO) test -short . ./driver ./conformance/... ./internal/mutants ./internal/virtual ./internal/openurl ./internal/supervise
	DISTLOCK_REQUIRE=$(STORE) $(GO) test -count 1 $(ARGS) ./$(STORE)lock

.PHONY: test-short
test-short: ## the tests that need no server
	DISTLOCK_REQUIRE= $(GO) test -short ./...

# Each round has a seed of its own, which a failure prints. The test of the unusual drivers is pinned to one processor, and
# two busy loops compete with it for the machine.
ROUNDS ?= 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
.PHONY: tolerated
tolerated: ## the drivers that are unusual but right, 20 times: -race, one processor, beside two busy loops
	@set -e; dir=$$(mktemp -d); hogs=; trap 'kill $$hogs 2>/dev/null; rm -rf "$$dir"' EXIT; trap 'exit 1' INT TERM; \
	$(GO) test -race -c -o "$$dir/tolerated.test" ./internal/mutants; \
	for hog in 1 2; do (while :; do :; done) & hogs="$$hogs $$!"; done; \
	for round in $(ROUNDS); do \
		echo "round $$round"; \
		(cd internal/mutants && GOMAXPROCS=1 DISTLOCK_CONFORMANCE_SEED=$$round "$$dir/tolerated.test" \
			-test.run 'TestTolerated|TestReference' -test.timeout 10m $(ARGS)); \
	done

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, go mod tidy
	@scripts/lint.sh

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: dist
dist: ## archives of the static command for Linux, macOS and Windows, in dist/, the same bytes for the same commit
	@$(GO) run ./scripts/dist

.PHONY: up
up: ## start the four servers as containers on loopback ports (see docker-compose.yml)
	docker-compose up -d

.PHONY: down
down: ## stop and remove them
	docker-compose down -v
