.DEFAULT_GOAL := help
GO ?= go

.PHONY: help
help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

.PHONY: servers
servers: ## install what is missing of Redis, MariaDB, ZooKeeper and etcd (local binaries; nothing keeps running)
	@scripts/install-servers.sh

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

.PHONY: test
test: servers ## all tests under -race, with every backend required
	DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) test -race -p 1 -count 1 -timeout 30m $(ARGS) \
		$$($(GO) list ./... | grep -v /conformance/mutants)
	$(GO) test -race -short -count 1 -timeout 15m $(ARGS) ./conformance/mutants
	$(GO) test -count 1 -timeout 15m $(ARGS) ./conformance/mutants
	cd examples/filelock && $(GO) test -race -count 1 -timeout 10m $(ARGS) ./...
	cd bench && DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) test -race -p 1 -count 1 -timeout 10m $(ARGS) ./...

.PHONY: test-short
test-short: ## the tests that need no server
	DISTLOCK_REQUIRE= $(GO) test -short ./...

# Each round has a seed of its own, which a failure prints. The test of the odd drivers is pinned to one processor, and
# two busy loops compete with it for the machine.
ROUNDS ?= 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
.PHONY: odd
odd: ## the drivers that are odd but right, 20 times: -race, one processor, beside two busy loops
	@set -e; dir=$$(mktemp -d); hogs=; trap 'kill $$hogs 2>/dev/null; rm -rf "$$dir"' EXIT; trap 'exit 1' INT TERM; \
	$(GO) test -race -c -o "$$dir/odd.test" ./conformance/mutants; \
	for hog in 1 2; do (while :; do :; done) & hogs="$$hogs $$!"; done; \
	for round in $(ROUNDS); do \
		echo "round $$round"; \
		(cd conformance/mutants && GOMAXPROCS=1 DISTLOCK_CONFORMANCE_SEED=$$round "$$dir/odd.test" \
			-test.run 'TestOdd|TestReference' -test.timeout 10m $(ARGS)); \
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
