# moe-decode --record drafts, and moe-bench replay on what it records.
load common

setup_file() {
    export folder=$BATS_FILE_TMPDIR
    printf '%s\n' '{"id": "a", "task": "code", "prompt": "Write a function that adds two numbers"}' \
        '{"id": "b", "task": "math", "prompt": "Tom has 3 apples and buys 4. How many"}' > "$folder/prompts.jsonl"
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 60 -d ngram --policy cascade:refresh=20 \
        --record drafts --stream "$folder/cascade.moes" -o "$folder/cascade.txt"
}

@test "recording drafts leaves the text as it is" {
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 60 -o "$BATS_TEST_TMPDIR/plain.txt"
    cmp "$BATS_TEST_TMPDIR/plain.txt" "$folder/cascade.txt"
}

@test "every position is recorded, with every length" {
    moe-view --json "$folder/cascade.moes" | jq -e -s '
        [.[] | select(.type == "draft")] as $drafts | [.[] | select(.type == "done")] as $done |
        [.[] | select(.type == "begin")] as $begin |
        ($drafts | length) == ([$done[] | .n - 1] | add) and
        all($drafts[]; . as $d | $done[$d.sequence] as $text | ($d.pos - $begin[$d.sequence].prompt_tokens) as $at |
            $d.tokens[0] == $text.tokens[$at] and $d.left == $text.n - 1 - $at and ($d.draft_us | length) == $d.n and
            ($d.experts | length) == $d.n and ($d.accepted == 0 or $d.left < 1 or $d.tokens[1] == $text.tokens[$at + 1]) and
            ([range(1; $d.n)] | all(. as $k | $d.bytes[$k] >= $d.bytes[$k - 1]))) and
        any($drafts[]; .accepted == 8) and any($drafts[]; .n == 1)'
}

@test "the live policy decides in replay what it decided live" {
    moe-view --json --type iter "$folder/cascade.moes" | jq -c 'select(.type == "iter") | [.sequence, .K, .nodes, .accepted, .emitted, .policy]' \
        > "$BATS_TEST_TMPDIR/live"
    moe-bench replay "$folder/cascade.moes" --policy cascade:refresh=20 --iterations |
        jq -c '[.sequence, .K, .nodes, .accepted, .emitted, .policy]' > "$BATS_TEST_TMPDIR/replayed"
    [ "$(wc -l < "$BATS_TEST_TMPDIR/live")" -gt 10 ]
    diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
    grep -q '"phase":"set"' "$BATS_TEST_TMPDIR/live"
    moe-bench replay "$folder/cascade.moes" --policy cascade:refresh=20 --policy static:K=2 --json |
        jq -e -s '.[-2].same_as_live == .[-2].live_iterations and .[-1].same_as_live < .[-1].live_iterations'
}

@test "cascade-cost and the oracle are replayed as they ran" {
    echo '{"cost": [{"m": 1, "seconds": 0.001}, {"m": 9, "seconds": 0.002}]}' > "$BATS_TEST_TMPDIR/cost.json"
    for policy in "cascade-cost:cost=$BATS_TEST_TMPDIR/cost.json" cascade-cost "oracle:file=$folder/cascade.moes,cost=bytes"; do
        for draft in ngram "model:file=$(dirname "$MOE_POCKET")/draft.moe"; do
            moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 60 -d "$draft" --policy "$policy" \
                --record drafts --stream "$BATS_TEST_TMPDIR/live.moes" -o "$BATS_TEST_TMPDIR/live.txt"
            cmp "$BATS_TEST_TMPDIR/live.txt" "$folder/cascade.txt"
            moe-view --json --type iter "$BATS_TEST_TMPDIR/live.moes" | jq -c 'select(.type == "iter") | [.sequence, .K, .nodes, .policy]' \
                > "$BATS_TEST_TMPDIR/live"
            moe-bench replay "$BATS_TEST_TMPDIR/live.moes" --policy "$policy" --iterations |
                jq -c '[.sequence, .K, .nodes, .policy]' > "$BATS_TEST_TMPDIR/replayed"
            diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
            grep -q ',[1-9],' "$BATS_TEST_TMPDIR/live"
        done
    done
}

@test "nothing is cheaper than the oracle" {
    for cost in time bytes; do
        moe-bench replay "$folder/cascade.moes" --cost $cost --policy "oracle:file=$folder/cascade.moes,cost=$cost" \
            --policy cascade --policy cascade-cost --policy tiers --policy off --json |
            jq -e -s 'min_by(.seconds).policy | startswith("oracle")'
    done
    run moe-decode -m "$MOE_POCKET" -p "another prompt" -n 20 -d ngram --policy "oracle:file=$folder/cascade.moes" --json
    [ "$(jq .num_drafts <<< "$output")" = 0 ]
    run moe-decode -m "$MOE_POCKET" -p x -n 20 -d ngram --policy oracle
    assert_trouble moe-decode
}

