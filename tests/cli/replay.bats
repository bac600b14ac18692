# moe-decode --record drafts, and moe-bench replay on what it records.
load common

setup_file() {
    export folder=$BATS_FILE_TMPDIR
    printf '%s\n' '{"id": "a", "task": "code", "prompt": "Write a function that adds two numbers"}' \
        '{"id": "b", "task": "math", "prompt": "Tom has 3 apples and buys 4. How many"}' > "$folder/prompts.jsonl"
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d ngram --policy cascade:refresh=20 \
        --record drafts --stream "$folder/cascade.moes" -o "$folder/cascade.txt"
}

@test "recording drafts does not change the text" {
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -o "$BATS_TEST_TMPDIR/plain.txt"
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

@test "replay reproduces the decisions of the live policy" {
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

@test "several drafters are recorded separately, and replay reproduces their decisions" {
    local draft="model:file=$(dirname "$MOE_POCKET")/draft.moe" options policy
    while IFS='|' read -r options policy; do
        moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d ngram -d "$draft" $options \
            --record drafts --stream "$BATS_TEST_TMPDIR/two.moes" -o "$BATS_TEST_TMPDIR/two.txt"
        cmp "$BATS_TEST_TMPDIR/two.txt" "$folder/cascade.txt"
        moe-view --json --type iter "$BATS_TEST_TMPDIR/two.moes" | jq -c 'select(.type == "iter") | [.sequence, .K, .nodes,
            .accepted, .emitted, .policy, ((.draft_us + .verify_us + .accept_us + .other_us) / 1000000)]' > "$BATS_TEST_TMPDIR/live"
        moe-bench replay "$BATS_TEST_TMPDIR/two.moes" $policy --iterations |
            jq -c '[.sequence, .K, .nodes, .accepted, .emitted, .policy, .seconds]' > "$BATS_TEST_TMPDIR/replayed"
        jq -e -n --slurpfile live "$BATS_TEST_TMPDIR/live" --slurpfile replayed "$BATS_TEST_TMPDIR/replayed" '
            ($live | length) > 10 and ($live | map(.[:6])) == ($replayed | map(.[:6])) and
            all(range($live | length); ($live[.][6] - $replayed[.][6] | fabs) < 1e-9)'
        # Both drafters drafted, each token names its drafter, and the counts add up.
        moe-view --json "$BATS_TEST_TMPDIR/two.moes" | jq -e -s '
            [.[] | select(.type == "iter")] as $iters | [.[] | select(.type == "draft")] as $drafts |
            (.[] | select(.type == "machine").drafters | fromjson | length) == 2 and
            ([$drafts[].drafter] | group_by(.) | map(length) | .[0] == .[1]) and
            all($iters[]; (.drafter_verified | add) == .nodes - 1 and (.drafter_accepted | add) == .accepted and
                ([.node_drafters[1:][] | select(. == 1)] | length) == .drafter_verified[1] and .drafter_bytes[0] == 0 and
                (.drafter_us | add) <= .draft_us) and
            ([$iters[].drafter_accepted[0]] | add) > 0 and ([$iters[].drafter_accepted[1]] | add) > 0'
    done <<'RUNS'
|--policy static
--tree dynamic:total=12,depth=3,topk=2|--policy static --tree dynamic:total=12,depth=3,topk=2
--policy cascade:refresh=20|--policy cascade:refresh=20
RUNS
    run moe-decode -m "$MOE_POCKET" -p x -d ngram --policy "oracle:file=$BATS_TEST_TMPDIR/two.moes" -n 4
    assert_trouble moe-decode
    [[ $output == *"contains drafts of several drafters, but those of one are needed"* ]]
}

@test "replay reproduces cascade-cost and the oracle" {
    echo '{"cost": [{"m": 1, "seconds": 0.001}, {"m": 9, "seconds": 0.002}]}' > "$BATS_TEST_TMPDIR/cost.json"
    for policy in "cascade-cost:cost=$BATS_TEST_TMPDIR/cost.json" cascade-cost "oracle:file=$folder/cascade.moes,cost=bytes"; do
        for draft in ngram "model:file=$(dirname "$MOE_POCKET")/draft.moe"; do
            moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d "$draft" --policy "$policy" \
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

@test "replay reproduces the decisions of a head that is asked token by token" {
    local head="$BATS_TEST_TMPDIR/head.moe" policy
    moe-convert head -q "$MOE_MODELS/pocket/heads/eagle3" --target "$MOE_POCKET" -o "$head"
    echo '{"cost": [{"m": 1, "seconds": 1}, {"m": 9, "seconds": 1.1}]}' > "$BATS_TEST_TMPDIR/cost.json"
    for policy in dytc-verify:siblings=no "cascade-cost:explore=0"; do
        policy+=",cost=$BATS_TEST_TMPDIR/cost.json"
        moe-decode -q -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 30 -d "head:file=$head" --policy "$policy" -K 7 \
            --record drafts --stream "$BATS_TEST_TMPDIR/live.moes" -o /dev/null
        moe-view --json --type iter "$BATS_TEST_TMPDIR/live.moes" | jq -c 'select(.type == "iter") | [.sequence, .K, .nodes,
            .accepted, .emitted]' > "$BATS_TEST_TMPDIR/live"
        moe-bench replay "$BATS_TEST_TMPDIR/live.moes" --policy "$policy" -K 7 --iterations |
            jq -c '[.sequence, .K, .nodes, .accepted, .emitted]' > "$BATS_TEST_TMPDIR/replayed"
        diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
        grep -q ',[2-9],' "$BATS_TEST_TMPDIR/live"
    done
}

@test "replay trims drafts like a second program" {
    local cost="$BATS_TEST_TMPDIR/cost.json" tree="dynamic:total=16,depth=4,topk=3" python="${PYTHON:-python3}" policy
    echo '{"draft_seconds": 0.000004, "cost": [{"m": 1, "seconds": 0.001}, {"m": 9, "seconds": 0.0014}, {"m": 20, "seconds": 0.003}]}' > "$cost"
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d "model:file=$(dirname "$MOE_POCKET")/draft.moe" --tree "$tree" \
        --policy "evict:cost=$cost" --record drafts --stream "$BATS_TEST_TMPDIR/live.moes" -o "$BATS_TEST_TMPDIR/live.txt"
    cmp "$BATS_TEST_TMPDIR/live.txt" "$folder/cascade.txt"
    moe-view --json "$BATS_TEST_TMPDIR/live.moes" > "$BATS_TEST_TMPDIR/drafts.jsonl"
    for policy in evict threshold; do
        moe-bench replay "$BATS_TEST_TMPDIR/live.moes" --cost "$cost" --tree "$tree" --policy "$policy:cost=$cost" --iterations \
            > "$BATS_TEST_TMPDIR/steps"
        "$python" "$BATS_TEST_DIRNAME/../bench/evict_steps.py" $policy "$cost" 15 "$BATS_TEST_TMPDIR/drafts.jsonl" \
            < "$BATS_TEST_TMPDIR/steps" > "$BATS_TEST_TMPDIR/stepped"
        jq -e '.steps > 20 and .verified > .steps' "$BATS_TEST_TMPDIR/stepped"
        # One node more or less is detected.
        jq -c '.K += 1' "$BATS_TEST_TMPDIR/steps" > "$BATS_TEST_TMPDIR/wrong"
        run "$python" "$BATS_TEST_DIRNAME/../bench/evict_steps.py" $policy "$cost" 15 "$BATS_TEST_TMPDIR/drafts.jsonl" \
            < "$BATS_TEST_TMPDIR/wrong"
        [ "$status" -ne 0 ]
    done
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d "model:file=$(dirname "$MOE_POCKET")/draft.moe" -K 8 \
        --policy "bastion:cost=$cost" --record drafts --stream "$BATS_TEST_TMPDIR/chain.moes" -o "$BATS_TEST_TMPDIR/live.txt"
    moe-view --json "$BATS_TEST_TMPDIR/chain.moes" > "$BATS_TEST_TMPDIR/drafts.jsonl"
    moe-bench replay "$BATS_TEST_TMPDIR/chain.moes" --cost "$cost" --policy "bastion:cost=$cost" --iterations \
        > "$BATS_TEST_TMPDIR/steps"
    "$python" "$BATS_TEST_DIRNAME/../bench/evict_steps.py" bastion "$cost" 8 "$BATS_TEST_TMPDIR/drafts.jsonl" \
        < "$BATS_TEST_TMPDIR/steps" > "$BATS_TEST_TMPDIR/stepped"
    jq -e '.steps > 8 and .verified > .steps' "$BATS_TEST_TMPDIR/stepped"
    # Also with the cost of predicted experts: the knowledge gained from texts is recomputed. A head is less certain than the
    # model.
    moe-convert head -q "$MOE_MODELS/pocket/heads/eagle3" --target "$MOE_POCKET" -o "$BATS_TEST_TMPDIR/head.moe"
    awk 'NR % 30 == 1 && NR < 62' "$MOE_MODELS/pocket/heldout.jsonl" > "$BATS_TEST_TMPDIR/held.jsonl"
    moe-decode -m "$MOE_POCKET" "$BATS_TEST_TMPDIR/held.jsonl" -n 24 -d "head:file=$BATS_TEST_TMPDIR/head.moe" --tree "$tree" \
        --policy "evict:cost=$cost" --record drafts --stream "$BATS_TEST_TMPDIR/head.moes" -o "$BATS_TEST_TMPDIR/live.txt"
    moe-view --json "$BATS_TEST_TMPDIR/head.moes" > "$BATS_TEST_TMPDIR/drafts.jsonl"
    moe-bench replay "$BATS_TEST_TMPDIR/head.moes" --cost "$cost" --tree "$tree" --policy "evict-experts:explore=1,cost=$cost" \
        --iterations > "$BATS_TEST_TMPDIR/steps"
    "$python" "$BATS_TEST_DIRNAME/../bench/evict_experts_steps.py" "$cost" 15 "$BATS_TEST_TMPDIR/drafts.jsonl" \
        < "$BATS_TEST_TMPDIR/steps" > "$BATS_TEST_TMPDIR/stepped"
    jq -e '.steps > 10 and .verified > .steps and .predicted > .verified / 2' "$BATS_TEST_TMPDIR/stepped"
    jq -c '.K += 1' "$BATS_TEST_TMPDIR/steps" > "$BATS_TEST_TMPDIR/wrong"
    run "$python" "$BATS_TEST_DIRNAME/../bench/evict_experts_steps.py" "$cost" 15 "$BATS_TEST_TMPDIR/drafts.jsonl" \
        < "$BATS_TEST_TMPDIR/wrong"
    [ "$status" -ne 0 ]
    # Knowledge from the experts of trees is the same live and in replay.
    for tree in chain "$tree"; do
        moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d "model:file=$(dirname "$MOE_POCKET")/draft.moe" \
            --tree "$tree" --policy evict-experts:explore=1 --record drafts --stream "$BATS_TEST_TMPDIR/experts.moes" \
            -o "$BATS_TEST_TMPDIR/live.txt"
        cmp "$BATS_TEST_TMPDIR/live.txt" "$folder/cascade.txt"
        moe-view --json --type iter "$BATS_TEST_TMPDIR/experts.moes" | jq -c 'select(.type == "iter") | [.sequence, .K, .nodes,
            .accepted, .policy.recall, .policy.gain]' > "$BATS_TEST_TMPDIR/live"
        moe-bench replay "$BATS_TEST_TMPDIR/experts.moes" --tree "$tree" --policy evict-experts:explore=1 --iterations |
            jq -c '[.sequence, .K, .nodes, .accepted, .policy.recall, .policy.gain]' > "$BATS_TEST_TMPDIR/replayed"
        diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
        tail -n 1 "$BATS_TEST_TMPDIR/live" | jq -e '.[4] > 0'
        # With known acceptance only accepted tokens are verified, which is faster.
        moe-bench replay "$BATS_TEST_TMPDIR/experts.moes" --cost bytes --tree "$tree" --policy evict-experts:explore=1 --json \
            --policy "evict-experts:explore=1,truth=experts,file=$BATS_TEST_TMPDIR/experts.moes" \
            --policy "evict-experts:explore=1,truth=both,file=$BATS_TEST_TMPDIR/experts.moes" | jq -es '
            map(select(.policy | startswith("evict-experts"))) | .[2].accepted_tokens == .[2].draft_tokens and
            .[2].accepted_tokens > 0 and .[2].seconds < .[0].seconds and .[0].accepted_tokens < .[0].draft_tokens'
    done
}

