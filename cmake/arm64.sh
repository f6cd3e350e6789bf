#!/usr/bin/env bash
# Builds Sluice for 64-bit Arm on Debian 12 and runs its unit tests and golden.encoder under qemu-user: this takes a
# quarter of an hour of processor time, plus the first build. Run it as root, because it installs a cross-compiler;
# libraries come from Debian's arm64 packages, unpacked in build/arm64-root.
#   cmake/arm64.sh [CTEST_ARGS...]
set -euo pipefail
cd "$(dirname "$0")/.."

root=build/arm64-root
libraries=(libhiredis-dev libevent-dev libssl-dev libcjson-dev libxxhash-dev zlib1g-dev libzstd-dev
  libcmocka-dev libdnnl-dev)

if [ ! -d $root ]; then
  dpkg --add-architecture arm64
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
  mkdir -p $root.new/debs
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
    "${libraries[@]/%/:arm64}" | grep -E '^[a-z0-9.+-]+:arm64$' | sort -u | grep -vE '^(dpkg|perl|debconf|tar)' >$root.new/list
  (cd $root.new/debs && xargs apt-get -qq download <../list)
  for package in $root.new/debs/*.deb; do dpkg -x "$package" $root.new; done
  rm -r $root.new/debs
  mv $root.new $root
fi

cmake -S . -B build/arm64 -G Ninja --toolchain cmake/arm64.cmake -DCMAKE_BUILD_TYPE=Release -DSLUICE_WERROR=ON \
  -DSLUICE_TESTS=ON -DSLUICE_CUDA=OFF
cmake --build build/arm64 -j "$(nproc)"
cat <<'END'
Left out, because an emulator is slow and this is the same C on every processor: the CUDA engine's tests on the host, 19 of
20 histories of unit.schedule.simulation, unit.engine.encoder without NEON (unit.engine.gemm and unit.engine.int8 run the plain
products), and of golden.encoder models of more than four layers and texts of more than 5 tokens. No speed is measured.
END
SLUICE_FAULT_SCALE=0.05 ctest --test-dir build/arm64 -R '^unit|^golden.encoder' -LE cuda --output-on-failure -j "$(nproc)" "$@"
