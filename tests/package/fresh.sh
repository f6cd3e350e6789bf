#!/usr/bin/env bash
# usage: fresh.sh [COMMAND...]
# A fresh Debian 12 in build/fresh, with nothing but Debian's minimal base and make: clones this repository's HEAD into it and types the
# README's commands there, `make demo` and `make test`, or the commands that are given. The commands must install what they need. The
# script needs root, a Debian mirror, and the package mmdebstrap.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$PWD/build/fresh
commands=("$@")
if [ $# -eq 0 ]; then
  # Two lines of the README's first block, without their comments.
  mapfile -t commands < <(sed -n '/^## Start/,/^## /s/^\(make \(demo\|test\)\) *#.*/\1/p' README.md)
  [ "${commands[*]}" = "make demo make test" ] || { echo "README.md, Start: make demo and make test are not there" >&2; exit 1; }
fi

rm -rf --one-file-system "$root"
mkdir -p "$root"
mmdebstrap --quiet --variant=minbase --include=make bookworm "$root"
git clone --quiet . "$root/root/sluice"

# Writes the files of an installer or a cloud image, and those of this network: name servers, certificates, proxies.
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
network=()
while IFS='=' read -r name value; do
  case $name in
    http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY | PIP_INDEX_URL) network+=("$name=$value") ;;
    PIP_CERT | SSL_CERT_FILE)
      install -m 644 "$value" "$root/etc/network.crt" # the package ca-certificates writes /etc/ssl/certs anew
      network+=("$name=/etc/network.crt") ;;
  esac
done < <(env)

# The command runs in namespaces of its own, which end with it: so do its mounts and all that it leaves running.
cat >"$root/enter" <<'TEXT'
set -e
root=$1
shift
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount --rbind -o ro /sys "$root/sys"
exec chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
TEXT
for line in "${commands[@]}"; do
  echo "== fresh Debian 12: $line"
  began=$SECONDS
  unshare --mount --ipc --pid --fork --kill-child bash "$root/enter" "$root" "${network[@]}" \
    bash -c "cd /root/sluice && $line" </dev/null
  echo "== fresh Debian 12: $line: $((SECONDS - began)) s"
done
rm -rf --one-file-system "$root"
