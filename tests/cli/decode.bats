#!/usr/bin/env bats
# moe-decode from the command line: the text is the model's own, whatever is drafted; ends, streams, budgets, errors.

load common

# Every N-th held-out prompt: enough to contain all tasks, few enough to keep the tests short.
setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    local pocket="${MOE_MODELS:-$BATS_TEST_DIRNAME/../models}/pocket"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    cp "$pocket/heldout.jsonl" heldout.jsonl
    cp "$pocket/golden.jsonl" golden.jsonl
    cp "$pocket/long.jsonl" long.jsonl
    local step=40
    [ -z "$MOE_LONG" ] || step=12
    [ -z "$MOE_SANITIZED" ] || step=60
    awk -v step=$step 'NR % step == 1' heldout.jsonl > prompts.jsonl
    head -n 2 long.jsonl | jq -c '.max_tokens = 40' > prose.jsonl
    head -n 24 "$pocket/calib.jsonl" > calib.jsonl
    printf 'model\n' > model.txt
}

setup() { cd "$WORK"; }

# One thread unless -j gives another number: this job has all processors, on which the threads of a small model mostly wait for
# each other.
decode() {
    [[ " $*" == *" -j "* ]] || set -- -j 1 "$@"
    moe-decode -q -m pocket.moe "$@"
}

differ() { ! cmp -s "$1" "$2"; }

header() { moe-view --json "$1" | head -n 1; }

# Everything that must not depend on drafts: all but the counts.
answers() { decode --json "$@" | jq -c '[.id, .turn, .prompt_tokens, .tokens, .text, .finish_reason]'; }

# Prints the records of a stream without measured times.
timeless() {
    moe-view --json "$1" |
        jq -c 'del(.producer) | with_entries(select(.key | test("_us$|bandwidth|digest|bytes") | not))'
}

@test "greedy token ids equal the goldens of transformers" {
    local prompts=heldout.jsonl
    [ -z "$MOE_SANITIZED" ] || prompts=prompts.jsonl
    decode --json "$prompts" > got.jsonl
    [ "$(wc -l < got.jsonl)" = "$(wc -l < "$prompts")" ]
    jq -n -c --slurpfile got got.jsonl --slurpfile golden golden.jsonl '
        INDEX($golden[]; .id) as $by_id | $got[] | .tokens as $tokens | $by_id[.id] as $want |
        ([range($want.tokens | length) | select($tokens[.] != $want.tokens[.])] | first) as $at |
        if $at == null then select(($tokens | length) != ($want.tokens | length)) else select($want.margins[$at] >= 1e-3) end |
        {id, at: $at}' > differ.jsonl
    [ ! -s differ.jsonl ] || { cat differ.jsonl; false; }
    # Equal ids give equal texts.
    jq -n -c --slurpfile got got.jsonl --slurpfile golden golden.jsonl '
        INDEX($golden[]; .id) as $by_id | $got[] | $by_id[.id] as $want |
        select(.tokens == $want.tokens and .text != $want.text) | .id' > differ.jsonl
    [ ! -s differ.jsonl ] || { cat differ.jsonl; false; }
}

@test "a prompt is answered before the next one is read" {
    mkfifo questions answers
    decode -n 4 - < questions > answers 3>&- &
    exec 4> questions 5< answers
    echo '{"prompt": "hi"}' >&4
    IFS= read -r -t 60 -u 5 line
    exec 4>&-
    wait $!
    exec 5<&-
    echo '{"prompt": "hi"}' | decode -n 4 - | head -n 1 | cmp - <(echo "$line")
}

@test "text and ids do not depend on drafter, draft length, threads or order" {
    # The grid of tests/bench (identity.bats) covers drafters, lengths and temperatures.
    local lengths='1 5' prompts=prompts.jsonl
    [ -z "$MOE_LONG" ] || lengths='1 2 3 4 5 6 7 8'
    cat prose.jsonl "$prompts" > mixed.jsonl
    prompts=mixed.jsonl
    tac "$prompts" > reversed.jsonl
    for temperature in 0 ${MOE_LONG:+0.7} 1; do
        local sampling="--temperature $temperature --seed 3"
        answers $sampling -j 1 "$prompts" > none.jsonl
        answers $sampling -j 2 "$prompts" | cmp - none.jsonl
        answers $sampling -j 1 reversed.jsonl | tac | cmp - none.jsonl
        answers $sampling -j 2 -d ngram -K 0 "$prompts" | cmp - none.jsonl
        answers $sampling -j 2 -d ngram -K 4 reversed.jsonl | tac | cmp - none.jsonl
        for K in $lengths; do
            answers $sampling -j $((1 + K % 2)) -d ngram:n=$((1 + K % 5)) -K "$K" "$prompts" | cmp - none.jsonl
        done
        decode $sampling "$prompts" > none.txt
        decode $sampling -d ngram "$prompts" | cmp - none.txt
        jq -r '.[4]' none.jsonl | cmp - none.txt
        cp none.jsonl "none-$temperature.jsonl"
    done
    differ none-0.jsonl none-1.jsonl
}

