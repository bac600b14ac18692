#!/bin/sh
# Whether accepted tokens of prompt lookup become the speed that their bytes predict: the pocket model with experts of about 1.1 GB
# in each format, drafts of several lengths. `make bench-drafts` calls it; it takes about ten minutes. Streams and reports stay in
# build/bench. FORMATS and PROMPTS (a task) may be given.
#
# Prints a Markdown table: ratio, the median over prompts of seconds a token without drafts over seconds with them, each pair
# decoded in turns; ceiling, bytes a token without drafts over bytes with them; and the one over the other.
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"

# Prints the width with which experts of a format are as large as those of bf16 with 5120.
width() {
    case $1 in
    f32) echo 2560 ;;
    q8 | fp8) echo 10240 ;;
    q4) echo 18432 ;;
    *) echo 5120 ;;
    esac
}

echo "| format | drafts | tok/s | ratio | 95 % | ceiling | ratio / ceiling |"
echo "|---|---|---|---|---|---|---|"
for format in ${FORMATS:-bf16 q8 q4}; do
    name=drafts-$format
    once "$out/$name-thin.moe" moe-convert -q "$pocket/model" --expert-dtype "$format"
    once "$out/$name.moe" moe-convert inflate -q "$out/$name-thin.moe" --expert-ffn "$(width "$format")"
    cat > "$out/$name.json" <<END
{
  "models": {"inflated": "$name.moe"},
  "prompts": "../../$pocket/heldout.jsonl",
  "settings": [
    {"name": "none"},
    {"name": "K = 1", "draft": "ngram", "draft-length": 1},
    {"name": "K = 2", "draft": "ngram", "draft-length": 2},
    {"name": "K = 4", "draft": "ngram", "draft-length": 4},
    {"name": "K = 8", "draft": "ngram", "draft-length": 8}
  ],
  "limits": {"prompts-per-task": ${PROMPTS:-10}}
}
END
    # shellcheck disable=SC2086
    moe-bench run -q $threads "$out/$name.json" -o "$out/$name.moes"
    moe-bench report --json "$out/$name.moes" | jq -r --arg format "$format" '
        def two: if . == null then "" else . * 100 | round / 100 | tostring end;
        select(.type == "row" and .task == null) |
        "| \($format) | \(.setting) | \(.tokens_per_s | round) | \(.ratio | two) | \(.ratio_low | two)-\(.ratio_high | two) " +
        "| \(.ceiling | two) | \(if .ceiling then .ratio / .ceiling else null end | two) |"'
done
