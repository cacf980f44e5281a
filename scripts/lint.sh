#!/bin/sh
# lint.sh: what CI asks of the text of the code. Prints what is wrong and fails; prints one line if all is well.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2

bad=$(gofmt -l $(git ls-files --cached --others --exclude-standard '*.go'))
if [ -n "$bad" ]; then
	echo "not formatted with gofmt (make fmt does it):"
	echo "$bad"
	exit 1
fi

# Nested modules have their own dependencies and are checked on their own.
git ls-files --cached --others --exclude-standard '*go.mod' | while read -r mod; do
	dir=$(dirname "$mod")
	(
		cd "$dir"
		$GO mod tidy -diff || { echo "$mod is not tidy: run go mod tidy in $dir"; exit 1; }
		$GO vet ./...
		$GO run "$staticcheck" ./...
	)
done
echo "lint: gofmt, go mod tidy, go vet and staticcheck are content"