@test "no policy is cheaper than the oracle" {
    for cost in time bytes; do
        moe-bench replay "$folder/cascade.moes" --cost $cost --policy "oracle:file=$folder/cascade.moes,cost=$cost" \
            --policy cascade --policy cascade-cost --policy tiers --policy off --json |
            jq -e -s 'min_by(.seconds).policy | startswith("oracle")'
    done
    run moe-decode -m "$MOE_POCKET" -p "another prompt" -n 20 -d ngram --policy "oracle:file=$folder/cascade.moes" --json
    [ "$(jq .num_drafts <<< "$output")" = 0 ]
    run moe-decode -m "$MOE_POCKET" -p x -n 20 -d ngram --policy oracle
    assert_trouble moe-decode
    run moe-decode -m "$MOE_POCKET" -p x -n 20 -d ngram --policy evict:truth=both
    assert_trouble moe-decode
    # With known acceptance, and drafts without cost, the cut with the best rate is nearly as good as the oracle.
    moe-bench replay "$folder/cascade.moes" --cost bytes --policy "oracle:file=$folder/cascade.moes,cost=bytes" --json \
        --policy "evict:truth=acceptance,file=$folder/cascade.moes" --policy evict | jq -es '
        map(select(.policy | startswith("oracle") or startswith("evict")).seconds) | .[1] < 1.02 * .[0] and .[1] < .[2]'
}

