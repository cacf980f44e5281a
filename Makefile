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

.PHONY: test
test: servers ## all tests under -race, with every backend required
	DISTLOCK_REQUIRE=$${DISTLOCK_REQUIRE-all} $(GO) test -race -p 1 -count 1 -timeout 30m $(ARGS) \
		$$($(GO) list ./... | grep -v /conformance/mutants)
	$(GO) test -race -short -count 1 -timeout 15m $(ARGS) ./conformance/mutants
	$(GO) test -count 1 -timeout 15m $(ARGS) ./conformance/mutants
	cd examples/filelock && $(GO) test -race -count 1 -timeout 10m $(ARGS) ./...

.PHONY: test-short
test-short: ## the tests that need no server
	DISTLOCK_REQUIRE= $(GO) test -short ./...

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
