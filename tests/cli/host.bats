#!/usr/bin/env bats
# What the host engine can be told: the format of keys and values, where threads run.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    head -n 3 "${MOE_MODELS:-$BATS_TEST_DIRNAME/../models}/pocket/heldout.jsonl" > prompts.jsonl
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe -n 24 "$@" prompts.jsonl; }

@test "keys and values of 16 bits: drafts and threads do not show, streams say what was used" {
    for format in f16 bf16; do
        decode --kv-dtype $format > plain.txt
        decode --kv-dtype $format -d ngram -K 5 -j 1 > drafted.txt
        cmp plain.txt drafted.txt
        decode --kv-dtype $format -n 2 --stream now.moes > /dev/null
        [ "$(moe-view --json now.moes | jq -r 'select(.type == "machine").kv_dtype')" = $format ]
    done
    decode --stream f32.moes > f32.txt
    [ "$(moe-view --json f32.moes | jq -r 'select(.type == "machine").kv_dtype')" = f32 ]
    decode --kv-dtype bf16 --stream bf16.moes > /dev/null
    kv() { moe-view --json "$1" | jq -s '[.[] | select(.type == "iter").bytes] | .[0]'; }
    [ "$(kv bf16.moes)" -lt "$(kv f32.moes)" ]
}

@test "an engine on ref and one on host agree on keys and values of 16 bits" {
    head -n 1 prompts.jsonl > one.jsonl
    moe-decode -q -m pocket.moe -n 8 --kv-dtype f16 one.jsonl > host.txt
    moe-decode -q -m pocket.moe -n 8 --kv-dtype f16 --device ref one.jsonl > ref.txt
    cmp host.txt ref.txt
}

@test "pinned threads give the same text; more than there are processors are refused" {
    decode > free.txt
    decode --pin > pinned.txt
    cmp free.txt pinned.txt
    run decode --pin -j 250
    [ "$status" -eq 2 ]
    [[ "$output" == *"250 threads cannot have a processor each"* ]]
}
