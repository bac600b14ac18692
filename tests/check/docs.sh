#!/bin/sh
# The option table, --help, man page and completions of each command agree, and the Markdown pages are linked and short.
#
# In man/moe-NAME.1 every option is one line `.It Fl b , Fl -by Ar METHOD` (or `.It Fl -by ...`), and the SYNOPSIS names
# every subcommand and operand. Needs the built commands in $MOE_BIN.
cd "$(dirname "$0")/../.." || exit 2
bin=${MOE_BIN:-build/normal/bin}
bad=0
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT

complain() { echo "$1"; bad=1; }

# letter, long name and whether it takes a value, one option per line: from the table, and from the man page
table_options() { awk -F '\t' '$1 == "option" { print $2, $3, ($4 == "flag" ? "flag" : "value") }' "$1" | sort -u; }
page_options() {
    awk '/^\.It Fl / {
        letter = "-"; name = ""; value = "flag"
        for (i = 2; i <= NF; i++) {
            if ($i == "Ar" || $i == "Cm") value = "value"
            if ($i != "Fl") continue
            word = $(i + 1); gsub(/\\-/, "-", word); gsub(/\\&/, "", word)
            if (word ~ /^-/) name = substr(word, 2); else letter = word
        }
        print letter, name, value
    }' "$1" | sort -u
}

# Every option of the table is a line of its (sub)command's --help.
check_help() {
    awk -F '\t' '$1 == "subcommand" { sub_name = $2 } $1 == "option" { print sub_name, $3 }' "$scratch/spec" |
    while read -r sub option; do
        [ "$sub" != - ] || sub=
        [ -s "$scratch/help-$sub" ] || "$bin/$name" $sub --help > "$scratch/help-$sub" 2>&1 || echo "$name $sub --help: fails"
        grep -q -e "^  .*--$option\( \|$\)" "$scratch/help-$sub" || echo "$name $sub --help: does not list --$option"
    done > "$scratch/complaints"
    rm -f "$scratch"/help-*
    [ ! -s "$scratch/complaints" ] || complain "$(cat "$scratch/complaints")"
}

check_page() {
    page=man/$name.1
    [ -f "$page" ] || { complain "$page: is missing"; return; }
    table_options "$scratch/spec" > "$scratch/table"
    page_options "$page" > "$scratch/page"
    comm -23 "$scratch/table" "$scratch/page" | sed "s|^|$page: not there, but in the option table: |" > "$scratch/complaints"
    comm -13 "$scratch/table" "$scratch/page" | sed "s|^|$page: not in the option table: |" >> "$scratch/complaints"
    awk '/^\.Sh / { inside = ($2 == "SYNOPSIS") } inside' "$page" > "$scratch/synopsis"
    awk -F '\t' '($1 == "subcommand" && $2 != "-") || $1 == "operand" { print $2 }' "$scratch/spec" | sort -u |
    while read -r word; do
        grep -qw -e "$word" "$scratch/synopsis" || echo "$page: SYNOPSIS does not name $word"
    done >> "$scratch/complaints"
    [ ! -s "$scratch/complaints" ] || complain "$(cat "$scratch/complaints")"
}

# An option is in the section of the page that has the name of its group in the table.
check_groups() {
    awk -F '\t' '$1 == "subcommand" { group = "" } $1 == "group" { group = $2 }
        $1 == "option" && group != "" { print group ": --" $3 }' "$scratch/spec" | sort -u > "$scratch/table"
    awk '/^\.S[sh] / { group = substr($0, 5) }
        /^\.It Fl / { for (i = 2; i <= NF; i++) if ($i == "Fl" && $(i + 1) ~ /^-/) print group ": -" $(i + 1) }' "$page" |
        sort -u > "$scratch/page"
    comm -23 "$scratch/table" "$scratch/page" | sed "s|^|$page: no section has this option: |" > "$scratch/complaints"
    [ ! -s "$scratch/complaints" ] || complain "$(cat "$scratch/complaints")"
}

check_completion() {
    awk -v shell="$1" -f completions/generate.awk "$scratch/spec" > "$scratch/made"
    cmp -s "$scratch/made" "$2" || complain "$2: is not what the option table gives; run \`make completions\`"
    command -v "$1" > /dev/null && { "$1" -n "$2" || complain "$2: $1 cannot read it"; }
}

for command in "$bin"/moe-*; do
    [ -x "$command" ] || continue
    name=${command##*/}
    [ -f "cmd/$name.c" ] || continue                    # left from another branch
    "$command" --help=spec > "$scratch/spec" 2>&1 || { complain "$name --help=spec: fails"; continue; }
    check_help
    check_page
    check_groups
    check_completion bash "completions/bash/$name"
    check_completion zsh "completions/zsh/_$name"
    check_completion fish "completions/fish/$name.fish"
done
for file in completions/bash/* completions/zsh/* completions/fish/* man/moe-*.1; do
    [ -e "$file" ] || continue
    name=${file##*/}; name=${name#_}; name=${name%.fish}; name=${name%.1}
    [ -f "cmd/$name.c" ] || complain "$file: there is no command $name"
done

# Relative links of the Markdown pages lead to files, and the first two pages stay short.
for page in README.md CONTRIBUTING.md docs/*.md; do
    for link in $(grep -o ']([^):#]*)' "$page" | sed 's/^](//; s/)$//'); do
        [ -e "$(dirname "$page")/$link" ] || complain "$page: there is no file $link"
    done
done
[ "$(wc -l < README.md)" -le 150 ] || complain "README.md: more than 150 lines; move details to docs/"
[ "$(wc -l < CONTRIBUTING.md)" -le 200 ] || complain "CONTRIBUTING.md: more than 200 lines; move details to docs/"
exit $bad
