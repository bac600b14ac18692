#!/usr/bin/env bats
# moe-bench compare: whether the later measurement is slower than the earlier one

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    cp "$MOE_POCKET" "$WORK/pocket.moe"
    for task in math code extract; do
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 3
    done > "$WORK/prompts.jsonl"
    cd "$WORK"
    cat > ci.json <<'SUITE'
{
  "model": "pocket.moe", "prompts": "prompts.jsonl", "settings": [{"name": "none"}, {"name": "K2", "draft": "ngram", "draft-length": 2}],
  "options": {"max-tokens": 4}, "measure-seconds": 0
}
SUITE
    moe-bench run -q ci.json -o base.moes
    moe-bench run -q -j $(($(nproc) + 1)) ci.json -o other.moes
    # Some streams are 5 times slower, with medians of three runs, for a machine with other load.
    sed 's/"settings"/"repetitions": 3, &/' ci.json > calm.json
    sed 's/"draft": "ngram", "draft-length": 2/"draft": "model:file=pocket.moe", "tree": "dynamic:total=64,topk=16"/' calm.json > slow.json
    moe-bench run -q calm.json -o calm.moes
    moe-bench run -q slow.json -o slow.moes
    sed 's/"none"/"other"/; s/"K2"/"K3"/' ci.json > names.json
    moe-bench run -q names.json -o names.moes
    sed 's/"settings"/"limits": {"prompts": 3}, "settings"/' ci.json > few.json
    moe-bench run -q few.json -o few.moes
}

setup() { cd "$WORK"; }

@test "a stream is not slower than itself" {
    run moe-bench compare --limit 0 base.moes base.moes
    [ "$status" = 0 ]
    [[ "$output" == *"K2 "*" 9 "*"1.000   1.000  1.000-1.000  holds"* ]]
}

@test "compare distinguishes slower from faster settings" {
    run moe-bench compare --limit 2% calm.moes slow.moes
    [ "$status" = 1 ]
    [[ "${lines[-1]}" == "moe-bench: setting 'K2' is slower: relative to 'none' it runs at 0."*" times the earlier speed, at most 0."* ]]
    moe-bench compare --json calm.moes slow.moes > slow.jsonl || [ $? = 1 ]
    tail -n 1 slow.jsonl | jq -e '.verdict == "slower" and .machine_changed == false and (.reason | startswith("setting"))'
    run moe-bench compare --limit 99.9999% slow.moes calm.moes
    [ "$status" = 0 ]
}

@test "a loss that all settings share is unclear: machine or program" {
    moe-bench compare --json --limit 2% calm.moes slow.moes > beside.jsonl || [ $? = 1 ]
    jq -se '.[1] | .setting == "K2" and .reference == "none" and .drift > 0 and .beside < 0.9 and
        ((.beside * .drift / .ratio - 1) | . < 1e-9 and . > -1e-9) and .beside_low <= .beside and .beside <= .beside_high' beside.jsonl
    # Single decode streams do not show the machine's load.
    moe-decode -q -m pocket.moe -n 4 prompts.jsonl --stream quick.moes > /dev/null
    moe-decode -q -m pocket.moe -n 4 -d model:file=pocket.moe --tree dynamic:total=64,topk=16 prompts.jsonl --stream late.moes > /dev/null
    run moe-bench compare quick.moes late.moes
    [ "$status" = 125 ]
    [[ "${lines[-1]}" == "moe-bench: '"*"' runs at 0."*" times the earlier speed, but either the machine or the program may be the cause; compare two builds with moe-bench ab"* ]]
}

@test "streams of two machines cannot be judged" {
    for pair in "base.moes other.moes" "other.moes base.moes"; do
        run moe-bench compare --limit 50% $pair
        [ "$status" = 125 ]
        [[ "$output" == *"the machines differ: "*" before, "* ]]
        [[ "${lines[-1]}" == "moe-bench: the streams were measured on different machines"* ]]
        moe-bench compare --json $pair > across.jsonl || [ $? = 125 ]
        tail -n 1 across.jsonl | jq -e '.verdict == "unclear" and .machine_changed and (.reason | startswith("the streams were measured on different machines"))'
    done
}