@test "a static length in replay is a run of that length" {
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d ngram -K 3 --stream "$BATS_TEST_TMPDIR/3.moes" -o /dev/null
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
    moe-decode -m "$MOE_POCKET" -p "Tom has 3 apples" -n 18 -d "model:file=$(dirname "$MOE_POCKET")/draft.moe" --policy cascade \
        --temperature 0.7 --record drafts --record-length 9 --stream "$BATS_TEST_TMPDIR/model.moes" -o /dev/null
    moe-bench replay "$BATS_TEST_TMPDIR/model.moes" --policy cascade --json |
        jq -e -s 'length == 11 and .[-1].same_as_live == .[-1].live_iterations and .[9].draft_seconds > 0'
}

@test "replay uses the costs of a table" {
    echo '{"cost": [{"m": 1, "seconds": 1}, {"m": 3, "seconds": 2}], "draft_seconds": 0.25}' > "$BATS_TEST_TMPDIR/cost.json"
    moe-bench replay "$folder/cascade.moes" --policy static:K=4 --cost "$BATS_TEST_TMPDIR/cost.json" --iterations |
        jq -e -s 'all(.[]; .seconds == 1 + 0.75 * (.nodes - 1)) and any(.[]; .nodes == 5)'
}

@test "invalid streams, policies and tables are refused" {
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
    run moe-bench replay "$folder/cascade.moes" --policy fast
    assert_trouble moe-bench
    [[ $output == "moe-bench: --policy: 'fast' is not a policy; "* ]]
    run moe-bench replay "$folder/cascade.moes" --policy cascade --policy tiers --iterations
    assert_trouble moe-bench
    for text in '[' '[]' '{"cost": []}' '{"cost": [{"m": 2, "seconds": 1}]}' '{"cost": [{"m": 1, "seconds": 0}]}' \
        '{"cost": [{"m": 1, "seconds": 1}, {"m": 1, "seconds": 2}]}' '{"cost": [{"m": 1, "seconds": 1}], "draft_seconds": -1}'; do
        echo "$text" > "$BATS_TEST_TMPDIR/cost.json"
        run moe-bench replay "$folder/cascade.moes" --cost "$BATS_TEST_TMPDIR/cost.json"
        assert_trouble moe-bench
    done
}

