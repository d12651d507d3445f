# The number of words after the command, without options, if the command is the given one.
function __toolwire_at
    set -l words (commandline -opc)
    set -l found
    set -l skip no
    for word in $words[2..]
        if test $skip = yes
            set skip no
        else if string match -q -- '-*' $word
            if contains -- "$found[1] $word" $__toolwire_with_value
                set skip yes
            end
        else
            set -a found $word
            if test (count $found) -eq 2; and contains -- "$found" $__toolwire_subcommands
                set found "$found"
            end
        end
    end
    switch (count $argv)
        case 0
            test (count $found) -eq 0
        case 1
            test "$found[1]" = "$argv[1]"
        case '*'
            test "$found[1]" = "$argv[1]"; and test (count $found) -eq (math $argv[2] + 1)
    end
end
complete -c toolwire -f
complete -c toolwire -n __toolwire_at -s h -l help -d 'list the commands'
complete -c toolwire -n __toolwire_at -s V -l version -d 'print the version'
