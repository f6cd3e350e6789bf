#!/usr/bin/env bash
# usage: run.sh TARGET PROGRAM
# Lets libFuzzer's PROGRAM search for SLUICE_FUZZ_SECONDS (15) from the seeds of TARGET and from what earlier searches kept in
# build/fuzz-corpus. An input that fails is kept in build/fuzz-found; `seeds.py add TARGET FILE` keeps it as a test.
set -euo pipefail
target=$1
program=$2
cd "$(dirname "$0")/../.."
corpus=build/fuzz-corpus/$target
mkdir -p "$corpus" build/fuzz-found
tests/fuzz/seeds.py unpack "$target" "build/fuzz-seeds/$target"
"$program" -max_total_time="${SLUICE_FUZZ_SECONDS:-15}" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
  -artifact_prefix="build/fuzz-found/$target-" "$corpus" "build/fuzz-seeds/$target"