@test "a static length in replay is a run of that length" {
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 60 -d ngram -K 3 --stream "$BATS_TEST_TMPDIR/3.moes" -o /dev/null
    moe-view --json --type iter "$BATS_TEST_TMPDIR/3.moes" | jq -c 'select(.type == "iter") | [.sequence, .nodes, .accepted, .emitted]' \
        > "$BATS_TEST_TMPDIR/live"
    moe-bench replay "$folder/cascade.moes" --policy static:K=3 --iterations |
        jq -c '[.sequence, .nodes, .accepted, .emitted]' > "$BATS_TEST_TMPDIR/replayed"
    diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
    bytes=$(moe-view --json --type iter "$BATS_TEST_TMPDIR/3.moes" | jq -s '[.[] | select(.type == "iter") | .bytes] | add')
    moe-bench replay "$folder/cascade.moes" --cost bytes --json |
        jq -e -s --argjson bytes "$bytes" '(.[3].seconds * 1e9 - $bytes | fabs) < 1 and .[3].policy == "static:K=3"'
}

@test "a draft model's drafts are replayed, too" {
    moe-decode -m "$MOE_POCKET" -p "Tom has 3 apples" -n 40 -d "model:file=$(dirname "$MOE_POCKET")/draft.moe" -K auto \
        --temperature 0.7 --record drafts --record-length 9 --stream "$BATS_TEST_TMPDIR/model.moes" -o /dev/null
    moe-bench replay "$BATS_TEST_TMPDIR/model.moes" --policy cascade --json |
        jq -e -s 'length == 11 and .[-1].same_as_live == .[-1].live_iterations and .[9].draft_seconds > 0'
}

@test "costs come from a table" {
    echo '{"cost": [{"m": 1, "seconds": 1}, {"m": 3, "seconds": 2}], "draft_seconds": 0.25}' > "$BATS_TEST_TMPDIR/cost.json"
    moe-bench replay "$folder/cascade.moes" --policy static:K=4 --cost "$BATS_TEST_TMPDIR/cost.json" --iterations |
        jq -e -s 'all(.[]; .seconds == 1 + 0.75 * (.nodes - 1)) and any(.[]; .nodes == 5)'
}

@test "other streams, policies and tables are refused" {
    moe-decode -m "$MOE_POCKET" -p x -n 9 --stream "$BATS_TEST_TMPDIR/bare.moes" -o /dev/null
    run moe-bench replay "$BATS_TEST_TMPDIR/bare.moes"
    assert_trouble moe-bench
    [[ $output == *"--record drafts"* ]]
    head -c 3000 "$folder/cascade.moes" > "$BATS_TEST_TMPDIR/cut.moes"
    run moe-bench replay "$BATS_TEST_TMPDIR/cut.moes"
    assert_trouble moe-bench
    run moe-bench replay "$folder/cascade.moes" --policy static:K=9
    assert_trouble moe-bench
    [[ $output == *"--record-length 9"* ]]
    run moe-bench replay "$folder/cascade.moes" --policy cascade --policy tiers --iterations
    assert_trouble moe-bench
    for text in '[' '[]' '{"cost": []}' '{"cost": [{"m": 2, "seconds": 1}]}' '{"cost": [{"m": 1, "seconds": 0}]}' \
        '{"cost": [{"m": 1, "seconds": 1}, {"m": 1, "seconds": 2}]}' '{"cost": [{"m": 1, "seconds": 1}], "draft_seconds": -1}'; do
        echo "$text" > "$BATS_TEST_TMPDIR/cost.json"
        run moe-bench replay "$folder/cascade.moes" --cost "$BATS_TEST_TMPDIR/cost.json"
        assert_trouble moe-bench
    done
}

@test "what cannot be recorded is refused" {
    for options in "--record drafts" "-d ngram --record drafts --tree dynamic" "-d ngram --record drafts --accept rejection" \
        "-d ngram --record drafts --budget 8" "-d ngram --record-length 4"; do
        run moe-decode -m "$MOE_POCKET" -p x -n 4 $options --stream "$BATS_TEST_TMPDIR/x.moes" -o /dev/null
        assert_trouble moe-decode
        [ ! -e "$BATS_TEST_TMPDIR/x.moes" ]
    done
}

# The suites of the Cascade paper as they stand in tests/bench, with one prompt a task and without the weight.
@test "the suites of the Cascade paper run" {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p tests/models build/bench
    cp -r "$BATS_TEST_DIRNAME/../bench" tests/bench
    ln -s "$MOE_MODELS/pocket" tests/models/pocket
    ln -s "$MOE_POCKET" build/bench/pocket.moe
    ln -s "$MOE_POCKET" build/bench/pocket-inflated.moe
    ln -s "$(dirname "$MOE_POCKET")/draft.moe" build/bench/draft.moe
    for suite in tests/bench/cascade-*.json; do
        sed -i 's/"prompts-per-task": 10/"prompts-per-task": 1, "max-tokens": 40/' "$suite"
        moe-bench run -q "$suite" -o run.moes
        moe-bench report --csv run.moes > report.csv
        settings=$(jq '.settings | length' "$suite")
        tasks=$(jq '(.tasks // [1, 2, 3, 4]) | length' "$suite")
        # Every setting emits what the first one does, whatever it drafts.
        moe-view --json run.moes | jq -e -s --argjson settings "$settings" --argjson tasks "$tasks" '
            [.[] | select(.type == "done")] | length == $settings * $tasks and
            (group_by(.id) | all(.[]; [.[] | .tokens] | unique | length == 1))' || { echo "$suite"; false; }
    done
}