@test "drafts that cannot be recorded are refused" {
    moe-convert head -q "$MOE_MODELS/pocket/heads/jakiro" --target "$MOE_POCKET" -o "$BATS_TEST_TMPDIR/jakiro.moe"
    for options in "--record drafts" "-d ngram --record drafts --tree dynamic:depth=9" "-d ngram --record drafts --accept rejection" \
        "-d ngram --record drafts --budget 8" "-d ngram --record-length 4" "-d ngram --policy tr --tree static:width=2,depth=2" \
        "-d ngram --policy tr --record drafts --tree static:width=64,depth=8" \
        "-d head:file=$BATS_TEST_TMPDIR/jakiro.moe --record drafts"; do
        run moe-decode -m "$MOE_POCKET" -p x -n 4 $options --stream "$BATS_TEST_TMPDIR/x.moes" -o /dev/null
        assert_trouble moe-decode
        [ ! -e "$BATS_TEST_TMPDIR/x.moes" ]
    done
    [[ $output == *"add parallel=0"* ]]
}

# The whole bench, with one prompt per task, short answers, and without the large model.
@test "the bench of the Cascade paper runs" {
    local figures= suites='tests/bench/cascade-*.json'
    [ -n "$MOE_LONG" ] || figures='figure-13 replay' suites=tests/bench/cascade-figure-13.json
    cd "$BATS_TEST_TMPDIR"
    mkdir -p tests/models
    cp -r "$BATS_TEST_DIRNAME/../bench" "$BATS_TEST_DIRNAME/../bench-cascade.sh" tests
    ln -s "$MOE_MODELS/pocket" tests/models/pocket
    MOE_BENCH_PROMPTS=1 MOE_BENCH_TOKENS=12 MOE_BENCH_WIDTH=96 sh tests/bench-cascade.sh $figures > log
    grep -q '^oracle' log
    for suite in $suites; do
        run=build/bench/cascade-96-1-12/$(basename "$suite" .json).moes
        moe-bench report --csv "$run" > report.csv
        settings=$(jq '.settings | length' "$suite")
        tasks=$(jq 'if .limits.prompts then 1 else .tasks // [1, 2, 3, 4] | length end' "$suite")
        models=$(jq '.models | length' "$suite")
        # Every setting of a model emits the first one's text, whatever it drafts.
        moe-view --json "$run" | jq -e -s --argjson settings "$settings" --argjson tasks "$tasks" --argjson models "$models" '
            [.[] | select(.type == "done")] | length == $settings * $tasks and
            (group_by(.id) | all(.[]; [.[] | .tokens] | unique | length <= $models))' || { echo "$suite"; false; }
    done
}

