#!/usr/bin/env bash
# install-servers.sh installs what internal/servers needs to run the stores as local processes, and nothing that is
# there already: Debian and Ubuntu by apt-get, macOS by Homebrew; elsewhere it says what to install. etcd is built from
# its Go module, for Debian's is too old. No service is started or enabled. It is quiet when nothing is missing.
#
#   scripts/install-servers.sh              all five
#   scripts/install-servers.sh redis etcd   only these (redis, mysql, pg, zk, etcd)
#   scripts/install-servers.sh cc           a C compiler with the headers of libc, without which Go has no -race
#   scripts/install-servers.sh test         what only tests start besides: PgBouncer, and libfaketime for clocks that jump
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec:/opt/homebrew/bin:/usr/local/bin # where internal/servers looks, too

kinds=${*:-redis mysql pg zk etcd}
for kind in $kinds; do
  case $kind in
  redis | mysql | pg | zk | etcd | cc | test) ;;
  *)
    echo "install-servers.sh: unknown kind \"$kind\": allowed are redis, mysql, pg, zk, etcd, cc, test" >&2
    exit 2
    ;;
  esac
done

has() { command -v "$1" >/dev/null; }
wanted() { [[ " $kinds " == *" $1 "* ]]; }
say() { echo "install-servers.sh: $*" >&2; }

# --- what is there? The same questions as internal/servers asks.

has_mysql() { has mysqld || { has mariadbd && has mariadb-install-db; }; }

has_postgres() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || compgen -G '/usr/pgsql-*/bin/initdb' >/dev/null ||
    compgen -G '/opt/homebrew/opt/postgresql*/bin/initdb' >/dev/null || has initdb
}

has_java() {
  [[ -n ${JAVA_HOME:-} && -x $JAVA_HOME/bin/java ]] || [[ -x /opt/homebrew/opt/openjdk/bin/java ]] ||
    [[ -x /usr/local/opt/openjdk/bin/java ]] || { has java && java -version >/dev/null 2>&1; }
}

has_zookeeper() {
  [[ -n ${ZOOKEEPER_HOME:-} || -e /usr/share/java/zookeeper.jar ]] ||
    [[ -d /opt/homebrew/opt/zookeeper || -d /usr/local/opt/zookeeper ]]
}

# has_faketime: tests move the clocks of Redis, MySQL and Postgres with it, on Linux.
has_faketime() {
  compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || compgen -G '/usr/lib*/faketime/libfaketimeMT.so.1' >/dev/null
}

has_recent_etcd() {
  local major minor
  has etcd || return 1
  IFS=. read -r major minor _ < <(etcd --version | sed -n 's/^etcd Version: //p')
  ((${major:-0} > 3 || (${major:-0} == 3 && ${minor:-0} >= 5)))
}

# has_compiler: the compiler that go calls can make a program. A compiler without the headers cannot.
has_compiler() {
  local cc=${CC:-gcc}
  ! has go || cc=$(go env CC)
  has "${cc%% *}" && printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $cc -x c -o /dev/null - 2>/dev/null
}

# missing prints the packages to install, by the names of the package manager given as $1.
missing() {
  local apt=() brew=()
  if wanted redis && ! has redis-server; then apt+=(redis-server) brew+=(redis); fi
  if wanted mysql && ! has_mysql; then apt+=(mariadb-server) brew+=(mariadb); fi
  if wanted pg && ! has_postgres; then apt+=(postgresql) brew+=(postgresql); fi
  if wanted test && [[ $(uname) == Linux ]]; then
    has pgbouncer || apt+=(pgbouncer)
    has_faketime || apt+=(libfaketime)
  fi
  if wanted zk && ! has_zookeeper; then apt+=(zookeeper) brew+=(zookeeper); fi
  if wanted zk && ! has_java; then apt+=(default-jre-headless) brew+=(openjdk); fi
  if wanted cc && ! has_compiler; then apt+=(gcc libc6-dev) brew+=(gcc); fi
  if [[ $1 == apt ]]; then echo "${apt[*]-}"; else echo "${brew[*]-}"; fi
}

# --- Debian and Ubuntu

may_install() { ((EUID == 0)) || has sudo; }

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# in_turn waits for another run of this script on this machine: it installs under a policy of its own, and takes that away at its end.
in_turn() {
  local lock=${TMPDIR:-/tmp}/distlock-install.lock
  has flock || return 0
  [[ -e $lock ]] || (umask 0111 && : >"$lock") 2>/dev/null || return 0
  exec 9<"$lock" && flock 9
}

policy=/usr/sbin/policy-rc.d
kept=$policy.kept-by-distlock

# restore_policy undoes forbid_services, also after a run of this script that was killed in between.
restore_policy() {
  if [[ -e $kept ]]; then
    as_root mv -f "$kept" "$policy"
  elif [[ -e $policy ]] && grep -q 'distlock: no services' "$policy"; then
    as_root rm -f "$policy"
  fi
}

