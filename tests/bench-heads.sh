#!/bin/sh
# Costs and gains of draft heads. `make bench-heads` calls it, and takes about 20 minutes; its files stay in build/bench (up to
# 18 GB with all 16 layers). Names select parts: tests/bench-heads.sh steps
#
#     steps       a step, and a tree of 60, of heads for a random model of OLMoE's shape in bf16, compared with the target's
#                 forward over one token, and the least possible cost of the tree (tests/bench/head_steps.c)
#     pays        the pocket model with 2 GB of experts: its trained heads, with layers inflated to 3 % and 15 % of the bytes of
#                 a token of the target (Kangaroo's cannot be inflated), its draft model, inflated alike, and prompt lookup. The
#                 best chain or tree of each is chosen by bytes on a few calibration prompts, and timed on held-out ones
#
# MOE_BENCH_LAYERS=N of OLMoE's shape (16), MOE_BENCH_DTYPE of the model and its heads, MOE_BENCH_PAIRS=N steps of each (30),
# MOE_BENCH_PROMPTS=N per task (5), MOE_BENCH_WIDTH is the inner width of the pocket's experts (9216), MOE_BENCH_TOKENS=N
# truncates answers and measures memory briefly. Complete results are kept; to measure again, remove them in build/bench. To
# try everything in a few minutes: MOE_BENCH_LAYERS=6 MOE_BENCH_PAIRS=5 MOE_BENCH_PROMPTS=1 MOE_BENCH_TOKENS=12
# MOE_BENCH_WIDTH=2048
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
parts "steps pays" "$@"
layers=${MOE_BENCH_LAYERS:-16}
dtype=${MOE_BENCH_DTYPE:-bf16}
prompts=${MOE_BENCH_PROMPTS:-5}
width=${MOE_BENCH_WIDTH:-9216}
tokens=$MOE_BENCH_TOKENS
work=$out/heads-$width-$prompts${tokens:+-$tokens}

steps() {
    target=$out/olmoe-$dtype-$layers.moe
    once "$target" moe-convert synthetic -q --like olmoe-1b-7b -l "$layers" --dtype "$dtype"
    say "steps of heads beside forwards: olmoe-1b-7b's shape, $layers layers, $dtype"
    printf '| head | target, MB | GB/s | step, MB | GB/s | time over bytes '
    echo '| tree of 60, MB | time over bytes | at least | time over a forward |'
    echo "|---|---|---|---|---|---|---|---|---|---|"
    for kind in eagle1 eagle3 jakiro; do
        once "$out/olmoe-$dtype-$layers-$kind.moe" moe-convert synthetic -q --head $kind --target "$target" --dtype "$dtype"
        printf '| %s ' "$kind"
        head_steps "$target" "$out/olmoe-$dtype-$layers-$kind.moe" "${MOE_BENCH_PAIRS:-30}" "${MOE_BENCH_THREADS:-2}"
    done
}

# suite NAME PROMPTS N SETTINGS: runs the suite once.
suite() {
    jq -n --arg prompts "$(realpath "$2")" --argjson n "$3" --argjson settings "$4" --argjson tokens "${5:-null}" '
        {models: {target: "target.moe"}, prompts: $prompts, settings: ([{name: "none"}] + $settings),
         limits: {"prompts-per-task": $n}} |
        if $tokens then .limits["max-tokens"] = $tokens | .["measure-seconds"] = 0.05 else . end' > "$work/$1.json"
    # shellcheck disable=SC2086
    [ -e "$work/$1.moes" ] || moe-bench run -q --resume "$work/$1.moes" $threads "$work/$1.json"
    moe-bench report "$work/$1.moes" > "$work/$1.txt"
    moe-bench report --json "$work/$1.moes" | jq -c 'select(.type == "row" and .task == null)' > "$work/$1.jsonl"
}

# Drafters, each with chains and trees to choose from.
candidates() {
    jq -nc --arg at "$(realpath "$work")" '
        [["chain of 1", {"draft-length": 1}], ["chain of 2", {"draft-length": 2}], ["chain of 3", {"draft-length": 3}],
         ["chain of 5", {"draft-length": 5}],
         ["tree of 6", {tree: "dynamic:total=6,depth=4,topk=2"}], ["tree of 10", {tree: "dynamic:total=10,depth=6,topk=3"}]] as $all |
        ([["prompt lookup", "pld", $all[:4]], ["Kangaroo", "head:file=\($at)/kangaroo.moe", $all],
          ["Kangaroo, stop=0.6", "head:file=\($at)/kangaroo.moe,stop=0.6", $all[2:4]]] +
         [("3", "15") as $share | ["draft model, \($share) %", "model:file=\($at)/draft-\($share).moe", $all],
          (["EAGLE-1", "eagle1"], ["EAGLE-3", "eagle3"], ["Jakiro", "jakiro"] |
           ["\(.[0]), \($share) %", "head:file=\($at)/\(.[1])-\($share).moe", $all])]) |
        [.[] | .[0] as $name | .[1] as $draft | .[2][] | {name: "\($name): \(.[0])", draft: $draft} + .[1]]'
}

pays() {
    mkdir -p "$work"
    once "$out/pocket.moe" moe-convert -q "$pocket/model"
    once "$out/draft.moe" moe-convert -q "$pocket/draft"
    once "$work/target.moe" moe-convert inflate -q "$out/pocket.moe" --expert-ffn "$width"
    for kind in eagle1 eagle3 jakiro kangaroo; do
        once "$work/$kind.moe" moe-convert head -q "$pocket/heads/$kind" --target "$work/target.moe"
    done
    for share in 3 15; do
        once "$work/draft-$share.moe" moe-convert inflate -q "$out/draft.moe" --step $share% --of "$work/target.moe"
        for kind in eagle1 eagle3 jakiro; do
            once "$work/$kind-$share.moe" moe-convert inflate -q "$work/$kind.moe" --step $share% --of "$work/target.moe"
        done
    done
    suite choose "$pocket/calib.jsonl" 2 "$(candidates)" "${tokens:-40}"
    best=$(jq -sc '[.[] | select(.setting != "none")] | group_by(.setting | split(": ")[0]) | map(max_by(.ceiling).setting)' \
           "$work/choose.jsonl")
    suite pays "$pocket/heldout.jsonl" "$prompts" "$(candidates | jq -c --argjson best "$best" '
        [.[] | select(.name as $name | $best | index($name))]')" "$tokens"
    say "which drafter pays where: the pocket model with experts of $width, $prompts prompts a task"
    echo "| drafter | MB a token | tokens a step | ceiling | ratio | 95 % | same |"
    echo "|---|---|---|---|---|---|---|"
    jq -r 'def two: if . == null then "" else . * 100 | round / 100 | tostring end;
        "| \(.setting) | \(.bytes_per_token / 1e6 | two) | \(.tokens_per_step | two) | \(.ceiling | two) | \(.ratio | two) | " +
        "\(.ratio_low | two)-\(.ratio_high | two) | \(.identical)/\(.compared) |"' "$work/pays.jsonl"
}

! wants steps || steps
! wants pays || pays
