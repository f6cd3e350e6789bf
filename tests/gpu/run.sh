#!/usr/bin/env bash
# The GPU check: are the numbers right, are the kernels clean, how fast is it. For a machine with an NVIDIA GPU and a
# Python with torch, transformers and sentence-transformers, which also has nvcc and what `make deps` installs, or runs this
# out of an archive of tests/gpu/pack.sh. Nothing is fetched. Where a command's time is limited, tests/gpu/hour.sh runs the
# parts in three commands.
#
#   tests/gpu/run.sh [PART...] [OPTION...]
#
# Parts, in this order; all of them when none is named, and each may be run by itself where a command's time is limited:
#   build       configure and build what the others need, into build/gpu; not in an archive, which has it
#   kernels     every kernel beside its reference: the tests of tests/unit/kernels, on the GPU
#   attention   the attention kernel beside cuDNN's, where there is one (CUDNN_PATH: its folder): differences and times
#   numbers     vectors beside f32 of transformers, of ModernBERT, Nomic, GTE, Qwen3 and Gemma beside f64 of NumPy: lengths, batches, layouts,
#               graphs, rows beyond f16
#   sanitizer   compute-sanitizer (memcheck, racecheck, initcheck, synccheck) over the kernels and a small forward pass
#   bench       tokens/s, share of the peak of products, batching off and on, latency; sentence-transformers beside it
# Options:
#   --shapes A,B      for numbers and bench: minilm, bge-small, bert-base, bert-large; also modernbert, nomic, gte, qwen3, gemma3; numbers
#                     also: overflow
#   --work FOLDER     where checkpoints, references and caches stay (default: build/gpu-check)
#   --out FOLDER      where tables and JSON go (default: out in it)
#   --device N        which GPU
#   --python PROGRAM  which Python (default: python3)
#   --tools A,B       for sanitizer: memcheck, racecheck, initcheck, synccheck (default: all), for a command each
#   --limit SECONDS   for kernels, attention and sanitizer: the longest that one program may take (default: 240)
#   --quick           numbers, bench: few texts and short rounds, to see that everything runs
#   --no-graphs       numbers, bench: without CUDA graphs
#   --no-peers, --no-compile      bench: without others, without torch.compile
#   --built FOLDER    a build that exists; nothing is configured or built
#   --backend cpu, --reference numpy     for the test of this script on a machine without a GPU
#   --no-gpu          both of these (transformers, where it is), and all that launches on a GPU runs up to where it wants one
# Exit code: 0 all checks passed; 1 a check failed or could not be made; 64 called wrongly.
set -euo pipefail
source "$(dirname "$0")/common.sh"

parts=() out="" python=python3 shapes="" device=0 built="" backend=cuda no_gpu="" check_options=()
tools=memcheck,racecheck,initcheck,synccheck limit=240
while [ $# -gt 0 ]; do
  case $1 in
    build | kernels | attention | numbers | sanitizer | bench) parts+=("$1") ;;
    --shapes | --out | --work | --device | --python | --built | --backend | --reference | --tools | --limit)
      [ $# -ge 2 ] || die "$1 needs a value" 64
      case $1 in
        --shapes) shapes=$2 ;;
        --out) out=$2 ;;
        --work) work=$2 ;;
        --device) device=$2 ;;
        --python) python=$2 ;;
        --built) built=$2 ;;
        --backend) backend=$2 ;;
        --tools) tools=$2 ;;
        --limit) limit=$2 ;;
        --reference) check_options+=(--reference "$2") ;;
      esac
      shift
      ;;
    --quick | --no-graphs | --no-peers | --no-compile) check_options+=("$1") ;;
    --no-gpu) no_gpu=1 backend=cpu ;;
    -h | --help)
      show_help
      exit 0
      ;;
    *) die "no part or option named $1; see --help" 64 ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(build kernels attention numbers sanitizer bench)
out=${out:-$work/out}
mkdir -p "$work" "$out"
work=$(realpath "$work")
[ -z "$no_gpu" ] || check_options+=(--reference "$(host_reference)")
find_cuda
if [ -n "$built" ]; then build=$(realpath "$built"); else use_pack; fi
# torch brings cuDNN as a wheel of its own.
export CUDNN_PATH=${CUDNN_PATH:-$("$python" -c 'import nvidia.cudnn as c; print(list(c.__path__)[0])' 2>/dev/null || true)}
failed=()

need_build() {
  [ -n "$built$pack" ] || { configure "$build" && build_targets "$build" gpu_check gpu_kernels gpu_attention; }
}

