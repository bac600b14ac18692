# moe-bench simulate: hits and times recomputed by another program, routes checked by moe-coact, and refused input.
load common

setup_file() {
    load common
    export folder=$BATS_FILE_TMPDIR PYTHON
    PYTHON=$(python_with_numpy)
    cat > "$folder/small.json" <<'MACHINE'
{"machine": "none", "source": "made up", "cached": 0.3,
 "model": {"name": "small", "layers": 6, "experts": 32, "top_k": 4, "expert_bytes": 1e6},
 "draft": {"length": 5, "token_us": 300, "acceptance": 0.7}, "layer_us": 20, "forward_us": 77,
 "fast": {"expert_us": 9, "token_us": 0.5}, "slow": {"expert_us": 90, "token_us": 11, "join_us": 7},
 "link": {"bytes_per_second": 20e9, "latency_us": 3}, "forecast": {"next_layer": 0.7, "draft": 0.9}}
MACHINE
}

simulate() { moe-bench simulate --machine "$folder/small.json" "$@"; }

@test "hits and seconds equal those of another program over the same routes" {
    local skew
    for skew in flat mild steep; do
        simulate --skew $skew --texts 2 -n 60 --keep-routes "$BATS_TEST_TMPDIR/routes.moes" --json > "$BATS_TEST_TMPDIR/result.jsonl"
        "$PYTHON" "$top/tests/bench/simulated.py" "$folder/small.json" "$BATS_TEST_TMPDIR/routes.moes" "$BATS_TEST_TMPDIR/result.jsonl"
    done
    local link
    for link in '' ', together: true'; do
        jq ".link = {bytes_per_second: 20e9, latency_us: 150, at_once: true$link}" "$folder/small.json" > "$BATS_TEST_TMPDIR/at-once.json"
        moe-bench simulate --machine "$BATS_TEST_TMPDIR/at-once.json" "$BATS_TEST_TMPDIR/routes.moes" --json > "$BATS_TEST_TMPDIR/at-once.jsonl"
        "$PYTHON" "$top/tests/bench/simulated.py" "$BATS_TEST_TMPDIR/at-once.json" "$BATS_TEST_TMPDIR/routes.moes" "$BATS_TEST_TMPDIR/at-once.jsonl"
    done
    jq -e -s 'all(.[]; .simulated and .type == "simulate" and .tokens == 120 and (.source | length) > 10) and
        (map(.system) | index("utility") and index("fate") and index("static-split"))' "$BATS_TEST_TMPDIR/result.jsonl"
}

@test "on a shared link another program gives the same counts and seconds" {
    local source link
    while IFS='|' read -r source link; do
        jq "del(.slow) | .link = $link" "$folder/small.json" > "$BATS_TEST_TMPDIR/shared.json"
        moe-bench simulate --machine "$BATS_TEST_TMPDIR/shared.json" --skew mild --texts 2 -n 24 --system lru-fetch --system utility-fetch \
            ${source:+--prefetch $source} --keep-routes "$BATS_TEST_TMPDIR/routes.moes" --json > "$BATS_TEST_TMPDIR/result.jsonl"
        "$PYTHON" "$top/tests/bench/stepped.py" time "$BATS_TEST_TMPDIR/shared.json" "$BATS_TEST_TMPDIR/routes.moes" \
            "$BATS_TEST_TMPDIR/result.jsonl" $source
    done <<'LINKS'
|{bytes_per_second: 5e9, together: true, reads: [[1, 1e9], [2, 1.5e9], [9, 4e9], [16, 4.5e9]]}
last|{bytes_per_second: 20e9, latency_us: 30, at_once: true, together: true}
utility|{bytes_per_second: 9e9, together: true, latency_us: 7}
LINKS
    run simulate --system utility --prefetch last
    assert_trouble moe-bench
    [[ $output == *"the machine's link transfers experts one at a time"* ]]
}

