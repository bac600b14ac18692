#!/bin/sh
# Speed on this machine: read bandwidth, then the pocket model with experts as heavy as a large model's (1.1 GB), under
# drafts of several lengths and under budgets; then the budgets' answers on all held-out prompts, without the weight.
# `make bench` calls it. Streams and reports stay in build/bench.
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"

say "how fast memory can be read"
moe-bench roofline $threads

say "models and ranking"
once "$out/pocket.moe" moe-convert "$pocket/model"
once "$out/pocket-inflated.moe" moe-convert inflate "$out/pocket.moe" --expert-ffn 5120
moe-profile $threads -m "$out/pocket.moe" "$pocket/calib.jsonl" | moe-coact rank-experts --by mass -o "$out/pocket.rank.moes"
ls -lh "$out"/*.moe

say "experts inflated to 1.1 GB: drafts and budgets"
moe-bench run $threads tests/bench/pocket-inflated.json -o "$out/pocket-inflated.moes"
moe-bench report "$out/pocket-inflated.moes" | tee "$out/pocket-inflated.txt"

say "answers under budgets, all held-out prompts (the model as it is: it fits into a cache, so its speed says little)"
moe-bench run $threads tests/bench/pocket-budgets.json -o "$out/pocket-budgets.moes"
moe-bench report "$out/pocket-budgets.moes" | tee "$out/pocket-budgets.txt"
