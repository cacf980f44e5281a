#!/bin/sh
# commit-flag.sh: prints the flag of the linker that names the commit of this clone. "go run" does not stamp it, and
# figures of an unknown commit are worth little. Outside of a clone it prints nothing.
cd "$(dirname "$0")/.."
commit=$(git describe --always --dirty --abbrev=12 2>/dev/null) || exit 0
echo "-X github.com/distlock-go/distlock/internal/compare.version=$commit"