@test "policies over local routes: another program gives the same counts and seconds" {
    local skew
    # No two events of this machine coincide, where rounding would decide which is first.
    jq '.link.latency_us = 3.1378213 | .fast.expert_us = 9.0123457 | .slow.expert_us = 90.0712347 | .slow.token_us = 11.0041234' \
        "$folder/small.json" > "$BATS_TEST_TMPDIR/uneven.json"
    for skew in local local-olmoe mild; do
        moe-bench simulate --machine "$BATS_TEST_TMPDIR/uneven.json" --seed 31 --skew $skew --texts 2 -n 50 --system lru --system utility --system utility-released:up=2 --system utility-layers:up=2 \
            --system utility-kept:up=2 --system utility-released:after=level,tau=2,up=1 --keep-routes "$BATS_TEST_TMPDIR/routes.moes" \
            --json > "$BATS_TEST_TMPDIR/result.jsonl"
        "$PYTHON" "$top/tests/bench/local.py" step "$BATS_TEST_TMPDIR/uneven.json" "$BATS_TEST_TMPDIR/routes.moes" "$BATS_TEST_TMPDIR/result.jsonl"
        jq -e -s 'length == 6 and (map(.seconds) | unique | length) == 6' "$BATS_TEST_TMPDIR/result.jsonl"
    done
    simulate "$BATS_TEST_TMPDIR/routes.moes" --system utility-released --system utility:signal=state,boundaries=fixed,up=5,down=1,K=5,tau=1 --json |
        jq -e -s 'length == 2 and (map([.hits, .prefetched]) | unique | length) == 1'
}

@test "a copy that drafts for its routes takes memory and time, and is refused where it does not fit" {
    local file=$BATS_TEST_TMPDIR/copy.json
    jq '.forecast.copy = {share: 0.25, in_place_of: 0.05, token_us: 450}' "$folder/small.json" > "$file"
    moe-bench simulate --machine "$file" --texts 1 -n 40 --system ahead --system lru --json > "$BATS_TEST_TMPDIR/copied"
    jq 'del(.forecast.copy) | .cached = 0.1 | .draft.token_us = 450' "$file" > "$BATS_TEST_TMPDIR/alike.json"
    moe-bench simulate --machine "$BATS_TEST_TMPDIR/alike.json" --texts 1 -n 40 --system ahead --json > "$BATS_TEST_TMPDIR/alike"
    diff <(jq -c 'select(.system == "ahead") | [(.cached * 1000 | round), .hits, .prefetched, .seconds]' "$BATS_TEST_TMPDIR/copied") \
        <(jq -c '[(.cached * 1000 | round), .hits, .prefetched, .seconds]' "$BATS_TEST_TMPDIR/alike")
    diff <(jq -c 'select(.system == "lru") | [.hits, .seconds]' "$BATS_TEST_TMPDIR/copied") \
        <(simulate --texts 1 -n 40 --system lru --json | jq -c '[.hits, .seconds]')
    run moe-bench simulate --machine "$file" --cached 0.21 --system ahead
    assert_trouble moe-bench
    [[ $output == *'takes 25 % of the experts'*'leaves fast memory for 2 experts'* ]]
    moe-bench simulate --machine "$file" --cached 0.21 --texts 1 -n 8 --json | jq -e -s 'map(.system) | index("utility") and (index("ahead") | not)'
    moe-bench simulate --machine "$file" --cached 0.21 --texts 1 -n 8 --figure pipelines | grep -q utility-released
}

@test "recorded routes are simulated, and --keep-routes writes the same routes" {
    head -n 3 "$MOE_MODELS/pocket/heldout.jsonl" > "$BATS_TEST_TMPDIR/prompts.jsonl"
    moe-profile -q -m "$MOE_POCKET" -n 30 -d ngram -K 5 "$BATS_TEST_TMPDIR/prompts.jsonl" -o "$BATS_TEST_TMPDIR/routes.moes"
    simulate "$BATS_TEST_TMPDIR/routes.moes" --keep-routes "$BATS_TEST_TMPDIR/kept.moes" --json > "$BATS_TEST_TMPDIR/result.jsonl"
    "$PYTHON" "$top/tests/bench/simulated.py" "$folder/small.json" "$BATS_TEST_TMPDIR/routes.moes" "$BATS_TEST_TMPDIR/result.jsonl"
    simulate "$BATS_TEST_TMPDIR/kept.moes" --json > "$BATS_TEST_TMPDIR/again.jsonl"
    diff <(jq -c 'del(.decide_us, .routes)' "$BATS_TEST_TMPDIR/result.jsonl") <(jq -c 'del(.decide_us, .routes)' "$BATS_TEST_TMPDIR/again.jsonl")
    local made
    for made in "--skew mild" "--texts 3" "--tokens 9"; do
        run simulate "$BATS_TEST_TMPDIR/routes.moes" $made
        assert_trouble moe-bench
        [[ $output == *"${made% *}: applies to synthetic routes only"* ]]
    done
    simulate "$BATS_TEST_TMPDIR/routes.moes" --system static-split > "$BATS_TEST_TMPDIR/text"
    grep '^SIMULATED: model at the costs of small on none, .*; routes recorded from model$' "$BATS_TEST_TMPDIR/text"
    simulate "$BATS_TEST_TMPDIR/routes.moes" --system static-split --json |
        jq -e '.model == "model" and .costs_of == "small"'
}

