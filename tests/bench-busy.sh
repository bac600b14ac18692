#!/bin/sh
# Measures how much slower forwards are while another process keeps one processor busy: moe-bench sweep with two threads that
# are not pinned, alternately alone and beside the other process. `make bench-busy` calls it; it takes about four minutes.
# Settings: FORMATS, PAIRS (15) and SECONDS_OF_ONE (2, per sweep).
#
# Prints a Markdown table of medians, and the median and the middle half of the pairs' ratios (busy over alone).
set -e
cd "$(dirname "$0")/.."
out=build/bench
pairs=${PAIRS:-15} seconds=${SECONDS_OF_ONE:-2}
mkdir -p "$out"
burner=
trap '[ -z "$burner" ] || kill "$burner"' EXIT

burn() { while :; do :; done; }

# Prints milliseconds of forwards of 1 and of 8 tokens, one line each: rows, turn, time.
sweep() {
    moe-bench sweep -q -m "$out/busy-$1.moe" -j 2 --rows 1,8 --seconds "$seconds" --seed "$3" --json |
        jq -r --arg turn "$2" '.cost[] | "\(.m) \($turn) \(.seconds * 1000)"'
}

echo "| format | tokens | alone, ms | busy, ms | ratio | middle half |"
echo "|---|---|---|---|---|---|"
for format in ${FORMATS:-bf16 q4}; do
    [ -e "$out/busy-$format.moe" ] || moe-convert synthetic -q --like olmoe-1b-7b -l 4 --dtype "$format" -o "$out/busy-$format.moe"
    for pair in $(seq "$pairs"); do
        sweep "$format" alone "$pair"
        burn &
        burner=$!
        sweep "$format" busy "$pair"
        kill "$burner"
        wait "$burner" 2> /dev/null || :
        burner=
    done | awk -v format="$format" '
        # Prints the value at a share of a sorted list.
        function at(list, count, share) { return list[int((count - 1) * share) + 1] }
        function sorted(list, count,    i, j, kept) {
            for (i = 2; i <= count; i++) {
                kept = list[i]
                for (j = i - 1; j > 0 && list[j] > kept; j--)
                    list[j + 1] = list[j]
                list[j + 1] = kept
            }
        }
        { time[$1, $2, ++count[$1, $2]] = $3; if (!seen[$1]++) rows[++kinds] = $1 }
        END {
            for (k = 1; k <= kinds; k++) {
                m = rows[k]
                n = count[m, "busy"]
                for (i = 1; i <= n; i++) {
                    alone[i] = time[m, "alone", i]
                    busy[i] = time[m, "busy", i]
                    ratio[i] = busy[i] / alone[i]
                }
                sorted(alone, n); sorted(busy, n); sorted(ratio, n)
                printf "| %s | %d | %.2f | %.2f | %.2f | %.2f-%.2f |\n", format, m, at(alone, n, .5), at(busy, n, .5),
                    at(ratio, n, .5), at(ratio, n, .25), at(ratio, n, .75)
            }
        }'
done
