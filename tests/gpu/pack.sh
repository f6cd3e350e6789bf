#!/usr/bin/env bash
# Collects what a bare GPU machine lacks into one file: the libraries that Sluice is built on, cmocka, redis-server, and
# Python's redis, as Debian 12 has them (they run on any x86-64 Linux with glibc >= 2.36). Run it where apt and pip have a
# network, and bring the file along with the source: tests/gpu/run.sh and e2e.sh unpack it by themselves.
#   tests/gpu/pack.sh [FILE]    default: build/gpu-pack.tar.gz
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
file=${1:-$root/build/gpu-pack.tar.gz}

# Every library that `make deps` installs, and what each of them and redis-server loads beyond the C library.
mapfile -t libraries < <("$root/cmake/deps.sh" --list | grep -e '-dev$' | grep -v '^libc6-dev$')
mapfile -t loaded < <(apt-cache depends "${libraries[@]}" | sed -n 's/^  Depends: \([a-z0-9].*\)/\1/p' | grep -v '^libc6')
tools=(pkgconf-bin libpkgconf3 ocl-icd-libopencl1 libgomp1)
redis=(redis-tools redis-server libjemalloc2 liblua5.1-0 lua-bitop lua-cjson liblzf1 libatomic1 libsystemd0 libcap2
       libgcrypt20 libgpg-error0 liblzma5 libzstd1 liblz4-1)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/debs" "$folder/pack"
chmod 755 "$folder" "$folder/debs"
(cd "$folder/debs" && apt-get -qq -o APT::Sandbox::User=root download "${libraries[@]}" "${loaded[@]}" "${tools[@]}" "${redis[@]}")
for deb in "$folder"/debs/*.deb; do
  dpkg -x "$deb" "$folder/pack"
done
rm -rf "$folder"/pack/usr/share/{doc,man,lintian,doc-base,bash-completion} "$folder"/pack/{etc,var}
find "$folder/pack" -name '*.a' -delete
"$root/tests/support/venv.sh" "$root/build/venv" "$root/tests/requirements.txt" >/dev/null
mkdir "$folder/pack/python"
cp -r "$root"/build/venv/lib/python3*/site-packages/redis "$folder/pack/python/"
find "$folder/pack/python" -name __pycache__ -prune -exec rm -rf {} +
(cd "$folder/debs" && ls) >"$folder/pack/packages.txt"

mkdir -p "$(dirname "$file")"
tar -C "$folder/pack" -czf "$file.new" .
mv "$file.new" "$file"
ls -l "$file" | awk '{printf "%s: %.1f MB\n", $NF, $5 / 1e6}'
