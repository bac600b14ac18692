#!/bin/sh
# A table like CAS-Spec's, in small: Lookahead, prompt lookup, SWIFT (the model itself, and its tree), Kangaroo, CAS-Spec (two degrees
# of SWIFT above prompt lookup, scheduled by DyTC), CAS-Spec with Kangaroo's head in its middle and below, and a draft model, by task; on the pocket model as it is and with 2.1 GB of experts.
# Drafts have their real cost: the draft model is inflated, too, until a step of it reads 3 % and 15 % of what a token of the
# target reads, as drafts of Mixtral and OLMoE do. `make bench-cas-spec` calls it; streams and reports stay in build/bench. With
# names after it, only those: tests/bench-cas-spec.sh plain
#
#     plain       the pocket model as it is
#     inflated    with heavy experts
#     long        the same with prompts that are long, and answers of up to 1,000 tokens
#     dense       random weights of a dense shape, with the text and the acceptance that the same drafters have on the pocket
#                 model: each row's drafts are recorded there first. Without Lookahead, whose drafts cannot be recorded, and
#                 Kangaroo, whose head is for the pocket model alone
#
# Prints what a token reads, with attention's share, and reports in which each speed-up is beside the most that its bytes allow.
# MOE_BENCH_PROMPTS=N takes N prompts a task (5), MOE_BENCH_TOKENS=N cuts answers and measures memory briefly, MOE_BENCH_WIDTH is
# the inner width of the inflated experts (9216), MOE_BENCH_LIKE (mistral-7b) and MOE_BENCH_LAYERS (8) are the dense shape's.
# What is complete is not run again: remove its folder in build/bench. To try all of it in a minute:
# MOE_BENCH_PROMPTS=1 MOE_BENCH_TOKENS=12 MOE_BENCH_WIDTH=1024
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
parts "plain inflated dense long" "$@"
prompts=${MOE_BENCH_PROMPTS:-5}
width=${MOE_BENCH_WIDTH:-9216}
tokens=$MOE_BENCH_TOKENS
suites=$out/cas-spec-$width-$prompts${tokens:+-$tokens}
mkdir -p "$suites"

say "models, and what a token of them reads"
once "$out/pocket.moe" moe-convert "$pocket/model"
once "$out/draft.moe" moe-convert "$pocket/draft"
once "$suites/target.moe" moe-convert inflate -q "$out/pocket.moe" --expert-ffn "$width"
for share in 3 15; do
    once "$suites/draft-$share.moe" moe-convert inflate -q "$out/draft.moe" --step $share% --of "$suites/target.moe"
