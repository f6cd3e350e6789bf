#!/usr/bin/env bash
# The GPU check from end to end: the whole daemon, from XADD to reply, on the GPU; texts/s, GPU busy share, what limits it.
# Needs what run.sh needs, and redis-server.
#
#   tests/gpu/e2e.sh [--out FOLDER] [--work FOLDER] [--python PROGRAM] [--built FOLDER] [OPTION of e2e.py...]
#
# Exit code: 0 the vectors in the replies are right; 1 they are not, or something could not be run; 64 called wrongly.
set -euo pipefail
source "$(dirname "$0")/common.sh"

out="" python=python3 built="" options=()
while [ $# -gt 0 ]; do
  case $1 in
    --out | --work | --python | --built)
      [ $# -ge 2 ] || die "$1 needs a value" 64
      case $1 in
        --out) out=$2 ;;
        --work) work=$2 ;;
        --python) python=$2 ;;
        --built) built=$2 ;;
      esac
      shift
      ;;
    -h | --help)
      show_help
      exit 0
      ;;
    *) options+=("$1") ;;
  esac
  shift
done
out=${out:-$work/out}
mkdir -p "$work" "$out"
work=$(realpath "$work")
find_cuda
if [ -n "$built" ]; then build=$(realpath "$built"); else use_pack; fi
[ -n "$built$pack" ] || { configure "$build" && build_targets "$build" sluice; }
command -v redis-server >/dev/null || die "no redis-server"
export SLUICE_BINARY=$build/sluice
say "e2e"
"$python" "$root/tests/gpu/e2e.py" --work "$work" --json "$out/e2e.json" "${options[@]}" 2>&1 | tee "$out/e2e.txt"