@test "filtered sampling and long texts do not depend on drafts either" {
    local n=60
    [ -z "$MOE_LONG" ] || n=400
    head -n 3 long.jsonl > few.jsonl
    for sampling in '' '--temperature 0.8 --top-k 20 --top-p 0.9 --min-p 0.02 --seed 9'; do
        answers $sampling -n $n --ignore-eos few.jsonl > none.jsonl
        [ "$(jq -c '.[3] | length' none.jsonl | sort -u)" = $n ]
        for K in 3 8 64; do answers $sampling -n $n --ignore-eos -d ngram -K $K few.jsonl | cmp - none.jsonl; done
    done
}

@test "the ref device gives its own text with and without drafts, equal to the goldens" {
    awk 'NR % 120 == 1' heldout.jsonl | jq -c '.max_tokens = 12' > few.jsonl
    answers --device ref few.jsonl > none.jsonl
    answers --device ref -d ngram -K 3 few.jsonl | cmp - none.jsonl
    answers --device host few.jsonl | cmp - none.jsonl
}

@test "with drafts there are fewer iterations, and the counts add up" {
    decode --json prompts.jsonl > none.jsonl
    decode --json -d ngram prompts.jsonl > ngram.jsonl
    jq -s -e 'all(.[]; .iterations == (.tokens | length) - 1 and .num_drafts == 0)' none.jsonl
    jq -s -e 'all(.[]; .num_accepted_tokens <= .num_draft_tokens and .num_drafts <= .iterations and
                       .num_draft_tokens <= 4 * .num_drafts)' ngram.jsonl
    [ "$(jq -s 'map(.iterations) | add' ngram.jsonl)" -lt "$(jq -s 'map(.iterations) | add' none.jsonl)" ]
}

@test "prompts of -p come in order, before those of files; plain text comes through standard input" {
    head -n 1 prompts.jsonl > first.jsonl
    decode -n 6 -p 'NAME OF' > one.txt
    decode -n 6 -p 'Once upon' > two.txt
    decode -n 6 first.jsonl > file.txt
    decode -n 6 -p 'NAME OF' --prompt='Once upon' first.jsonl | cmp - <(cat one.txt two.txt file.txt)
    [ "$(decode --json -n 1 -p a -p b first.jsonl | jq -r .id | paste -sd,)" = "0,1,$(jq -r .id first.jsonl)" ]
    run decode -n 6 -p '' -p a first.jsonl
    assert_trouble moe-decode
    [[ $output == "moe-decode: -p:1: the prompt is empty" ]]
    echo 'NAME OF' | decode -n 6 | cmp - one.txt
    echo 'NAME OF' | decode -n 6 - first.jsonl | cmp - <(cat one.txt file.txt)
    echo 'NAME OF' > note.md
    decode -n 6 note.md | cmp - one.txt
    decode -n 6 - < note.md | cmp - one.txt
    printf 'NAME OF\nOnce upon\n' > lines.TXT
    decode -n 6 lines.TXT | cmp - <(cat one.txt two.txt)
    moe-profile -q -m pocket.moe -p 'NAME OF' -p 'Once upon' -o of-p.moes
    moe-profile -q -m pocket.moe lines.TXT -o of-lines.moes
    cmp <(timeless of-p.moes | tail -n +2) <(timeless of-lines.moes | tail -n +2)
    run sh -c 'echo "{NAME" | moe-decode -q -m pocket.moe'
    assert_trouble moe-decode
    [[ $output == *"(--whole takes standard input as text)" ]]
    echo '{NAME' | decode -n 6 --whole > braces.txt
    run sh -c 'cp note.md note; moe-decode -q -m pocket.moe note'
    assert_trouble moe-decode
    [[ $output == *"(a text is a file .txt or .md, or comes through standard input or -p)" ]]
}

