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
#
# Prints what a token reads, with attention's share, and reports in which each speed-up is beside the most that its bytes allow.
# MOE_BENCH_PROMPTS=N takes N prompts a task (5), MOE_BENCH_TOKENS=N cuts answers and measures memory briefly, MOE_BENCH_WIDTH is
# the inner width of the inflated experts (9216). What is complete is not run again: remove its folder in build/bench. To try all
# of it in a minute: MOE_BENCH_PROMPTS=1 MOE_BENCH_TOKENS=12 MOE_BENCH_WIDTH=1024
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
wanted=" $* "
prompts=${MOE_BENCH_PROMPTS:-5}
width=${MOE_BENCH_WIDTH:-9216}
tokens=$MOE_BENCH_TOKENS
suites=$out/cas-spec-$width-$prompts${tokens:+-$tokens}
mkdir -p "$suites"

wants() { [ "$wanted" = "  " ] || case "$wanted" in *" $1 "*) ;; *) return 1 ;; esac; }

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

# What SWIFT's search finds to leave out, on prompts that are not asked below.
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
    [ -e "$suites/$name.moes" ] || moe-bench run --resume $threads "$suites/$name.json" -o "$suites/$name.moes"
    moe-bench report "$suites/$name.moes" | tee "$suites/$name.txt"
}

drafts="$(realpath "$suites")/draft-3.moe $(realpath "$suites")/draft-15.moe"
# shellcheck disable=SC2086
{
    ! wants plain || suite plain "$out/pocket.moe" "$pocket/heldout.jsonl" prompts-per-task "$(realpath "$out/draft.moe")"
    ! wants inflated || suite inflated "$suites/target.moe" "$pocket/heldout.jsonl" prompts-per-task $drafts
    ! wants long || suite long "$suites/target.moe" "$pocket/long.jsonl" prompts $drafts
}
