#!/bin/sh
# mend-aof.sh DIRECTORY: cuts off what a crash left torn at the end of Redis' append-only file. To be run before every start
# of Redis, as Redis' user, with the directory that Redis calls `dir`; a file that is whole stays as it is.
#
# Whoever dies in the middle of a write may leave a piece of a script's block, MULTI ... EXEC. Redis by itself
# (aof-load-truncated yes) cuts off the last command only, goes on writing behind the open MULTI, and throws all of that away
# when it starts after another crash: https://github.com/valkey-io/valkey/pull/4342. redis-check-aof cuts the whole piece off.
# But it would cut at any damage, and everything behind it. So we let it do so only where no transaction ends behind the
# damage, keep what is cut off in DIRECTORY/appendonly.torn, and leave the rest to a person. Only the last file can be torn. So the
# tool sees a manifest of that file alone, for that of Valkey 9 does not know the base file of its own server. (It takes a file without
# a manifest for one when a line of it begins with "file".)
set -eu
folder=$1/appendonlydir
manifest=$folder/appendonly.aof.manifest

leave_it() {
  echo "mend-aof: this is more than a torn end; make a copy of $folder and have a look at it" >&2
  exit 1
}

[ -e "$manifest" ] || exit 0
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
