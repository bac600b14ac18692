#!/bin/sh
# What the Cascade paper's evaluation shows, in small: the pocket model as it is, whose speed says little as it fits into a cache,
# and with experts of 1.1 GB. Then policies over recorded drafts, where costs are bytes and nothing depends on the machine.
# `make bench-cascade` calls it. Streams and reports stay in build/bench. MOE_BENCH_THREADS limits the threads.
#
#     figure-4        tokens an iteration and speed against K, prompt lookup (also what figures 1c and 5 show, K = 1 to 3)
#     figure-13       static lengths, cascade, and its competitors
#     figure-15       math alone: the utility of each iteration stands in the records (moe-view --type iter)
#     figure-17       the same as 13 with a draft model in EAGLE's place
#     figure-18       what switching off, backing off and climbing add
#     sensitivity     t and S (section 7.5)
set -e
cd "$(dirname "$0")/.."
out=build/bench
pocket=tests/models/pocket
threads=${MOE_BENCH_THREADS:+-j $MOE_BENCH_THREADS}
mkdir -p "$out"

say() { printf '\n== %s\n' "$1"; }

say "models"
[ -e "$out/pocket.moe" ] || moe-convert "$pocket/model" -o "$out/pocket.moe"
[ -e "$out/draft.moe" ] || moe-convert "$pocket/draft" -o "$out/draft.moe"
[ -e "$out/pocket-inflated.moe" ] || moe-convert inflate "$out/pocket.moe" --expert-ffn 5120 -o "$out/pocket-inflated.moe"

for suite in tests/bench/cascade-*.json; do
    name=$(basename "$suite" .json)
    say "$name"
    moe-bench run $threads "$suite" -o "$out/$name.moes"
    moe-bench report "$out/$name.moes" | tee "$out/$name.txt"
done

for draft in ngram model:file=$out/draft.moe; do
    recorded=$out/cascade-drafts-${draft%%:*}.moes
    say "policies over recorded drafts, costs in bytes: ${draft%%:*}"
    moe-decode $threads -m "$out/pocket.moe" "$pocket/heldout.jsonl" -d "$draft" -K 0 --record drafts \
        --stream "$recorded" -o /dev/null
    moe-bench replay "$recorded" --cost bytes --policy cascade --policy cascade-cost --policy tiers --policy off \
        --policy "oracle:file=$recorded,cost=bytes" | tee "${recorded%.moes}.txt"
done
