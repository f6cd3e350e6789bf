#!/usr/bin/env bash
# Makes one archive for a bare GPU machine: the source, the programs of the GPU check and the daemon as they are built
# here (stripped, the kernels for compute capability 9.0 and as PTX), the libraries that they load, redis-server, and
# Python's redis. That machine needs an x86-64 Linux with this one's glibc or a newer one, libstdc++, NVIDIA's driver,
# cuBLASLt, and a Python with numpy, tokenizers, torch, transformers and sentence-transformers. Run it on a machine with
# nvcc and the packages of `make deps`. Prints its content, and fails when it is larger than 60 MiB.
#   tests/gpu/pack.sh [FILE]    default: build/gpu-pack.tar.gz
# There: tar -xzf FILE && sluice-gpu/tests/gpu/run.py --seconds 300 --out FOLDER
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
[ ! -d "$root/pack" ] || { echo "this is a pack already" >&2 && exit 1; }
file=$(realpath -m "${1:-$root/build/gpu-pack.tar.gz}")
most=$((60 << 20))

# An RPATH, unlike LD_LIBRARY_PATH, is for these programs alone, holds for what their libraries need, and comes first: a
# machine's own library of the same name may be older.
build=$root/build/gpu-pack
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_TESTS=ON -DSLUICE_CUDA=ON \
  -DSLUICE_CUDA_ARCHITECTURES=90 -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
  '-DCMAKE_INSTALL_RPATH=$ORIGIN/lib;$ORIGIN/../lib' >/dev/null
cmake --build "$build" -j "$(nproc)" --target sluice gpu_check gpu_kernels gpu_attention >"$build/build.log" || {
  tail -n 60 "$build/build.log" >&2
  exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/sluice-gpu pack=$folder/sluice-gpu/pack
mkdir -p "$pack/tests" "$pack/lib" "$pack/python"
git -C "$root" ls-files -z --cached --others --exclude-standard |
  tar -C "$root" --null --ignore-failed-read -cf - -T - | tar -C "$tree" -xf -
git -C "$root" describe --always --dirty >"$pack/commit"

strip -o "$pack/sluice" "$build/sluice"
for program in "$build"/tests/gpu_check "$build"/tests/gpu_attention "$build"/tests/gpu_kernels_*; do
  [ -f "$program" ] && [ -x "$program" ] && strip -o "$pack/tests/$(basename "$program")" "$program"
done
redis=$(command -v redis-server)
cp -L "$redis" "$pack/lib/redis-server"
cat >"$pack/redis-server" <<'SH'
#!/bin/sh
here=$(dirname "$0")/lib
LD_LIBRARY_PATH=$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/redis-server" "$@"
SH
chmod +x "$pack/redis-server"

# Copies the libraries that the loader finds here, under the names that the programs ask for. The machine provides those
# of its glibc, and those that its own CUDA libraries share with us in one process.
ldd "$build/sluice" "$build"/tests/gpu_check "$pack"/tests/* "$redis" | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u |
  while read -r name path; do
    case $name in
      libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.*) ;;
      libstdc++.so.* | libgcc_s.so.*) ;;
      *) cp -L "$path" "$pack/lib/$name" ;;
    esac
  done
"$root/tests/support/venv.sh" "$root/build/venv" "$root/tests/requirements.txt" >/dev/null
cp -r "$root"/build/venv/lib/python3*/site-packages/redis "$pack/python/"
find "$pack/python" -name __pycache__ -prune -exec rm -rf {} +

mkdir -p "$(dirname "$file")"
tar -C "$folder" --owner=0 --group=0 --numeric-owner -czf "$file.new" sluice-gpu
mv "$file.new" "$file"
find "$pack" -type f -not -path "$pack/python/*" -printf '%9s  %P\n' | sort -k2
for part in pack/python config docs src kernels lua tests; do
  printf '%9s  %s\n' "$(du -sb "$tree/$part" | cut -f1)" "$part/"
done
size=$(stat -c %s "$file")
echo "$file: $size bytes, at most $most"
[ "$size" -le "$most" ] || { echo "$file is too large" >&2 && exit 1; }
