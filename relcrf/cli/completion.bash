# What <Tab> offers, without starting Python: the tables above are those of the installed relcrf.

_relcrf_files() { # files with an ending, and folders on the way there
    local path
    while IFS= read -r path; do
        case $path in
            *"$1") COMPREPLY+=("$path") ;;
            *) [[ -d $path ]] && COMPREPLY+=("$path/") ;;
        esac
    done < <(compgen -f -- "$2")
}

_relcrf_runs() { # folders that training wrote, and folders on the way there
    local path
    while IFS= read -r path; do
        if [[ -f $path/run.json ]]; then COMPREPLY+=("$path"); else COMPREPLY+=("$path/"); fi
    done < <(compgen -d -- "$1")
}

_relcrf_words() { # of a list, those that begin so; nothing is expanded
    local word
    for word in $1; do
        [[ $word == "$2"* ]] && COMPREPLY+=("$word$3")
    done
}

_relcrf_chosen() { # the backend or the method that the line names
    local k found=$1
    shift
    for ((k = 1; k < COMP_CWORD; k++)); do
        case ${COMP_WORDS[k]} in
            --backend | -b | --method | -m)
                found=${COMP_WORDS[k + 1]}
                [[ $found == "=" ]] && found=${COMP_WORDS[k + 2]}
                ;;
        esac
    done
    printf '%s' "$found"
}

_relcrf() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} kind REPLY=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _relcrf_words "$_relcrf_commands" "$current"
        return
    fi
    if [[ $current == "=" ]]; then # bash splits --backend=ess at the sign
        current=
    elif [[ $previous == "=" ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    [[ ${COMP_WORDS[COMP_CWORD - 1]} == "=" && $previous != -* ]] && return # the value of a setting: l2=0.5
    _relcrf_value "$command $previous"
    kind=$REPLY
    if [[ -z $kind ]]; then
        if [[ $current == -* ]]; then
            _relcrf_flags "$command"
            _relcrf_words "$REPLY" "$current"
            return
        fi
        _relcrf_argument "$command"
        kind=$REPLY
    fi
    case $kind in
        model) _relcrf_files .rcrf "$current" ;;
        uai) _relcrf_files .uai "$current" ;;
        run) _relcrf_runs "$current" ;;
        target)
            _relcrf_files .rcrf "$current"
            _relcrf_runs "$current"
            ;;
        path) _relcrf_files "" "$current" ;;
        setting)
            _relcrf_settings "$(_relcrf_chosen "$([[ $command == infer ]] && echo auto || echo ess)")"
            _relcrf_words "$REPLY" "$current" "="
            ;;
        words:*) _relcrf_words "${kind#words:}" "$current" ;;
    esac
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o filenames -F _relcrf relcrf
