#!/bin/bash
# Decodes concurrent texts without drafts, with fixed lengths and with -K auto; `make bench-parallel` calls it. Models have random
# weights and the shapes of OLMoE-1B-7B and Qwen3-30B-A3B, with two layers, in q4. Drafts come from a recording at no cost, and their
# tokens are accepted with a given probability (tests/bench/accepting.c).
#
# Prints a Markdown table for each shape and acceptance. Columns, for each number of texts: tokens/s of none, of the best fixed K and
# of auto; auto over the better of the two; distinct experts per forward and layer; the excess over bytes: seconds a token over
# bytes a token, both relative to none; and texts/s. With MAX_TTFT or MAX_TPOT (milliseconds) the last column also has goodput: the
# texts/s within these limits. The fastest of MOE_BENCH_ROUNDS (1) rounds of all settings counts.
#
#     SHAPES="olmoe qwen3" ACCEPTANCE="0.4 0.6 0.8" TEXTS="1 2 4 8 16 32 64" LENGTHS="1 2 4 8" TOKENS=48 MAX_TTFT=500 MAX_TPOT=50
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
set -o pipefail
rounds=${MOE_BENCH_ROUNDS:-1}
tokens=${TOKENS:-48}
limits=(${MAX_TTFT:+--max-ttft "$MAX_TTFT"} ${MAX_TPOT:+--max-tpot "$MAX_TPOT"})
read -ra acceptances <<< "${ACCEPTANCE:-0.4 0.6 0.8}"
read -ra loads <<< "${TEXTS:-1 2 4 8 16 32 64}"
read -ra lengths <<< "${LENGTHS:-1 2 4 8}"

model_of() {
    case $1 in
    pocket) once "$out/pocket.moe" moe-convert -q $pocket/model; model=pocket vocab=2048 ;;
    olmoe) once "$out/olmoe-q4-2.moe" moe-convert synthetic -q --like olmoe-1b-7b -l 2 --dtype q4; model=olmoe-q4-2 vocab=50000 ;;
    qwen3) once "$out/qwen3-q4-2.moe" moe-convert synthetic -q --like qwen3-30b-a3b -l 2 --dtype q4; model=qwen3-q4-2 vocab=150000 ;;
    *) echo "bench-parallel: shape $1: choose pocket, olmoe or qwen3" >&2; exit 2 ;;
    esac
}

# suite ACCEPTANCE TEXTS: writes a suite with a prompt for each text, at least 4. The texts of a setting begin together.
suite() {
    local count=$(($2 < 4 ? 4 : $2))
    head -n "$count" "$out/parallel-$1.jsonl" > "$out/parallel-$1-$2.jsonl"
    jq -cn --arg model "$model.moe" --arg prompts "parallel-$1-$2.jsonl" --arg recording "parallel-$1.moes" --argjson texts "$2" \
        '{model: $model, prompts: $prompts, order: "blocked", "measure-seconds": 0,
        options: {"ignore-eos": true, "force-accept": $recording},
        settings: [$ARGS.positional[] | {name: ., "draft-length": (tonumber? // .), parallel: $texts}]}' --args 0 "${lengths[@]}" auto \
        > "$out/parallel.json"
}

# row ACCEPTANCE TEXTS: prints a row from the fastest round of each setting
row() {
    jq -rs --arg texts "$2" '
        [.[] | select(.type == "row" and .task == "")] | group_by(.setting) | map(max_by(.tokens_per_s)) as $all |
        ($all[] | select(.setting == "0")) as $none | ($all[] | select(.setting == "auto")) as $auto |
        ([$all[] | select(.setting | test("^[1-9]"))] | max_by(.tokens_per_s)) as $fixed |
        def excess: (.tokens_per_s | $none.tokens_per_s / .) / (.bytes_per_token / $none.bytes_per_token);
        def two: . * 100 | round / 100;
        "| \($texts) | \($none.tokens_per_s | round) | \($fixed.tokens_per_s | round) (K \($fixed.setting)) | " +
        "\($auto.tokens_per_s | round) | \($auto.tokens_per_s / ([$none.tokens_per_s, $fixed.tokens_per_s] | max) | two) | " +
        "\($auto.tokens_per_s / $none.tokens_per_s | two) | " +
        "\([$none, $fixed, $auto] | map(.experts_per_forward | . * 10 | round / 10 | tostring) | join(" / ")) | " +
        "\([$fixed, $auto] | map(excess | two | tostring) | join(" / ")) | " +
        "\([$none, $fixed, $auto] | map(.texts_per_s | . * 10 | round / 10 | tostring) | join(" / "))" +
        if $none.goodput then " (\([$none, $fixed, $auto] | map(.goodput | . * 10 | round / 10 | tostring) | join(" / ")))" else "" end +
        " |"' "$out"/parallel-round-*.jsonl
}

for shape in ${SHAPES:-olmoe qwen3}; do
    model_of "$shape"
    for acceptance in "${acceptances[@]}"; do
        accepting "$acceptance" "$out/parallel-$acceptance.moes" 64 "$tokens" "$vocab"
        moe-view --json --type begin "$out/parallel-$acceptance.moes" | jq -c '{id, tokens: .prompt}' > "$out/parallel-$acceptance.jsonl"
        say "$shape, acceptance $acceptance, $tokens tokens a text, load $(cut -d' ' -f1 /proc/loadavg)"
        echo "| texts | none, tokens/s | best fixed | auto | auto / best | auto / none | experts a layer: none / fixed / auto | \
excess over bytes: fixed / auto | texts/s: none / fixed / auto${limits:+ (goodput)} |"
        echo "|---|---|---|---|---|---|---|---|---|"
        for load in "${loads[@]}"; do
            suite "$acceptance" "$load"
            rm -f "$out"/parallel-round-*
            for round in $(seq "$rounds"); do
                moe-bench run -q $threads "$out/parallel.json" -o "$out/parallel-round-$round.moes"
                moe-bench report "${limits[@]}" --json "$out/parallel-round-$round.moes" > "$out/parallel-round-$round.jsonl"
            done
            row "$acceptance" "$load"
        done
    done
done
