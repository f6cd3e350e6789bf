#!/usr/bin/env bash
# Writes sluice's manual page from its own help, which is made from the tables of commands and settings:
#   cmake/man.sh PROGRAM >sluice.1
set -euo pipefail
program=$1

# Converts help to roff: `usage:` becomes a heading, an option's row a tagged paragraph, other lines stay unchanged.
to_roff='
  function safe(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); sub(/^[.\x27]/, "\\\\\\&&", text); return text }
  /^usage: / { sub(/^usage: /, ""); usage = $0; sub(/ \[.*/, "", $0); sub(/ [A-Z].*/, "", $0)
               print ".SS " safe($0) "\n.B " safe(usage) "\n.PP"; next }
  /^  --/    { row = substr($0, 3); end = match(row, /  +[^ ]/); tag = end ? substr(row, 1, end - 1) : row
               if (!end && length(row) > 30 && substr(row, 31, 1) == " ") { tag = substr(row, 1, 30); end = 31 }
               print ".TP\n.B " safe(tag); if (end) { text = substr(row, end); sub(/^ +/, "", text); print safe(text) }; inside = 1; next }
  /^   /     { sub(/^ +/, ""); print safe($0); next }
  /^$/       { print ".PP"; next }
             { print safe($0); if (!/[.:,;]$/ || /:$/) print ".br" }
'

version=$("$program" --version)
cat <<END
.\\" Made by cmake/man.sh from the help of $version.
.TH SLUICE 1 "" "$version" "User commands"
.SH NAME
sluice \\- vectors of texts, behind a Redis stream
.SH SYNOPSIS
.B sluice
.I COMMAND
[options]
.SH COMMANDS
END
"$program" --help | sed -n 's/^  \([a-z][a-z0-9 ]*[a-z0-9]\)  *[A-Z].*/\1/p' | while read -r name; do
  # shellcheck disable=SC2086 # a name may be two words
  "$program" $name --help | awk "$to_roff"
done
