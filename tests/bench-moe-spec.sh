#!/bin/sh
# Tables and figures of "MoE-Spec: Expert Budgeting" in small, named as in the paper: with the pocket model, for quality and
# experts, and with the same model inflated to a large one's size, for speed. `make bench-moe-spec` calls it; streams, tables
# and pictures stay in build/bench/papers. Names select parts: tests/bench-moe-spec.sh figure-5a figure-7
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
papers=$out/papers
parts "figure-2 table-1 figure-3 figure-4 figure-9 figure-5a figure-5b figure-7 budgets time table-4 figure-8" "$@"
mkdir -p "$papers"

# begins NAME: whether this part was requested; if so, prints its name.
begins() { wants "$1" && say "MoE-Spec, $1"; }

suite() {
    [ -e "$papers/moe-spec-$1.moes" ] ||
        moe-bench run --resume "$papers/moe-spec-$1.moes" $threads "tests/bench/moe-spec-$1.json"
    moe-bench report "$papers/moe-spec-$1.moes" | tee "$papers/moe-spec-$1.txt"
    moe-bench report --svg "$papers/moe-spec-$1.moes" -o "$papers/moe-spec-$1.svg"
}

# figure NAME KIND [OPTION...]: prints a figure of a finished suite as a table and a page.
figure() {
    stream=$papers/moe-spec-$1.moes kind=$2
    shift 2
    moe-bench report --figure "$kind" "$@" "$stream" | tee "${stream%.moes}-$kind.txt"
    moe-bench report --figure "$kind" "$@" --svg "$stream" -o "${stream%.moes}-$kind.svg"
}

once "$out/pocket.moe" moe-convert "$pocket/model"
once "$out/draft.moe" moe-convert "$pocket/draft"
once "$out/pocket-inflated.moe" moe-convert inflate "$out/pocket.moe" --expert-ffn 5120
# The paper's static ranking is by frequency (eq. 4); mass is an addition.
for by in frequency mass; do
    [ -e "$out/moe-spec.$by.moes" ] || moe-profile $threads -m "$out/pocket.moe" -n 128 "$pocket/calib.jsonl" |
        moe-coact rank-experts --by $by -o "$out/moe-spec.$by.moes"
done

# Routes of verified trees, by task.
for task in math code extract summ; do
    [ -e "$papers/trees-$task.moes" ] || grep "\"task\": \"$task\"" "$pocket/heldout.jsonl" | head -n 30 |
        moe-profile $threads -m "$out/pocket.moe" -n 64 --record route,probs -d "model:file=$out/draft.moe" \
            --tree dynamic:total=64,depth=6,topk=8 -o "$papers/trees-$task.moes"
done
trees="$papers/trees-math.moes $papers/trees-code.moes $papers/trees-extract.moes $papers/trees-summ.moes"

if begins figure-2; then             # distinct experts against tokens verified together, and how few of them matter
    for total in 2 4 8 16 32; do
        head -n 60 "$pocket/heldout.jsonl" |
            moe-profile $threads -m "$out/pocket.moe" -n 64 --record route -d "model:file=$out/draft.moe" \
                --tree dynamic:total=$total,depth=5,topk=6 -o "$papers/trees-$total.moes"
    done
    sizes="$papers/trees-2.moes $papers/trees-4.moes $papers/trees-8.moes $papers/trees-16.moes $papers/trees-32.moes"
    moe-coact union --trees --svg $sizes $trees -o "$papers/moe-spec-figure-2b.svg"
    moe-coact union --trees --text $sizes $trees
    moe-coact coverage --by router --svg $trees -o "$papers/moe-spec-figure-2c.svg"
fi
if begins table-1; then suite table-1; fi
if begins figure-3; then suite figure-3; figure figure-3 quality --cost bytes; fi   # and 10: temperature 1, five seeds
if begins figure-4; then suite figure-4; figure figure-4 nodes; fi
if begins figure-9; then suite budgets; figure budgets quality --cost bytes; fi     # temperature 0: no deviation, so no best
if begins figure-5a; then suite figure-5a; fi       # includes figure 6, the error of reconstruction
if begins figure-5b; then suite figure-5b; fi
if begins figure-7; then             # coverage by budget, for each task
    for task in math code extract summ; do
        printf '%s\n' "$task"
        moe-coact coverage --by router --text "$papers/trees-$task.moes"
        moe-coact coverage --by router --svg "$papers/trees-$task.moes" -o "$papers/moe-spec-figure-7-$task.svg"
    done
fi
if begins budgets; then suite budgets; fi           # B, ranking, mode, nodes and drafter: KL, flips, bytes, grades
if begins time; then suite time; fi                 # the same at 31 nodes, timed, on the heavy model
if begins table-4; then make bench-kernels PART=select; fi          # the cost of choosing experts
if begins figure-8; then             # which experts are selected together
    moe-coact matrix --svg $trees -o "$papers/moe-spec-figure-8.svg"
    moe-coact stats --text $trees
fi
