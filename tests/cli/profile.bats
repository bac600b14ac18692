#!/usr/bin/env bats
# moe-profile from the command line: records equal the model's behaviour, whatever drafts, shards or pieces.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR" HELDOUT="$MOE_MODELS/pocket/heldout.jsonl" GOLDEN="$MOE_MODELS/pocket/golden.jsonl"
    export COUNT=$([ "$MOE_SANITIZED" ] && echo 4 || echo 20)
    export LONG="def total(values): $(for i in 1 2 3 4 5 6 7 8; do
        printf 'if values[%d] > %d: return %d; ' $i $((i * 7)) $i; done)"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    for task in math code extract summ; do
        grep "\"task\": \"$task\"" "$HELDOUT" | head -n $((COUNT / 4))
    done > prompts.jsonl
    moe-profile -q -m pocket.moe -n 24 prompts.jsonl -o routes.moes
    moe-view --json routes.moes > routes.jsonl
}

setup() { cd "$WORK"; }

# Prints the sums over the accepted tokens of routes, by every analysis.
digest() {
    for by in mass frequency; do moe-coact rank-experts --by $by --json "$@"; done
    moe-coact coverage --csv "$@"
    moe-coact union --csv "$@"
}

@test "a terminal gets a table, never the stream" {
    command -v script > /dev/null || skip "no script(1)"
    script -qec "moe-profile -q -m pocket.moe -p 'Hello there'" /dev/null > screen < /dev/null
    grep -q "1 texts, .* tokens; experts of each layer by frequency" screen
    [ "$(grep -c '%' screen)" = 6 ]
    [ "$(moe-profile -q -m pocket.moe --text -p 'Hello there' | tr -d '\r')" = "$(tr -d '\r' < screen)" ]
}

@test "every prompt is begun, recorded token by token in small records, and ended" {
    [ "$(jq -c 'select(.type == "begin")' routes.jsonl | wc -l)" = "$COUNT" ]
    [ "$(jq -c 'select(.type == "end_sequence")' routes.jsonl | wc -l)" = "$COUNT" ]
    [ "$(jq -s '[.[] | select(.type == "begin") | .prompt_tokens] | add' routes.jsonl)" = \
      "$(jq -s '[.[] | select(.phase == "prompt") | .n] | add' routes.jsonl)" ]
    [ "$(jq -s '[.[] | select(.type == "route") | .n <= 64 and (.experts | length) == .n and (.experts[0] | length) == 6
                 and (.experts[0][0] | length) == 4 and (.mass | length) == 6] | all' routes.jsonl)" = true ]
}

@test "positions are consecutive from the first token of the prompt" {
    [ "$(jq -s 'reduce (.[] | select(.type == "route" or .type == "begin")) as $r ({at: 0, good: true};
        if $r.type == "begin" then .at = 0 else .good = (.good and $r.pos == .at) | .at += $r.n end) | .good' \
        routes.jsonl)" = true ]
}

@test "prompts and decoded tokens equal those of the reference implementation" {
    jq -c 'select(.type == "begin" or .type == "route") | [.id, .phase, .tokens]' routes.jsonl |
        jq -sc 'reduce .[] as [$id, $phase, $tokens] ({}; if $id then .now = $id else .ids[.now] += $tokens end) | .ids |
                to_entries[] | {id: .key, ids: .value}' > ours.jsonl
    while read -r line; do
        id=$(jq -r .id <<< "$line")
        theirs=$(jq -c "select(.id == \"$id\") | (.prompt_tokens + .tokens)" "$GOLDEN")
        [ "$(jq -c '.ids' <<< "$line")" = "$(jq -c ".[:$(jq '.ids | length' <<< "$line")]" <<< "$theirs")" ]
    done < ours.jsonl
}

