
_relcrf_zsh() { # call the function for bash, and add no space after folders and incomplete settings
    local -a COMP_WORDS COMPREPLY complete incomplete
    local COMP_CWORD=$((CURRENT - 1)) reply found=1
    COMP_WORDS=("${(Q@)words}")
    () {
        emulate -L sh
        setopt kshglob noshglob braceexpand ksharrays
        _relcrf
    }
    for reply in "${COMPREPLY[@]}"; do
        case $reply in
            *[/=]) incomplete+=("$reply") ;;
            *) complete+=("$reply") ;;
        esac
    done
    compadd -S '' -a incomplete && found=0
    compadd -a complete && found=0
    return found
}

compdef _relcrf_zsh relcrf