tree=dynamic:total=16,depth=4,topk=4

# record_tree OUT DRAFT SETTING...: an answer with recorded trees.
record_tree() {
    local out=$1 draft=$2; shift 2
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 18 -d "$draft" --record drafts --stream "$out" -o "$out.txt" "$@"
}

@test "trees are recorded completely, and do not change the text" {
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 18 -o "$BATS_TEST_TMPDIR/plain.txt"
    record_tree "$BATS_TEST_TMPDIR/tree.moes" "model:file=$(dirname "$MOE_POCKET")/draft.moe" --tree $tree
    cmp "$BATS_TEST_TMPDIR/plain.txt" "$BATS_TEST_TMPDIR/tree.moes.txt"
    moe-view --json "$BATS_TEST_TMPDIR/tree.moes" | jq -e -s '
        [.[] | select(.type == "draft")] as $drafts | [.[] | select(.type == "done")] as $done |
        [.[] | select(.type == "begin")] as $begin |
        ($drafts | length) == ([$done[] | .n - 1] | add) and any($drafts[]; .n > 30) and
        all($drafts[]; . as $d | $done[$d.sequence] as $text | ($d.pos - $begin[$d.sequence].prompt_tokens) as $at |
            $d.asked[0] == (if $d.room > 0 then 4 else 0 end) and ($d.experts | length) == $d.n and
            ([range([$d.accepted, $d.left] | min)] | all(. as $i | $d.tokens[$d.path[$i]] == $text.tokens[$at + 1 + $i])) and
            ($d.pos % 4 > 0 or ([range($d.n)] | all(. as $k | [$d.experts[:$k + 1] | transpose[] | flatten | unique | length] | add == $d.experts_loaded[$k])))
        )'
}

