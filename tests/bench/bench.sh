#!/usr/bin/env bash
# Measures what docs/speed.md reports: ratios within one run, medians, and the machine they were taken on.
#   tests/bench/bench.sh BUILD_DIR [engine|tokenizer|queue|latency|layouts|memory|reclaim|waiters|features|scripts|bulk|peers ...]
# `peers` installs other engines, some GB of them, and is not among the parts that run when none is named.
set -euo pipefail
build=$(realpath "$1")
shift
here=$(dirname "$(realpath "$0")")
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(engine tokenizer queue latency layouts memory reclaim waiters features scripts bulk)

echo "$(date -u +%F) $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)"
for part in "${parts[@]}"; do
  echo "== $part"
  case $part in
    engine) "$build/tests/bench_engine" ;;
    tokenizer)
      root=$here/../..
      venv=$build/../venv
      "$root/tests/support/venv.sh" "$venv" "$root/tests/requirements.txt"
      "$venv/bin/python" -B "$here/bench_tokenizer.py" "$build/tests/bench_tokenizer" "$root/config/models/sluice-mini-en" \
        "$root/tests/demo/packages.tsv"
      ;;
    queue) /usr/bin/python3 -B "$here/bench_queue.py" "$build" ;;
    latency | layouts | memory) /usr/bin/python3 -B "$here/bench_daemon.py" "$build" "$part" ;;
    reclaim | waiters | features) /usr/bin/python3 -B "$here/bench_promises.py" "$build" "$part" ;;
    scripts) /usr/bin/python3 -B "$here/bench_scripts.py" ;;
    bulk) /usr/bin/python3 -B "$here/bench_bulk.py" "$build" ;;
    peers) /usr/bin/python3 -B "$here/peers.py" "$build" ;;
    *) echo "bench.sh: no part named $part" >&2; exit 64 ;;
  esac
done
