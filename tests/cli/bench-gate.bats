#!/usr/bin/env bats
# moe-bench gate: whether results are within the limits of the suite

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    cp "$MOE_POCKET" "$WORK/pocket.moe"
    for task in math code; do
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 2
    done > "$WORK/prompts.jsonl"
    cd "$WORK"
    suite '{"setting": "K2", "figure": "tokens_per_step", "least": 1, "most": 3}, {"setting": "K2", "task": "math", "figure": "identical", "least": 2}' > good.json
    moe-bench run -q good.json -o now.moes
}

# Writes a suite with these gates.
suite() {
    echo '{"model": "pocket.moe", "prompts": "prompts.jsonl", "settings": [{"name": "none"}, {"name": "K2", "draft": "ngram", "draft-length": 2}],'
    echo '"options": {"max-tokens": 8}, "measure-seconds": 0, "gate": ['"$1"']}'
}

setup() { cd "$WORK"; }

@test "figures within their limits pass" {
    run moe-bench gate good.json now.moes --junit junit.xml
    [ "$status" = 0 ]
    [[ "${lines[1]}" == "K2 "*"all "*"tokens_per_step "*"at least 1, at most 3"*"passes" ]]
    [[ "${lines[2]}" == "K2 "*"math "*"identical "*" 2  passes" ]]
    grep -qF '<testsuite name="moe-bench gate" tests="2" failures="0" errors="0" skipped="0">' junit.xml
    [ "$(grep -c '<testcase ' junit.xml)" = 2 ]
    moe-bench gate good.json < now.moes
}

@test "a figure beyond its limit fails, with its value" {
    suite '{"setting": "K2", "figure": "steps", "most": 1}, {"setting": "none", "figure": "ratio", "least": 1}' > bad.json
    run moe-bench gate bad.json now.moes --junit junit.xml
    [ "$status" = 1 ]
    [ "${lines[-1]}" = "moe-bench: 1 of the suite's 2 gates failed" ]
    steps=$(moe-bench report --json now.moes | jq 'select(.type == "row" and .task == null and .setting == "K2") | .steps | floor')
    [[ "${lines[1]}" == *" $steps  fails" ]]
    grep -qF "<failure message=\"steps is $steps\"/>" junit.xml
    grep -q 'failures="1" errors="0" skipped="0"' junit.xml
}

@test "a figure that was not measured cannot be judged" {
    suite '{"setting": "none", "figure": "acceptance_length", "least": 1}, {"setting": "K2", "task": "poems", "figure": "tokens", "least": 1}' > none.json
    run moe-bench gate none.json now.moes --junit junit.xml
    [ "$status" = 125 ]
    [[ "${lines[-1]}" == "moe-bench: 2 of the suite's 2 gates cannot be judged"* ]]
    [ "$(grep -c '<skipped ' junit.xml)" = 2 ]
}

@test "summaries are judged by their mean score" {
    grep '"task": "summ"' "$MOE_MODELS/pocket/heldout.jsonl" | head -n 3 > summaries.jsonl
    for least in 0.1 0.99; do
        suite '{"setting": "none", "task": "summ", "figure": "score", "least": '$least'}' |
            sed 's/"prompts.jsonl"/"summaries.jsonl"/; s/"max-tokens": 8/"max-tokens": 48/' > summaries-$least.json
    done
    moe-bench run -q summaries-0.1.json -o summaries.moes
    moe-bench report --json summaries.moes | jq -s -e '[.[] | select(.type == "row" and .setting == "none" and .task == "summ")][0] |
        .scored == 3 and .graded == 0 and .correct_share == null and .score > 0.1 and .score < 0.99'
    moe-bench gate summaries-0.1.json summaries.moes
    run moe-bench gate summaries-0.99.json summaries.moes
    [ "$status" = 1 ]
    sed 's/"score"/"correct_share"/' summaries-0.1.json > shares.json
    run moe-bench gate shares.json summaries.moes
    [ "$status" = 125 ]
}

@test "names are escaped in XML" {
    suite '{"setting": "none", "task": "a<b & \"c\"", "figure": "tokens", "least": 1}' > names.json
    run moe-bench gate names.json now.moes --junit junit.xml
    [ "$status" = 125 ]
    grep -qF 'name="a&lt;b &amp; &quot;c&quot;: tokens at least 1"' junit.xml
}

# The last argument must occur in the single line on stderr.
refused() {
    suite "$1" > wrong.json
    run moe-bench gate wrong.json now.moes
    assert_trouble moe-bench
    [[ $output == *"$2"* ]] || { echo "does not say '$2': $output"; return 1; }
}

@test "bad input is reported in one line" {
    refused '' 'the suite has no "gate", the list of limits to check'
    refused '{"setting": "K2", "figure": "ratoi", "least": 1}' 'did you mean ratio'
    refused '{"setting": "K9", "figure": "ratio", "least": 1}' '"gate": 1: "setting"'
    refused '{"setting": "K2", "figure": "ratio"}' 'has no limit; add "least" or "most"'
    refused '{"setting": "K2", "figure": "ratio", "least": "1"}' '"least": must be a number'
    refused '{"setting": "K2", "figure": "ratio", "leest": 1}' 'leest'
    refused '7' 'must be a JSON object'
}

@test "the suite for continuous integration is within its limits" {
    [ -z "$MOE_SANITIZED" ] || skip "takes long with sanitisers"
    mkdir -p ci/tests/models ci/build/bench
    cp -r "$BATS_TEST_DIRNAME/../bench" ci/tests/bench
    ln -s "$MOE_MODELS/pocket" ci/tests/models/pocket
    ln -s "$MOE_POCKET" ci/build/bench/pocket.moe
    # A single run over half of the prompts, in the long check three over all; limits on answers count all of them.
    [ -n "$MOE_LONG" ] || sed -i 's/"repetitions": 3/"repetitions": 1/; s/"prompts-per-task": 12/"prompts-per-task": 6/
        s/"least": 144/"least": 24/; s/"least": 6/"least": 3/' ci/tests/bench/ci.json
    moe-bench run -q ci/tests/bench/ci.json -o ci.moes
    moe-bench gate ci/tests/bench/ci.json ci.moes
    moe-bench compare --limit 2% ci.moes ci.moes
}