@test "replay reproduces the decisions of a policy over trees" {
    echo '[[0],[1],[2],[0,0],[0,1],[1,0],[0,0,0],[0,0,0,0]]' > "$BATS_TEST_TMPDIR/tree.json"
    for draft in ngram "model:file=$(dirname "$MOE_POCKET")/draft.moe"; do
        for shape in $tree "static:file=$BATS_TEST_TMPDIR/tree.json"; do
            for policy in static cascade:set=4,refresh=6; do
                record_tree "$BATS_TEST_TMPDIR/live.moes" "$draft" --tree "$shape" --policy $policy --temperature 0.7
                moe-view --json --type iter "$BATS_TEST_TMPDIR/live.moes" |
                    jq -c 'select(.type == "iter") | [.sequence, .K, .nodes, .accepted, .emitted, .policy]' > "$BATS_TEST_TMPDIR/live"
                moe-bench replay "$BATS_TEST_TMPDIR/live.moes" --tree "$shape" --policy $policy --iterations |
                    jq -c '[.sequence, .K, .nodes, .accepted, .emitted, .policy]' > "$BATS_TEST_TMPDIR/replayed"
                [ "$(wc -l < "$BATS_TEST_TMPDIR/live")" -gt 10 ]
                diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
            done
        done
    done
}

@test "a smaller tree in replay is a run with that tree" {
    draft=model:file=$(dirname "$MOE_POCKET")/draft.moe
    record_tree "$BATS_TEST_TMPDIR/large.moes" "$draft" --tree $tree
    for small in "$tree -K 2" "dynamic:total=6,depth=4,topk=4" "dynamic:total=9,depth=3,topk=4"; do
        moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 18 -d "$draft" --tree $small --stream "$BATS_TEST_TMPDIR/small.moes" \
            -o /dev/null
        moe-view --json --type iter "$BATS_TEST_TMPDIR/small.moes" |
            jq -c 'select(.type == "iter") | [.sequence, .nodes, .accepted, .emitted, .bytes]' > "$BATS_TEST_TMPDIR/live"
        moe-bench replay "$BATS_TEST_TMPDIR/large.moes" --tree $small --policy static --cost bytes --iterations |
            jq -c '[.sequence, .nodes, .accepted, .emitted, ((.seconds - .draft_seconds) * 1e9 | round)]' > "$BATS_TEST_TMPDIR/replayed"
        diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
    done
}

