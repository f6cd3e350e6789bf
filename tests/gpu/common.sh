# Sourced by run.sh and e2e.sh: the pack, if there is one, and the build. Sets root, work, build, pack_env.
#
# Without a pack (tests/gpu/pack.sh) the machine's own packages are used, as `make deps` installs them.
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$root/build/gpu-check
build=$root/build/gpu
pack_file=$root/build/gpu-pack.tar.gz
pack_env=(env) # before every program that was built with the pack, or came in it

say() { printf '== %s  (%s s)\n' "$*" "$SECONDS"; }

die() {
  echo "$(basename "$0"): $1" >&2
  exit "${2:-1}"
}

open_pack() {
  [ -f "$pack_file" ] || return 0
  pack=$work/pack
  if [ ! -f "$pack/unpacked" ] || [ "$pack_file" -nt "$pack/unpacked" ]; then
    rm -rf "$pack"
    mkdir -p "$pack"
    tar -C "$pack" -xzf "$pack_file"
    touch "$pack/unpacked"
  fi
  pack_libraries=$pack/usr/lib/x86_64-linux-gnu:$pack/lib/x86_64-linux-gnu
  pack_env=(env "LD_LIBRARY_PATH=$pack_libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
  mkdir -p "$work/bin"
  for program in pkgconf redis-server redis-cli; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/usr/bin/%s "$@"\n' "$pack_libraries" "$pack" "$program" >"$work/bin/$program"
    chmod +x "$work/bin/$program"
  done
  export PATH=$work/bin:$PATH PYTHONPATH=$pack/python${PYTHONPATH:+:$PYTHONPATH}
}

# What of CUDA is not on the usual paths: the toolkit's programs, and cuBLAS where Python's wheels alone have it.
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

# Configures once. With a pack, pkg-config and CMake look nowhere else for what is in it, and the programs find its
# libraries by themselves (an rpath that holds for the libraries' own needs, too).
configure() {
  [ -f "$build/CMakeCache.txt" ] && return 0
  local options=(-S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DSLUICE_CUDA=ON)
  [ -z "$cuda_wheel_include" ] || options+=(-DSLUICE_CUDA_INCLUDE="$cuda_wheel_include") # where the toolkit has none
  command -v ninja >/dev/null && options+=(-G Ninja)
  if [ -n "${pack:-}" ]; then
    export PKG_CONFIG_SYSROOT_DIR=$pack
    export PKG_CONFIG_LIBDIR=$pack/usr/lib/x86_64-linux-gnu/pkgconfig:$pack/usr/share/pkgconfig
    local link="-Wl,--disable-new-dtags"
    for folder in ${pack_libraries//:/ }; do
      link+=" -Wl,-rpath,$folder -Wl,-rpath-link,$folder"
    done
    options+=(-DPKG_CONFIG_EXECUTABLE="$work/bin/pkgconf" -DCMAKE_PREFIX_PATH="$pack/usr" -DCMAKE_EXE_LINKER_FLAGS="$link"
      -DCMAKE_SHARED_LINKER_FLAGS="$link" -DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu)
  fi
  say "configure"
  cmake "${options[@]}" >"$work/configure.log" 2>&1 || {
    rm -f "$build/CMakeCache.txt"
    tail -n 30 "$work/configure.log" >&2
    echo "On a machine without Sluice's libraries bring build/gpu-pack.tar.gz, which tests/gpu/pack.sh makes." >&2
    die "CMake failed; all of it: $work/configure.log"
  }
}

# build_targets TARGET...
build_targets() {
  mkdir -p "$work"
  configure
  say "build $*"
  cmake --build "$build" -j "$(nproc)" --target "$@" >"$work/build.log" 2>&1 || {
    grep -E 'error|FAILED' -A5 "$work/build.log" | head -60 >&2
    die "the build failed; all of it: $work/build.log"
  }
}