@test "experts and weights are the largest of the recorded probabilities, and mass is their sum" {
    moe-profile -q -m pocket.moe --record route,probs -n 3 -p "$LONG" | moe-view --json |
        jq -c 'select(.type == "route")' > probs.jsonl
    [ "$(jq -s '[.[] | select(.phase == "prompt")] | length' probs.jsonl)" -ge 2 ]      # several records
    [ "$(wc -l < probs.jsonl)" -ge 4 ]
    [ "$(jq -s '[.[] | . as $r | range(0; $r.n) as $t | range(0; 6) as $l | $r.probs[$t][$l] as $p |
        ([$p | to_entries | sort_by(-.value, .key)[:4][] | .key] == $r.experts[$t][$l]) and
        ([$p | to_entries | sort_by(-.value, .key)[:4][] | .value] == $r.weights[$t][$l]) and
        (($p | add) - 1 | fabs) < 1e-5] | all' probs.jsonl)" = true ]
    [ "$(jq -s '[.[] | . as $r | range(0; 6) as $l | range(0; 32) as $e |
        (([$r.probs[][$l][$e]] | add) - $r.mass[$l][$e] | fabs) < 1e-6] | all' probs.jsonl)" = true ]
}

@test "logits and hidden states are recorded on request" {
    moe-profile -q -m pocket.moe --record route,logits,hidden -n 2 -p "$LONG" | moe-view --json |
        jq -c 'select(.type == "route")' > full.jsonl
    [ "$(jq -s '[.[] | (.logits | length) == .n and (.logits[0] | length) == 2048 and (.hidden[0] | length) == 6 and
                 (.hidden[0][0] | length) == 192] | all' full.jsonl)" = true ]
    jq -c 'del(.hidden) | .logits |= .[-1:]' full.jsonl > short.jsonl
    # then read in smaller pieces, and recorded alike
    moe-profile -q -m pocket.moe -n 2 -p "$LONG" | moe-view --json > plain.jsonl
    for key in tokens experts weights; do
        [ "$(jq -sc "[.[] | select(.type == \"route\") | .$key[]]" plain.jsonl)" = "$(jq -sc "[.[] | .$key[]]" short.jsonl)" ]
    done
    # the best token after the last one of the prompt is the next one recorded
    next=$(jq -s '[.[] | select(.phase == "prompt")][-1].logits[0] | to_entries | max_by(.value) | .key' short.jsonl)
    [ "$next" = "$(jq -s '[.[] | select(.phase == "decode")][0].tokens[0]' short.jsonl)" ]
    # the same if the rows of one forward are several records
    for wide in '' '--parallel 2 -d ngram -K 64'; do
        moe-profile -q -m pocket.moe -n 1 --record logits $wide -p "$LONG" | moe-view --json | grep '"prompt"' > "rows$wide"
    done
    [ "$(wc -l < rows)" -ge 2 ]
    cmp rows "rows$wide"
}

@test "the tokens of a text do not depend on the drafter, at T = 0 and above" {
    digest routes.moes > none
    for draft in "ngram -K 1" "ngram -K 7"; do
        moe-profile -q -m pocket.moe -n 24 --draft $draft prompts.jsonl -o drafted.moes
        digest drafted.moes | cmp - none
    done
    moe-view --json drafted.moes | jq -s -e 'any(.[]; .phase == "verify" and (.accepted | add) < .n)' > /dev/null
    moe-profile -q -m pocket.moe -n 24 --temperature 1 --seed 5 prompts.jsonl -o none.moes
    moe-profile -q -m pocket.moe -n 24 --temperature 1 --seed 5 --draft ngram -K 4 prompts.jsonl -o drafted.moes
    digest none.moes > none
    digest drafted.moes | cmp - none
    digest routes.moes | cmp -s - none && return 1
    true
}

@test "nothing counts after a stop string that a draft went past" {
    words="one two three four. one two three four. one two three four. one two"
    ask() { "$@" -q -m pocket.moe -n 60 --stop "the two" -p "$words"; }
    ask moe-profile -o none.moes
    ask moe-profile --draft ngram -K 8 -o drafted.moes
    ask moe-decode --draft ngram -K 8 --stream - | moe-view --json --type iter | jq -s -e '.[-1] | .emitted < .accepted'
    digest none.moes > none
    digest drafted.moes | cmp - none
}

@test "shards, merged or taken together, add up to the whole, also with equal prompts at T > 0" {
    { head -n 4 prompts.jsonl; head -n 3 prompts.jsonl; } > twice.jsonl
    settings="-q -m pocket.moe -n 12 --temperature 3"
    moe-profile $settings twice.jsonl -o whole.moes
    for i in 1 2 3; do moe-profile $settings --shard $i/3 twice.jsonl -o shard$i.moes; done
    [ "$(moe-view --json shard1.moes | jq -c 'select(.type == "begin")' | wc -l)" = 3 ]
    digest whole.moes > whole
    digest shard3.moes shard1.moes shard2.moes | cmp - whole
    moe-coact merge shard2.moes shard3.moes shard1.moes | moe-coact rank-experts --json > merged
    moe-coact rank-experts --json whole.moes | cmp - merged
}

@test "a budget with a static ranking holds in every decoded token, and in no prompt" {
    moe-coact rank-experts -q routes.moes -o rank.moes
    moe-profile -q -m pocket.moe -n 8 --budget 4,5,6,7,8,32 --rank rank.moes --budget-mode truncate prompts.jsonl |
        moe-view --json > budgeted.jsonl
    moe-view --json rank.moes | jq -c 'select(.type == "rank") | .order' | jq -sc . > orders
    [ "$(jq -s --slurpfile orders orders '[.[] | select(.phase == "decode") | .experts[] | to_entries[] | .key as $l |
        .value[] | . == -1 or IN($orders[0][$l][:[4, 5, 6, 7, 8, 32][$l]][])] | all' budgeted.jsonl)" = true ]
    jq -s -e '[.[] | select(.phase == "decode") | .experts[][0][]] | any(. == -1)' budgeted.jsonl > /dev/null
    [ "$(jq -c 'select(.phase == "prompt") | .experts' budgeted.jsonl | sha256sum)" = \
      "$(jq -c 'select(.phase == "prompt") | .experts' routes.jsonl | sha256sum)" ]
    jq -s -e '.[0].labels["not lossless"] == "budget 4 to 32 of 32, static by mass, truncate"' budgeted.jsonl
}

@test "a part without prompts makes a complete, empty stream" {
    head -n 1 prompts.jsonl > one.jsonl
    moe-profile -m pocket.moe --shard 2/2 one.jsonl > empty.moes 2> said
    moe-view --verify empty.moes
    grep -qx 'moe-profile: --shard 2/2: this part is empty, as there are only 1 prompts' said
}

@test "invalid option values are reported in one line with a remedy" {
    run moe-profile prompts.jsonl -o no.moes
    assert_trouble moe-profile
    [[ $output == *"-m FILE"* ]]
    for shard in 0/3 4/3 3 1/0 1/3x /3 1/ -1/3 99999999999999999999/99999999999999999999; do
        run moe-profile -m pocket.moe --shard=$shard prompts.jsonl -o no.moes
        assert_trouble moe-profile
        [[ $output == *"--shard: '$shard' is not a part; give I/N with I from 1 to N, as in 1/4" ]]
    done
    for words in "--shard 2/2 -p x" "--shard 1/2 <(cat prompts.jsonl)" "--shard 1/2"; do
        run eval "cat prompts.jsonl | moe-profile -m pocket.moe $words -o no.moes"
        assert_trouble moe-profile
        [[ $output == *"--shard"*"give prompts as"* ]]
    done
    for words in "" probs,, route,rout hidden+probs; do
        run moe-profile -m pocket.moe --record "$words" prompts.jsonl -o no.moes
        assert_trouble moe-profile
    done
    run moe-profile -m pocket.moe --rank rank.moes prompts.jsonl -o no.moes
    assert_trouble moe-profile
    run moe-profile -m pocket.moe --budget 4 --rank - -o no.moes
    assert_trouble moe-profile
    run moe-profile -m pocket.moe missing.jsonl -o no.moes
    assert_trouble moe-profile
    run moe-profile -m prompts.jsonl prompts.jsonl -o no.moes
    assert_trouble moe-profile
    [ ! -e no.moes ]
}

@test "a dense model has no routes" {
    moe-convert "$MOE_MODELS/pocket/draft" -q -o dense.moe || moe-convert "$MOE_MODELS/pocket/draft" -o dense.moe
    run moe-profile -q -m dense.moe prompts.jsonl -o no.moes
    assert_trouble moe-profile
    [ ! -e no.moes ]
}

@test "a full disk and a closed pipe are not successes" {
    run moe-profile -q -m pocket.moe prompts.jsonl -o /dev/full
    assert_trouble moe-profile
    moe-profile -q -m pocket.moe prompts.jsonl | head -c 100 > /dev/null
    ended=${PIPESTATUS[0]}
    [ "$ended" -eq 0 ] || [ "$ended" -eq 141 ]
}

@test "a bad prompt late in the file leaves no file, and aborts a pipe" {
    { head -n 2 prompts.jsonl; echo '{"prompt": 7}'; } > bad.jsonl
    run moe-profile -q -m pocket.moe bad.jsonl -o no.moes
    assert_trouble moe-profile
    [[ $output == *"bad.jsonl:3"* ]]
    [ ! -e no.moes ]
    moe-profile -q -m pocket.moe bad.jsonl 2> /dev/null > aborted.moes || true
    run moe-coact rank-experts aborted.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == *"bad.jsonl:3"* ]]
    [ ! -e no.moes ]
}