@test "forecasts have the scores of another program" {
    head -n 3 "$MOE_MODELS/pocket/heldout.jsonl" > "$BATS_TEST_TMPDIR/prompts.jsonl"
    moe-profile -q -m "$MOE_POCKET" -n 40 -d ngram -K 5 "$BATS_TEST_TMPDIR/prompts.jsonl" -o "$BATS_TEST_TMPDIR/routes.moes"
    simulate --forecasts "$BATS_TEST_TMPDIR/routes.moes" --json > "$BATS_TEST_TMPDIR/result.jsonl"
    "$PYTHON" "$top/tests/bench/simulated.py" "$folder/small.json" "$BATS_TEST_TMPDIR/routes.moes" "$BATS_TEST_TMPDIR/result.jsonl"
    # Forecasts from states have the machine's share of hits, for the tokens of the draft phase.
    jq '.draft.length = 1' "$folder/small.json" > "$BATS_TEST_TMPDIR/short.json"
    moe-bench simulate --machine "$BATS_TEST_TMPDIR/short.json" --forecasts --texts 1 -n 400 --json | jq -e -s '
        [.[] | select(.most == 16)] | (.[] | select(.source == "next-layer") | .recall > 0.6 and .recall < 0.75) and
        (.[] | select(.source == "draft") | .recall > 0.5 and .recall < 0.62)'
    simulate --forecasts --texts 1 -n 20 | grep '^SIMULATED: '
}

