#!/bin/sh
# The tour: from a checkpoint to text in fewer forwards, to expert budgets, to a report. `make demo` builds and calls it,
# with the built commands in PATH and the build folder in $O. Everything it makes stays in $O/demo.
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
[ -e head ] || ln -s "$pocket/heads/eagle1" head
for task in math code extract summ; do grep "\"task\": \"$task\"" heldout.jsonl | head -n 5; done > prompts.jsonl

title "1. Convert a checkpoint (a small Mixture-of-Experts model: 6 layers, 32 experts each, 4 of them for a token)"
show "moe-convert -q checkpoint -o pocket.moe"

title "2. Decode a prompt"
show "moe-decode -q -m pocket.moe --chat -p 'Write a Python function sum_even_values(items) that returns the sum of the values of all even elements of items.'"

title "3. Decode 20 prompts without and with drafts: the drafts are guesses from the text so far, verified in one forward"
show "moe-decode -q -m pocket.moe prompts.jsonl --stream none.moes > none.txt"
show "moe-decode -q -m pocket.moe prompts.jsonl --draft ngram -K 4 --stream ngram.moes > ngram.txt"
show "cmp none.txt ngram.txt && echo '    the texts are byte-identical'"
echo "    forwards of the model after the prompts: $(forwards none.moes) without drafts, $(forwards ngram.moes) with"

title "4. Draft with a trained head, an EAGLE-1: it reads the model's own states, and drafts a tree of 16 tokens"
show "moe-convert head -q head --target pocket.moe -o head.moe"
show "moe-decode -q -m pocket.moe prompts.jsonl --draft head:file=head.moe --tree dynamic:total=16,depth=5,topk=4 --stream head.moes > head.txt"
show "cmp none.txt head.txt && echo '    the texts are byte-identical'"
echo "    forwards of the model after the prompts: $(forwards none.moes) without drafts, $(forwards head.moes) with the head"

title "5. Let a forward load at most 12 of the 32 experts: profile the model, rank its experts, keep the best"
show "moe-profile -q -m pocket.moe calib.jsonl | moe-coact rank-experts -q | moe-decode -q -m pocket.moe --draft ngram --budget 12 --rank - prompts.jsonl > budget.txt"
echo "    the first answer of the whole model:    $(head -n 1 none.txt)"
echo "    the first answer of 12 experts a layer: $(head -n 1 budget.txt)"

title "6. Compare settings on the same prompts, taking turns, with graded answers"
moe-profile -q -m pocket.moe calib.jsonl | moe-coact rank-experts -q -o rank.moes
cat > suite.json <<'SUITE'
{
  "model": "pocket.moe",
  "prompts": "heldout.jsonl",
  "settings": [
    {"name": "none"},
    {"name": "K=4", "draft": "ngram", "draft-length": 4},
    {"name": "head, tree", "draft": "head:file=head.moe", "tree": "dynamic:total=16,depth=5,topk=4"},
    {"name": "K=4, B=24 ranked", "draft": "ngram", "draft-length": 4, "budget": 24, "rank": "rank.moes"},
    {"name": "K=4, B=12 router", "draft": "ngram", "draft-length": 4, "budget": 12}
  ],
  "limits": {"prompts-per-task": 20}
}
SUITE
show "moe-bench run -q suite.json -o bench.moes"
show "moe-bench report bench.moes"

cat <<END

What it shows: drafts keep every text (same) with fewer forwards (tok/step); a trained head saves most of them. A budget bounds the
experts that a forward loads (experts) and pays in right answers (correct): dearly where a fixed ranking says which to keep, hardly
where each forward's own router does. This model fits into a processor's cache, so reading few bytes gains nothing and tok/s says
little; \`make bench\` gives its experts the weight of a large model's.
Everything is in $PWD; the overview is \`man -l man/moe.7\`.
END