@test "a profile ended by a signal reports it, and has the finished records" {
    mkdir stopped
    moe-profile -q -m pocket.moe -n 400 --ignore-eos "$HELDOUT" -o stopped/routes.moes 3>&- 2> said &
    pid=$!
    for ((i = 0; i < 300; i++)); do [ "$(cat stopped/* 2> /dev/null | head -c 70000 | wc -c)" = 70000 ] && break; sleep 0.02; done
    kill -TERM $pid
    wait $pid || status=$?
    [ "$status" = 143 ]
    [[ $(cat said) =~ ^"moe-profile: ended by SIGTERM within text "[0-9]+$ ]]
    [ "$(ls -A stopped)" = routes.moes ]
    run moe-view --json stopped/routes.moes
    [ "$status" -eq 2 ]
    [[ ${lines[-1]} == *"because its producer, moe-profile, failed: ended by SIGTERM within text "* ]]
    echo "${lines[-2]}" | jq -e '.type == "abort"'
    echo "${lines[-3]}" | jq -e '.type == "end_sequence"'
    # Its contents are the beginning of the complete profile.
    moe-view --json stopped/routes.moes 2> /dev/null | jq -c 'select(.type == "route") | [.sequence, .tokens, .experts]' |
        head -n -1 > came
    moe-profile -q -m pocket.moe -n 400 --ignore-eos <(head -n $(($(jq -s 'last[0]' came) + 1)) "$HELDOUT") | moe-view --json |
        jq -c 'select(.type == "route") | [.sequence, .tokens, .experts]' | head -n $(wc -l < came) | cmp - came
    run moe-coact rank-experts stopped/routes.moes
    assert_trouble moe-coact
    moe-profile -q -m pocket.moe -n 400 --ignore-eos --text "$HELDOUT" > table 2> said 3>&- &
    pid=$!
    sleep 1
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    [ "$status" = 143 ]
    [ ! -s said ] || [[ $(head -n 1 table) =~ ^[0-9]+" texts, " ]]
}