@test "figures have the points of the systems, in every form" {
    local figure
    for figure in ablation hot-or-cold cached lengths levels memory shares pipelines; do
        simulate --texts 1 -n 24 --figure $figure --json | jq -e -s --arg of $figure 'length > 4 and all(.[]; .simulated and .figure == $of)'
    done
    for figure in ablation shares pipelines; do
        simulate --texts 1 -n 24 --figure $figure --svg > "$BATS_TEST_TMPDIR/figure.svg"
        python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$BATS_TEST_TMPDIR/figure.svg"
    done
    simulate --texts 1 -n 24 --figure cached --markdown | grep -q '^| *share'
    [ "$(simulate --texts 1 -n 24 --figure ablation --json | jq -s '.[1].y')" = \
        "$(simulate --texts 1 -n 24 --system utility:K=1 --json | jq .tokens_per_second)" ]
    [ "$(simulate --texts 1 -n 24 --figure cached --json | jq -s '.[] | select(.series == "lru" and .x == 0.17) | .y')" = \
        "$(simulate --texts 1 -n 24 --cached 0.17 --system lru --json | jq .tokens_per_second)" ]
    # Busy times over all forwards add up to the systems' totals.
    for system in static-split-draft utility sp-moe; do
        simulate --texts 1 -n 4 --figure pipelines --json > "$BATS_TEST_TMPDIR/spans"
        simulate --texts 1 -n 4 --system $system --json | jq -e --arg of $system --slurpfile span "$BATS_TEST_TMPDIR/spans" '
            [$span[] | select(.system == $of) | . + {ms: (.to_ms - .from_ms)}] as $spans |
            def sum(lane): [$spans[] | select(.lane == lane and .layer != null) | .ms] | add // 0;
            def near(a; b): (a - b | fabs) < 1e-9 * (1 + b);
            .forwards == 1 and near(sum("slow"); 1e3 * .slow_seconds) and near(sum("fast"); 1e3 * .fast_seconds + 6 * 0.02) and
            near([$spans[] | select(.layer == null) | .ms] | add // 0; 1e3 * .draft_seconds) and
            (.fetched + .prefetched == 0 or sum("link") > 0.9 * (.fetched + .prefetched - 1) * 0.053)'
    done
    local busy
    busy=$(jq -r -s '[.[] | select(.system == "sp-moe")] | (map(select(.layer == null)) | map(.to_ms - .from_ms) | add) as $drafting |
        map(select(.lane == "link") | ([.to_ms, 0] | min) - .from_ms | select(. > 0)) | add / $drafting * 1000 | round / 10' \
        "$BATS_TEST_TMPDIR/spans")
    simulate --texts 1 -n 4 --figure pipelines --markdown | grep -E "^. sp-moe .* ${busy/./\\.}(\.0)? % .\$"
    run simulate --figure cached --system lru
    assert_trouble moe-bench
    run simulate --svg
    assert_trouble moe-bench
}

@test "synthetic routes share experts as documented, counted by moe-coact" {
    simulate --skew mild --texts 3 -n 800 -K 0 --system static-split-draft --keep-routes "$BATS_TEST_TMPDIR/routes.moes" > /dev/null
    moe-coact locality --json "$BATS_TEST_TMPDIR/routes.moes" | jq -e -s '[.[] | select(.type == "locality")] |
        length == 6 and ([.[].common[0]] | add / length | . > 0.355 and . < 0.385) and
        ([.[].common[4]] | add / length | . > 0.20 and . < 0.25)'
}

@test "the seed determines the routes, and settings of a system reach its policy" {
    simulate --texts 1 -n 40 --system utility --system utility:tau=4 --system utility:prefetch=no --json |
        jq -e -s '.[0].prefetched > .[1].prefetched and .[2].prefetched == 0 and .[0].seconds != .[2].seconds'
    simulate --texts 1 -n 40 --seed 7 --system lru > "$BATS_TEST_TMPDIR/one"
    simulate --texts 1 -n 40 --seed 7 --system lru | cmp - "$BATS_TEST_TMPDIR/one"
    refute cmp -s "$BATS_TEST_TMPDIR/one" <(simulate --texts 1 -n 40 --seed 8 --system lru)
    simulate --cached 1 --system lru-fetch --texts 1 -n 200 --json | jq -e '.fetched < 6 * 32 + 1'
    simulate --markdown --system lru | grep '^| system (simulated) |'
}

@test "invalid simulations are refused in one line" {
    local file=$BATS_TEST_TMPDIR/bad.json change
    run moe-bench simulate
    assert_trouble moe-bench
    [[ $output == *'no machine is given'* ]]
    run simulate --system nothing
    assert_trouble moe-bench
    [[ $output == *'nothing'* ]]
    run simulate --system utility:tao=2
    assert_trouble moe-bench
    [[ $output == *'tao'* ]]
    run simulate --cached 0.001
    assert_trouble moe-bench
    [[ $output == *'fast memory'* ]]
    for change in 'del(.fast)' '.fast.expert_us = -1' '.model.layers = 0' '.link.bytes_per_second = "fast"' '.typo = 1' \
        '.draft.length = 64' '.link.at_once = 1' '.forecast.copy = 1' '.forecast.copy = {share: 0.2}' '.link.together = 1' '.link.reads = [[1, 1e9]]' '.link.together = true | .link.reads = [[2, 1e9], [2, 1e9]]' \
        'del(.source)' 'del(.model.top_k)' 'del(.model.experts)' 'del(.model.layers)' '.model.top_k = 17' 'del(.cached)' '[]'; do
        jq "$change" "$folder/small.json" > "$file"
        run moe-bench simulate --machine "$file"
        assert_trouble "moe-bench: $file"
    done
    jq 'del(.slow)' "$folder/small.json" > "$file"
    run moe-bench simulate --machine "$file" --system utility
    assert_trouble moe-bench
    [[ $output == *'slow processor'* ]]
    moe-bench simulate --machine "$file" -n 20 --json | jq -e -s 'length > 5 and all(.[]; .slow_seconds == 0)'
}

@test "the machines of the project can be simulated" {
    local file
    for file in "$top"/tests/bench/machines/*.json; do
        moe-bench simulate --machine "$file" --cached 0.3 --texts 1 -n 8 --system utility-fetch --system ahead-fetch | grep '^SIMULATED'
    done
}