# forbid_services keeps the packages' scripts from starting daemons: they ask policy-rc.d, and 101 means no. One that
# somebody else put there is set aside meanwhile, for it may say yes.
forbid_services() {
  restore_policy
  trap restore_policy EXIT
  [[ ! -e $policy ]] || as_root mv "$policy" "$kept"
  printf '#!/bin/sh\n# distlock: no services while it installs packages\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
}

# disable_services: a package also enables its daemon for the next boot. Only the ones just installed are touched.
disable_services() {
  local service
  for service in "$@"; do
    if has systemctl; then
      as_root systemctl disable --quiet "$service" 2>>"$log"
    elif has update-rc.d; then
      as_root update-rc.d "$service" disable >>"$log" 2>&1
    fi
  done
}

apt_install() {
  local services=()
  say "installs $* by apt-get"
  forbid_services
  # A list that cannot be had may be of packages that are not asked for. A fresh machine updates itself when it starts.
  as_root apt-get -qq -o DPkg::Lock::Timeout=600 update >"$log" 2>&1 || say "apt-get update has failed in part"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@" >>"$log" 2>&1 || {
    cat "$log" >&2
    say "apt-get failed"
    exit 1
  }
  [[ " $* " != *" redis-server "* ]] || services+=(redis-server)
  [[ " $* " != *" mariadb-server "* ]] || services+=(mariadb)
  [[ " $* " != *" postgresql "* ]] || services+=(postgresql)
  [[ " $* " != *" pgbouncer "* ]] || services+=(pgbouncer)
  disable_services "${services[@]}"
}

# --- etcd

# The place and the name are those of internal/servers/etcdbuild.go: what is built here is found there.
etcd_binary() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache} version
  [[ $(uname) != Darwin ]] || cache=$HOME/Library/Caches
  version=$(sed -n 's|.*go\.etcd\.io/etcd/server/v3 \(v[^ ]*\).*|\1|p' internal/servers/etcd/etcd.mod)
  echo "$cache/distlock/bin/etcd-$version"
}

build_etcd() {
  local binary=$1 work log
  log=$(mktemp)
  has go || {
    say "no etcd 3.5 or newer, and no go command to build one: install Go or etcd"
    exit 1
  }
  say "builds etcd as $binary (some minutes, the first time)"
  mkdir -p "$(dirname "$binary")"
  work=$(mktemp -d "$(dirname "$binary")/build-XXXXXX") # beside the binary: moving it is then one step
  cp internal/servers/etcd/etcd.mod "$work/go.mod"
  cp internal/servers/etcd/etcd.sum "$work/go.sum"
  (cd "$work" && CGO_ENABLED=0 GOWORK=off \
    go build -mod=readonly -buildvcs=false -o etcd go.etcd.io/etcd/server/v3) >"$log" 2>&1 || {
    say "etcd could not be built, from the Go modules that its go.mod names. If the error below names a certificate (x509):"
    say "install the roots (apt-get install ca-certificates); if it cannot reach the module proxy: set GOPROXY (go env GOPROXY)."
    say "An etcd 3.5 or newer in PATH is taken as it is."
    cat "$log" >&2
    rm -rf "$work" "$log"
    exit 1
  }
  mv "$work/etcd" "$binary"
  rm -rf "$work" "$log"
}

# --- the work

log=$(mktemp)
building= installed=
if may_install && has apt-get && [[ -e $kept || -e $policy ]]; then
  in_turn
  restore_policy # of a run that was killed
fi
if [[ -n $(missing apt) ]] && has apt-get && ! may_install; then
  say "this is not root, and there is no sudo. Run as root: apt-get install -y --no-install-recommends $(missing apt)"
  exit 1
fi
if wanted etcd && ! has_recent_etcd; then
  binary=$(etcd_binary)
  # Beside the packages, which have to come over the network and be unpacked.
  [[ -x $binary ]] || { build_etcd "$binary" & building=$! installed=yes; }
fi
if [[ -n $(missing apt) ]]; then
  installed=yes
  if has apt-get; then
    in_turn
    read -ra packages <<<"$(missing apt)" # another run may have installed them meanwhile
    ((${#packages[@]} == 0)) || apt_install "${packages[@]}"
  elif has brew; then
    read -ra packages <<<"$(missing brew)"
    say "installs ${packages[*]} by brew"
    brew install --quiet "${packages[@]}"
  else
    say "no apt-get or brew here; install by hand what provides (in Debian's names): $(missing apt)"
    exit 1
  fi
fi
[[ -z $building ]] || wait "$building"
rm -f "$log"
[[ -z $installed ]] || say "is done: nothing is missing any more"
