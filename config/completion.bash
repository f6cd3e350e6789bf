# Bash completion for sluice. It runs the typed program's help, so it contains no list of commands and options.
_sluice() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} at=2 commands name help words=
  [[ $before == '=' ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
  [[ $word == '=' ]] && word=
  commands=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z0-9 ]*[a-z0-9]\)  *[A-Z].*/\1/p')
  name=${COMP_WORDS[1]}
  if [[ $COMP_CWORD -gt 2 && $'\n'$commands$'\n' == *$'\n'"$name ${COMP_WORDS[2]}"$'\n'* ]]; then
    name+=" ${COMP_WORDS[2]}"
    at=3
  fi
  if [[ $COMP_CWORD -eq 1 ]]; then
    words=$(sed 's/ .*//' <<<"$commands" | uniq)
  elif [[ $'\n'$commands$'\n' != *$'\n'"$name"$'\n'* ]]; then
    [[ $COMP_CWORD -eq 2 ]] && words=$(sed -n "s/^$name //p" <<<"$commands")
  else
    help=$("$program" $name --help 2>/dev/null)
    if [[ $word == -* ]]; then
      words="--help $(sed -n 's/^  \(--[a-z0-9-]*\)\(, \(--no-[a-z0-9-]*\)\)\{0,1\}.*/\1 \3/p' <<<"$help")"
    elif [[ $before == --* ]] && grep -q -- "^  $before [^ ]" <<<"$help"; then
      words=$(sed -n "s/^  $before \([^ ]*|[^ ]*\).*/\1/p" <<<"$help")
    elif [[ $COMP_CWORD -eq $at ]]; then
      words=$(sed -n '1s/.*\] \([a-z]*|[a-z|]*\).*/\1/p' <<<"$help")
    fi
  fi
  COMPREPLY=($(compgen -W "${words//|/ }" -- "$word"))
}
complete -o default -F _sluice sluice
