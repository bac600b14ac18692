#!/usr/bin/env bats
# moe-bench plan: every figure recomputed by another program from a config.json and a machine's description, and refused input.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR" CONFIG="$MOE_MODELS/pocket/model/config.json"
    cd "$WORK"
    jq '.num_hidden_layers = 2 | .hidden_size = 96 | .num_attention_heads = 2' "$CONFIG" > small.json
    cat > here.json <<'MACHINE'
{"machine": "made up", "available": 200e6, "read_bandwidth": 10e9, "operation_us": 5, "notes": ["none"],
 "products": {"bf16": [[1, 9e9], [3, 8e9], [8, 4e9], [32, 1.2e9]], "q8": 60e9, "q4": [[1, 5e9]]},
 "network": {"bytes_per_second": 1e9, "latency_us": 7}}
MACHINE
    jq '.available = 12e6 | .disk = {bytes_per_second: 700e6, latency_us: 90}' here.json > small-memory.json
    jq '.available = 11e6 | .gpu = {name: "made up, too", bytes: 14e6, bytes_per_second: 300e9} | .products = {bf16: 4e12}
        | .link = {bytes_per_second: 20e9, latency_us: 10} | .disk = {bytes_per_second: 700e6, latency_us: 90}' here.json > gpu.json
}

setup() { cd "$WORK"; }

plan() { moe-bench plan -m "$CONFIG" "$@"; }
# again MACHINE KEY=VALUE... -- OPTIONS: the plan with these options equals planned.py's with these keys.
again() {
    local machine=$1 keys=()
    shift
    while [ "$1" != -- ]; do keys+=("$1"); shift; done
    shift
    plan --machine "$machine" --json "$@" > told.jsonl
    python3 "$top/tests/bench/planned.py" "$CONFIG" "$machine" told.jsonl "${keys[@]}"
}

@test "plans equal those that another program computes from config.json, the machine and the manual" {
    again here.json draft=ngram:accept=0.8/0.5 draft=model:file=small.json draft=self:topk=1:accept=0.9 draft=head:bytes=100000:accept=0.7 -- \
        -d ngram:accept=0.8/0.5 -d model:file=small.json -d self:topk=1,accept=0.9 -d head:bytes=100000,accept=0.7
    # The example depends on drafts, some of which stop paying.
    jq -e -s 'any(.[]; .type == "decode" and .length > 1) and any(.[]; .type == "stops" and .texts != null)' told.jsonl
    again here.json dtype=q8 experts=q4 context=300 prefix=200 texts=5 ranks=3 K=4 draft=self:exit=2:skip=0.1:accept=0.9/0.8/0.7 draft=suffix -- \
        --dtype q8 --expert-dtype q4 -c 300 --prefix 200 --parallel 5 --ranks 3 -K 4 -d self:exit=2,skip=0.1,accept=0.9/0.8/0.7 -d suffix
    again small-memory.json context=256 draft=pld -- -c 256 -d pld
    jq -e -s '.[0] | (.fits | not) and .runs and .slots < .expert_count and .slots > 0' told.jsonl
    again small-memory.json context=64 cache=0.4 hits=0.7 draft=self -- -c 64 --cache-experts 40% --hits .7 -d self
    again gpu.json context=64 ranks=2 -- -c 64 --ranks 2
    again gpu.json context=64 draft=ngram:accept=1 -- -c 64 -d ngram:accept=1
    jq -e -s '.[1] | .link_bytes > 0 and .disk_bytes > 0' told.jsonl
}

@test "a model file, its config.json and its folder have the same plan" {
    plan --machine here.json --json | jq -c 'del(.model)' > config
    moe-bench plan -m "${CONFIG%/*}" --machine here.json --json | jq -c 'del(.model)' | cmp - config
    moe-convert synthetic -q --like "$CONFIG" -o made.moe
    moe-bench plan -m made.moe --machine here.json --json | jq -c 'del(.model)' | cmp - config
    # The planned memory of a head is the size of its tensors. Drafting a token reads the head's layer and, for eagle1, also the
    # target's output head.
    moe-convert synthetic -q --head eagle1 --target made.moe --dtype bf16 -o head.moe
    bytes=$(moe-view --json head.moe | jq -s '[.[] | select(.type == "tensor").bytes] | add')
    moe-bench plan -m made.moe --machine here.json --json -K 1 -d head:bytes=1 -d head:file=head.moe > headed.jsonl
    jq -e -s --argjson bytes "$bytes" '.[0].drafter_bytes == $bytes + 1 and
        ((.[3].parts.drafting - .[2].parts.drafting) * 9e9 / $bytes - 1 | fabs) < 0.02' headed.jsonl
    # Known shapes, several machines, and a text for people.
    jq '.available = 40e9' here.json > large.json
    moe-bench plan -m qwen3-30b-a3b --dtype q4 --machine large.json --machine gpu.json -d ngram > said
    grep -q '^machine   made up, made up, too, reads 300.0 GB/s' said
    [ "$(grep -c '^fits      yes\|^fits      no: .*not even the experts of one token' said)" = 2 ]
    [ "$(grep -c "^ngram: drafts" said)" = 2 ]
}

