#compdef sluice
# Zsh completion for sluice: bash's, which runs the program's help and so contains no list of commands and options.
autoload -Uz bashcompinit && bashcompinit
source "${${(%):-%x}:A:h}/../../bash-completion/completions/sluice"
_bash_complete -o default -F _sluice
