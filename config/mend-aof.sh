#!/bin/sh
# mend-aof.sh DIRECTORY: cuts off what a crash left torn at the end of Redis' append-only file. To be run before every start
# of Redis, as Redis' user, with the directory that Redis calls `dir`; a file that is whole stays as it is.
#
# Whoever dies in the middle of a write may leave a piece of a script's block, MULTI ... EXEC. Redis by itself
# (aof-load-truncated yes) cuts off the last command only, goes on writing behind the open MULTI, and throws all of that away
# when it starts after another crash: https://github.com/valkey-io/valkey/pull/4342. redis-check-aof cuts the whole piece off.
# But it would cut at any damage, and everything behind it. So we let it do so only where no transaction ends behind the
# damage, keep what is cut off in DIRECTORY/appendonly.torn, and leave the rest to a person.
set -eu
folder=$1/appendonlydir
manifest=$folder/appendonly.aof.manifest

[ -e "$manifest" ] || exit 0
if report=$(redis-check-aof "$manifest"); then exit 0; fi
printf '%s\n' "$report"

damaged=$(printf '%s\n' "$report" | sed -n 's/^AOF analyzed: filename=\(.*\), size=.*/\1/p' | tail -n 1)
bytes=$(printf '%s\n' "$report" | sed -n 's/^AOF analyzed: .* diff=\([0-9]*\)$/\1/p' | tail -n 1)
if [ "${bytes:-0}" -eq 0 ] || [ ! -f "$folder/$damaged" ] ||
  tail -c "$bytes" "$folder/$damaged" | LC_ALL=C tr '\r\n' '  ' | LC_ALL=C grep -aq '[*]1  .4  EXEC  '; then
  echo "mend-aof: this is more than a torn end; make a copy of $folder and have a look at it" >&2
  exit 1
fi
tail -c "$bytes" "$folder/$damaged" >> "$1/appendonly.torn"
echo y | redis-check-aof --fix "$manifest"
