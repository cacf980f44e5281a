# The command alone, static, with the certificates it needs for TLS. For "run" it must be copied into the image of the
# program that runs under the lock: COPY --from=distlock /distlock /usr/local/bin/
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /distlock ./cmd/distlock

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /distlock /distlock
ENTRYPOINT ["/distlock"]
