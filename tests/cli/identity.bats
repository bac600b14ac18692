#!/usr/bin/env bats
# moe-bench identity: its answer for settings that agree, and for one that does not; and the grids of tests/bench.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    cp "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    for kind in eagle1 eagle3 kangaroo jakiro; do
        moe-convert head -q "$MOE_MODELS/pocket/heads/$kind" --target pocket.moe -o head-$kind.moe
    done
    for kind in medusa hydra hydra_prefix jakiro_star; do
        moe-convert head -q "$MOE_MODELS/../golden/heads/$kind/head.tar.xz" --target pocket.moe -o head-$kind.moe
    done
    for task in math code extract summ; do
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n $((MOE_LONG ? 4 : 2))
    done > prompts.jsonl
    echo '{"id": "at once", "prompt": "Paris is"}' >> prompts.jsonl         # the models differ in the first token
    suite three.json '{"name": "none"}, {"name": "other", "model": "draft"},
                      {"name": "B4", "draft": "ngram", "draft-length": 8, "budget": 4},
                      {"name": "tree", "draft": "model:file=draft.moe", "tree": "dynamic:total=24,depth=4,topk=4",
                       "budget": 4}' \
        '"reference": "none"'
    moe-bench identity --json three.json > three.jsonl || [ $? = 1 ]
}

setup() { cd "$WORK"; }

# Writes a suite: its name, its settings, and other members.
suite() {
    printf '{"models": {"pocket": "pocket.moe", "draft": "draft.moe"}, "prompts": "prompts.jsonl",
             "options": {"max-tokens": 24}, "settings": [%s]%s}' "$2" "${3:+, $3}" > "$1"
}

# Prepares the files that the grids of tests/bench name.
grids() {
    [ ! -e tests ] || return 0
    mkdir -p tests/models build/normal
    cp -r "$BATS_TEST_DIRNAME/../bench" tests/bench
    ln -s "$MOE_MODELS/pocket" tests/models/pocket
    ln -s "$WORK/pocket.moe" "$WORK/draft.moe" "$WORK"/head-*.moe build/normal/
    moe-convert -q "$MOE_MODELS/../golden/mtp/glm4_moe/model" -o build/normal/tiny.moe
    for kind in eagle1 eagle3 medusa hydra kangaroo jakiro jakiro_star; do
        moe-convert synthetic -q --head $kind --like tests/bench/tiny-head.json --target build/normal/tiny.moe --seed 3 \
            -o build/normal/tiny-$kind.moe
    done
}