@test "a token limit ends the text at the same token, also among accepted ones" {
    head -n 3 prompts.jsonl > few.jsonl
    decode --json few.jsonl > whole.jsonl
    for n in 0 1 2 3 5 7 8 12 13; do
        decode --json -n $n -d ngram -K 8 few.jsonl > cut.jsonl
        jq -n -e --argjson n $n --slurpfile whole whole.jsonl --slurpfile cut cut.jsonl '
            [range($cut | length)] | all($cut[.].tokens == $whole[.].tokens[:$n] and $cut[.].finish_reason == "length")'
    done
    # A prompt's own limit applies unless a smaller one is given.
    echo '{"prompt": "NAME", "max_tokens": 5}' > five.jsonl
    [ "$(decode --json --ignore-eos five.jsonl | jq '.tokens | length')" = 5 ]
    [ "$(decode --json --ignore-eos -n 3 five.jsonl | jq '.tokens | length')" = 3 ]
    [ "$(decode --json --ignore-eos -n 9 five.jsonl | jq '.tokens | length')" = 5 ]
    [ "$(decode --json --ignore-eos -p NAME | jq '.tokens | length')" = 256 ]
}

@test "the context ends an answer, and refuses a prompt that fills it" {
    local n
    n=$(decode --json -p 'NAME OF' | jq .prompt_tokens)
    decode --json --ignore-eos -d ngram -c $((n + 7)) -p 'NAME OF' |
        jq -e '.finish_reason == "length" and (.tokens | length) == 7'
    run decode -c "$n" -p 'NAME OF'
    assert_trouble moe-decode
    [[ $output == *"-p: the prompt has $n tokens"* ]]
}

@test "an end token inside an accepted draft ends the answer there" {
    # The same question twice, answered in between: drafts contain the answer with its end token and the following text.
    jq -c 'select(.task == "summ" or .task == "math") |
           {id, tokens: (.prompt_tokens + .tokens + .prompt_tokens + .tokens + .prompt_tokens)}' \
        golden.jsonl | head -n 10 > twice.jsonl
    answers twice.jsonl > none.jsonl
    answers -d ngram -K 16 twice.jsonl | cmp - none.jsonl
    decode --stream cut.moes -d ngram -K 16 twice.jsonl > cut.txt
    # At least one draft continued beyond the end token and was accepted there, but not emitted.
    moe-view --json cut.moes | jq -s -e 'any(.[]; .type == "iter" and .emitted < .accepted + 1)'
    jq -s -e 'all(.[]; .[5] == "stop" and (.[3] | index(2047)) == (.[3] | length) - 1)' none.jsonl
    answers --ignore-eos -n 60 twice.jsonl > on.jsonl
    answers --ignore-eos -n 60 -d ngram -K 16 twice.jsonl | cmp - on.jsonl
    jq -s -e 'any(.[]; .[3] | index(2047) | . != null and . < 50)' on.jsonl
}

@test "a stop string cuts the text before it, wherever tokens and drafts end" {
    head -n 4 prompts.jsonl > few.jsonl
    decode --json few.jsonl > whole.jsonl
    while IFS= read -r stop; do
        for draft in '-d none' '-d ngram -K 1' '-d ngram -K 7'; do
            decode --json $draft --stop "$stop" --stop 'no such text' few.jsonl > stopped.jsonl
            jq -n -e --arg stop "$stop" --slurpfile whole whole.jsonl --slurpfile cut stopped.jsonl '
                [range($cut | length)] | length == 4 and
                all($whole[.].text as $text | ($text | index($stop)) as $at |
                    $cut[.].text == (if $at == null then $text else $text[:$at] end))'
            jq -c '[.tokens, .text, .finish_reason]' stopped.jsonl > "stopped$draft"
        done
        cmp "stopped-d none" "stopped-d ngram -K 1"
        cmp "stopped-d none" "stopped-d ngram -K 7"
        last=$stop
    done <<STOPS
 =
.
nswer
The answer is
 re
$(head -n 1 whole.jsonl | jq -r '.text[:9]')
STOPS
    decode -d ngram -K 7 --stop "$last" few.jsonl > text.txt
    jq -r .text stopped.jsonl | cmp - text.txt
}

