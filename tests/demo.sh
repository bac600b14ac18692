#!/bin/sh
# Runs the five commands of README.md, from a checkpoint to text in fewer forwards, a comparison, less memory and a simulation.
# `make demo` builds moekit and runs this script with the built commands in PATH and the build folder in $O. All files stay in
# $O/demo.
set -e
cd "$(dirname "$0")/.."
pocket=$PWD/tests/models/pocket
mkdir -p "${O:-build/normal}/demo"
cd "${O:-build/normal}/demo"

title() { printf '\n\033[1m%s\033[0m\n' "$1" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
show() { printf '  $ %s\n' "$1"; eval "$1"; }
forwards() { moe-view --json "$1" | grep -c '"type": *"iter"'; }

rm -f ./*.moe ./*.moes ./*.txt
[ -e heldout.jsonl ] || ln -s "$pocket/heldout.jsonl" heldout.jsonl
[ -e calib.jsonl ] || ln -s "$pocket/calib.jsonl" calib.jsonl
[ -e checkpoint ] || ln -s "$pocket/model" checkpoint
[ -e draft ] || ln -s "$pocket/draft" draft
[ -e rtx4090-qwen3-30b-a3b.json ] || ln -s "$pocket/../../bench/machines/rtx4090-qwen3-30b-a3b.json" .
for task in math code extract summ; do grep "\"task\": \"$task\"" heldout.jsonl | head -n 5; done > prompts.jsonl

title "1. Convert a checkpoint (a small Mixture-of-Experts model: 6 layers, 32 experts each, 4 per token), and ask it"
show "moe-convert -q checkpoint --name pocket -o pocket.moe"
show "moe-decode -q -m pocket.moe --chat -p 'Noah has 25 pens. Yuri has 3 times as many and then loses 16. How many pens does Yuri have left?'"

title "2. Pad its experts to 0.5 GB: the same text, but each token reads what its size suggests; and a draft model of 3 % of that"
show "moe-convert inflate -q pocket.moe --expert-ffn 2304 -o large.moe"
moe-convert -q draft -o draft.moe
show "moe-convert inflate -q draft.moe --step 3% --of large.moe -o small.moe"

title "3. Decode 20 prompts without drafts and with drafts of 8 tokens, each draft verified in one forward"
show "moe-decode -q -m large.moe prompts.jsonl --stream none.moes > none.txt"
show "moe-decode -q -m large.moe prompts.jsonl -d model:file=small.moe -K 8 --stream draft.moes > draft.txt"
show "cmp none.txt draft.txt && echo '    the texts are byte-identical'"
echo "    forwards of the model after the prompts: $(forwards none.moes) without drafts, $(forwards draft.moes) with drafts"

title "4. Compare both: settings alternate prompt by prompt, answers are graded"
show "moe-bench run -q -m large.moe -d none,model:file=small.moe -K 8 prompts.jsonl -o compare.moes"
show "moe-bench report --task all compare.moes"

title "5. Keep half of the experts in memory and read the others from the file when a token requests them"
show "moe-decode -q -m large.moe --cache-experts 50% prompts.jsonl > cached.txt"
show "cmp none.txt cached.txt && echo '    the texts are byte-identical'"

title "6. Simulate a GPU that holds 17 % of the experts of Qwen3-30B-A3B"
show "moe-bench simulate --machine rtx4090-qwen3-30b-a3b.json --skew local --system static-split-draft --system utility-released --system lru --system hybrimoe"

cat <<END

Drafts keep every text (same) and save most forwards (tok/step). A forward over a draft reads more experts (experts, MB/step);
the column ceiling is the speed-up that these bytes allow, and ratio the measured one.
Everything is in $PWD; the overview is \`man -l man/moe.7\`.
END
