#!/usr/bin/env bats
# Heads that guess one token each (Medusa, Hydra) and a checkpoint's own prediction layers (--draft mtp), from the command line:
# the text equals that without them, with any tree, beside other drafters, at any temperature; missing ones are refused.

load common

setup_file() {
    load common
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
    done
    for family in exaone_moe qwen3_next qwen3_5_moe; do
        with_predictor $family ahead-$family
        moe-convert -q ahead-$family -o $family.moe
    done
    for family in deepseek_v3 glm4_moe exaone_moe qwen3_next qwen3_5_moe; do
        jq -c '{id: "one", tokens: .prompt[:9]}, {id: "two", tokens: .prompt}' "$GOLDEN/mtp/$family/golden.json" > $family.jsonl
    done
}

setup() { cd "$WORK"; }

@test "heads that guess do not change the text, and draft as deep as they have heads" {
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

@test "predictors do not change the text, and draft up to the requested depth" {
    local family options draft
    for family in deepseek_v3 glm4_moe exaone_moe qwen3_next qwen3_5_moe; do
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

@test "drafts by predictors of Qwen are those of an independent program" {
    local family
    for family in qwen3_next qwen3_5_moe; do
        drafts_as_golden $family $family.moe
    done
}

@test "predictors whose experts are in one tensor, beside a model whose experts are apart, are the same" {
    command -v python3 > /dev/null || skip "no python3"
    with_predictor qwen3_next fused
    python3 - fused/model-00002-of-00002.safetensors <<'END'
import json, os, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
old, header, out = json.loads(data[8:8 + size]), {}, b""
bytes_of = lambda name: data[8 + size + old[name]["data_offsets"][0]:8 + size + old[name]["data_offsets"][1]]
at, parts = "mtp.layers.0.mlp.experts.", {name: (entry["shape"], bytes_of(name)) for name, entry in old.items()}
part = lambda e, which: parts.pop(f"{at}{e}.{which}_proj.weight")[1]
parts[at + "gate_up_proj"] = [8, 32, 32], b"".join(part(e, which) for e in range(8) for which in ("gate", "up"))
parts[at + "down_proj"] = [8, 32, 16], b"".join(part(e, "down") for e in range(8))
for name, (shape, content) in parts.items():
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(out), len(out) + len(content)]}
    out += content
text = json.dumps(header).encode()
os.remove(sys.argv[1])
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + out)
END
    moe-convert -q --name qwen3_next fused -o fused.moe
    drafts_as_golden qwen3_next fused.moe
}

@test "a predictor that lacks a part is refused by the name of the part" {
    with_predictor qwen3_next lacking
    sed 's/mtp.norm.weight/mtp.nose.weight/' "$GOLDEN/mtp/qwen3_next/model-00002-of-00002.safetensors" > lacking.safetensors
    mv lacking.safetensors lacking/model-00002-of-00002.safetensors
    run moe-convert lacking -o x.moe
    assert_trouble moe-convert
    [[ $output == *'tensor mtp.norm.weight is missing; in a model of family qwen3_next it is the source of predict.0.final_norm; convert the complete checkpoint'* ]]
}

@test "the attention of K-EXAONE's predictor is read from config.json" {
    with_predictor exaone_moe types
    rm types/config.json
    converted() {
        jq ". + $1" "$GOLDEN/families/exaone_moe/model/config.json" > types/config.json
        run moe-convert --name exaone_moe types -o types.moe
    }
    converted '{"mtp_layer_types": ["full_attention"], "mtp_sliding_windows": [0]}'
    moe-decode -q -m types.moe -n 24 -d mtp -K 5 exaone_moe.jsonl --stream types.moes > /dev/null
    moe-decode -q -m exaone_moe.moe -n 24 -d mtp -K 5 exaone_moe.jsonl --stream same.moes > /dev/null
    drafted() { moe-view --json $1.moes | jq -c 'select(.type == "iter") | .node_tokens'; }
    cmp <(drafted types) <(drafted same)
    converted '{"mtp_layer_types": ["sliding_attention"], "mtp_sliding_windows": [2]}'
    moe-decode -q -m types.moe -n 24 -d mtp -K 5 exaone_moe.jsonl --stream types.moes > /dev/null
    ! cmp -s <(drafted types) <(drafted same) || false
    converted '{"mtp_layer_types": ["sliding_attention"], "mtp_sliding_windows": [0]}'
    assert_trouble moe-convert
    [[ $output == *'predictor 0 slides, but has no window; give it one in mtp_sliding_windows'* ]]
    converted '{"mtp_layer_types": ["mamba"]}'
    assert_trouble moe-convert
    [[ $output == *'supported are full_attention and sliding_attention'* ]]
}

@test "a model without predictors and invalid numbers are refused in one line" {
    run moe-decode -q -m pocket.moe -d mtp prompts.jsonl
    assert_trouble moe-decode
    [[ $output == *'pocket.moe: the model has no layers for multi-token prediction; choose another drafter, such as ngram'* ]]
    run moe-decode -q -m glm4_moe.moe -d mtp:depth=0 glm4_moe.jsonl
    assert_trouble moe-decode
    [[ $output == *'mtp: depth: 0 is not between 1 and 64'* ]]
    run moe-decode -q -m glm4_moe.moe -d mtp:file=x glm4_moe.jsonl
    assert_trouble moe-decode
}
