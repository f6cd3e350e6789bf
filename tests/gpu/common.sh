# Sourced by run.sh, e2e.sh and hour.sh: where things are. Sets root, work, build, pack.
#
# In an archive that pack.sh has made, the programs are there (pack/); else they are built from the source, on a machine
# that has what `make deps` installs.
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$root/build/gpu-check
build=$root/build/gpu
pack=$root/pack
[ -d "$pack" ] || pack=""
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1

say() { printf '== %s  (%s s)\n' "$*" "$SECONDS"; }

die() {
  echo "$(basename "$0"): $1" >&2
  exit "${2:-1}"
}

quoted() { printf %q\  "$@"; }

# The head of a script is its help.
show_help() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }

# Uses the programs of the pack, if this is one; fails first if they cannot run on this machine, and says why.
use_pack() {
  [ -n "$pack" ] || return 0
  build=$pack
  export PATH=$pack:$PATH PYTHONPATH=$pack/python${PYTHONPATH:+:$PYTHONPATH}
  local needed here missing
  needed=$(cat "$pack/glibc") here=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
  [ "$(uname -m)" = x86_64 ] || die "the programs of the pack are for x86-64, and this is $(uname -m)"
  [ "$(printf '%s\n' "$needed" "$here" | sort -V | tail -n 1)" = "$here" ] ||
    die "the programs of the pack need glibc $needed or newer, and this machine has $here: take a newer system, or make the pack on an older one"
  missing=$(for program in "$pack/sluice" "$pack"/tests/*; do ldd "$program" 2>&1; done | grep 'not found' | sort -u || true)
  [ -z "$missing" ] || die "the programs of the pack lack libraries that are neither in it nor on this machine:"$'\n'"$missing"
}

# Prints the reference that a machine without a GPU can compare with.
host_reference() {
  "$python" -c 'import importlib.util as u; print("transformers" if u.find_spec("torch") and u.find_spec("transformers") else "numpy")'
}

# Finds the parts of CUDA that are not on the usual paths: the toolkit's programs, and cuBLAS where only Python's wheels have it.
find_cuda() {
  export PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
  local found
  found=$("$python" - <<'PYTHON' 2>/dev/null || true
import glob, os, nvidia
folders = sorted(f for root in nvidia.__path__ for f in glob.glob(os.path.join(root, "*")))
for kind, name in (("include", "cublasLt.h"), ("lib", "libcublasLt.so.*")):
    print(next((os.path.join(f, kind) for f in folders if glob.glob(os.path.join(f, kind, name))), ""))
PYTHON
)
  cuda_wheel_include=$(sed -n 1p <<<"$found") cuda_wheel_lib=$(sed -n 2p <<<"$found")
  [ -z "$cuda_wheel_lib" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda_wheel_lib
}

# configure FOLDER [OPTION...]: once.
configure() {
  local folder=$1
  [ -f "$folder/CMakeCache.txt" ] && return 0
  local options=(-S "$root" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DSLUICE_CUDA=ON "${@:2}")
  [ -z "${cuda_wheel_include:-}" ] || options+=(-DSLUICE_CUDA_INCLUDE="$cuda_wheel_include") # where the toolkit has none
  command -v ninja >/dev/null && options+=(-G Ninja)
  say "configure"
  mkdir -p "$folder"
  cmake "${options[@]}" >"$folder/configure.log" 2>&1 || {
    rm -f "$folder/CMakeCache.txt"
    tail -n 30 "$folder/configure.log" >&2
    echo "On a machine without Sluice's libraries use the archive that tests/gpu/pack.sh makes." >&2
    die "CMake failed; all of it: $folder/configure.log"
  }
}

# build_targets FOLDER TARGET...
build_targets() {
  say "build ${*:2}"
  cmake --build "$1" -j "$(nproc)" --target "${@:2}" >"$1/build.log" 2>&1 || {
    grep -E 'error|FAILED' -A5 "$1/build.log" | head -60 >&2
    die "the build failed; all of it: $1/build.log"
  }
}
