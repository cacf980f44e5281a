#!/bin/sh
# lint.sh: what CI asks of the text of the code. Prints what is wrong and fails; prints one line if all is well.
set -eu
cd "$(dirname "$0")/.."
export GO="${GO:-go}"
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
actionlint=github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
misspell=github.com/golangci/misspell/cmd/misspell@v0.8.0

# The packages are looked at as the tests are built, so that what both import is compiled once.
RACE=
command -v "$($GO env CC)" >/dev/null && RACE=-race

# Nested modules have their own dependencies and are checked on their own. What one says appears in one piece.
if [ "${1-}" = --module ]; then
	cd "$2"
	said=$({ $GO mod tidy -diff || { echo "$2 is not tidy: run go mod tidy there"; exit 1; }; } 2>&1 &&
		$GO vet $RACE ./... 2>&1 && $GO run -exec "env 'GOFLAGS=${GOFLAGS-} $RACE'" "$staticcheck" ./... 2>&1) || { printf '== %s\n%s\n' "$2" "$said"; exit 1; }
	exit 0
fi

# Where git refuses, as in a folder of another user, nothing would be looked at.
files=$(git ls-files --cached --others --exclude-standard '*.go') && [ -n "$files" ] || {
	echo "git lists no files here"
	exit 1
}
bad=$(gofmt -l $files)
if [ -n "$bad" ]; then
	echo "not formatted with gofmt (make fmt does it):"
	echo "$bad"
	exit 1
fi

# No shellcheck: it is no Go program, and would be found on some machines only.
$GO run "$actionlint" -shellcheck= -pyflakes=
# Not what others have written, nor another language.
git ls-files --cached --others --exclude-standard -- ':!*.min.js' ':!*.zh-CN.md' ':!*go.sum' | xargs $GO run "$misspell" -error

# This module first: the others share its packages, which are then in the cache. Two of the others at a time.
scripts/lint.sh --module .
git ls-files --cached --others --exclude-standard '*/go.mod' | xargs -n1 dirname | xargs -n1 -P2 scripts/lint.sh --module
echo "lint: gofmt, go mod tidy, go vet, staticcheck, actionlint and misspell are content"
