#!/usr/bin/env bash
# usage: venv.sh DIRECTORY REQUIREMENTS...
# Makes a Python environment with the pinned packages, once; later calls, and calls at the same time, find it ready.
set -euo pipefail
directory=$1
shift
mkdir -p "$directory"
exec 9>"$directory.lock"
flock 9
wanted=$(cat "$@" | sha256sum)
if [ "$(cat "$directory/made-from" 2>/dev/null)" != "$wanted" ]; then
    /usr/bin/python3 -m venv --clear "$directory"
    arguments=()
    for file in "$@"; do
        arguments+=(-r "$file")
    done
    "$directory/bin/pip" install --quiet --disable-pip-version-check "${arguments[@]}"
    echo "$wanted" >"$directory/made-from"
fi
echo "$directory/bin/python"