# All drafts that such a policy may request must be recorded: for tr a chain with leaves at each level, for dytc two children
# everywhere.
@test "replay reproduces policies that make their own trees" {
    jq -n -c '[range(1; 5) as $depth | range(pow(2; $depth)) | . as $path | [range($depth) | ($path / pow(2; .) | floor) % 2]]' \
        > "$BATS_TEST_TMPDIR/two.json"
    local draft="model:file=$(dirname "$MOE_POCKET")/draft.moe" drafts policy shape
    while IFS='|' read -r drafts policy shape; do
        moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 $drafts --policy "$policy" --tree "$shape" --record drafts \
            --stream "$BATS_TEST_TMPDIR/own.moes" -o "$BATS_TEST_TMPDIR/own.txt"
        cmp "$BATS_TEST_TMPDIR/own.txt" "$folder/cascade.txt"
        moe-view --json --type iter "$BATS_TEST_TMPDIR/own.moes" | jq -c 'select(.type == "iter") | [.sequence, .K, .nodes,
            .accepted, .emitted, .policy, ((.draft_us + .verify_us + .accept_us + .other_us) / 1000000)]' > "$BATS_TEST_TMPDIR/live"
        moe-bench replay "$BATS_TEST_TMPDIR/own.moes" --policy "$policy" --iterations |
            jq -c '[.sequence, .K, .nodes, .accepted, .emitted, .policy, .seconds]' > "$BATS_TEST_TMPDIR/replayed"
        # An iteration with the live one's time has exactly its tree, with the drafters of all nodes.
        jq -e -n --slurpfile live "$BATS_TEST_TMPDIR/live" --slurpfile replayed "$BATS_TEST_TMPDIR/replayed" '
            ($live | length) > 10 and ($live | map(.[:6])) == ($replayed | map(.[:6])) and any($live[]; .[2] > .[3] + 3) and
            all(range($live | length); ($live[.][6] - $replayed[.][6] | fabs) < 1e-9)'
        moe-bench replay "$BATS_TEST_TMPDIR/own.moes" --tree chain --policy "$policy" --policy static:K=2 --json |
            jq -e -s 'map(.tokens) | unique | length == 1'
    done < <(sed "${MOE_LONG:+#}2d" <<RUNS
-d $draft -d ngram|tr:most=6|static:width=10,depth=6
-d self:exit=3 -d $draft|tr:min=0.3,max=4|static:width=10,depth=4
-d $draft|dytc:most=4,warmup=2|static:file=$BATS_TEST_TMPDIR/two.json
RUNS
    )
    # A chain from these trees equals a run with it.
    moe-decode -m "$MOE_POCKET" "$folder/prompts.jsonl" -n 24 -d "$draft" -K 3 --stream "$BATS_TEST_TMPDIR/chain.moes" -o /dev/null
    moe-view --json --type iter "$BATS_TEST_TMPDIR/chain.moes" |
        jq -c 'select(.type == "iter") | [.sequence, .nodes, .accepted, .emitted, .bytes]' > "$BATS_TEST_TMPDIR/live"
    moe-bench replay "$BATS_TEST_TMPDIR/own.moes" --tree chain --policy static:K=3 --cost bytes --iterations |
        jq -c '[.sequence, .nodes, .accepted, .emitted, ((.seconds - .draft_seconds) * 1e9 | round)]' > "$BATS_TEST_TMPDIR/replayed"
    diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
    # So does a tree of tr from a run with another policy, with leaves that the recording did not extend.
    moe-decode -m "$MOE_POCKET" -p "Tom has 3 apples" -n 16 -d "$draft" --temperature 0.7 --policy tr:max=3,min=0.2 \
        --stream "$BATS_TEST_TMPDIR/tr.moes" -o /dev/null
    moe-decode -m "$MOE_POCKET" -p "Tom has 3 apples" -n 16 -d "$draft" --temperature 0.7 --tree static:width=10,depth=3 \
        --record drafts --stream "$BATS_TEST_TMPDIR/levels.moes" -o /dev/null
    moe-view --json --type iter "$BATS_TEST_TMPDIR/tr.moes" |
        jq -c 'select(.type == "iter") | [.nodes, .accepted, .emitted, .bytes]' > "$BATS_TEST_TMPDIR/live"
    moe-bench replay "$BATS_TEST_TMPDIR/levels.moes" --policy tr:max=3,min=0.2 --cost bytes --iterations |
        jq -c '[.nodes, .accepted, .emitted, ((.seconds - .draft_seconds) * 1e9 | round)]' > "$BATS_TEST_TMPDIR/replayed"
    diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
    # Without --tree chains are recorded, and too few children do not form the same tree.
    run moe-bench replay "$folder/cascade.moes" --policy tr
    assert_trouble moe-bench
    [[ $output == *"the policy drafts a tree, but the stream records chains only"* ]]
    run moe-bench replay "$BATS_TEST_TMPDIR/own.moes" --policy tr --iterations
    assert_trouble moe-bench
    [[ $output == *"only 2 were recorded"* ]]
}

@test "a tree larger than the recorded one is refused" {
    record_tree "$BATS_TEST_TMPDIR/tree.moes" "model:file=$(dirname "$MOE_POCKET")/draft.moe" --tree dynamic:total=8,depth=2,topk=3
    for wrong in "" "--tree chain --policy static:K=3" "--tree dynamic:total=8,depth=3,topk=3" "--tree dynamic:total=8,depth=2,topk=5"; do
        run moe-bench replay "$BATS_TEST_TMPDIR/tree.moes" $wrong
        assert_trouble moe-bench
    done
    run moe-bench replay "$folder/cascade.moes" --tree $tree
    assert_trouble moe-bench
    run moe-decode -m "$MOE_POCKET" -p x -n 20 -d ngram --policy "oracle:file=$BATS_TEST_TMPDIR/tree.moes"
    assert_trouble moe-decode
    run moe-decode -m "$MOE_POCKET" -p x -n 20 -d ngram --tree dynamic:total=500,depth=20,topk=10 \
        --record drafts --stream "$BATS_TEST_TMPDIR/x.moes"
    assert_trouble moe-decode
}
