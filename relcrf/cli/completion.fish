
function _relcrf_setting --argument-names command # settings, e.g. l2= or ess.l2=, and their values
    set -l tokens (commandline -opc)
    set -l current (string replace -r -- '^--set=' '' (commandline -ct))
    set -l chosen
    for k in (seq 2 (count $tokens))
        set -l flag (string match -r -- '^--?[a-z-]+' $tokens[$k])
        set -l value (string match -rg -- '^--[a-z-]+=(.*)' $tokens[$k]; or echo $tokens[(math $k + 1)])
        switch "$flag"
            case --backend -b
                set -a chosen (string split , -- $value)
            case --method -m
                test $command = infer; and set -a chosen infer:$value
        end
    end
    if not set -q chosen[1]
        for token in $tokens
            if test -f $token/run.json
                set chosen (head -c 200 -- $token/run.json | string match -rg -- '"backend": "([^"]*)"')
                break
            end
        end
    end
    set -q chosen[1]; or set chosen (string split ' ' -- (_relcrf_default $command))
    set -l parts (string split -m 1 = -- $current)
    set -l words
    for backend in $chosen
        if set -q parts[2]
            set -l found (string split -m 1 . -- $parts[1])
            set -q found[2]; or set found $backend $parts[1]
            set -a words $parts[1]=(string split ' ' -- (_relcrf_choices "$found"))
        else
            set -a words (string split ' ' -- (_relcrf_settings $backend))=
            string match -q -- "$backend.*" $current; and set -a words $backend.(string split ' ' -- (_relcrf_settings $backend))=
        end
    end
    if not set -q parts[2]; and not string match -q -- "$current*" $words; and test $command != infer
        set words (string split ' ' -- (_relcrf_settings all))=
    end
    string match -v -- = $words
end

function _relcrf_list # the last name of a comma-separated list
    set -l current (string replace -r -- '^--[a-z-]+=' '' (commandline -ct))
    set -l before (string match -r -- '.*,' $current)
    printf "$before%s\n" $argv
end

function _relcrf_argument --argument-names command count # true if the cursor is at an argument with this number
    set -l tokens (commandline -opc)
    set -l number 0
    set -l k 3
    test "$tokens[2]" = $command; or return 1
    while test $k -le (count $tokens)
        if string match -q -- '-*' $tokens[$k]
            string match -q -- '*=*' $tokens[$k]; or test -z (_relcrf_value "$command $tokens[$k]"); or set k (math $k + 1)
        else
            set number (math $number + 1)
        end
        set k (math $k + 1)
    end
    test $number = $count
end

function _relcrf_runs # run folders, and other folders
    for path in (__fish_complete_directories (commandline -ct) '')
        set path (string trim -r -- $path)
        test -f $path/run.json; and string trim -r -c / -- $path; or echo $path
    end
end
