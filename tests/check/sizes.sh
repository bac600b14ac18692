#!/bin/sh
# No file over 800 lines, no function over 100, no line of C over 128 columns. A function's body opens with a brace in column 0
# (or at the end of a line that starts in column 0 and is no struct, union, enum or initialiser) and closes with one. Tracked files
# have 50 MiB in all.
cd "$(dirname "$0")/../.." || exit 2
files=$(find cmd common kernels tests \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.sh' -o -name '*.bats' \) ! -path 'tests/models/*' | sort)
[ -n "$files" ] || exit 0
# Tracked files and gpu-kit (9 MiB) are sent together to another machine, within 60 MiB.
tree=$(git ls-files -z 2>/dev/null | xargs -0 -r stat -c %s 2>/dev/null | awk '{ total += $1 } END { printf "%d", total }')
[ "$tree" -le $((50 << 20)) ] || { echo "tracked files: $((tree >> 20)) MiB, more than 50; remove or pack the largest"; exit 1; }
awk '
FNR == 1 { finish(); file = FILENAME; start = head = 0 }
{ lines = FNR }
file ~ /\.(c|h|cc|cu)$/ && length($0) > 128 { report(FNR ": a line of " length($0) " columns, more than 128") }
file ~ /\.(c|h|cc|cu)$/ {
    if (/^[A-Za-z_].*\)/ && !/;[ \t]*(\/\*.*)?$/) head = FNR
    if (/^\{/ && head) start = head
    else if (/^[A-Za-z_].*\).*\{[ \t]*(\/\*.*)?$/ && !/=[ \t]*\{/) start = FNR
    else if (head && !start && /\)[ \t]*\{$/) start = head
    if (/^\}/) {
        if (start && FNR - start + 1 > 100) report(start ": a function of " FNR - start + 1 " lines, more than 100")
        start = head = 0
    }
}
function report(what) { print file ":" what; bad = 1 }
function finish() { if (file != "" && lines > 800) report(" " lines " lines, more than 800") }
END { finish(); exit bad }
' $files