@test "a sample of the grid agrees" {
    grids
    [ -n "$MOE_LONG" ] && [ -z "$MOE_SANITIZED" ] || sed -i 's/"prompts-per-task": 3/"prompts-per-task": 1/; s/"max-tokens": 40/"max-tokens": 24/
        s/"limits": {/"tasks": ["math", "extract"], &/' tests/bench/identity-sample.json
    moe-bench identity --json tests/bench/identity-sample.json > sample.jsonl
    jq -s -e 'map(select(.type == "setting")) | length == 171 and all(.[]; .differences == 0 and .tokens > 0 and .lossless)' \
        sample.jsonl
    jq -s -e 'last | .type == "verdict" and .agree and .differences == 0' sample.jsonl
    # Each temperature has its own texts: otherwise a grid in which sampling did nothing would pass.
    [ "$(jq -r 'select(.type == "setting") | .reference' sample.jsonl | sort -u | wc -l)" = 3 ]
}

@test "heads of every kind agree, with every policy and shape" {
    grids
    moe-bench identity --json tests/bench/identity-heads.json > heads.jsonl
    jq -s -e 'map(select(.type == "setting")) | length == 244 and all(.[]; .differences == 0 and .tokens == 72 and .lossless)' \
        heads.jsonl
    jq -s -e 'last | .type == "verdict" and .agree and .differences == 0' heads.jsonl
}

@test "models whose layers have a state agree, with drafts of every kind, and resumed" {
    local family other kind decode
    grids
    for family in qwen3_next qwen3_5_moe; do
        with_predictor $family hybrid-$family
        moe-convert -q hybrid-$family -o $family.moe
    done
    for family in qwen3_next qwen3_5_moe; do
        other=qwen3_next
        [ $family = qwen3_5_moe ] || other=qwen3_5_moe
        ln -sf "$WORK/$family.moe" build/normal/hybrid.moe
        ln -sf "$WORK/$other.moe" build/normal/hybrid-draft.moe
        for kind in eagle3 kangaroo; do
            moe-convert synthetic -q --head $kind --like tests/bench/tiny-head.json --target $family.moe --seed 3 \
                -o build/normal/hybrid-$kind.moe
        done
        moe-bench identity --json tests/bench/identity-states.json > states.jsonl
        jq -s -e 'map(select(.type == "setting")) | length == 74 and all(.[]; .differences == 0 and .tokens == 120 and .lossless)' \
            states.jsonl
        jq -s -e 'last | .type == "verdict" and .agree and .differences == 0' states.jsonl
        decode="moe-decode -q -m $family.moe -n 40 --ignore-eos --json --temperature 0.8 --seed 1"
        $decode -d mtp -K 4 --stream whole.moes tests/bench/identity-states.jsonl | jq -c .tokens > whole
        head -c $(($(stat -c %s whole.moes) / 2)) whole.moes > half.moes
        $decode -d ngram --resume half.moes tests/bench/identity-states.jsonl | jq -c .tokens | cmp - whole
    done
}

@test "models with Mamba-1 or 2, short convolutions, layers of one half or Kimi Delta Attention agree, with drafts of every kind, and resumed" {
    local family decode
    grids
    local golden="$MOE_MODELS/../golden/families"
    for family in granitemoehybrid lfm2_moe nemotron_h kimi_linear bailing_hybrid jamba; do
        cp -r "$golden/$family/model" $family
        [ $family != bailing_hybrid ] || jq --slurpfile with "$golden/$family/limits.json" '. + $with[0].limits' \
            "$golden/$family/model/config.json" > $family/config.json
        moe-convert -q $family -o $family.moe
    done
    jq -c '.tokens |= map(. % 32)' tests/bench/identity-states.jsonl > tests/bench/identity-small.jsonl
    jq '.prompts = "identity-small.jsonl" | .settings |= map(select(.name | IN("none", "none, elsewhere", "chain", "tree")) |
        if .vary then .vary.draft |= map(select(test("^(ngram|model|self)"))) else . end)' \
        tests/bench/identity-states.json > tests/bench/identity-small.json
    for family in granitemoehybrid lfm2_moe nemotron_h kimi_linear bailing_hybrid jamba; do
        ln -sf "$WORK/$family.moe" build/normal/hybrid.moe
        ln -sf "$WORK/granitemoehybrid.moe" build/normal/hybrid-draft.moe
        moe-bench identity --json tests/bench/identity-small.json > small.jsonl
        jq -s -e 'map(select(.type == "setting")) | length == 44 and all(.[]; .differences == 0 and .tokens == 120 and .lossless)' \
            small.jsonl
        jq -s -e 'last | .type == "verdict" and .agree and .differences == 0' small.jsonl
        decode="moe-decode -q -m $family.moe -n 40 --ignore-eos --json --temperature 0.8 --seed 1"
        $decode -d self:skip=0.5 -K 4 --stream whole.moes tests/bench/identity-small.jsonl | jq -c .tokens > whole
        head -c $(($(stat -c %s whole.moes) / 2)) whole.moes > half.moes
        $decode -d ngram --resume half.moes tests/bench/identity-small.jsonl | jq -c .tokens | cmp - whole
    done
}

@test "formats of weights, of keys and values, and of activations agree" {
    local kv activations
    grids
    for dtype in q8 q4 fp8; do
        moe-convert -q "$MOE_MODELS/pocket/model" --dtype $dtype -o build/normal/pocket-$dtype.moe
    done
    for mix in Q4_K_M IQ3_XXS ${MOE_LONG:+Q5_K_M IQ4_XS IQ4_NL Q3_K_M Q2_K IQ2_XS IQ2_M NVFP4}; do
        python3 "$BATS_TEST_DIRNAME/mixed-gguf.py" $mix $mix.gguf
        moe-convert -q $mix.gguf -o build/normal/$mix.moe
        echo $mix
    done > mixes
    if [ -n "$MOE_LONG" ]; then
        python3 "$BATS_TEST_DIRNAME/nvfp4.py" "$MOE_MODELS/pocket/model" scaled
        moe-convert -q scaled -o build/normal/NVFP4_S.moe
        echo NVFP4_S >> mixes
    fi
    jq -c '.tokens |= map(. % 32)' tests/bench/identity-states.jsonl > tests/bench/identity-small.jsonl
    jq --arg mixes "$(cat mixes)" '($mixes | split("\n")) as $all | .prompts = "identity-small.jsonl" | .vary.model = $all |
        .models = ([$all[] | {(.): "../../build/normal/\(.).moe"}] | add) | del(.limits) | .options["ignore-eos"] = true' \
        tests/bench/identity-formats.json > tests/bench/identity-mixes.json
    [ -z "$MOE_LONG" ] || sed -i 's/"prompts-per-task": 1/"prompts-per-task": 10/' tests/bench/identity-formats.json
    while read -r kv activations; do
        for suite in formats mixes; do
            moe-bench identity --json --kv-dtype $kv --activations $activations tests/bench/identity-$suite.json > $suite.jsonl
            jq -s -e 'last | .type == "verdict" and .agree and .differences == 0' $suite.jsonl
            jq -s -e 'map(select(.type == "setting")) | length >= 8 and all(.[]; .tokens >= 96 and .lossless)' $suite.jsonl
        done
    done <<< "q8 bf16${MOE_LONG:+
f16 f32
f32 bf16
bf16 bf16
f16 bf16
q8 f32
bf16 f32}"
}

