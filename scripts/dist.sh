#!/bin/sh
# dist.sh: static binaries of the command for every system it runs on, in dist/, with their checksums. The same tree
# and the same Go give the same bytes: no paths, no time and no C compiler go into them.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
rm -rf dist
mkdir dist
for system in linux darwin windows; do
	for arch in amd64 arm64; do
		suffix=
		[ $system = windows ] && suffix=.exe
		CGO_ENABLED=0 GOOS=$system GOARCH=$arch $GO build -trimpath -ldflags '-s -w -buildid=' \
			-o "dist/distlock-$system-$arch$suffix" ./cmd/distlock
	done
done
cd dist
if command -v sha256sum >/dev/null; then sha256sum distlock-* >SHA256SUMS; else shasum -a 256 distlock-* >SHA256SUMS; fi
cat SHA256SUMS
