#!/bin/sh
# comparison-docs.sh: measures the four backends on this machine and puts the tables into docs/comparison.md. Arguments
# go to distlock compare; --from FILE takes the figures of an earlier --json instead of measuring.
set -eu
cd "$(dirname "$0")/.."
page=docs/comparison.md
tables=$(mktemp)
trap 'rm -f "$tables" "$page.new"' EXIT

# go run does not stamp the commit, and figures of an unknown one are worth little.
version=github.com/distlock-go/distlock/internal/compare.version=$(git describe --always --dirty --abbrev=12)
${GO:-go} run -ldflags "-X $version" ./cmd/distlock compare --markdown "$@" >"$tables"
awk -v tables="$tables" '
	/^<!-- begin: / { print; print ""; while ((getline line < tables) > 0) print line; print ""; skip = 1 }
	/^<!-- end -->/ { skip = 0; ended = 1 }
	!skip
	END { exit !ended }
' "$page" >"$page.new"
mv "$page.new" "$page"
