# eval "$(zoo --completion zsh)", in ~/.zshrc behind compinit
_zoo() {
    local -a found
    found=("${(@f)$(zoo --complete "${(@)words[2,CURRENT]}" 2> /dev/null)}")
    compadd -Q -S '' -- $found
}
compdef _zoo zoo
