#!/bin/sh
# mend-aof.sh DIRECTORY: cuts off the torn end that a crash left in Redis' append-only file. Run it before every start of
# Redis, as Redis' user, with the directory that Redis calls `dir`; an intact file stays unchanged.
#
# A server that dies in the middle of a write may leave part of a script's block, MULTI ... EXEC. Redis by itself
# (aof-load-truncated yes) cuts off only the last command, continues to write after the open MULTI, and discards all of
# that at a start after another crash: https://github.com/valkey-io/valkey/pull/4342. redis-check-aof cuts off the whole
# part, but also at any other damage, with everything after it. So it is run only if no transaction ends after the
# damage; the removed bytes are kept in DIRECTORY/appendonly.torn, and all other damage is left to a person. Only the
# last file can be torn. So the tool gets a manifest of that file alone, because Valkey 9's does not know its own
# server's base file. (It takes a file without a manifest for a manifest if one of its lines begins with "file".)
set -eu
case ${1-} in
  -h | --help) echo 'usage: mend-aof.sh DIRECTORY'; exit 0 ;;
  '' | -*) echo 'usage: mend-aof.sh DIRECTORY, which Redis calls dir' >&2; exit 64 ;;
esac
folder=$1/appendonlydir
manifest=$folder/appendonly.aof.manifest

leave_it() {
  echo "mend-aof: this is more than a torn end; make a copy of $folder and have a look at it" >&2
  exit 1
}

if [ ! -d "$1" ] || [ -e "$1/appendonly.aof.manifest" ]; then
  echo "mend-aof: $1 is not the directory that Redis calls dir: $([ -d "$1" ] && echo 'name the one above' || echo 'there is no such folder')" >&2
  exit 66
fi
if [ ! -e "$manifest" ]; then
  echo "mend-aof: nothing to mend: there is no $manifest"
  exit 0
fi
check=$(command -v redis-check-aof || command -v valkey-check-aof) || {
  echo "mend-aof: there is neither redis-check-aof nor valkey-check-aof" >&2
  exit 1
}
grep -q '^file .* type b' "$manifest" || leave_it
name=$(sed -n 's/^file \(.*\) seq [0-9]* type i.*/\1/p' "$manifest" | tail -n 1)
[ -n "$name" ] && [ -s "$folder/$name" ] || exit 0
last=$(cd "$folder" && pwd)/$name
alone=$(mktemp -d)
trap 'rm -r "$alone"' EXIT
ln -s "$last" "$alone/$name"
echo "file $name seq 1 type i" > "$alone/manifest"
if report=$("$check" "$alone/manifest"); then exit 0; fi
printf '%s\n' "$report"

bytes=$(printf '%s\n' "$report" | sed -n 's/^AOF analyzed: .* diff=\([0-9]*\)$/\1/p')
if [ "${bytes:-0}" -eq 0 ] || tail -c "$bytes" "$last" | LC_ALL=C tr '\r\n' '  ' | LC_ALL=C grep -aq '[*]1  .4  EXEC  '; then leave_it; fi
tail -c "$bytes" "$last" >> "$1/appendonly.torn"
echo y | "$check" --fix "$alone/manifest"
