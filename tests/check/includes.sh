#!/bin/sh
# Includes go downwards only. The table lists for each folder what its files may include besides their own folder; `all` means
# common/base, common/cli and common/stream, which are below everything else. Code that measures and decides without a model
# (stream, route, predict, policy, report) must not reach tensor code by any path, not even through a header of a header.
cd "$(dirname "$0")/../.." || exit 2

table='
common/base
common/cli          common/base
common/stream       common/base
kernels             common/base kernels/*
kernels/plain       common/base
kernels/ref         common/base kernels kernels/plain
kernels/cpu         common/base kernels kernels/plain
kernels/host        common/base kernels kernels/plain
kernels/cuda        common/base kernels kernels/plain tests/emu
common/ranks        all
common/ranks/mpi    common/ranks
common/tensor       all kernels/*
common/model        all kernels/*
common/tokenizer    all
common/template     all common/tokenizer
common/prompts      all kernels/* common/model common/tokenizer common/template
common/cache        all
common/store        all kernels/* common/tensor common/model common/cache
common/arch         all kernels/* common/model
common/checkpoint   all kernels/* common/model common/tokenizer common/template common/arch
common/engine       all kernels/* common/tensor common/model common/tokenizer common/cache common/store
common/head         all kernels/* common/tensor common/model common/store common/engine
common/sample       all kernels/plain
common/route        all kernels/plain
common/draft        all kernels/* common/tensor common/model common/tokenizer common/store common/engine common/head common/sample common/route
common/verify       all kernels/* common/sample common/route common/draft common/predict common/policy
common/predict      all kernels/plain common/cache common/route common/draft common/verify common/policy
common/policy       all kernels/plain common/route common/draft common/verify common/predict
common/report       all kernels/plain common/route
common/session      *
common/decode       *
common/instruments  *
common/train        *
common/bench        *
cmd                 *
'
pure='common/stream common/cache common/route common/predict common/policy common/report'
tensor='^(common/(tensor|engine|store|checkpoint|arch|head)|kernels|kernels/(cpu|ref|host|cuda))$'

files=$(find common kernels cmd \( -name '*.[ch]' -o -name '*.cu' \) 2>/dev/null | sort)
[ -n "$files" ] || exit 0
grep -Hn '^ *# *include *"' $files | sed 's/^\([^:]*\):\([0-9]*\):[^"]*"\([^"]*\)".*/\1 \2 \3/' |
awk -v table="$table" -v pure="$pure" -v tensor="$tensor" '
function folder(path) { sub("/[^/]*$", "", path); return path }
function allowed(from, to,   words, n, i, word) {
    if (from == to) return 1
    n = split(rules[from], words, " ")
    for (i = 1; i <= n; i++) {
        word = words[i]
        if (word == to || (word == "all" && to ~ "^common/(base|cli|stream)$")) return 1
        if (word == "kernels/*" && to ~ "^kernels(/plain|/ref|/cpu|/host)?$") return 1
        if (word == "*" && to ~ "^(common|kernels)(/|$)" && level(from) > level(to)) return 1
    }
    return 0
}
# Folders that may include anything below themselves: cmd, then bench, then instruments and train, then decode, then session,
# then the rest.
function level(room) {
    if (room ~ "^common/(instruments|train|report)$") return 3
    return room == "cmd" ? 5 : room == "common/bench" ? 4 : room == "common/decode" ? 2 : room == "common/session" ? 1 : 0
}
# Prints the first file of tensor code that `file` reaches, with the path to it.
function reaches(file, way,   n, i, list, found) {
    if (file in seen) return ""
    seen[file] = 1
    n = split(includes[file], list, " ")
    for (i = 1; i <= n; i++) {
        if (folder(list[i]) ~ tensor) return way " -> " list[i]
        found = reaches(list[i], way " -> " list[i])
        if (found != "") return found
    }
    return ""
}
BEGIN {
    n = split(table, lines, "\n")
    for (i = 1; i <= n; i++) {
        split(lines[i], words, " ")
        if (words[1] != "") { known[words[1]] = 1; rules[words[1]] = substr(lines[i], length(words[1]) + 1) }
    }
}
{
    from = folder($1); to = folder($3)
    includes[$1] = includes[$1] " " $3
    if (!(from in known)) unknown[from] = 1
    else if (!allowed(from, to)) { print $1 ":" $2 ": " from " must not include " to ": " $3; bad = 1 }
}
END {
    for (from in unknown) { print from ": is not in the table of tests/check/includes.sh"; bad = 1 }
    n = split(pure, folders, " ")
    for (i = 1; i <= n; i++) for (file in includes) if (folder(file) == folders[i]) {
        split("", seen)
        way = reaches(file, file)
        if (way != "") { print way ": " folders[i] " must not reach tensor code"; bad = 1 }
    }
    exit bad
}'