done
once "$out/kangaroo.moe" moe-convert head -q "$pocket/heads/kangaroo" --target "$out/pocket.moe"
for model in "$out/pocket.moe" "$suites"/*.moe; do
    moe-view "$model" | sed -n "s|^ *a token|$(basename "$model" .moe)|p"
done | tee "$suites/models.txt"

# Finds the parts to skip by SWIFT's search, on other prompts than those decoded below.
head -n 12 "$pocket/calib.jsonl" > "$suites/calib.jsonl"
for ratio in 0.4 0.6; do
    once "$suites/skip-$ratio.json" moe-profile skip $threads -m "$out/pocket.moe" --ratio $ratio "$suites/calib.jsonl"
done

# suite NAME MODEL PROMPTS LIMIT DRAFT...: the rows of the paper's table, and a draft model for each file.
suite() {
    name=$1 model=$2 texts=$3 limit=$4
    shift 4
    say "$name"
    jq -n --arg model "$(realpath "$model")" --arg prompts "$(realpath "$texts")" --arg skip "$(realpath "$suites")/skip-" \
        --arg kangaroo "head:file=$(realpath "$out")/kangaroo.moe,stop=0.6" --arg limit "$limit" --argjson n "$prompts" --argjson tokens "${tokens:-null}" '
        {"0.4": "self:skip=\($skip)0.4.json", "0.6": "self:skip=\($skip)0.6.json"} as $self |
        {models: {target: $model}, prompts: $prompts, limits: {($limit): $n}, settings: ([
            {name: "none"},
            {name: "Lookahead", draft: "lookahead:level=5,window=7,guess=7"},
            {name: "PLD", draft: "pld", "draft-length": 10},
            {name: "SWIFT", draft: "\($self["0.4"]),stop=0.8", "draft-length": 8},
            {name: "SWIFT, tree", draft: $self["0.4"], policy: "tr"},
            {name: "Kangaroo", draft: $kangaroo, "draft-length": 6},
            {name: "CAS-Spec, Kangaroo", draft: [$self["0.4"], $kangaroo, "pld"], policy: "dytc"},
            {name: "CAS-Spec, Kangaroo last", draft: [$self["0.4"], $self["0.6"], $kangaroo], policy: "dytc"},
            {name: "CAS-Spec", draft: [$self["0.4"], $self["0.6"], "pld"], policy: "dytc"},
            {name: "CAS-Spec, verify", draft: [$self["0.4"], $self["0.6"], "pld"], policy: "dytc-verify"}] +
            [$ARGS.positional[] | {name: "draft \(split("/")[-1] | rtrimstr(".moe") | ltrimstr("draft-"))",
                                   draft: "model:file=\(.)", "draft-length": 4}])} |
        if $tokens then .limits["max-tokens"] = $tokens | .["measure-seconds"] = 0.05 else . end' \
        --args "$@" > "$suites/$name.json"
    [ -e "$suites/$name.moes" ] || moe-bench run --resume "$suites/$name.moes" $threads "$suites/$name.json"
    moe-bench report "$suites/$name.moes" | tee "$suites/$name.txt"
}

# record NAME OPTION...: records drafts of a row's drafters on the pocket model, at every position.
record() {
    name=$1
    shift
    [ -e "$forced/$name.moes" ] ||
        moe-decode -q $threads -m "$out/pocket.moe" -n "${tokens:-64}" --record drafts "$@" --stream "$forced/$name.moes" \
            -o "$forced/$name.txt" "$forced/prompts.jsonl"
}

# One row of each kind of the paper's table, on random weights: drafters have their own cost, and their drafts are recorded
# ones.
dense() {
    say "dense, with forced acceptance"
    like=${MOE_BENCH_LIKE:-mistral-7b} layers=${MOE_BENCH_LAYERS:-8}
    forced=$suites/dense-$layers
    mkdir -p "$forced"
    once "$out/$like-$layers.moe" moe-convert synthetic -q --like "$like" -l "$layers" --dtype q4
    # The shape of the pocket model's draft with the target's vocabulary, padded to the shares of real ones.
    words=$(moe-view --json "$out/$like-$layers.moe" | jq 'select(.type == "model").vocab')
    jq --argjson words "$words" '.vocab_size = $words | del(.layer_types)' "$pocket/draft/config.json" > "$forced/draft.json"
    once "$forced/draft.moe" moe-convert synthetic -q --like "$forced/draft.json"
    for share in 3 15; do
        once "$forced/draft-$share.moe" moe-convert inflate -q "$forced/draft.moe" --step $share% --of "$out/$like-$layers.moe"
    done
    for model in "$out/$like-$layers.moe" "$forced"/draft-*.moe; do
        moe-view "$model" | sed -n "s|^ *a token|$(basename "$model" .moe)|p"
    done | tee "$forced/models.txt"
    jq -c -s --argjson n "$prompts" 'group_by(.task) | map(.[:$n]) | add | .[]' "$pocket/heldout.jsonl" > "$forced/prompts.jsonl"
    # What the policies may ask for: SWIFT's tree ten leaves at each of 25 levels, DyTC two children at each node.
    jq -n -c '[range(1; 5) as $depth | range(pow(2; $depth)) | . as $path | [range($depth) | ($path / pow(2; .) | floor) % 2]]' \
        > "$forced/two.json"
    self="-d self:skip=$suites/skip-0.4.json"
    several="$self -d self:skip=$suites/skip-0.6.json -d pld"
    # shellcheck disable=SC2086
    {
        record pld -d pld -K 8
        record swift $self,stop=0.8 -K 8
        record tree $self --policy tr --tree static:width=10,depth=25
        record dytc $several --policy dytc --tree "static:file=$forced/two.json"
        record verify $several --policy dytc-verify
        record draft -d "model:file=$out/draft.moe" -K 4
    }
    moe-view --json "$forced/pld.moes" | jq -c 'select(.type == "begin") | {id, task, tokens: .prompt}' > "$forced/ids.jsonl"
    jq -n --arg model "$(realpath "$out/$like-$layers.moe")" --arg prompts "$(realpath "$forced/ids.jsonl")" \
        --arg at "$(realpath "$forced")" --argjson n "$prompts" --argjson tokens "${tokens:-64}" \
        --arg brief "$tokens" '
        {models: {target: $model}, prompts: $prompts, limits: {"prompts-per-task": $n, "max-tokens": $tokens}, settings: [
            {name: "none", draft: "none", "force-accept": "pld"},
            {name: "PLD", draft: "pld", "draft-length": 8, "force-accept": "pld"},
            {name: "SWIFT", draft: "self:skip=0.4,stop=0.8", "draft-length": 8, "force-accept": "swift"},
            {name: "SWIFT, tree", draft: "self:skip=0.4", policy: "tr", "force-accept": "tree"},
            {name: "CAS-Spec", draft: ["self:skip=0.4", "self:skip=0.6", "pld"], policy: "dytc", "force-accept": "dytc"},
            {name: "CAS-Spec, verify", draft: ["self:skip=0.4", "self:skip=0.6", "pld"], policy: "dytc-verify",
             "force-accept": "verify"},
            ("3", "15" | {name: "draft \(.)", draft: "model:file=\($at)/draft-\(.).moe", "draft-length": 4,
                          "force-accept": "draft"})]} |
        .settings[]["force-accept"] |= "\($at)/\(.).moes" |
        if $brief == "" then . else .["measure-seconds"] = 0.05 end' > "$forced/suite.json"
    [ -e "$forced/suite.moes" ] || moe-bench run --resume "$forced/suite.moes" $threads "$forced/suite.json"
    moe-bench report "$forced/suite.moes" | tee "$forced/suite.txt"
}

drafts="$(realpath "$suites")/draft-3.moe $(realpath "$suites")/draft-15.moe"
# shellcheck disable=SC2086
{
    ! wants plain || suite plain "$out/pocket.moe" "$pocket/heldout.jsonl" prompts-per-task "$(realpath "$out/draft.moe")"
    ! wants inflated || suite inflated "$suites/target.moe" "$pocket/heldout.jsonl" prompts-per-task $drafts
    ! wants dense || dense
    ! wants long || suite long "$suites/target.moe" "$pocket/long.jsonl" prompts $drafts
}