# check PART DEFAULT_SHAPES
check() {
  "$python" "$root/tests/gpu/check.py" "$1" --driver "$(quoted "$build/tests/gpu_check")" --backend "$backend" \
    --device "$device" --work "$work" --json "$out/$1.json" --shapes "${shapes:-$2}" "${check_options[@]}" 2>&1 | tee "$out/$1.txt"
}

# launch COMMAND...: runs a program that launches on the GPU. A program that is cut short fails: timeout ends with 124, or
# 137. With --no-gpu, a program passes if it asks for a GPU and finds none.
launch() {
  local wanted='cudaErrorInsufficientDriver|cudaErrorNoDevice|driver version is insufficient|no CUDA-capable device|no NVIDIA driver|sees no GPU'
  if [ -n "$no_gpu" ]; then
    CUDA_VISIBLE_DEVICES="" timeout -k 10 "$limit" "$@" >"$work/launch.txt" 2>&1 || true
    cat "$work/launch.txt"
    grep -qE "$wanted" "$work/launch.txt"
  elif [ "$device" = 0 ]; then
    timeout -k 10 "$limit" "$@" 2>&1
  else
    CUDA_VISIBLE_DEVICES=$device timeout -k 10 "$limit" "$@" 2>&1
  fi
}

# run_kernels [COMMAND...]: runs every program of kernel tests, under the command if there is one; then every launch takes
# long, so the 270 products beside f64 are left out.
run_kernels() {
  local tests=("$build"/tests/gpu_kernels_*) program case bad=0 failures=0
  [ -x "${tests[0]}" ] || { echo "no kernel tests in $build/tests"; return 1; }
  for program in "${tests[@]}"; do
    case=()
    [[ $# -gt 0 && $program == *_products ]] && case=(the_same_operands_give_the_same_bits)
    echo "-- $(basename "$program") ${case[*]}"
    launch "$@" "$program" "${case[@]}" || bad=$?
    [ "$bad" = 0 ] || { echo "FAILED: $(basename "$program") ended with $bad"; failures=1 bad=0; }
  done
  return $failures
}

run_attention() {
  [ -x "$build/tests/gpu_attention" ] || { echo "no gpu_attention in $build/tests"; return 1; }
  launch "$build/tests/gpu_attention" --json "$out/attention.json"
}

# Prints the option that selects our kernels, if the tool need not look into cuBLAS's: each of ours takes one struct,
# ..._args. memcheck and initcheck look at all kernels, because the results of a product must count as written.
ours() {
  [[ $1 == racecheck || $1 == synccheck ]] || return 0
  compute-sanitizer --help 2>&1 | grep -q -e '--kernel-name' && echo --kernel-name kns=_args
}

sanitize() {
  [ -n "$no_gpu" ] || command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on the PATH"; return 1; }
  local tool bad=0 sanitizer
  local shown='^-- |SUMMARY|FAILED|WRONG|forward_once|Error:|========= (Invalid|Uninit|Race|Barrier|Program)'
  for tool in ${tools//,/ }; do
    sanitizer=(compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 --target-processes all $(ours "$tool"))
    [ -z "$no_gpu" ] || sanitizer=(env) # the programs alone
    # The forward pass comes first, because it covers everything.
    {
      echo "-- $tool: a forward pass  ($SECONDS s)"
      "$python" "$root/tests/gpu/forward_once.py" --work "$work" --device "$device" --backend "$backend" \
        --driver "$(quoted timeout -k 10 "$limit" "${sanitizer[@]}" "$build/tests/gpu_check")" 2>&1 || bad=1
      echo "-- $tool: kernels  ($SECONDS s)"
      SLUICE_UNTIMED=1 run_kernels "${sanitizer[@]}" || bad=1
      [ "$bad" = 0 ]
    } | tee "$out/$tool.txt" | grep -E --line-buffered "$shown" || bad=1
  done
  return $bad
}

for part in "${parts[@]}"; do
  say "$part"
  case $part in
    build) need_build ;;
    kernels) need_build && { run_kernels 2>&1 | tee "$out/kernels.txt"; } || failed+=(kernels) ;;
    attention) need_build && { run_attention 2>&1 | tee "$out/attention.txt"; } || failed+=(attention) ;;
    numbers) need_build && check numbers minilm,bge-small,bert-base,bert-large,overflow,modernbert,nomic,gte,qwen3,gemma3 || failed+=(numbers) ;;
    sanitizer) need_build && sanitize || failed+=(sanitizer) ;;
    bench) need_build && check bench minilm,bge-small,bert-base,bert-large || failed+=(bench) ;;
  esac
done
[ ${#failed[@]} -eq 0 ] || die "FAILED: ${failed[*]}"
say "all passed: ${parts[*]}"