@test "a stream holds the text, and a file holds the same records as a pipe" {
    decode -d ngram --stream file.moes prompts.jsonl > text.txt
    decode -d ngram --stream - prompts.jsonl > pipe.moes
    decode -d ngram --stream - -o other.txt prompts.jsonl | moe-view --verify -
    cmp text.txt other.txt
    moe-view --verify file.moes
    timeless file.moes > file.jsonl
    timeless pipe.moes | cmp - file.jsonl
    moe-view --json file.moes | jq -r 'select(.type == "done") | .text' | cmp - text.txt
    moe-view --json file.moes > records.jsonl
    jq -s -e '
        map(select(.type == "iter")) as $iters | map(select(.type == "begin")) as $begins |
        [.[] | select(.type == "done") | . as $done | ($iters | map(select(.sequence == $done.sequence))) as $mine |
            ($begins[] | select(.sequence == $done.sequence)) as $begin |
            ($done.tokens[1:] == ($mine | map(.tokens) | add)) and
            ($done.num_drafts == ($mine | map(select(.nodes > 1)) | length)) and
            ($done.num_draft_tokens == ($mine | map(.drafted) | add)) and
            ($done.num_accepted_tokens == ($mine | map(.accepted) | add)) and
            all($mine[]; .nodes == .drafted + 1 and .K == 4 and .policy.K == 4 and .experts_wanted == .experts_loaded) and
            ([$begin.prefill_us] + ($mine | map(.t_us)) | . == sort) and
            all($mine[]; .draft_us + .verify_us + .accept_us + .other_us > 0)] | length > 3 and all'  records.jsonl
    [ "$(moe-view --json file.moes | jq -s 'map(select(.type == "machine" and .threads >= 1)) | length')" = 1 ]
}

@test "experts by layer are recorded on request, and add up to the totals" {
    decode -d ngram --record route --stream route.moes prompts.jsonl > text.txt
    moe-view --json route.moes | jq -s -e 'map(select(.type == "iter")) | length > 10 and
        all(.[]; (.experts_wanted_layer | length) == 6 and (.experts_wanted_layer | add) == .experts_wanted and
                 (.experts_loaded_layer | add) == .experts_loaded and
                 (.experts_wanted_layer | max) <= ([32, 4 * .nodes] | min))'
    decode -d ngram prompts.jsonl | cmp - text.txt
}

@test "equal prompts get different samples, the first equal to that of the prompt alone" {
    local sampling='-n 20 --temperature 1 --seed 5'
    printf '{"prompt": "NAME"}\n{"prompt": "SYNOPSIS"}\n{"prompt": "NAME"}\n{"prompt": "NAME"}\n' > same.jsonl
    decode --json $sampling same.jsonl | jq -c .tokens > same.txt
    [ "$(sort -u same.txt | wc -l)" = 4 ]
    [ "$(head -n 1 same.txt)" = "$(decode --json $sampling -p NAME | jq -c .tokens)" ]
    [ "$(sed -n 2p same.txt)" = "$(decode --json $sampling -p SYNOPSIS | jq -c .tokens)" ]
    [ "$(head -n 1 same.txt)" != "$(decode --json $sampling --seed 6 -p NAME | jq -c .tokens)" ]
}

@test "prompts come as files, options and standard input; turns follow answers" {
    decode -n 8 -p NAME > p.txt
    echo '{"prompt": "NAME"}' | decode -n 8 | cmp - p.txt
    echo '{"prompt": "NAME"}' | decode -n 8 - | cmp - p.txt
    echo NAME > one.txt
    decode -n 8 one.txt | cmp - p.txt
    [ "$(decode -n 8 -p NAME one.txt | wc -l)" = 2 ] || [ "$(decode -n 8 -p NAME --json one.txt | wc -l)" = 2 ]
    local ids
    ids=$(decode --stream - -n 0 -p NAME | moe-view --json - | jq -c 'select(.type == "begin") | .prompt')
    echo "{\"tokens\": $ids}" | decode -n 8 | cmp - p.txt
    echo '{"turns": ["Noah has 5 pens and buys 3. How many?", "And then 2 more?"], "id": "t"}' > turns.jsonl
    decode --json turns.jsonl > turns.out
    jq -s -e 'length == 2 and .[0].turn == 0 and .[1].turn == 1 and .[1].prompt_tokens > .[0].prompt_tokens' turns.out
}

