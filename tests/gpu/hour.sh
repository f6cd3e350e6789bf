#!/usr/bin/env bash
# The GPU check in three commands, each for a bare machine and done within ten minutes: each takes all it needs out of the
# archive that tests/gpu/pack.sh makes, begins with what says most, goes on after a failure, and ends in time with what it
# has. What fails is run again without CUDA graphs (numbers and bench), then also with CUDA_LAUNCH_BLOCKING=1, and the
# summary says what helped. Results are one archive, results-a.tar.gz, whose first file is summary.txt; it is written after
# every part.
#
#   tests/gpu/hour.sh a|b|c --out FOLDER [OPTION...]
#
#   a   numbers in short, kernels, attention, numbers of ModernBERT, Nomic, GTE, Qwen3 and Gemma, of MiniLM and of rows beyond f16, our own
#       bench of MiniLM and BERT-base
#   b   numbers of BERT-base, bench of BERT-base and MiniLM beside others, numbers of bge-small and BERT-large, its bench, our
#       own of ModernBERT
#   c   end to end through Redis, memcheck, racecheck
# Options:
#   --work FOLDER      where checkpoints, references and caches stay (default: build/gpu-check)
#   --limit SECONDS    the time of all (default: 560); a part may take its share and what those before it have left
#   --python PROGRAM   which Python (default: python3)
#   --built FOLDER     a build that exists, in place of the archive's programs
#   --no-gpu           all but the launches, on tiny models, by the CPU: the test of this script
# Run in a checkout, it unpacks build/gpu-pack.tar.gz, if there is one, and goes on there.
# Exit code: 0 all passed; 1 something failed; 64 called wrongly.
set -euo pipefail
source "$(dirname "$0")/common.sh"

letter="" out="" limit=560 python=python3 built="" no_gpu=""
while [ $# -gt 0 ]; do
  case $1 in
    a | b | c) letter=$1 ;;
    --out | --work | --limit | --python | --built)
      [ $# -ge 2 ] || die "$1 needs a value" 64
      case $1 in
        --out) out=$2 ;;
        --work) work=$2 ;;
        --limit) limit=$2 ;;
        --python) python=$2 ;;
        --built) built=$(realpath "$2") ;;
      esac
      shift
      ;;
    --no-gpu) no_gpu=1 ;;
    -h | --help)
      show_help
      exit 0
      ;;
    *) die "no command or option named $1; see --help" 64 ;;
  esac
  shift
done
[ -n "$letter" ] && [ -n "$out" ] || die "a, b or c, and --out; see --help" 64
[[ $limit =~ ^[0-9]+$ ]] || die "--limit takes seconds" 64
mkdir -p "$out"
out=$(realpath "$out")

if [ -z "$pack$built" ] && [ -f "$root/build/gpu-pack.tar.gz" ]; then
  say "unpack"
  mkdir -p "$work"
  work=$(realpath "$work")
  rm -rf "$work/sluice-gpu"
  tar -C "$work" -xzf "$root/build/gpu-pack.tar.gz"
  exec "$work/sluice-gpu/tests/gpu/hour.sh" "$letter" --out "$out" --work "$work" --python "$python" \
    --limit $((limit - SECONDS)) ${no_gpu:+--no-gpu}
fi
[ -n "$built" ] || use_pack

# Results of the parts: a folder each, and one more for each further run.
mkdir -p "$work"
results=$(realpath "$work")/results-$letter
rm -rf "$results"
mkdir -p "$results"
folders=() verdicts=() failed=0 session=none

# part NAME SHARE WORDS...: SHARE in seconds; the words are what run.sh is called with, or e2e and what e2e.sh is called with.
names=() shares=() commands=()
part() { names+=("$1") shares+=("$2") commands+=("${*:3}"); }

# The shapes, or tiny ones.
shapes() {
  local name tiny=()
  for name in ${1//,/ }; do
    case $name in
      overflow) tiny+=(tiny-overflow) ;;
      minilm | bert-large) tiny+=(tiny) ;;
      modernbert | nomic | gte | qwen3 | gemma3) tiny+=("tiny-$name") ;;
      *) tiny+=(tiny-cls) ;;
    esac
  done
  [ -n "$no_gpu" ] || tiny=("$1")
  (IFS=, && echo "--shapes ${tiny[*]}")
}

quick=${no_gpu:+--quick}
case $letter in
  a)
    part quick 90 numbers --quick "$(shapes minilm,bert-base,overflow,modernbert)"
    part kernels 90 kernels --limit 60
    part attention 40 attention --limit 40
    part numbers-rotary 70 numbers $quick "$(shapes modernbert,nomic,gte,qwen3,gemma3)"
    part numbers 150 numbers $quick "$(shapes minilm,overflow)"
    part bench 170 bench $quick --no-peers "$(shapes minilm,bert-base)"
    ;;
  b)
    part numbers-bert-base 110 numbers $quick "$(shapes bert-base)"
    part bench-bert-base 120 bench $quick "$(shapes bert-base)"
    part bench-minilm 100 bench $quick "$(shapes minilm)"
    part numbers-bge-small 50 numbers $quick "$(shapes bge-small)"
    part numbers-bert-large 90 numbers $quick "$(shapes bert-large)"
    part bench-bert-large 90 bench $quick --no-compile "$(shapes bert-large)"
    part bench-modernbert 50 bench $quick --no-peers "$(shapes modernbert)"
    ;;
  c)
    part e2e 210 e2e --shapes minilm,bert-base
    part memcheck 190 sanitizer --tools memcheck --limit 60
    part racecheck 160 sanitizer --tools racecheck --limit 60
    ;;
