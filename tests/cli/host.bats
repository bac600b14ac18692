#!/usr/bin/env bats
# Settings of the host engine: the format of keys and values, activations, and the threads' processors.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    head -n 3 "${MOE_MODELS:-$BATS_TEST_DIRNAME/../models}/pocket/heldout.jsonl" > prompts.jsonl
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe -n 24 "$@" prompts.jsonl; }

@test "keys and values of 16 and 8 bits: texts do not depend on drafts and threads, and streams record the format" {
    for format in f16 bf16 q8; do
        decode --kv-dtype $format > plain.txt
        decode --kv-dtype $format -d ngram -K 5 -j 1 > drafted.txt
        cmp plain.txt drafted.txt
        moe-decode -q -m pocket.moe -n 2 --kv-dtype $format --stream now.moes prompts.jsonl > /dev/null
        [ "$(moe-view --json now.moes | jq -r 'select(.type == "machine").kv_dtype')" = $format ]
    done
    decode --stream f32.moes > f32.txt
    [ "$(moe-view --json f32.moes | jq -r 'select(.type == "machine").kv_dtype')" = f32 ]
    decode --kv-dtype bf16 --stream bf16.moes > /dev/null
    kv() { moe-view --json "$1" | jq -s '[.[] | select(.type == "iter").bytes] | .[0]'; }
    [ "$(kv bf16.moes)" -lt "$(kv f32.moes)" ]
    decode --kv-dtype q8 --stream q8.moes > /dev/null
    [ "$(kv q8.moes)" -lt "$(kv bf16.moes)" ]
}

@test "an engine on ref and one on host agree on keys and values of 16 bits" {
    head -n 1 prompts.jsonl > one.jsonl
    moe-decode -q -m pocket.moe -n 8 --kv-dtype f16 one.jsonl > host.txt
    moe-decode -q -m pocket.moe -n 8 --kv-dtype f16 --device ref one.jsonl > ref.txt
    cmp host.txt ref.txt
}

@test "activations of bf16: texts do not depend on drafts and threads, and streams say so" {
    moe-convert -q --dtype bf16 "$MOE_MODELS/pocket/model" -o bf16.moe
    moe-convert -q --dtype f32 "$MOE_MODELS/pocket/model" -o f32.moe
    rounded() { moe-decode -q -m bf16.moe -n 24 --activations bf16 "$@"; }
    head -n 1 prompts.jsonl > one.jsonl
    rounded one.jsonl > plain.txt
    rounded -d ngram -K 5 -j 1 --isa plain one.jsonl > drafted.txt
    cmp plain.txt drafted.txt
    for activations in f32 bf16; do
        moe-decode -q -m bf16.moe -n 24 --activations $activations --reference f32.moe --stream $activations.moes one.jsonl > text
        moe-view --json $activations.moes > $activations.json
    done
    sum() { jq -s '[.[] | select(.type == "iter").divergence[]] | add' "$1"; }
    [ "$(sum f32.json)" = 0 ]
    [ "$(jq -n "$(sum bf16.json) > 0 and $(sum bf16.json) < 0.01")" = true ]
    [[ "$(jq -r 'select(.type == "machine").isa' bf16.json)" == *", bf16 activations" ]]
    [[ "$(moe-view bf16.moes)" == *"activations: rounded to bf16 in products with bf16 weights"* ]]
    [[ "$(moe-view f32.moes)" != *"activations: rounded"* ]]
    run moe-decode -m f32.moe -n 1 --activations bf16 one.jsonl
    [[ "$output" == *"--activations bf16: has no effect: no weights of the model are in bf16"* ]]
    run rounded --device cuda one.jsonl
    [ "$status" -eq 2 ]
    [[ "$output" == *"device cuda: cannot round activations to bf16; leave --activations out, or give --device host"* ]]
}

@test "pinned threads give the same text; more than there are processors are refused" {
    decode > free.txt
    decode --pin > pinned.txt
    cmp free.txt pinned.txt
    run decode --pin -j 250
    [ "$status" -eq 2 ]
    [[ "$output" == *"250 threads cannot be pinned to a processor each, because there are only"* ]]
}

@test "a sweep reports costs and bytes, and is a cost table for replay" {
    moe-bench sweep -m pocket.moe --seconds 0.1 --rows 2,8 --prefix 20 --json -o cost.json
    jq -e '.type == "sweep" and .rounds >= 5 and ([.cost[].m] == [1, 2, 8]) and .prefix == 20' cost.json
    jq -e '.cost[0] | .ratio == 1 and .bytes_ratio == 1 and .excess == 1 and .experts == 4' cost.json
    jq -e '.cost | all(.seconds > 0 and .low <= .seconds and .seconds <= .high and .share > 0)' cost.json
    jq -e '.cost[2] | .experts > 4 and .experts <= 32 and .bytes_ratio > 1' cost.json
    moe-decode -q -m pocket.moe -n 12 -d ngram -K 4 --record drafts --stream drafts.moes prompts.jsonl > /dev/null
    moe-bench replay --cost cost.json drafts.moes | grep -q cascade
}

@test "a sweep as a table; the distinct experts of a forward are those of its tokens" {
    run moe-bench sweep -m pocket.moe --seconds 0 --rows 1,4,64 --seed 3
    [ "$status" -eq 0 ]
    [[ "${lines[0]}" == *"5 rounds after 64 tokens"* ]]
    [ "${#lines[@]}" -eq 5 ]
    moe-bench sweep -m pocket.moe --seconds 0 --rows 64 --logits last --json |
        jq -e --argjson all "$(moe-bench sweep -m pocket.moe --seconds 0 --rows 64 --json | jq '.cost[1].experts')" \
            '(.cost[1].experts - $all) | fabs < 1e-9'
    moe-bench sweep -m pocket.moe --seconds 0 --rows 64 --nodes tree --json > tree.json
    jq -e --argjson all "$(moe-bench sweep -m pocket.moe --seconds 0 --rows 64 --json | jq '.cost[1].experts')" \
        '.nodes == "tree" and (.cost[1].experts - $all | fabs) > 1e-9' tree.json       # tokens have other contexts
    [ "$(awk 'NR > 2 { print $1 }' <<< "$output" | tr '\n' ' ')" = "1 4 64 " ]
}

@test "invalid sweeps are refused in one line" {
    while IFS='|' read -r words what; do
        run moe-bench sweep $words
        assert_trouble moe-bench
        [[ "$output" == *"$what"* ]] || { echo "$words: $output"; return 1; }
    done << 'END'
-m pocket.moe --rows 2,x|--rows
-m pocket.moe --rows 4,2|ascending
-m pocket.moe --rows 513|--rows
-m pocket.moe --prefix 9999999|--prefix
--rows 2|-m FILE
END
}
