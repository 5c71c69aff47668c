# zoo --completion fish | source, in ~/.config/fish/config.fish
function __zoo
    set -l words (commandline -opc) (commandline -ct)
    zoo --complete $words[2..-1] 2> /dev/null
end
complete -c zoo -f -a '(__zoo)'
