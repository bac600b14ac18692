#!/bin/sh
# Training by two processes of one thread beside one process of two threads, in turns. `make bench-ranks` calls it.
#
#     pocket      EAGLE's head for the pocket model, 100 steps of 8 texts
#     olmoe       the same for a random model of OLMoE's shape (hidden 2048), 4 steps of 4 texts of 512 tokens, from a feature
#                 stream: 3 GB of disk, and minutes a turn
#
# A table of seconds a step (the median over the steps but the first), of processor seconds, and of the ratio, turn by turn, with
# the load of the machine: on a busy one only the processor seconds tell anything. MOE_BENCH_PAIRS=N turns (5).
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
wanted=" $* "
pairs=${MOE_BENCH_PAIRS:-5}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

wants() { [ "$wanted" = "  " ] || case "$wanted" in *" $1 "*) ;; *) return 1 ;; esac; }

# timed NAME COMMAND...: seconds a step, and processor seconds, of a training that writes $out/ranks.moes
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

for part in pocket olmoe; do
    if wants $part; then $part; fi
done