@test "a model without a chat template takes one from a file" {
    cp -R "$MOE_MODELS/pocket/model" bare
    jq -r .chat_template bare/tokenizer_config.json > chat.jinja
    jq 'del(.chat_template)' "$MOE_MODELS/pocket/model/tokenizer_config.json" > bare/tokenizer_config.json
    moe-convert -q bare -o bare.moe
    run moe-decode -q -m bare.moe --chat -n 8 -p NAME
    assert_trouble moe-decode
    [[ $output == *"--chat-template"* ]]
    decode --chat -n 8 -p NAME > chat.txt
    moe-decode -q -m bare.moe --chat --chat-template chat.jinja -n 8 -p NAME | cmp - chat.txt
    echo '{{ messages[0].content }}' > raw.jinja
    decode --chat --chat-template raw.jinja -n 8 -p NAME > raw.txt
    decode -n 8 -p NAME | cmp - raw.txt
    moe-profile -q -n 0 -m bare.moe --chat --chat-template chat.jinja -p NAME | moe-view --json |
        jq -c 'select(.type == "begin")' > begun
    [ "$(jq .prompt_tokens begun)" -gt 4 ]
    run moe-decode -q -m bare.moe --chat --chat-template missing.jinja -n 8 -p NAME
    assert_trouble moe-decode
}

@test "text reaches a reader while decoding continues" {
    mkfifo pipe
    moe-decode -q -m pocket.moe --device ref --ignore-eos -n 1900 -p NAME > pipe &
    local pid=$!
    exec 8< pipe
    read -r -n 12 -t 60 beginning <&8
    kill -0 $pid
    kill -TERM $pid
    cat <&8 > rest                              # it ends after the current token, which it must be able to write
    exec 8<&-
    wait $pid || [ $? = 143 ]
}

@test "a budget of all experts changes nothing, and a smaller one is labelled" {
    decode prompts.jsonl > none.txt
    decode -B 32 --stream all.moes prompts.jsonl | cmp - none.txt
    header all.moes | jq -e '.labels["not lossless"] == null'
    decode -B 4 -d ngram --stream four.moes prompts.jsonl > four.txt
    differ four.txt none.txt
    header four.moes | jq -e '.labels["not lossless"] | test("budget 4")'
    moe-view --json four.moes | jq -s -e 'map(select(.type == "iter")) |
        all(.[]; .experts_loaded <= 24) and any(.[]; .experts_wanted > 24)'
}

@test "with a static ranking the text does not depend on drafts" {
    moe-profile -q -n 0 -m pocket.moe calib.jsonl | moe-coact rank-experts -q -o rank.moes
    for mode in substitute truncate; do
        decode -B 12 --rank rank.moes --budget-mode $mode prompts.jsonl > none.txt
        for K in 4 ${MOE_LONG:+1 8}; do
            decode -B 12 --rank rank.moes --budget-mode $mode -d ngram -K $K -j $((1 + K % 2)) prompts.jsonl | cmp - none.txt
        done
        decode -B 12 --rank - --budget-mode $mode prompts.jsonl < rank.moes | cmp - none.txt
    done
}

@test "wrong usage is reported in one line with exit status 2" {
    local wrong
    while IFS='|' read -r words part; do
        eval "wrong=($words)"
        run moe-decode "${wrong[@]}" < /dev/null
        assert_trouble moe-decode
        [[ $output == *"$part"* ]] || { echo "$words: $output"; false; }
    done <<'WRONG'
-p x|no model is given
-m none.moe -p x|none.moe
-m prompts.jsonl -p x|prompts.jsonl
-m pocket.moe -p x -K 3|such as --draft ngram
-m pocket.moe -p x -d ngrm|did you mean ngram
-m pocket.moe -p x -d ngram:n=0|--draft: ngram: n
-m pocket.moe -p x -d ngram:m=2|m
-m pocket.moe -p x -d ngram -K 65|-K: 65
-m pocket.moe -p x -d ngram -d none|none: cannot be combined with other drafters
-m pocket.moe -p x -d ngram -d ngram -d ngram -d ngram -d ngram -d ngram -d ngram -d ngram -d ngram|9 drafters are given, more than the maximum of 8; leave some out
-m pocket.moe -p x -d ngram -d model:file=none.moe|none.moe
-m pocket.moe -p x -d ngram -d lookahead -B 8|rows that a drafter adds to verifications
-m pocket.moe -p x -d ngram -d pld -B 8 --budget-phase draft|this drafter has no experts
-m pocket.moe -p x -d ngram --policy greedy|--policy
-m pocket.moe -p x -d ngram --policy static:K=2 -K 3|give one of the two
-m pocket.moe -p x --stop ''|--stop
-m pocket.moe -p x --stop $'\xff'|--stop
-m pocket.moe -p x --top-p 1.5|--top-p
-m pocket.moe -p x --temperature nan|--temperature
-m pocket.moe -p x --record route|add --stream
-m pocket.moe -p x --device cuda:0|cuda
-m pocket.moe -p x --isa mmx|mmx
-m pocket.moe -p x --rank rank.moes|--budget
-m pocket.moe --rank - --budget 3|--rank: standard input is already read as the ranking
-m pocket.moe -p x --stream - -o -|standard output
-m pocket.moe -p x --stream no/such/folder/x.moes|no/such/folder
-m pocket.moe no-such-prompts.jsonl|no-such-prompts.jsonl
-m pocket.moe model.txt --rank model.txt -B 3|model.txt
WRONG
}