@test "the whole grid agrees" {
    [ -n "$MOE_LONG" ] && [ -z "$MOE_SANITIZED" ] || skip "only in the long check"
    grids
    moe-bench identity tests/bench/identity-full.json > full.txt || { tail -n 4 full.txt; false; }
    [ "$(tail -n 1 full.txt)" = "all bytes agree" ]
    [ "$(grep -c ' 240 ' full.txt)" = 498 ]
}

@test "another model differs: exit 1, the first difference, and every prompt's under --json" {
    run moe-bench identity three.json
    [ "$status" = 1 ]
    local first
    first=$(jq -c 'select(.type == "difference" and .setting == "other")' three.jsonl | head -n 1)
    [[ "$output" == *"first difference: 'other' from 'none', prompt $(jq -r .prompt <<< "$first"), "* ]]
    [[ "$output" == *"position $(jq .position <<< "$first")"$'\n'* ]]
    [[ "$output" == *"reference  token $(jq .reference_token.id <<< "$first") $(jq .reference_token.text <<< "$first"), "* ]]
    [[ "$output" == *"here       token $(jq .token.id <<< "$first") $(jq .token.text <<< "$first"), "* ]]
    [[ "${lines[-1]}" == "moe-bench: setting 'other' differs from 'none': prompt "* ]]
    jq -s -e 'any(.[]; .prompt == "at once" and .index == 0)' three.jsonl
    # If two settings differ, the first one in the suite is reported.
    run moe-bench identity --strict three.json
    [ "$status" = 1 ]
    [[ "$output" == *"first difference: 'other' from 'none'"* ]]
}

# Prints moe-decode's results for the prompts: [id, token ids, prompt's length] by model and options.
decoded() { moe-decode -q -n 24 --json "$@" prompts.jsonl | jq -c '{id, tokens, prompt: .prompt_tokens}'; }

@test "a difference is at the token where answers of moe-decode differ" {
    decoded -m pocket.moe > here.jsonl
    for other in other B4; do
        if [ $other = other ]; then decoded -m draft.moe; else decoded -m pocket.moe -d ngram -K 8 -B 4; fi > there.jsonl
        jq -n -c --slurpfile a here.jsonl --slurpfile b there.jsonl '
            [range($a | length) | $a[.] as $x | $b[.] as $y | select($x.tokens != $y.tokens) |
             [range([$x.tokens, $y.tokens | length] | max) | select($x.tokens[.] != $y.tokens[.])][0] as $at |
             [$x.id, $at, $y.tokens[$at], $x.tokens[$at]]] | .[]' > expected.jsonl
        [ -s expected.jsonl ]
        jq -c --arg other $other 'select(.type == "difference" and .setting == $other) |
                                  [.prompt, .index, .token.id, .reference_token.id]' three.jsonl | cmp - expected.jsonl
    done
}

# Prints the margin at a position of the text of prompt $1, from the logits of every token that is part of it.
margin() {
    local prompt=$1 position=$2
    shift 2
    jq -c --arg id "$prompt" 'select(.id == $id)' prompts.jsonl > one.jsonl
    moe-profile -q -n 24 --record logits "$@" one.jsonl | moe-view --json | jq -s --argjson position "$position" '
        [.[] | select(.type == "route") | . as $r | range(.n) | select($r.accepted == null or $r.accepted[.] == 1) |
         $r.logits[.]][$position - 1] | sort | .[-1] - .[-2]'
}

@test "a margin is that of the logits at the difference" {
    for other in other B4 tree; do
        case $other in
        other) how="-m draft.moe" ;;
        B4) how="-m pocket.moe -d ngram -K 8 -B 4" ;;
        tree) how="-m pocket.moe -d model:file=draft.moe --tree dynamic:total=24,depth=4,topk=4 -B 4" ;;
        esac
        jq -c --arg other $other 'select(.type == "difference" and .setting == $other and .token and .reference_token)' \
            three.jsonl | tail -n $((MOE_LONG ? 4 : 1)) > places.jsonl
        [ "$(wc -l < places.jsonl)" = $((MOE_LONG ? 4 : 1)) ]
        while read -r place; do
            prompt=$(jq -r .prompt <<< "$place") position=$(jq .position <<< "$place")
            there=$(margin "$prompt" "$position" $how < /dev/null)
            here=$(margin "$prompt" "$position" -m pocket.moe < /dev/null)
            jq -e --argjson there "$there" --argjson here "$here" '
                (.token.margin - $there | fabs) < 1e-5 and (.reference_token.margin - $here | fabs) < 1e-5' <<< "$place" ||
                { echo "$other, $prompt: $there and $here"; false; }
        done < places.jsonl
    done
}