@test "of a model without experts logits and hidden states are recorded, and routes refused" {
    moe-convert -q "$MOE_MODELS/pocket/draft" -o dense.moe
    for words in logits hidden route,logits,hidden; do
        moe-profile -q -m dense.moe -n 3 -p 'One two' --record $words -o dense.moes
        moe-view --verify dense.moes
        moe-view --json dense.moes | jq -s -e --arg words $words '[.[] | select(.type == "route")] | length > 1 and
            all(.[]; has("experts") == false and has("weights") == false and has("mass") == false and
                     has("logits") == ($words | contains("logits")) and has("hidden") == ($words | contains("hidden")))'
    done
    # Records equal moe-decode's decisions.
    moe-view --json dense.moes | jq -s -c '[.[] | select(.type == "route" and .phase == "decode") | .tokens[0]] +
        [[.[] | select(.type == "route")] | last | .logits[0] | index(max)]' > best
    moe-decode -q -m dense.moe -n 3 -p 'One two' --json | jq -c .tokens | cmp - best
    for refused in '-o x.moes' '--record probs,logits -o x.moes' '--record logits --text -o x'; do
        run moe-profile -q -m dense.moe -p 'One two' $refused
        assert_trouble moe-profile
        [[ $output == *"has no experts"*"--record logits or --record hidden" ]]
        [ ! -e x.moes ]
        [ ! -e x ]
    done
    run moe-coact rank-experts dense.moes
    assert_trouble moe-coact
    [[ $output == *"no experts"* ]]
}

