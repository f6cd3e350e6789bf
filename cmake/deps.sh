#!/usr/bin/env bash
# Installs the missing Debian packages for building and testing (`make deps`), all of which are listed here.
#   cmake/deps.sh          install missing packages, and print their names
#   cmake/deps.sh --check  only say whether any are missing (exit 1)
#   cmake/deps.sh --build  only the packages for building
#   cmake/deps.sh --demo   those and the demo's, without the clients in other languages
#   cmake/deps.sh --containers  those of tests/containers
#   cmake/deps.sh --package  those of tests/package
#   cmake/deps.sh --dashboard  those of tests/dashboard
#   cmake/deps.sh --fresh  those of tests/package/fresh.sh
#   cmake/deps.sh --fuzz  those of `make fuzz`
set -euo pipefail
cd "$(dirname "$0")/.."

build=(gcc libc6-dev make cmake ninja-build pkg-config
       libhiredis-dev libevent-dev libssl-dev libcjson-dev libxxhash-dev zlib1g-dev libzstd-dev)
demo=(redis-server redis-tools python3 python3-redis)
tests=(g++ libcmocka-dev curl git openssl libdnnl-dev python3-venv python3-yaml python3-prometheus-client groff-base zsh ruby-redis php-cli php-redis libredis-perl nodejs node-redis node-typescript docker-compose)
containers=(python3 python3-redis podman buildah podman-compose runc netavark aardvark-dns iptables debootstrap)
package=(python3 debootstrap lintian systemd)
fresh=(mmdebstrap)
fuzz=(clang libclang-rt-14-dev)
dashboard=(python3 python3-redis python3-selenium chromium chromium-driver)

case "${1:-}" in
  --package) wanted=("${package[@]}") ;;
  --dashboard) wanted=("${dashboard[@]}") ;;
  --containers) wanted=("${containers[@]}") ;;
  --fresh) wanted=("${fresh[@]}") ;;
  --fuzz) wanted=("${build[@]}" "${demo[@]}" "${tests[@]}" "${fuzz[@]}") ;;
  --build) wanted=("${build[@]}") ;;
  --demo) wanted=("${build[@]}" "${demo[@]}") ;;
  *) wanted=("${build[@]}" "${demo[@]}" "${tests[@]}") ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  [ "${1:-}" = --check ] && exit 0 # there is nothing to compare with; CMake reports missing libraries
  cat >&2 <<'TEXT'
make deps knows Debian's packages only. On this system install, with headers:
  a C11 compiler, make, CMake >= 3.25, Ninja, pkg-config,
  hiredis, libevent >= 2.1, OpenSSL >= 3.0, cJSON, xxHash, zlib, libzstd;
for the tests also: a C++17 compiler, cmocka, oneDNN 2.x (not 3), redis-server >= 7.0 with TLS, the openssl command, Python >= 3.11 with venv and redis, and
  the Redis clients of Ruby, PHP, Perl and Node, and the program tsc.
TEXT
  exit 1
fi

missing=()
installed=" $(dpkg-query -W -f '${Package} ${Status}\n' | sed -n 's/ install ok installed$//p' | tr '\n' ' ') "
for package in "${wanted[@]}"; do
  [[ $installed == *" $package "* ]] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
[ "${1:-}" = --check ] && { echo "missing: ${missing[*]}"; exit 1; }

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "as root: apt-get install --no-install-recommends ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
mkdir -p build
log=build/apt.log
echo "Installing with apt (log: $log): ${missing[*]}"
apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "apt-get failed, see $log; or install as root: ${missing[*]}" >&2
  exit 1
fi
