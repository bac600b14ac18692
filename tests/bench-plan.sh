#!/bin/bash
# Compares planned speeds with measured ones; `make bench-plan` calls it, with the names of some of the six models (default: all;
# olmoe-bf16 olmoe-q8 olmoe-q4 qwen3-q8 qwen3-q4 v2-lite-q4). The models have random weights and the published shapes, with fewer
# layers. They decode without drafts, on three tiers:
#
#     memory    all in memory; `moe-bench plan` measures the machine itself
#     disk      half of the experts cached, the others read past the page cache; the plan gets the measured share of hits, which
#               depends on the text
#     network   the experts divided between two processes of one thread (skipped without MPI); each has half of the machine
#
# Plan and measurement take turns, MOE_BENCH_ROUNDS (3) of each; for disk and network each round describes the machine anew. Prints
# a Markdown table with planned / measured tokens/s of each round and the median ratio, then how many ratios are within 15 %. A
# round takes a minute, making the models another; they stay in build/bench (10 GB).
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
set -o pipefail
parts "olmoe-bf16 olmoe-q8 olmoe-q4 qwen3-q8 qwen3-q4 v2-lite-q4" "$@"
rounds=${MOE_BENCH_ROUNDS:-3}
tokens=${MOE_BENCH_TOKENS:-96}
seconds=${MOE_BENCH_SECONDS:-0.05}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
text="-q -n $tokens -c 256 --ignore-eos"
network=yes
command -v mpirun > /dev/null || network=

# Two equal prompts: the first one fills the cache of experts.
jq -cn '[range(16) | . * 137 % 1000 + 5] | {tokens: .}, {tokens: .}' > "$out/plan-prompts.jsonl"

# Prints tokens/s of the second text, and the share of its experts that were already in memory.
speed() {
    moe-view --json --type iter "$1" | jq -rs '[.[] | select(.sequence == 1)] |
        ([.[].cache_hits // 1] | add) as $hits | ([.[].cache_misses // 0] | add) as $misses |
        "\((map(.emitted) | add) / (map(.draft_us + .verify_us + .accept_us + .other_us) | add) * 1e6) \($hits / ($hits + $misses))"'
}

planned() {
    moe-bench plan -c 256 --json "$@" | jq -r 'select(.type == "decode" and .draft == null) | "\(.tokens_per_second) \(.bound)"'
}

# put MODEL TIER ROUND PLANNED BOUND MEASURED
put() { echo "$@" | tee -a "$out/plan.txt" >&2; }

memory() {
    set -- "$1" "$2" "$3" "$(planned -m "$2" --seconds 0.3)"
    # shellcheck disable=SC2086
    moe-decode $text $threads -m "$2" --stream "$out/plan.moes" -o /dev/null "$out/plan-prompts.jsonl"
    put "$1" memory "$3" "$4" "$(speed "$out/plan.moes" | cut -d' ' -f1)"
}

disk() {
    # shellcheck disable=SC2086
    moe-decode $text $threads -m "$2" --cache-experts 50% --stream "$out/plan.moes" -o /dev/null "$out/plan-prompts.jsonl"
    read -r measured hits <<< "$(speed "$out/plan.moes")"
    put "$1" disk "$3" "$(planned -m "$2" --machine "$out/plan-machine.json" --cache-experts 50% --hits "$hits")" "$measured"
}

# Describes this machine, its disk and the network between two processes, and the half of the machine that each process gets.
describe() {
    job=
    [ -z "$network" ] || job="mpirun -q -n 2 --oversubscribe --bind-to none"
    # shellcheck disable=SC2086
    $job moe-bench machine ${network:+--ranks mpi} --products --json --seconds "$seconds" --disk "$1" > "$out/plan-machine.json"
    jq -c '.read_bandwidth /= 2 | .products |= map_values(if type == "number" then . / 2 else map([.[0], .[1] / 2]) end)' \
        "$out/plan-machine.json" > "$out/plan-half.json"
}

# The plan assumes whole experts per process, as across machines: on one machine this requires a placement.
network() {
    moe-profile -q -n 0 -m "$2" "$out/plan-prompts.jsonl" | moe-coact rank-experts -q --by mass -o "$out/plan-rank.moes"
    # shellcheck disable=SC2086
    mpirun -q -n 2 --oversubscribe --bind-to none moe-decode --ranks mpi --placement "$out/plan-rank.moes" $text -j 1 -m "$2" --stream "$out/plan.moes" \
        -o /dev/null "$out/plan-prompts.jsonl" < /dev/null
    put "$1" network "$3" "$(planned -m "$2" --machine "$out/plan-half.json" --ranks 2)" "$(speed "$out/plan.moes" | cut -d' ' -f1)"
}

: > "$out/plan.txt"
names=
while read -r name shape layers formats; do
    wants "$name" || continue
    # shellcheck disable=SC2086
    once "$out/plan-$name.moe" moe-convert synthetic -q --like "$shape" -l "$layers" $formats
    names="$names $name"
done << 'MODELS'
olmoe-bf16 olmoe-1b-7b 3 --dtype bf16
olmoe-q8 olmoe-1b-7b 4 --dtype q8
olmoe-q4 olmoe-1b-7b 5 --dtype q4
qwen3-q8 qwen3-30b-a3b 2 --dtype q8
qwen3-q4 qwen3-30b-a3b 3 --dtype q4
v2-lite-q4 deepseek-v2-lite 4 --dtype q4
MODELS
for round in $(seq "$rounds"); do
    describe "$out/plan-${names##* }.moe"
    for name in $names; do
        memory "$name" "$out/plan-$name.moe" "$round"
        disk "$name" "$out/plan-$name.moe" "$round"
        [ -z "$network" ] || network "$name" "$out/plan-$name.moe" "$round"
    done
done

say "tokens/s planned / measured without drafts, $rounds rounds in turns"
awk '
    function median(list, count,    i, j, kept) {
        for (i = 2; i <= count; i++) {
            kept = list[i]
            for (j = i - 1; j > 0 && list[j] > kept; j--)
                list[j + 1] = list[j]
            list[j + 1] = kept
        }
        return list[int((count + 1) / 2)]
    }
    BEGIN { print "| model | tier | bound by | tokens/s planned / measured | planned over measured, median |"; print "|---|---|---|---|---|" }
    {
        key = $1 " | " $2
        if (!(key in count)) { order[++rows] = key; bound[key] = $5 }
        ratio[key, ++count[key]] = $4 / $NF
        both[key] = both[key] (count[key] > 1 ? ", " : "") sprintf("%.1f / %.1f", $4, $NF)
    }
    END {
        for (r = 1; r <= rows; r++) {
            key = order[r]
            for (i = 1; i <= count[key]; i++)
                list[i] = ratio[key, i]
            middle = median(list, count[key])
            within += middle >= 0.85 && middle <= 1.15
            printf "| %s | %s | %s | %.2f |\n", key, bound[key], both[key], middle
        }
        printf "\n%d of %d within 15 %%\n", within, rows
    }' "$out/plan.txt"
