# Reads the output of `moe-NAME --help=spec` and writes its completion for -v shell=bash|zsh|fish.
# `make completions` keeps the results in completions/; a check fails when they are not what this makes.

BEGIN { FS = "\t"; subs = 0 }
$1 == "command" { name = $2; id = name; gsub("-", "_", id) }
$1 == "subcommand" {
    sub_name[++subs] = $2; sub_help[subs] = $3; implied[subs] = ($2 == "-" || $4 == "implied"); options[subs] = 0
}
$1 == "operand" { takes_files[subs] = 1 }
$1 == "option" {
    n = ++options[subs]
    letter[subs, n] = $2; long[subs, n] = $3; help[subs, n] = $7
    flag[subs, n] = ($4 == "flag"); argument[subs, n] = $5; words[subs, n] = ""; file[subs, n] = ($4 == "input" || $4 == "output")
    m = split($6 != "-" && $6 != "" ? $6 "|" $5 : $5, parts, "|")
    for (i = 1; i <= m; i++) {
        if (parts[i] ~ /^[a-z][a-z0-9.-]*($|\[)/) add_word(parts[i], "")          # as it is, perhaps with settings
        if (parts[i] ~ /^[a-z][a-z0-9.-]*(\[)?:/) add_word(parts[i], ":")         # settings follow
        if (parts[i] ~ /^FILE/) file[subs, n] = 1
        if (parts[i] ~ /^FILE\.[a-z]+$/) ending[subs, n] = substr(parts[i], 5)
    }
    if ($4 == "choice") argument[subs, n] = toupper($3)
}
END {
    if (shell == "zsh") print "#compdef " name         # must be the first line
    print "# Made by `make completions` from the option table of " name "; not edited by hand."
    if (shell == "bash") bash()
    else if (shell == "zsh") zsh()
    else fish()
}

function add_word(text, colon,   word) {
    match(text, /^[a-z0-9.-]+/)
    word = substr(text, 1, RLENGTH) colon
    if (index(" " words[subs, n] " ", " " word " ") == 0) words[subs, n] = words[subs, n] (words[subs, n] == "" ? "" : " ") word
}
function names(s,   n, out) {
    out = ""
    for (n = 1; n <= options[s]; n++) {
        if (letter[s, n] != "-") out = out " -" letter[s, n]
        out = out " --" long[s, n]
    }
    return substr(out, 2)
}
function subcommand_names(   s, out) {
    out = ""
    for (s = 1; s <= subs; s++) if (sub_name[s] != "-") out = out (out == "" ? "" : " ") sub_name[s]
    return out
}
function pattern(s, n) { return (letter[s, n] != "-" ? "-" letter[s, n] "|" : "") "--" long[s, n] }

function bash(   s, n, all) {
    all = subcommand_names()
    print "_" id "()\n{"
    print "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options= words= files=yes value="
    print "    # Bash splits --name=value at the sign."
    print "    [ \"$cur\" = = ] && cur="
    print "    [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD-2]}"
    print "    case ${COMP_WORDS[1]} in"
    for (s = 1; s <= subs; s++) if (!implied[s]) { print "    " sub_name[s] ")"; bash_subcommand(s); print "        ;;" }
    for (s = 1; s <= subs; s++) if (implied[s]) { print "    *)"; bash_subcommand(s); print "        ;;" }
    print "    esac"
    if (all != "") print "    [ \"$COMP_CWORD\" = 1 ] && words='" all "'"
    print "    case $value:$cur in"
    print "    :-?*) words=$options files= ;;"
    print "    :-) words=$options ;;"
    print "    esac"
    print "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))"
    print "    case ${COMPREPLY[*]} in *:) compopt -o nospace 2> /dev/null ;; esac"
    print "    case $files in"
    print "    '') ;;"
    print "    yes) COMPREPLY+=($(compgen -f -- \"$cur\")) ;;"
    print "    *) COMPREPLY+=($(compgen -f -X \"!*$files\" -- \"$cur\") $(compgen -d -- \"$cur\")) ;;"
    print "    esac"
    print "}\ncomplete -o filenames -F _" id " " name
}
function bash_subcommand(s,   n) {
    print "        options='" names(s) "'"
    print "        case $prev in"
    for (n = 1; n <= options[s]; n++) if (!flag[s, n])
        print "        " pattern(s, n) ") value=yes words='" words[s, n] "' files=" (ending[s, n] != "" ? ending[s, n] : file[s, n] ? "yes" : "") " ;;"
    print "        esac"
}

function zsh_text(text) { gsub(/\\/, "\\\\", text); gsub(/'/, "'\\''", text); gsub(/\[/, "\\[", text); gsub(/\]/, "\\]", text); gsub(/:/, "\\:", text); return text }
function zsh_words(text) { gsub(/:/, "\\:", text); return text }
function zsh_action(s, n) {
    if (flag[s, n]) return ""
    if (ending[s, n] != "") return ":" zsh_text(argument[s, n]) ":_files -g \"*" ending[s, n] "\""
    return ":" zsh_text(argument[s, n]) ":" (file[s, n] ? (words[s, n] == "" ? "_files" : "{_alternative \"words\\:word\\:(" zsh_words(words[s, n]) ")\" \"files\\:file\\:_files\"}") : words[s, n] == "" ? " " : "(" zsh_words(words[s, n]) ")")
}
function zsh_subcommand(s, indent,   n, text) {
    print indent "_arguments -s -S \\"
    for (n = 1; n <= options[s]; n++) {
        text = "[" zsh_text(help[s, n]) "]" zsh_action(s, n)
        if (letter[s, n] != "-")
            print indent "    '(-" letter[s, n] " --" long[s, n] ")'{-" letter[s, n] (flag[s, n] ? "" : "+") ",--" long[s, n] (flag[s, n] ? "" : "=") "}'" text "' \\"
        else
            print indent "    '--" long[s, n] (flag[s, n] ? "" : "=") text "' \\"
    }
    print indent "    '*:file:_files'"
}
function zsh(   s, all) {
    all = subcommand_names()
    print "_" id "() {"
    if (all == "") zsh_subcommand(1, "    ")
    else {
        print "    if (( CURRENT == 2 )); then"
        print "        local -a subcommands=("
        for (s = 1; s <= subs; s++) print "            '" sub_name[s] ":" zsh_text(sub_help[s]) "'"
        print "        )"
        print "        _describe subcommand subcommands"
        for (s = 1; s <= subs; s++) if (implied[s]) zsh_subcommand(s, "        ")
        print "        return"
        print "    fi"
        print "    case $words[2] in"
        for (s = 1; s <= subs; s++) if (!implied[s]) {
            print "    (" sub_name[s] ")\n        shift words; (( CURRENT-- ))"
            zsh_subcommand(s, "        "); print "        ;;"
        }
        for (s = 1; s <= subs; s++) if (implied[s]) {
            print "    (*)\n        [[ $words[2] = " sub_name[s] " ]] && { shift words; (( CURRENT-- )) }"
            zsh_subcommand(s, "        "); print "        ;;"
        }
        print "    esac"
    }
    print "}\n_" id " \"$@\""
}

function fish_text(text) { gsub(/\\/, "\\\\", text); gsub(/'/, "\\'", text); return "'" text "'" }
function fish(   s, n, all, others, when, line) {
    all = subcommand_names()
    for (s = 1; s <= subs; s++) {
        when = ""
        if (all != "") {
            print "complete -c " name " -n __fish_is_first_token -a " sub_name[s] " -d " fish_text(sub_help[s])
            others = ""
            for (n = 1; n <= subs; n++) if (n != s) others = others " " sub_name[n]
            when = " -n '" (implied[s] ? "not __fish_seen_subcommand_from" others : "__fish_seen_subcommand_from " sub_name[s]) "'"
        }
        for (n = 1; n <= options[s]; n++) {
            line = "complete -c " name when
            if (letter[s, n] != "-") line = line " -s " letter[s, n]
            line = line " -l " long[s, n]
            if (!flag[s, n]) line = line (file[s, n] ? " -r -F" : " -x")
            if (words[s, n] != "") line = line " -a " fish_text(words[s, n])
            if (ending[s, n] != "") line = line " -k -a '(__fish_complete_suffix " ending[s, n] ")'"
            print line " -d " fish_text(help[s, n])
        }
    }
}