@test "what machine measures is a description; this machine is measured where none is given" {
    moe-bench machine --products --seconds 0.001 --size 4M --disk "$MOE_POCKET" --json > none 2>&1 || true
    grep -q 'the read bandwidth is measured with a file of at least 32 MiB' none
    moe-bench machine --products --seconds 0.001 --size 4M --json > measured.json
    formats=$(moe-convert list | sed -n '/^weight formats/,/^$/s/^  //p' | jq -R . | jq -cs sort)
    jq -e --argjson formats "$formats" '($formats | length) > 9 and (.products | keys) == $formats
        and all(.products[]; map(.[0]) == [1, 2, 3, 4, 6, 8, 12, 16, 32] and all(.[]; .[1] > 1e6)) and .operation_us > 0' measured.json
    # A product that is faster than memory counts as the speed of memory.
    jq '.read_bandwidth = 1e6' measured.json > slow.json
    again slow.json --
    again measured.json draft=ngram:accept=0.9 -- -d ngram:accept=0.9
    plan --seconds 0 --size 4M --json | jq -e -s '.[0].machine | startswith("this one")'
    # Experts may be wider inside than outside, as Mixtral's are.
    jq '.intermediate_size = 64 * .hidden_size | .moe_intermediate_size = .intermediate_size' small.json > wide.json
    moe-bench plan -m wide.json --dtype q8 --seconds 0 --size 4M > /dev/null
}

@test "invalid plans are refused in one line with a remedy" {
    echo '{"machine": "x", "available": 1e9, "read_bandwidth": 1e9, "product": {}}' > wrong-key.json
    echo '{"machine": "x", "available": 1e9}' > no-speed.json
    echo '{"machine": "x", "available": 1e9, "read_bandwidth": 1e9, "products": {"q8": [[2, 1e9]]}}' > no-first.json
    echo '{"machine": "x", "available": 1e9, "read_bandwidth": 1e9, "products": {"q9": 1e9}}' > no-format.json
    jq '.model_type = "olmoes"' "$CONFIG" > family.json
    jq '.num_experts_per_tok = 99' "$CONFIG" > silly.json
    jq '.quantization_config = {quant_method: "awq"}' "$CONFIG" > awq.json
    while IFS='|' read -r options message; do
        run moe-bench plan --machine here.json $options
        assert_trouble moe-bench
        [[ $output == *"$message"* ]] || { echo "$options: does not say '$message': $output"; return 1; }
    done <<REFUSED
|no model is given; name a model file, a config.json or a shape of
-m nowhere.json|nowhere.json: No such file
-m nowhere.moe|nowhere.moe: No such file
-m olmoe-1b|-m olmoe-1b: unknown shape; did you mean olmoe-1b-7b?
-m family.json|model_type is "olmoes"; this family is not supported; moe-convert --list-families prints those that are
-m silly.json|silly.json: config.json:
-m mistral-7b|is a dense model, and a plan needs routed experts
-m awq.json|its weights are quantised by 'awq', whose size is unknown
-m $MOE_POCKET --dtype q4|is a model file, which defines its own formats
-m $CONFIG -K 99|-K
-m $CONFIG -d ngrams|'ngrams' is not a drafter of a plan; did you mean ngram?
-m $CONFIG -d ngram:accept=1.5|accept=1.5: expected up to 3 probabilities from 0 to 1
-m $CONFIG -d ngram:accept=.9/.8/.7/.6|up to 3 probabilities
-m $CONFIG -d ngram:acept=.5|acept
-m $CONFIG -d model|model: no draft model is given
-m $CONFIG -d head|head: expected head:file=FILE with a head file, or head:bytes=SIZE with the bytes that the head reads per token, without the model
-m $CONFIG -d mtp|a config.json does not show whether the model has layers for multi-token prediction
-m $CONFIG --cache-experts 1%|has room for 1 experts, but one token uses 4 in a layer; give at least
-m $CONFIG --cache-experts x|'x' is not a size
-m $CONFIG --hits 2|--hits
-m $CONFIG -j 1|--threads: applies to measuring this machine, but the plan is for other machines
-m $CONFIG -K 3|--draft-length: no drafts are planned; add --draft
-m $CONFIG --machine wrong-key.json|did you mean "products"?
-m $CONFIG --machine no-speed.json|no-speed.json: "read_bandwidth": expected a number from 1
-m $CONFIG --machine no-first.json|"products": "q8": pair 1: expected [rows, bytes/s], with more rows than in the pair before, and 1 to
-m $CONFIG --machine no-format.json|unknown key "q9"
-m $CONFIG --machine nowhere.json|nowhere.json: No such file
-m $CONFIG --machine $top/tests/bench/machines/disk-olmoe-1b-7b.json|is a description for
REFUSED
    run moe-bench machine --products --seconds 0
    assert_trouble moe-bench
    [[ $output == *'--products: --seconds 0 leaves no time to measure; give more' ]]
    run plan --machine small-memory.json -c 64 --cache-experts 100M
    assert_trouble moe-bench
    [[ $output == *'give less, or auto' ]]
}
