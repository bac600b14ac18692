#!/usr/bin/env bats
# Heads that guess a token each (Medusa, Hydra) and predictors that a checkpoint brings (--draft mtp), as they are typed: the
# text is that without them, with any tree, beside other drafters, at any temperature; and what there is none of is refused.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR" GOLDEN="$BATS_TEST_DIRNAME/../golden"
    cd "$WORK"
    for kind in medusa hydra hydra_prefix; do
        moe-convert head -q "$GOLDEN/heads/$kind/head.tar.xz" --target "$MOE_POCKET" -o $kind.moe
    done
    for kind in medusa hydra; do
        moe-convert synthetic -q --head $kind --target "$MOE_POCKET" --seed 3 -o ${kind}_four.moe
    done
    ln -s "$MOE_POCKET" pocket.moe
    awk 'NR % 100 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    for family in deepseek_v3 glm4_moe; do
        moe-convert -q "$GOLDEN/mtp/$family/model" -o $family.moe
        jq -c '{id: "one", tokens: .prompt[:9]}, {id: "two", tokens: .prompt}' "$GOLDEN/mtp/$family/golden.json" > $family.jsonl
    done
}

setup() { cd "$WORK"; }

@test "heads that guess leave the text as it is, and draft as deep as there are heads" {
    local kind options
    for options in '--temperature 0' '--temperature 0.8 --seed 3'; do
        guess() { moe-decode -q -m pocket.moe -n 16 $options "$@" prompts.jsonl; }
        guess > none.txt
        for kind in medusa hydra hydra_prefix medusa_four hydra_four; do
            guess -d head:file=$kind.moe -K 8 --stream $kind.moes | cmp - none.txt
            guess -d head:file=$kind.moe --tree dynamic:total=12,depth=3,topk=3 | cmp - none.txt
        done
        guess -d head:file=hydra.moe -d head:file=medusa.moe -d ngram --policy dytc-verify | cmp - none.txt
    done
    longest() { moe-view --json $1.moes | jq -s 'map(select(.type == "iter") | .drafted) | max'; }
    [ "$(longest medusa)" = 2 ] && [ "$(longest hydra)" = 2 ] && [ "$(longest hydra_prefix)" = 1 ]
    [ "$(longest medusa_four)" = 4 ] && [ "$(longest hydra_four)" = 4 ]
}

@test "predictors leave the text as it is, and draft as deep as they are told" {
    local family options draft
    for family in deepseek_v3 glm4_moe; do
        for options in '--temperature 0' '--temperature 0.9 --seed 4'; do
            decode() { moe-decode -q -m $family.moe -n 24 --json $options "$@" $family.jsonl | jq -c .tokens; }
            decode > none.txt
            decode -d mtp -K 5 | cmp - none.txt
            decode -d mtp:depth=2 -K 5 --stream short.moes | cmp - none.txt
            decode -d mtp --tree dynamic:total=12,depth=4,topk=3 | cmp - none.txt
            decode -d ngram -d mtp --policy dytc | cmp - none.txt
            decode -d auto --stream auto.moes | cmp - none.txt
            moe-view --json auto.moes | jq -e -s '(.[] | select(.type == "machine").drafters | fromjson) == ["mtp", "suffix", "ngram"]'
            decode -d mtp -K 5 --cache-experts 70% | cmp - none.txt
            moe-view --json short.moes | jq -s -e 'map(select(.type == "iter")) | (map(.drafted) | max) == 2 and
                (map(.draft_bytes) | add) > 0'
        done
    done
    moe-decode -v -m glm4_moe.moe -n 2 -d mtp --json glm4_moe.jsonl 2>&1 > /dev/null |
        grep -q '^moe-decode: mtp: mtp, 0.1 MB, reads states after the final norm$'
}

@test "a model without predictors, and numbers that are none, are one line" {
    run moe-decode -q -m pocket.moe -d mtp prompts.jsonl
    assert_trouble moe-decode
    [[ $output == *'pocket.moe: the model has no layers that predict further tokens'* ]]
    run moe-decode -q -m glm4_moe.moe -d mtp:depth=0 glm4_moe.jsonl
    assert_trouble moe-decode
    [[ $output == *'mtp: depth: 0 is not between 1 and 64'* ]]
    run moe-decode -q -m glm4_moe.moe -d mtp:file=x glm4_moe.jsonl
    assert_trouble moe-decode
}
