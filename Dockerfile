# The command alone, static, with the certificates that it needs for TLS:
#
#   docker build -t distlock .
#   docker run --rm -e DISTLOCK_URL distlock inspect
#
# For "run", copy it into the image of the program that runs under the lock:
#
#   COPY --from=distlock /distlock /usr/local/bin/
FROM golang:1.26 AS build
WORKDIR /src
# The modules first: they change less often than the code.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
# Without VERSION it is that of the commit, if .git is in the context.
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -buildid= -X github.com/distlock-go/distlock/internal/compare.version=$VERSION" -o /out/distlock ./cmd/distlock \
	&& go run ./scripts/dist -licences >/out/THIRD_PARTY_LICENSES && cp LICENSE /out/ && mkdir -m 1777 /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
# Nobody that the host would know.
USER 65532:65532
ENTRYPOINT ["/distlock"]