@test "-K auto selects cascade-cost, and --policy cascade selects cascade" {
    local policy
    for policy in '-K auto' '--policy cascade-cost'; do
        decode -n 20 -d ngram $policy -p NAME --stream auto.moes > auto.txt
        moe-view --json auto.moes | jq -e -s '[.[] | select(.type == "iter") | .policy.name] | unique == ["cascade-cost"]'
    done
    decode -n 20 -d ngram --policy cascade -p NAME --stream auto.moes | cmp - auto.txt
    moe-view --json auto.moes | jq -e -s '[.[] | select(.type == "iter") | .policy.name] | unique == ["cascade"]'
}

@test "a context beyond the model's is noted, and an option given twice is refused" {
    run moe-decode -m pocket.moe -n 2 -c 100000 -p NAME
    [ "$status" = 0 ]
    [ "${lines[0]}" = 'moe-decode: -c 100000: the model has 2048 positions; prompt and answer have at most as many tokens' ]
    run moe-decode -m pocket.moe -n 2 --budget 1000 -p NAME
    [ "$status" = 0 ]
    [ "${lines[0]}" = 'moe-decode: --budget 1000: a layer of the model has 32 experts; more than that leaves none out' ]
    run moe-decode -q -m pocket.moe -n 2 -c 2048 --budget 32 -p NAME
    [ "${#lines[@]}" = 1 ]
    run moe-decode -m pocket.moe -n 5 -n 6 -p NAME
    assert_trouble moe-decode
    [[ $output == *'-n: is given twice; leave one of the two out' ]]
    run moe-decode -m pocket.moe -p NAME -o one -o two
    assert_trouble moe-decode
    [[ $output == *'-o: is given twice'* ]]
    [ ! -e one ] && [ ! -e two ]
}

@test "a bad prompt is reported with its line, and leaves no half-written stream" {
    printf '{"prompt": "NAME"}\n{"prompt": 3}\n' > bad.jsonl
    run moe-decode -q -m pocket.moe -n 4 -o out.txt --stream out.moes bad.jsonl
    assert_trouble moe-decode
    [[ $output == *"bad.jsonl:2"* ]]
    [ ! -e out.txt ]
    [ ! -e out.moes ]
    printf '{"tokens": [1, 2048]}\n' > bad.jsonl
    run moe-decode -q -m pocket.moe -n 4 bad.jsonl
    assert_trouble moe-decode
    [[ $output == *"bad.jsonl:1"* ]]
    # The reader of a pipe learns that the stream is incomplete.
    printf '{"prompt": "NAME"}\n{"prompt": 3}\n' > bad.jsonl
    decode -n 4 --stream - bad.jsonl 2> /dev/null > broken.moes || true
    run moe-view --verify broken.moes
    [ "$status" -eq 2 ]
}

@test "a closed pipe ends the run quietly, and a full disk is an error" {
    run bash -c 'moe-decode -q -m pocket.moe heldout.jsonl 2> quiet.err | head -c 5 > /dev/null; echo "${PIPESTATUS[0]}"'
    [ "$output" = 141 ]
    [ ! -s quiet.err ]
    run moe-decode -q -m pocket.moe -p NAME -o /dev/full
    assert_trouble moe-decode
    run moe-decode -q -m pocket.moe -p NAME --stream /dev/full
    [ "$status" -eq 2 ]
    [[ $output == *"No space left"* ]]
}

@test "an interrupted run leaves no half-written file" {
    mkdir interrupted
    moe-decode -q -m pocket.moe --device ref --ignore-eos -n 1900 -p NAME --stream interrupted/x.moes -o interrupted/x.txt &
    local pid=$!
    for i in $(seq 100); do [ -z "$(ls interrupted)" ] || break; sleep 0.05; done
    [ -n "$(ls interrupted)" ]
    kill -TERM $pid
    sleep 0.2
    kill -TERM $pid || true
    wait $pid || [ $? = 143 ]
    [ -z "$(ls interrupted | grep -v '^x\.\(moes\|txt\)$')" ]
}
