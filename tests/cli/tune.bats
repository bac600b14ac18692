#!/usr/bin/env bats
# moe-bench tune, and --settings: the kept settings follow from the measurements, and settings change the drafts, not the text.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    cp "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    moe-convert attach -q pocket.moe draft.moe
    awk 'NR % 120 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
}

setup() { cd "$WORK"; }

# made OPTIONS: writes a settings file for the pocket model, as tune would.
made() {
    jq -n --arg index "$(moe-view --json pocket.moe | jq -r 'select(.type == "model").index_sha256')" --argjson options "$1" \
        '{settings: 1, model: {index: $index}, options: $options}'
}
refuse() {
    local part=$1
    shift
    run moe-decode -m pocket.moe -p x "$@"
    assert_trouble moe-decode
    [[ $output == *"$part"* ]] || { echo "does not say '$part': $output"; return 1; }
}

@test "tune keeps changes that gained in both orders, and records its measurements" {
    moe-bench tune -m pocket.moe -n 6 --prompts 2 --curve-seconds 0 prompts.jsonl -o s.json 2> said
    # Every drafter with every length is compared with the settings in force; it is kept if both orders gained 3 % with the same
    # tokens.
    jq -e '.settings == 1 and (.tried | map(.change)) == ["auto"] + ([("model:file=draft.moe", "self", "suffix", "ngram")
            | . as $draft | (2, 4, 8) | "\($draft) -K \(.)"])
        and all(.tried[]; .same and (.ratio | length) == (if .ratio[0] >= 1.03 then 2 else 1 end)
            and .kept == (.ratio | length == 2 and min >= 1.03))
        and (reduce .tried[] as $t ({at: "none", good: true}; {good: (.good and $t.against == .at),
            at: (if $t.kept then $t.change else .at end)}) | .good)
        and ([.tried[] | select(.kept).change] | last // "none") as $kept | .options.draft as $draft | .options["draft-length"] as $K
        | ($draft | sub("file=.*/"; "file=")) + (if $K then " -K \($K)" else "" end) == $kept' s.json
    jq -e '(.cost | map(.m)) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] and all(.cost[]; .seconds > 0 and .experts >= 4)
        and .machine.threads > 0 and .tokens_per_second.none > 0
        and (.drafters | map(.draft | split(":")[0])) == ["model", "self", "suffix", "ngram"]
        and all(.drafters[]; .accepted <= .verified and .seconds_per_draft >= .seconds_per_level)' s.json
    [ "$(grep -c 'times the tokens/s of none\|times the tokens/s of' said)" = 13 ]
    # The file is a cost table, too.
    moe-decode -q -m pocket.moe -n 12 -d ngram -K 4 --record drafts --stream drafts.moes -o text prompts.jsonl
    moe-bench replay --policy static:K=2 --cost s.json drafts.moes | grep -q static
    moe-decode -q -m pocket.moe -n 12 --settings s.json prompts.jsonl | cmp - text
}

@test "settings are the defaults of moe-decode and of suites" {
    drafters() { moe-view --json "$1" | jq -c 'select(.type == "machine").drafters | select(.) | fromjson'; }
    made '{"draft": "ngram", "draft-length": 3}' > ngram.json
    made '{"draft": "auto"}' > auto.json
    moe-decode -q -m pocket.moe -n 12 prompts.jsonl > none.txt
    used() {
        moe-decode -q -m pocket.moe -n 12 --settings "${@:3}" --stream run.moes -o run.txt prompts.jsonl
        cmp run.txt none.txt
        [ "$(drafters run.moes)" = "$1" ]
        moe-view --json run.moes | jq -e -s --argjson K "$2" '[.[] | select(.type == "iter").K] | max <= $K'
    }
    used '["ngram"]' 3 ngram.json
    used '["pld"]' 4 ngram.json -d pld
    used '["model:file=draft.moe","self","suffix","ngram"]' 16 auto.json
    mkdir -p suite
    made '{"draft": "ngram", "draft-length": 3}' > suite/ngram.json
    echo '{"model": "../pocket.moe", "prompts": "../prompts.jsonl", "measure-seconds": 0, "options": {"max-tokens": 12},
           "settings": [{"name": "none"}, {"name": "tuned", "settings": "ngram.json"}]}' > suite/suite.json
    moe-bench run -q suite/suite.json -o suite.moes
    moe-view --json suite.moes | jq -e -s '[.[] | select(.type == "setting").reference] == [0, 0]
        and ([.[] | select(.type == "iter").K] | max) == 3'
    moe-bench report --json suite.moes | jq -e -s 'all(.[] | select(.type == "row"); .identical == .samples)' ||
        moe-bench report --json suite.moes
}

@test "automatic drafts of a dense model use the measured costs of forwards" {
    jq -n --arg index "$(moe-view --json draft.moe | jq -r 'select(.type == "model").index_sha256')" '
        {settings: 1, model: {index: $index}, options: {draft: "auto"}, cost: [{m: 1, seconds: 1}, {m: 8, seconds: 1.5}]}' > dense.json
    jq 'del(.cost)' dense.json > bare.json
    # The first value of the steepness is 1 with a table, and .5 without.
    for file in dense:1 bare:0.5; do
        moe-decode -q -m draft.moe -n 4 --settings ${file%:*}.json --stream dense.moes -o text prompts.jsonl
        [ "$(moe-view --json dense.moes | jq -s '[.[] | select(.type == "iter").policy.steepness][0] * 1e6 | round / 1e6')" = ${file#*:} ]
    done
}

@test "settings of another model and invalid settings are refused" {
    made '{"draft": "ngram"}' > good.json
    jq '.model.index |= ("f" * 64)' good.json > other.json
    refuse "other.json: was measured with another model file than pocket.moe" --settings other.json
    for bad in '{}' '[]' '{"settings": 2}' "$(jq -c '.options = 1' good.json)" "$(jq -c '.options.tree = "chain"' good.json)" \
               "$(jq -c '.options["draft-length"] = 65' good.json)" \
               "$(jq -c '.model = {}' good.json)" "$(jq -c '.more = 1' good.json)"; do
        echo "$bad" > bad.json
        refuse "--settings: bad.json: " --settings bad.json
    done
    refuse "none.json" --settings none.json
    refuse "an output needs a file of its own" --settings good.json -o good.json
    cp pocket.moe other.moe
    run moe-convert attach other.moe draft.moe ./draft.moe
    assert_trouble moe-convert
    [[ $output == *"./draft.moe: is given twice; "* ]]
    [ ! -e other.moe.drafters ]
    run moe-bench tune -m pocket.moe
    assert_trouble moe-bench
    run moe-bench tune prompts.jsonl
    assert_trouble moe-bench
    run moe-bench tune -m pocket.moe none.jsonl
    assert_trouble moe-bench
}
