#!/bin/sh
# How good trained heads become: each kind for the pocket model, as the independent program trained it whose heads are in
# tests/models/pocket/heads, with three seeds, over the model's own answers to the calibration prompts (cut to 128 tokens); then
# what share of their drafts is right on the 240 held-out prompts. `make bench-train` calls it, and takes about 8 minutes of
# processor time; what it makes stays in build/bench/train. With names after it, only those kinds: tests/bench-train.sh eagle1
#
# MOE_BENCH_SEEDS="1 2 3"; MOE_BENCH_EPOCHS=N in place of each kind's own number: to try all of it in a minute, 1.
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
work=$out/train
seeds=${MOE_BENCH_SEEDS:-1 2 3}
kinds=${*:-kangaroo medusa hydra eagle1 jakiro eagle3}
mkdir -p "$work"
once "$out/pocket.moe" moe-convert -q "$pocket/model"
jq -c '{id, task, tokens: .prompt_tokens, answer_tokens: .tokens}' "$pocket/golden.jsonl" > "$work/heldout.jsonl"

# Options of each kind: epochs, the states that it learns from, and others.
special() {
    case $1 in
    eagle1)   echo "16 eagle1 --inner 384 --epsilon 1e-5" ;;
    jakiro)   echo "16 eagle1 --epsilon 1e-5" ;;
    kangaroo) echo "16 kangaroo --exit 2 --epsilon 1e-5" ;;
    medusa)   echo "8 eagle1" ;;
    hydra)    echo "8 eagle1" ;;
    eagle3)   echo "6 0,2,4,final --inner 384 --kv-heads 2 --epsilon 1e-5 --draft-vocab 1024 --layers 0,2,4" ;;
    *)        echo "$1: no such kind" >&2; exit 2 ;;
    esac
}

# Acceptance reached by the independent program; means of three seeds for eagle1 and jakiro, one seed for the others.
reached() {
    case $1 in
    eagle1)   echo "0.795 0.660 0.527 0.448 0.397|3.212|4.146" ;;
    jakiro)   echo "0.797 0.653 0.510 0.426 0.364|3.236|4.203" ;;
    kangaroo) echo "0.899 0.831 0.765 0.711 0.662|4.122|" ;;
    medusa)   echo "0.728 0.530 0.359 0.254|2.613|" ;;
    hydra)    echo "0.728 0.537 0.374 0.274|2.663|" ;;
    eagle3)   echo "0.735 0.569 0.418 0.329 0.268|2.913|3.959" ;;
    esac
}

run() {
    kind=$1 seed=$2 own=$3
    # shellcheck disable=SC2086
    set -- $own
    epochs=${MOE_BENCH_EPOCHS:-$1} states=$2 name=$work/$kind-$seed-${MOE_BENCH_EPOCHS:-$1}
    shift 2
    # shellcheck disable=SC2086
    once "$work/states-$states.moes" moe-profile features -q $threads -m "$out/pocket.moe" -n 128 --cut 128 --layers "$states" \
        --dtype f32 "$pocket/calib.jsonl"
    # shellcheck disable=SC2086
    [ -e "$name.moe" ] || moe-draft-train train -q $threads --resume -m "$out/pocket.moe" --arch "$kind" --rate 0.004 --cut 128 \
        --seed "$seed" --epochs "$epochs" "$@" "$work/states-$states.moes" -o "$name.moe" --stream "$name.moes"
    # shellcheck disable=SC2086
    [ -e "$name.json" ] || { moe-draft-train eval -q $threads -m "$out/pocket.moe" --cut 128 --json "$name.moe" \
        "$work/heldout.jsonl" > "$name.part" && mv "$name.part" "$name.json"; }
    cat "$name.json"
}

say "trained heads of the pocket model, held-out prompts: means over seeds $seeds, in brackets the least and the greatest"
echo "| head | accepted at 1, 2, ... | tokens an iteration, chains | trees | the independent program's |"
echo "|---|---|---|---|---|"
for kind in $kinds; do
    own=$(special "$kind")
    for seed in $seeds; do run "$kind" "$seed" "$own"; done | jq -sr --arg kind "$kind" --arg reached "$(reached "$kind")" '
        def digits(n): tostring + "." | split(".") | .[0] + "." + (.[1] + "0000")[:n];
        def round3: . * 1000 | round / 1000 | digits(3);
        def spread(f): [.[] | f] | "\(add / length | round3) (\(min | round3) - \(max | round3))";
        map(select(.type == "eval")) | . as $all |
        [range($all[0].acceptance | length) as $i | [$all[] | .acceptance[$i]] | add / length | round3] as $accepted |
        "| \($kind) | \($accepted | join(" ")) | \(spread(.tokens_per_iteration)) | \(spread(.tree_tokens_per_iteration)) | " +
        "\($reached | split("|") | map(select(. != "")) | join("; ")) |"'
done