@test "settings that only one stream has are not judged" {
    sed 's/"K2"/"K3"/' ci.json > half.json
    moe-bench run -q half.json -o half.moes
    run moe-bench compare --limit 99.9999% base.moes half.moes
    [ "$status" = 125 ]
    [[ "$output" == *"2 settings are in only one of the two"* ]]
    [[ "${lines[-1]}" == "moe-bench: 2 settings are only in one stream, the first is 'K2' of the earlier stream"* ]]
    moe-bench compare --limit 99.9999% --json base.moes half.moes > half.jsonl || [ $? = 125 ]
    jq -se '.[0].verdict == "holds" and .[-1].verdict == "unclear" and .[-1].alone == 2' half.jsonl
}

@test "differences of models and texts are reported" {
    mkdir q8
    moe-convert -q "$MOE_MODELS/pocket/model" --dtype q8 -o q8/pocket.moe
    sed 's/"max-tokens": 4/"max-tokens": 40/' ci.json > q8/ci.json
    cp prompts.jsonl q8
    moe-bench run -q q8/ci.json -o q8.moes
    sed 's/"max-tokens": 4/"max-tokens": 40/' ci.json > long.json
    moe-bench run -q long.json -o long.moes
    moe-bench compare --limit 99.9999% long.moes q8.moes > said
    grep -q '^none: the model files differ: ' said
    grep -q '^K2: [1-9] of 9 texts differ$' said
    moe-bench compare --limit 99.9999% --json long.moes q8.moes |
        jq -se '.[0] | .compared == 9 and .identical < 9'
    moe-bench compare --limit 99.9999% long.moes long.moes > said
    refute grep -q differ said
    moe-bench compare --limit 99.9999% base.moes long.moes > said
    grep -q '^none: the options differ: ' said
}

@test "the pipeline runs as written" {
    run bash -c 'moe-bench run -q ci.json -o now.moes && moe-bench compare --limit 99.9999% base.moes now.moes'
    [ "$status" = 0 ]
}

@test "too few prompts or streams cannot be judged" {
    run moe-bench compare base.moes names.moes
    [ "$status" = 125 ]
    [[ "${lines[-1]}" == "moe-bench: the streams have no setting in common"* ]]
    [[ "$output" == *"4 settings are in only one of the two"* ]]
    run moe-bench compare base.moes few.moes
    [ "$status" = 125 ]
    [[ "${lines[-1]}" == *"at most 3 prompts in common, but a verdict needs 6"* ]]
}

@test "JSON has every figure, equal to those recomputed from the streams" {
    moe-bench compare --json base.moes other.moes > compare.jsonl || [ $? = 125 ]
    jq -se '.[-1] | .type == "verdict" and .verdict == "unclear" and .limit == 0.02 and .settings == 2' compare.jsonl
    speed() {
        moe-view --json "$1" | jq -c 'select(.type == "sample" or .type == "iter")' | jq -s '
            (map(select(.type == "sample" and .setting == 0) | .sequence)) as $mine |
            map(select(.type == "iter" and (.sequence as $s | $mine | index($s)))) |
            (map(.emitted) | add) / (map(.draft_us + .verify_us + .accept_us + .other_us) | add) * 1e6'
    }
    jq -se --argjson before "$(speed base.moes)" --argjson now "$(speed other.moes)" '
        def near($a; $b): (($a - $b) | if . < 0 then -. else . end) < 1e-9 * $b;
        .[0] | near(.base_tokens_per_s; $before) and near(.tokens_per_s; $now) and near(.ratio; $now / $before) and
        .reference == null and .beside == .ratio and .drift == 1 and
        .ratio_low <= .ratio and .ratio <= .ratio_high and .ratio_high <= .ratio_high_together' compare.jsonl
}

@test "two decode streams form one pair of settings" {
    moe-decode -q -m pocket.moe -n 4 prompts.jsonl --stream one.moes > /dev/null
    run moe-bench compare one.moes one.moes
    [ "$status" = 0 ]
    cp one.moes two.moes
    run moe-bench compare one.moes two.moes
    [ "$status" = 0 ]
}

@test "bad input is reported in one line" {
    for limit in x 2x% -1% 100% 1 ""; do
        run moe-bench compare --limit="$limit" base.moes base.moes
        assert_trouble moe-bench
        [[ $output == *"--limit"* ]]
    done
    run moe-bench compare base.moes
    assert_trouble moe-bench
    run moe-bench compare base.moes none.moes
    assert_trouble moe-bench
    head -c 3000 base.moes > cut.moes
    run moe-bench compare base.moes cut.moes
    assert_trouble moe-bench
    [[ $output == *"cut.moes"* ]]
}
