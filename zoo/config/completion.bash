# eval "$(zoo --completion bash)", in ~/.bashrc
_zoo() {
    local line="${COMP_LINE:0:COMP_POINT}" words word skip
    read -ra words <<< "$line"
    [[ "$line" == *" " ]] && words+=("")
    word="${words[-1]}"
    COMPREPLY=()
    skip=""
    [[ "$word" == *=* && "$COMP_WORDBREAKS" == *=* ]] && skip="${word%"${word##*=}"}"
    while IFS= read -r each; do
        [[ -n "$each" ]] && COMPREPLY+=("${each#"$skip"}")
    done < <(zoo --complete "${words[@]:1}" 2> /dev/null)
    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
}
complete -o default -F _zoo zoo
