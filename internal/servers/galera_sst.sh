#!/bin/sh
# Galera calls this at two members, where one joins: for all data, or, with --bypass, where what the joiner has missed is in
# the cache of the other. They are on one machine, so the joiner's address is a folder, and files are copied. What is
# said on standard output is the protocol.
while [ $# -gt 0 ]; do
  case $1 in
  --role) role=$2 ;;
  --address) joiner=$2 ;;
  --datadir) data=$2 ;;
  --parent) parent=$2 ;;
  --gtid) position=$2 ;;
  --bypass) bypass=yes ;;
  esac
  shift
done
if [ "$role" = joiner ]; then
  rm -f "$joiner/position"
  echo "ready $joiner"
  while [ ! -e "$joiner/position" ]; do
    kill -0 "$parent" 2>/dev/null || exit 1
    sleep 0.1
  done
  cat "$joiner/position"
  exit
fi
set -e
cd "$data"
if [ ! "$bypass" ]; then
  rm -f tables_flushed
  echo "flush tables"
  while [ ! -e tables_flushed ]; do
    [ -z "$parent" ] || kill -0 "$parent" 2>/dev/null || exit 1
    sleep 0.1
  done
  for file in ibdata* ib_logfile* undo* aria_log* */; do # MariaDB before 11 has no undo files
    [ ! -e "$file" ] || cp -R "$file" "$joiner"
  done
  rm tables_flushed
fi
echo continue
echo "$position" >"$joiner/position.new"
mv "$joiner/position.new" "$joiner/position"
echo "done $position"
