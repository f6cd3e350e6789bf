#compdef sluice
# Zsh completion for sluice: bash's, which asks the program for its help and so knows no command and no option by itself.
autoload -Uz bashcompinit && bashcompinit
source "${${(%):-%x}:A:h}/../../bash-completion/completions/sluice"
_bash_complete -o default -F _sluice