@test "settings that may differ are labelled, and decide only under --strict" {
    suite apart.json '{"name": "none"}, {"name": "K2", "draft": "ngram", "draft-length": 2},
                      {"name": "B4", "draft": "ngram", "draft-length": 8, "budget": 4}'
    run moe-bench identity apart.json
    [ "$status" = 0 ]
    [[ "$output" == *"not lossless: budget 4 of 32, router, substitute"* ]]
    moe-bench identity apart.json --json | jq -s -e '.[2].differences > 0 and .[2].lossless == false and last.agree'
    run moe-bench identity --strict apart.json
    [ "$status" = 1 ]
    [[ "$output" == *"first difference: 'B4' from 'none'"* ]]
    # A budget of all experts leaves nothing out.
    suite all.json '{"name": "none"}, {"name": "B32", "draft": "ngram", "budget": 32}'
    moe-bench identity all.json --json | jq -s -e '.[1].lossless and last.agree'
}

@test "threads, devices and instruction sets are settings" {
    suite machine.json '{"name": "none"}, {"name": "plain", "isa": "plain"},
                        {"name": "plain K2", "isa": "plain", "draft": "ngram"},
                        {"name": "ref", "device": "ref"}, {"name": "ref K2", "device": "ref", "draft": "ngram", "threads": 2}' \
        '"limits": {"prompts": 1, "max-tokens": 12}'
    tail -n 1 prompts.jsonl > short.jsonl               # the reference takes a hundredth of a second per token
    sed -i 's/prompts.jsonl/short.jsonl/' machine.json
    moe-bench identity --json machine.json > machine.jsonl
    [ "$(jq -r 'select(.type == "setting") | .reference' machine.jsonl | paste -sd,)" = none,plain,plain,ref,ref ]
}

@test "prompts are taken in the order that a setting says" {
    # If no prompt fits, the first one that was tried is named.
    tried() {
        suite s.json "{\"name\": \"none\", \"order\": \"$1\"}, {\"name\": \"K4\", \"draft\": \"ngram\"}"
        run moe-bench identity -c 2 s.json
        [ "$status" = 2 ]
        sed 's/.*prompts.jsonl:\([0-9]*\).*/\1/' <<< "$output"
    }
    [ "$(tried given)" = 1 ]
    [ "$(tried reversed)" = "$(wc -l < prompts.jsonl)" ]
    [ "$(tried shuffled:1)" != "$(tried shuffled:3)" ]
    [ "$(tried shuffled:3)" = "$(tried shuffled:3)" ]
}

@test "settings that cannot be compared are refused" {
    refuse() {
        run moe-bench identity "$1"
        assert_trouble moe-bench
        [[ $output == *"$2"* ]] || { echo "does not say '$2': $output"; return 1; }
    }
    suite s.json '{"name": "none"}'
    refuse s.json "there is nothing to compare"
    suite s.json '{"name": "none"}, {"name": "B4", "budget": 4}'
    refuse s.json "use --strict"
    suite s.json '{"name": "none"}, {"name": "K4", "draft": "ngram", "temperature": 1}'
    refuse s.json "setting 'K4': there is no reference with the same sampling settings"
    suite s.json '{"name": "B4", "budget": 4}, {"name": "K4", "draft": "ngram"}' '"reference": "B4"'
    refuse s.json "its reference 'B4' may differ from the model's own text"
    suite s.json '{"name": "none"}, {"name": "x", "order": "shuffled"}'
    refuse s.json "setting 'x': \"order\": must be"
    suite s.json '{"name": "none"}, {"name": "x", "device": "gpu"}'
    refuse s.json "setting 'x'"
    suite s.json '{"name": "none"}, {"name": "x", "draft": "ngrum"}'
    refuse s.json "setting 'x'"
    suite s.json '{"name": "none"}, {"name": "x", "draft": "model:file=none.moe"}'
    refuse s.json "none.moe"
    suite s.json '{"name": "none"}, {"name": "x", "threads": 2}'
    run moe-bench run s.json -o x.moes
    assert_trouble moe-bench
    [[ $output == *"threads, device, isa and order apply to all settings of a run"* ]]
}
