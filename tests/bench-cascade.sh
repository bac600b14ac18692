#!/bin/sh
# What the Cascade paper's evaluation shows, in small: the pocket model with 2.1 GB of experts, in bf16 and q8, whose answers are
# those of the model as it is. Settings take turns prompt by prompt, tasks come mixed, and every figure is paired with `none` and
# with the best static length of the same run. Then policies over recorded drafts, where costs are bytes and nothing depends on
# the machine. `make bench-cascade` calls it; streams and reports stay in build/bench. With names after it, only those:
# tests/bench-cascade.sh figure-13 replay
#
# Figures 13 and 17 take 8 minutes with 8 prompts a task on two processors that nothing else uses; 4.3 GB of disk and as much
# memory. MOE_BENCH_PROMPTS=N takes N prompts a task (5) and N / 2 long ones, MOE_BENCH_TOKENS=N cuts answers and leaves
# memory unmeasured; time is in proportion. MOE_BENCH_WIDTH is the inner width of the inflated experts (9216 in bf16, and
# twice as much in q8). A run that was killed goes on where it was; what is complete is not run again: remove its folder in
# build/bench. To try all of it in a minute: MOE_BENCH_PROMPTS=1 MOE_BENCH_TOKENS=12 MOE_BENCH_WIDTH=128
#
#     figure-4        tokens an iteration and speed against K, prompt lookup (also what figures 1c and 5 show, K = 1 to 3); where
#                     the time of iterations goes; and figure 8, speed against utility
#     figure-13       static lengths, cascade, and its competitors; the four tasks and (all) a mixed stream of them
#     mixes           the same for figure 13's other streams: math and code, math and extract, code and extract, all three
#     figure-15       math alone: utility by iteration, also of figure 7, and figure 6 for the longest text
#     figure-16       math, code and extract mixed: utility as it goes through the run
#     figure-17       the same as 13 with a draft model in EAGLE's place
#     figure-18       what switching off, backing off and climbing add
#     sensitivity     t and S (section 7.5)
#     long            answers of up to 1,000 tokens; a draft model that is always right (the model itself without its weight),
#                     and one that never is (the draft model with its weights shuffled)
#     replay          hard bounds: all policies and the oracle, costs in bytes; and for figure 13's mixes
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
parts "$(ls tests/bench/cascade-*.json | sed 's/.*cascade-\(.*\)[.]json/\1/' | tr '\n' ' ')mixes replay" "$@"
prompts=${MOE_BENCH_PROMPTS:-5}
width=${MOE_BENCH_WIDTH:-9216}
tokens=$MOE_BENCH_TOKENS
# Utility covers 16 iterations; short answers have fewer.
window=$([ "${tokens:-256}" -gt 16 ] || echo "--window 4")
suites=$out/cascade-$width-$prompts${tokens:+-$tokens}
mkdir -p "$suites"

say "models"
once "$out/pocket.moe" moe-convert "$pocket/model"
once "$out/draft.moe" moe-convert "$pocket/draft"
once "$suites/pocket-q8.moe" moe-convert "$pocket/model" --dtype q8
once "$out/cascade-bf16-$width.moe" moe-convert inflate "$out/pocket.moe" --expert-ffn "$width"
once "$out/cascade-q8-$width.moe" moe-convert inflate "$suites/pocket-q8.moe" --expert-ffn $((2 * width))
ln -sf "cascade-bf16-$width.moe" "$out/cascade-bf16.moe"
ln -sf "cascade-q8-$width.moe" "$out/cascade-q8.moe"
tests/bench/shuffle.py "$pocket/draft" "$suites/useless"
once "$out/cascade-useless.moe" moe-convert "$suites/useless"
ls -lLh "$out"/cascade-*.moe

# The prompts, one of each task by turns.
awk -F'"task": "' '{ split($2, task, "\""); printf "%d\t%s\n", seen[task[1]]++, $0 }' "$pocket/heldout.jsonl" |
    sort -s -n -k1,1 | cut -f2- > "$out/cascade-mixed.jsonl"

# suite NAME FILE FILTER: runs a suite with the number of prompts that was asked for, changed by jq's FILTER, from a folder as
# deep as its own.
suite() {
    say "$1"
    jq --argjson n "$prompts" --argjson tokens "${tokens:-null}" '.prompts |= sub("^../models"; "../../tests/models") |
        if .limits.prompts then .limits.prompts = (($n + 1) / 2 | floor) else .limits["prompts-per-task"] = $n end |
        if $tokens then .limits["max-tokens"] = $tokens | .["measure-seconds"] = 0 else . end |'" $3" "$2" > "$out/cascade-$1.json"
    moe-bench run --resume "$suites/cascade-$1.moes" $threads "$out/cascade-$1.json"
    moe-bench report "$suites/cascade-$1.moes" | tee "$suites/cascade-$1.txt"
    moe-bench report --svg "$suites/cascade-$1.moes" -o "$suites/cascade-$1.svg"
}

# figure NAME KIND [OPTION...]: a figure of a suite that ran, as a table and a page.
figure() {
    stream=$suites/cascade-$1.moes kind=$2
    shift 2
    say "$(basename "$stream" .moes), $kind $*"
    moe-bench report --figure "$kind" "$@" "$stream" | tee "${stream%.moes}-$kind.txt"
    moe-bench report --figure "$kind" "$@" --svg "$stream" -o "${stream%.moes}-$kind.svg"
}

for file in tests/bench/cascade-*.json; do
    name=$(basename "$file" .json)
    name=${name#cascade-}
    wants "$name" || continue
    suite "$name" "$file" .
    case $name in
    figure-4) figure "$name" times; figure "$name" prediction ;;
    figure-15 | figure-16) figure "$name" utility $window --cost bytes; figure "$name" utility $window ;;
    esac
done

# Figure 13's streams of two and of three tasks.
if wants mixes; then
    for mix in math-code math-extract code-extract math-code-extract; do
        suite "mix-$mix" tests/bench/cascade-figure-13.json ".tasks = (\"$mix\" | split(\"-\"))"
    done
fi

wants replay || exit 0
# replay DRAFT MIX: records drafts over the mixed prompts of these tasks, and lets policies decide.
replay() {
    recorded=$suites/replay-${1%%:*}-$2.moes
    say "policies over recorded drafts, costs in bytes: ${1%%:*}, $2"
    [ -e "$recorded" ] || {
        head -n $((4 * prompts)) "$out/cascade-mixed.jsonl" | grep -E "\"task\": \"($(echo "$2" | tr - "|"))\"" |
            moe-decode $threads -m "$out/cascade-bf16.moe" ${tokens:+-n $tokens} -d "$1" -K 0 --record drafts \
                --stream "$recorded.part" -o /dev/null
        mv "$recorded.part" "$recorded"
    }
    moe-bench replay "$recorded" --cost bytes --policy cascade --policy cascade-cost --policy tiers --policy off \
        --policy "oracle:file=$recorded,cost=bytes" | tee "${recorded%.moes}.txt"
}
for draft in ngram "model:file=$out/draft.moe"; do
    for mix in math-code-extract-summ math-code math-extract code-extract math-code-extract; do replay "$draft" "$mix"; done
done
