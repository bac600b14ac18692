#!/bin/sh
# Training and decoding by two processes of one thread beside one process of two threads, in turns. `make bench-ranks` calls it.
#
#     decode      moe-decode of a random model of OLMoE's shape, 7 layers, q4 (2 GB), without drafts, 96 tokens: tokens/s; the part
#                 of a step that the collectives take: four all-gathers a layer, by the measured network; and the memory of the
#                 larger process beside the model's dense part, half of its experts, keys and values
#     pocket      EAGLE's head for the pocket model, 100 steps of 8 texts
#     olmoe       the same for a random model of OLMoE's shape (hidden 2048), 4 steps of 4 texts of 512 tokens, from a feature
#                 stream: 3 GB of disk, and minutes a turn
#
# A table of seconds a step (the median over the steps but the first), of processor seconds, and of the ratio, turn by turn, with
# the load of the machine: on a busy one only the processor seconds tell anything. MOE_BENCH_PAIRS=N turns (5).
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
parts "decode pocket olmoe" "$@"
pairs=${MOE_BENCH_PAIRS:-5}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# timed NAME COMMAND...: seconds per step, and processor seconds, of a training that writes $out/ranks.moes
timed() {
    bash -c 'TIMEFORMAT="%U %S"; time "$@" > /dev/null' timed "$@" 2> "$out/ranks.time"
    moe-view --json --type step "$out/ranks.moes" | jq -s '[.[].seconds] | [.[1:], .[:-1]] | transpose | map(.[0] - .[1]) |
        sort | .[length / 2 | floor]'
    tail -n 1 "$out/ranks.time" | awk '{ print $1 + $2 }'
}

# turns WORDS...: of moe-draft-train train
turns() {
    echo "| turn | load | 2 threads, s a step | processor s | 2 processes, s a step | processor s | threads / processes |"
    echo "|---|---|---|---|---|---|---|"
    for turn in $(seq "$pairs"); do
        load=$(cut -d' ' -f1 /proc/loadavg)
        one=$(timed moe-draft-train train -q --ranks none -j 2 "$@" -o "$out/ranks-head.moe" --stream "$out/ranks.moes")
        two=$(timed mpirun -q -n 2 --oversubscribe --bind-to none \
            moe-draft-train train -q -j 1 "$@" -o "$out/ranks-head.moe" --stream "$out/ranks.moes")
        # shellcheck disable=SC2086
        echo $turn $load $one $two | awk '{ printf "| %d | %s | %.3f | %.1f | %.3f | %.1f | %.2f |\n", $1, $2, $3, $4, $5, $6, $3 / $5 }'
    done
}

pocket() {
    say "two processes beside two threads: eagle1 for the pocket model, batches of 8"
    once "$out/pocket.moe" moe-convert -q $pocket/model
    once "$out/pocket-states.moes" moe-profile features -q -m "$out/pocket.moe" --dtype f32 $pocket/calib.jsonl
    turns -m "$out/pocket.moe" --arch eagle1 --batch 8 --steps 100 "$out/pocket-states.moes"
}

olmoe() {
    say "two processes beside two threads: eagle1 for OLMoE's shape, batches of 4 x 512"
    once "$out/olmoe-bf16-1.moe" moe-convert synthetic -q --like olmoe-1b-7b -l 1 --dtype bf16
    jq -cn 'range(8) as $text | {id: "text-\($text)", tokens: [range(8) | . * 37 + $text + 5],
        answer_tokens: [range(504) | (. * 7919 + $text * 104729) % 50000 + 3]}' > "$out/olmoe-texts.jsonl"
    once "$out/olmoe-states.moes" moe-profile features -q -m "$out/olmoe-bf16-1.moe" --dtype f32 "$out/olmoe-texts.jsonl"
    turns -m "$out/olmoe-bf16-1.moe" --arch eagle1 --batch 4 --cut 512 --steps "${MOE_BENCH_STEPS:-4}" "$out/olmoe-states.moes"
}

# answers PROCESSES THREADS: tokens per second of the second of two equal texts; the largest memory of a process, in bytes
answers() {
    mpirun -q -n "$1" --oversubscribe --bind-to none python3 -c 'import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1] + str(os.getpid()), "w").write("%d\n" % (1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)' "$out/ranks-memory." moe-decode --ranks mpi -q -j "$2" -m "$out/olmoe-q4-7.moe" -n 96 -c 256 --ignore-eos \
        --stream "$out/ranks.moes" -o "$out/ranks-$1.txt" "$out/ranks-prompts.jsonl" < /dev/null
    moe-view --json --type iter "$out/ranks.moes" | jq -rs '[.[] | select(.sequence == 1)] |
        (map(.emitted) | add) / (map(.draft_us + .verify_us + .accept_us + .other_us) | add) * 1e6'
    cat "$out"/ranks-memory.* | awk '{ if ($1 > most) most = $1 } END { print most }'
    rm -f "$out"/ranks-memory.*
}

decode() {
    say "two processes beside two threads: moe-decode of OLMoE's shape, 7 layers, q4"
    once "$out/olmoe-q4-7.moe" moe-convert synthetic -q --like olmoe-1b-7b -l 7 --dtype q4
    jq -cn '[range(16) | . * 137 % 1000 + 5] | {tokens: .}, {tokens: .}' > "$out/ranks-prompts.jsonl"
    echo "| turn | load | 2 threads, tokens/s | 2 processes | processes / threads | memory of a process over its share, MiB |"
    echo "|---|---|---|---|---|---|"
    share=$(moe-bench plan --seconds 0.05 --json -c 256 -m "$out/olmoe-q4-7.moe" |
        jq -s '.[0] | .dense_bytes + .expert_bytes / 2 + .kv_bytes')
    for turn in $(seq "$pairs"); do
        load=$(cut -d' ' -f1 /proc/loadavg)
        one=$(answers 1 2)
        two=$(answers 2 1)
        cmp "$out/ranks-1.txt" "$out/ranks-2.txt"
        # shellcheck disable=SC2086
        echo $turn $load $one $two $share |
            awk '{ printf "| %d | %s | %.1f | %.1f | %.2f | %.0f |\n", $1, $2, $3, $5, $5 / $3, ($6 - $7) / 1048576 }'
    done
    # Each layer exchanges q, k and v, the sums of attention, the inner activations of experts, and their sums; then the logits.
    mpirun -q -n 2 --oversubscribe --bind-to none moe-bench machine --ranks mpi --products --json --seconds 0.1 |
        jq -r --arg speed "${two%%[!0-9.]*}" '.network | (1e-6 * .latency_us) as $latency | (8 / 4 / .bytes_per_second) as $float |
            7 * (4 * $latency + (3 * 2048 + 2048 + 8 * 1024 + 2048) * $float) + $latency + 50304 * $float |
            "collectives: \(. * ($speed | tonumber) * 1000 | round / 10) % of a step"'
}

for part in decode pocket olmoe; do
    if wants $part; then $part; fi
done