esac

# Prints the seconds that part number $1 may take: all that is left except for the shares of the parts after it.
time_for() {
  local all=0 behind=0 i
  for ((i = 0; i < ${#names[@]}; i++)); do
    all=$((all + shares[i]))
    [ "$i" -le "$1" ] || behind=$((behind + shares[i]))
  done
  echo $((limit - SECONDS - behind * limit / all))
}

# end_session ID: kills whatever a part has left running, because it may keep a GPU busy: a timeout ends its own process group only.
end_session() {
  local stat fields
  for stat in /proc/[0-9]*/stat; do
    read -ra fields < <(sed 's/.*) //' "$stat" 2>/dev/null) || continue
    [ "${fields[3]}" != "$1" ] || kill -KILL "$(basename "${stat%/stat}")" 2>/dev/null || true
  done
}

# attempt FOLDER SECONDS WORDS...: runs once. Returns its exit code; timeout's are 124 and 137.
attempt() {
  local folder=$results/$1 seconds=$2 program=run words=("${@:3}") code=0
  if [ "$3" = e2e ]; then
    program=e2e words=("${@:4}")
    [ -z "$no_gpu" ] || words+=(--backend cpu --reference "$(host_reference)" --shapes tiny --texts 1000 --batch-tokens 1024
      --prep-threads 1)
  elif [ -n "$no_gpu" ]; then
    words+=(--no-gpu)
  fi
  [ -z "$built" ] || words+=(--built "$built")
  mkdir -p "$folder"
  folders+=("$1")
  setsid timeout -k 5 "$seconds" "$root/tests/gpu/$program.sh" "${words[@]}" --out "$folder" --work "$work" --python "$python" \
    </dev/null >"$folder/output.txt" 2>&1 &
  session=$!
  wait "$session" || code=$?
  [ "$code" = 0 ] || touch "$folder/failed"
  end_session "$session"
  return "$code"
}

# again NUMBER WORDS...: runs a part that has failed again, in more careful ways, until one of them helps; `helped` names it.
again() {
  local number=$1 name=${names[$1]} words=("${@:2}") seconds
  case ${words[0]} in
    numbers | bench)
      words+=(--no-graphs)
      seconds=$(time_for "$number")
      [ "$seconds" -ge 5 ] || { helped="no time to try --no-graphs" && return; }
      say "$name again with --no-graphs, $seconds s at most"
      attempt "$name-no-graphs" "$seconds" "${words[@]}" && { helped="--no-graphs HELPED" && return; }
      ;;
    sanitizer) return ;;
  esac
  seconds=$(time_for "$number")
  [ "$seconds" -ge 5 ] || { helped="no time to try CUDA_LAUNCH_BLOCKING=1" && return; }
  say "$name again with CUDA_LAUNCH_BLOCKING=1, $seconds s at most"
  helped="CUDA_LAUNCH_BLOCKING=1 did not help"
  CUDA_LAUNCH_BLOCKING=1 attempt "$name-blocking" "$seconds" "${words[@]}" && helped="CUDA_LAUNCH_BLOCKING=1 HELPED"
  [[ " ${words[*]} " != *" --no-graphs "* ]] || helped="--no-graphs did not help, and with it ${helped}"
}

write_results() {
  local folder said='WRONG|FAILED|DIFFERENT|not here|SUMMARY|[Ee]rror|tokens/s|texts/s|TFLOP/s|p50|ok  |same$|cosine| \| '
  {
    echo "hour.sh $letter: $SECONDS s of $limit"
    printf '%s\n' "${verdicts[@]}"
    if [ -n "$built" ] || [ -z "$pack" ]; then git -C "$root" describe --always --dirty || true; else cat "$pack/commit"; fi
    [ -n "$no_gpu" ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 || true
    for folder in "${folders[@]}"; do
      printf '\n-- %s\n' "$folder"
      grep -aE "$said" "$results/$folder/output.txt" | cut -c1-240 | head -n 80 || true
      [ ! -f "$results/$folder/failed" ] || { echo "..." && tail -n 12 "$results/$folder/output.txt" | cut -c1-240; }
    done
  } >"$results/summary.txt"
  tar -C "$results" -czf "$results/new.tar.gz" summary.txt "${folders[@]}"
  mv "$results/new.tar.gz" "$out/results-$letter.tar.gz"
}

trap 'end_session "$session"; verdicts+=("ended from outside"); write_results; exit 1' TERM INT
for ((n = 0; n < ${#names[@]}; n++)); do
  read -ra words <<<"${commands[n]}"
  began=$SECONDS code=0 helped="" seconds=$(time_for "$n")
  [ "$seconds" -ge 1 ] || seconds=1
  say "$letter: ${names[n]}, $seconds s at most"
  attempt "${names[n]}" "$seconds" "${words[@]}" || code=$?
  case $code in
    0) verdict=passed ;;
    124 | 137) verdict="FAILED, cut short" ;;
    *) verdict="FAILED, exit code $code" ;;
  esac
  verdict+=" after $((SECONDS - began)) s"
  [ "$code" = 0 ] || failed=1
  [ "$code" = 0 ] || again "$n" "${words[@]}" || true
  verdicts+=("$(printf '%-18s %s%s' "${names[n]}" "$verdict" "${helped:+; $helped}")")
  write_results
done
say "$letter: done"
cat "$results/summary.txt"
exit "$failed"
