#!/usr/bin/env bats
# Analyses named after MoE-Spec's, compared with an independent program that computes them as the paper prints them.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR" FAMILIES="$BATS_TEST_DIRNAME/../golden/families" PYTHON
    PYTHON=$(python_with_numpy)
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    for task in math code extract summ; do
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 2
    done > prompts.jsonl
    moe-profile -q -m pocket.moe -n 24 --record route,probs -d model:file=draft.moe --tree dynamic:total=32,depth=5,topk=5 \
        prompts.jsonl -o trees.moes
}

setup() { cd "$WORK"; }

again() { "$PYTHON" "$BATS_TEST_DIRNAME/../bench/moe_spec.py" "$@"; }

@test "coverage by router is computed from the scores of all experts (eq. 5)" {
    moe-coact coverage --by router --json trees.moes > coverage.jsonl
    again coverage trees.moes coverage.jsonl
    # one wrong figure is detected
    jq -c '.mass[7] += 1e-5' coverage.jsonl > wrong.jsonl
    run again coverage trees.moes wrong.jsonl
    [ "$status" = 1 ]
}

@test "coverage by router keeps what a budget by router keeps, whatever the family's router" {
    for family in olmoe deepseek_v2 deepseek_v3 glm4_moe phimoe gpt_oss; do
        groups=
        case $family in deepseek_v3 | glm4_moe) groups="4 2 2" ;; deepseek_v2) groups="4 2 1" ;; esac
        moe-convert -q "$FAMILIES/$family/model" -o $family.moe
        jq -c '{id: "one", tokens: .prompt}' "$FAMILIES/$family/golden.json" > $family.jsonl
        profile=(moe-profile -q -m $family.moe -n 16 -d ngram -K 4 --record route,probs $family.jsonl)
        "${profile[@]}" --budget 3 --budget-mode truncate -o budget.moes
        again budget budget.moes 3 $groups
        "${profile[@]}" -o free.moes
        moe-coact coverage --by router --json free.moes > coverage.jsonl
        again coverage free.moes coverage.jsonl
    done
}

@test "routes without the scores of all experts are refused with a remedy" {
    moe-profile -q -m pocket.moe -n 8 -d ngram prompts.jsonl -o bare.moes
    run moe-coact coverage --by router bare.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == *"--record route,probs" ]]
    run moe-coact coverage --phase verify bare.moes -o no.moes       # mass is that of the accepted nodes only
    assert_trouble moe-coact
    [[ $output == *"--record route,probs" ]]
    [ ! -e no.moes ]
    moe-coact coverage --phase verify trees.moes -o all.moes
}

@test "pairs and their concentration are those of every verified node (appendix D), unless another phase is asked for" {
    moe-coact stats --json trees.moes > stats.jsonl
    moe-coact matrix --json trees.moes > matrix.jsonl
    again concentration trees.moes stats.jsonl matrix.jsonl
    for phase in all decode prompt; do
        moe-coact stats --phase $phase --json trees.moes > other.jsonl
        run again concentration trees.moes other.jsonl matrix.jsonl
        [ "$status" = 1 ]
    done
    moe-profile -q -m pocket.moe -n 8 prompts.jsonl -o undrafted.moes
    for analysis in matrix stats; do
        run moe-coact $analysis undrafted.moes -o no.moes
        assert_trouble moe-coact
        [[ $output == *"--draft"*"--phase all" ]]
    done
    [ ! -e no.moes ]
}

@test "a ranking by frequency counts selections (eq. 4), in the phase asked for" {
    for phase in all prompt decode verify; do
        moe-coact rank-experts --by frequency --phase $phase --json trees.moes > rank.jsonl
        again frequency trees.moes rank.jsonl $phase
    done
    for command in union locality; do
        run moe-coact $command --phase verify trees.moes -o no.moes
        assert_trouble moe-coact
    done
    [ "$(moe-coact union --trees --phase verify --json trees.moes | jq -s '.[0].width[0] > 1')" = true ]
}