@test "the skip search finds the best set, reproducibly, and writes it for this model" {
    head -n 3 prompts.jsonl > three.jsonl
    moe-profile skip -m pocket.moe --ratio 0.13 --max-score 1 --window 12 three.jsonl > one.json 2> note
    grep -q "without 1 of its 8 parts the model predicts .* of 3 texts; of 8 candidates .* ended by all" note
    [ "$(jq -c '[.skip, .window, (.attention + .ffn | length), .search.candidates, .search.texts, .search.ended]' one.json)" = \
      '[1,12,1,8,3,"all"]' ]
    [ "$(jq -r .model.index one.json)" = "$(moe-view --json -t model pocket.moe | jq -r .index_sha256)" ]
    [ "$(jq -r .model.source one.json)" = "$(moe-view --json -t model pocket.moe | jq -r .source_sha256)" ]
    moe-profile skip -q -m pocket.moe --iterations 30 --max-score 1 --window 12 --bayes-interval 5 three.jsonl -o a.json
    moe-profile skip -q -m pocket.moe --iterations 30 --max-score 1 --window 12 --bayes-interval 5 -j 2 three.jsonl -o b.json
    cmp a.json b.json
    [ "$(jq '.attention + .ffn | length' a.json)" = 3 ]
    [ "$(jq '.attention + .ffn | min >= 1 and max <= 4' a.json)" = true ]
    [ "$(jq '.matchness > 0.5 and .search.bayesian > 0' a.json)" = true ]
}

@test "an invalid search is refused in one line" {
    head -n 1 prompts.jsonl > one.jsonl
    run moe-profile skip -m pocket.moe --ratio 0.01 one.jsonl
    assert_trouble moe-profile
    [[ $output == *"--ratio: a ratio of 0.01 skips none of the 8 parts that can be skipped in 6 layers; give at least 0.125"* ]]
    : > none.jsonl
    run moe-profile skip -q -m pocket.moe none.jsonl
    assert_trouble moe-profile
    [[ $output == *"none.jsonl: has no prompts"* ]]
    run moe-profile skip -m pocket.moe --draft ngram one.jsonl
    assert_trouble moe-profile
}

@test "moe-decode drafts with a skip file, also for a quantised or inflated copy, with the same text" {
    head -n 3 prompts.jsonl > three.jsonl
    moe-profile skip -q -m pocket.moe --ratio 0.3 --window 24 --iterations 20 --max-score 1 three.jsonl -o found.json
    moe-decode -q -m pocket.moe -n 40 three.jsonl > alone
    moe-decode -q -m pocket.moe -n 40 -d self:skip=found.json -K 4 three.jsonl --stream found.moes > found
    cmp alone found
    accepted() { moe-view --json "$1" | jq -s '[.[] | select(.type == "done")] | (map(.num_accepted_tokens) | add) / (map(.num_draft_tokens) | add)'; }
    # The first token of a draft is accepted with the probability of matchness; further ones follow accepted tokens.
    [ "$(jq -n "$(accepted found.moes) >= $(jq .matchness found.json) - 0.15")" = true ]
    moe-convert inflate -q pocket.moe --expert-ffn 80 -o wide.moe
    moe-decode -q -m wide.moe -n 40 -d self:skip=found.json -K 4 three.jsonl > wide
    cmp alone wide
    jq -c '.attention = [1, 5]' found.json > last.json
    run moe-decode -m pocket.moe -d self:skip=last.json -p Hello
    assert_trouble moe-decode
    [[ $output == *'last.json: "attention": the last layer is never skipped'* ]]
    run moe-decode -m "$MOE_POCKET" -d self:skip=prompts.jsonl -p Hello
    assert_trouble moe-decode
}

@test "a search while decoding changes the skipped parts, never the text" {
    head -n 3 prompts.jsonl > three.jsonl
    moe-decode -q -m pocket.moe -n 60 three.jsonl > alone
    for temperature in 0 0.7; do
        moe-decode -q -m pocket.moe -n 60 --temperature $temperature three.jsonl > alone
        for draft in self:skip=0.6 self:skip=0.6,search=1,window=8; do
            moe-decode -q -m pocket.moe -n 60 --temperature $temperature -d $draft -K 4 three.jsonl --stream $draft.moes > text
            cmp alone text
        done
    done
    bytes() { moe-view --json "$1" | jq -s '[.[] | select(.type == "iter") | .draft_bytes // 0] | add'; }
    [ "$(bytes self:skip=0.6,search=1,window=8.moes)" -gt "$(bytes self:skip=0.6.moes)" ]
    run moe-decode -m pocket.moe -d self:window=8 -p Hello
    assert_trouble moe-decode
    [[ $output == *"applies to a search only"* ]]
}
