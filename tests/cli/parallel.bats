#!/usr/bin/env bats
# moe-decode --parallel: texts that share forwards equal those of one at a time, byte for byte, and so do their records.

load common

# Some texts come twice or three times, so that draws depend on the repetition; one is a chat of two turns.
setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    local pocket="${MOE_MODELS:-$BATS_TEST_DIRNAME/../models}/pocket"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    moe-convert -q "$pocket/draft" -o draft.moe
    local step=16
    [ -z "$MOE_SANITIZED" ] || step=60
    awk -v step=$step 'NR % step == 1' "$pocket/heldout.jsonl" |
        jq -c -n '[inputs] | to_entries[] | .value + {max_tokens: (2 + (.key + 1) * 5 % 17)}' > some.jsonl
    { cat some.jsonl; head -n 3 some.jsonl; echo '{"id": "chat", "turns": ["Hello.", "And then?"], "max_tokens": 9}'
      head -n 2 some.jsonl; echo '{"prompt": "One", "max_tokens": 1}'; } > p.jsonl
    tail -n 8 p.jsonl > few.jsonl
}

setup() { cd "$WORK"; rm -rf run; mkdir run; }

# With these settings the texts of N at once equal those of one at a time.
same() {
    local n prompts=${prompts:-p.jsonl}
    moe-decode -q -m pocket.moe "$@" $prompts > run/one
    for n in ${counts:-3 16 33}; do
        moe-decode -q -m pocket.moe --parallel $n "$@" $prompts | cmp - run/one
    done
}

# Prints the records of a stream without times and the parts of shared forwards.
alone() {
    moe-view --json "$1" | jq -c 'select(.type | test("begin|iter|draft|done")) |
        with_entries(select(.key | test("_us$|bytes|^shared") | not))'
}

@test "texts decoded together equal texts decoded alone, with any drafter, tree, temperature and stop rule" {
    same
    same --json -d ngram --stop e.
    counts=16 same --json --temperature 0.8 --seed 3 --stop the
    counts=33 same --json --temperature 0.8 --seed 3 -d ngram -K 6
    counts=3 same --json -d model:file=draft.moe --tree static:width=2,depth=3
    [ -z "$MOE_SANITIZED" ] || return 0
    counts=16 same --temperature 0.8 --seed 4 -d ngram -d model:file=draft.moe --tree dynamic:total=40,depth=4,topk=3
    counts=16 same --json -d self:topk=1 -K 3
    counts=16 same -d self:exit=1 --temperature 1.2
    counts=16 same -d pld --policy cascade
    counts=16 same -d model:file=draft.moe --policy cascade-cost --temperature 0.8
    counts=16 same -d model:file=draft.moe --policy evict-experts
}

# In each forward all texts of a task know as many outcomes, each of which teaches all of them.
@test "concurrent texts with -K auto learn together" {
    head -n 3 some.jsonl | jq -c 'del(.task) + {max_tokens: 8}' > run/p.jsonl
    moe-decode -q -m pocket.moe -d model:file=draft.moe -K auto --parallel 3 --stream run/s.moes run/p.jsonl > run/out
    moe-view --json run/s.moes | jq -e -s '[.[] | select(.type == "iter")] | group_by(.sequence) |
        length == 3 and (map(.[1].policy.tried) | unique | length == 1 and .[0] > 2)'
}

@test "a budget applies to each text separately, whatever ranks its experts" {
    moe-profile -q -m pocket.moe -n 0 some.jsonl | moe-coact rank-experts > run/rank.moes
    counts=16 same --json -d ngram --budget 3 --rank run/rank.moes --budget-phase verify
    counts='3 16' same --json -d ngram --budget 3 --rank router
    [ -z "$MOE_SANITIZED" ] || return 0
    counts=16 same --temperature 0.8 -d model:file=draft.moe --budget 3 --rank path --budget-mode truncate
    counts=16 same -d ngram --budget 3 --rank oracle
    counts=5 prompts=few.jsonl same -d ngram --budget 3 --rank oracle:as=printed        # it tries sets of experts
}

# Records contain the loaded experts, and therefore the effect of each text's budget.
@test "an automatic budget of each text, and the error of a budget, are those of one text at a time" {
    head -n 4 some.jsonl | jq -c 'del(.max_tokens)' > run/p.jsonl
    local settings n
    while read -r settings; do
        for n in 1 4; do
            moe-decode -q -m pocket.moe -d ngram $settings --parallel $n --stream run/$n.moes run/p.jsonl > run/$n
        done
        cmp run/1 run/4
        cmp <(alone run/1.moes) <(alone run/4.moes)
    done <<-'END'
	-n 5 --budget 3 --reconstruction
	-n 70 -K 6 --ignore-eos --budget auto:each=1,kl=100
	END
    moe-view --json --type iter run/4.moes | jq -es 'any(.[]; .shared_texts == 4 and .policy.budget < 28)'
}

@test "texts share one cache of experts, whose reads are divided among their records" {
    counts='3 16 33' same --json -d ngram --cache-experts 40%
    [ -z "$MOE_SANITIZED" ] || return 0
    counts=16 same --temperature 0.8 -d model:file=draft.moe --cache-experts 20% --cache-policy utility --prefetch popular
    counts=16 same -d self:topk=1 --cache-experts 50% --cache-policy ahead --prefetch draft
    moe-decode -q -m pocket.moe -d ngram --cache-experts 40% --parallel 5 --stream run/many.moes some.jsonl > run/many
    moe-view --json --type iter run/many.moes | jq -es 'map(select(.shared_texts)) | length > 20 and (group_by(.shared_us) |
        all(.[]; (map(.cache_hits + .cache_misses) | add) == .[0].shared_experts)) and any(.[]; .cache_misses > 0)'
}

@test "drafts of all lengths are recorded of each text, in order" {
    local stream
    for stream in one many; do
        moe-decode -q -m pocket.moe -n 6 --temperature 0.8 -d ngram -d model:file=draft.moe --record drafts --record-length 3 -K 3 \
            --parallel $([ $stream = one ] && echo 1 || echo 4) --stream run/$stream.moes some.jsonl > run/$stream
    done
    cmp run/one run/many
    cmp <(alone run/one.moes) <(alone run/many.moes)
    moe-view --json --type draft run/many.moes | jq -es 'length > 20'
}

@test "records equal those of one text at a time, in order, with each text's share of shared forwards" {
    moe-decode -q -m pocket.moe --temperature 0.8 -d ngram --record route --stream run/one.moes p.jsonl > run/one
    moe-decode -q -m pocket.moe --temperature 0.8 -d ngram --record route --stream run/many.moes --parallel 5 p.jsonl | cmp - run/one
    moe-view --verify run/many.moes
    cmp <(alone run/one.moes) <(alone run/many.moes)
    moe-view --json --type iter run/many.moes | jq -es 'map(select(.shared_texts)) | length > 20 and all(.[];
        .shared_texts > 1 and .shared_texts <= 5 and .shared_rows >= .nodes + .shared_texts - 1 and
        .shared_experts >= .experts_loaded and .shared_only <= .experts_loaded and .verify_us + 0.001 >= .shared_us * .nodes / .shared_rows)'
    # All texts of a shared forward record the same facts of it; the parts of its rows add up.
    moe-view --json --type iter run/many.moes | jq -es 'map(select(.shared_texts)) | group_by(.shared_us) |
        all(.[]; length == .[0].shared_texts and (map(.nodes) | add) == .[0].shared_rows and
            (map(.shared_only) | add) <= .[0].shared_experts and
            (map(.shared_experts - .shared_only) | min) >= (map(.experts_loaded - .shared_only) | max))'
    moe-view --json --type iter run/one.moes | jq -es 'all(.[]; .shared_texts == null)'
    moe-bench report run/many.moes > /dev/null
}

@test "concurrent texts follow a recording as single texts do" {
    local settings together
    moe-decode -q -m pocket.moe -d model:file=draft.moe -K 4 --record drafts --stream run/rec.moes -o run/text some.jsonl
    moe-view --json run/rec.moes | jq -c 'select(.type == "begin") | {id, tokens: .prompt}' > run/ids.jsonl
    together=$(wc -l < run/ids.jsonl)                           # under sanitisers there are fewer than 7 texts
    [ $together -lt 7 ] || together=7
    [ $together -gt 1 ]
    moe-convert synthetic -q --like "$MOE_MODELS/pocket/model/config.json" --dtype f32 --seed 4 -o run/random.moe
    for settings in '--force-accept run/rec.moes -K 4' '-d ngram -K 3 --ignore-eos -n 9'; do
        for n in 1 7; do
            moe-decode -q -m run/random.moe --force-routes run/rec.moes $settings --parallel $n --record route --stream run/$n.moes \
                -o run/$n run/ids.jsonl
        done
        cmp run/1 run/7
        cmp <(alone run/1.moes) <(alone run/7.moes)
        moe-view --json --type iter run/7.moes | jq -es "any(.[]; .shared_texts == $together)" > /dev/null
    done
    # A prompt without a recorded answer is found before the first text is decoded.
    echo '{"tokens": [5, 6, 7]}' >> run/ids.jsonl
    run moe-decode -q -m run/random.moe --force-accept run/rec.moes run/ids.jsonl --stream run/none.moes
    [ "$status" -eq 2 ]
    [[ $output == "moe-decode: run/ids.jsonl:"*": run/rec.moes: contains no answer of at least two tokens to this prompt; "* ]]
    [ ! -e run/none.moes ] && [ ! -e run/none.moes.part ]
}

@test "moe-profile writes the same records for concurrent texts and for one text at a time" {
    local settings
    # The header contains the command line, and the end a digest of everything.
    recorded() { moe-profile -q -m pocket.moe -n 20 --temperature 0.8 "$@" few.jsonl | moe-view --json | sed '1d;$d'; }
    while read -r settings; do
        recorded $settings > run/one
        for n in 2 6; do recorded --parallel $n $settings | cmp - run/one; done
        [ "$(grep -c '"end_sequence"' run/one)" = $(($(wc -l < few.jsonl) + 1)) ]
    done <<-'END'
	-d ngram -K 5 --record route,probs,logits
	--cache-experts 40% --stop the
	END
    run moe-profile -q -m pocket.moe --parallel 2 p.jsonl
    [ "$status" -eq 2 ]
    [ "$output" = "moe-profile: --parallel: prompts are read one at a time; only answers share forwards; add --max-tokens" ]
    run moe-profile -q -m pocket.moe -n 0 --parallel 2 p.jsonl
    [ "$status" -eq 2 ]
    [[ $output == "moe-profile: --parallel: "*"; give -n a number above 0, or leave --parallel out" ]]
}

@test "a prompt may have a policy of its own, which drafts, and leaves the text as it is" {
    local policies=(static:K=2 cascade tiers evict off) settings="-q -m pocket.moe -d model:file=draft.moe --temperature 0.8" n
    grep -v '"turns"\|"One"' p.jsonl | head -n 10 > run/p.jsonl
    jq -c -n --arg all "${policies[*]}" '($all | split(" ")) as $policies | [inputs] | to_entries[] |
        .value + {policy: $policies[.key % 5]}' run/p.jsonl > run/own.jsonl
    moe-decode $settings run/p.jsonl > run/one
    for n in 1 4; do moe-decode $settings --parallel $n --stream run/$n.moes run/own.jsonl | cmp - run/one; done
    cmp <(alone run/1.moes | jq -c 'select(.type == "done") | [.id, .n]') <(alone run/4.moes | jq -c 'select(.type == "done") | [.id, .n]')
    moe-view --json run/4.moes | jq -sc '[.[] | select(.type == "iter") | [.sequence, .policy.name]] | unique | .[][1]' > run/names
    jq -c '.policy | sub(":.*"; "")' run/own.jsonl | cmp - run/names
    local line
    while IFS='|' read -r line words; do
        echo "{\"prompt\": \"x\", \"policy\": $line}" > run/bad.jsonl
        run moe-decode -q -m pocket.moe run/bad.jsonl --stream run/x.moes $words
        assert_trouble moe-decode
        [[ $output == *"run/bad.jsonl:1: \"policy\""* ]]
    done <<-'END'
	"cascade"|
	"nope"|-d ngram
	3|-d ngram
	"tiers:x=1"|-d ngram
	"tiers"|-d ngram --record drafts
	"tiers"|-d ngram --policy evict --calibration run/c.json
	END
    [ ! -e run/x.moes ]
    run moe-decode -q -m pocket.moe -d ngram -n 2 --keep-going --json run/bad.jsonl some.jsonl -o run/some
    [ "$status" -eq 0 ]
    sed -i 's/tiers/none/' run/bad.jsonl
    run moe-decode -q -m pocket.moe -d ngram -n 2 --keep-going --json run/bad.jsonl some.jsonl -o run/some
    [ "$status" -eq 1 ]
    jq -se '.[0].error | test("\"policy\": --policy: .none. is not a policy")' run/some
}

@test "bad prompts are skipped in order" {
    { head -n 4 p.jsonl; echo '{"prompt": 3}'; tail -n 4 p.jsonl; echo '{"prompt": "x", "max_tokens": -1}'; } > run/p.jsonl
    run moe-decode -q -m pocket.moe --keep-going --json --stream run/one.moes -o run/one run/p.jsonl
    [ "$status" -eq 1 ]
    run moe-decode -q -m pocket.moe --keep-going --json --stream run/many.moes -o run/many --parallel 4 run/p.jsonl
    [ "$status" -eq 1 ]
    cmp run/one run/many
    [ "$(jq -r .finish_reason run/many | grep -c error)" = 2 ]
    cmp <(moe-view --json --type failed run/one.moes | jq -c .message) <(moe-view --json --type failed run/many.moes | jq -c .message)
}

@test "an interrupted run is resumed with several texts at once or one" {
    local settings='-q -m pocket.moe --json --temperature 1.6 --seed 5 -d ngram' bytes at
    moe-decode $settings --parallel 4 --stream run/full.moes p.jsonl > run/full
    moe-decode $settings p.jsonl | cmp - run/full
    bytes=$(stat -c %s run/full.moes)
    for at in 200 $((bytes / 3)) $((bytes - 1)); do
        head -c $at run/full.moes > run/old
        moe-decode $settings --parallel 3 --resume run/old --stream run/new.moes p.jsonl | cmp - run/full
        cmp <(alone run/new.moes) <(alone run/full.moes)
        moe-decode $settings --resume run/new.moes p.jsonl | cmp - run/full
    done
    head -n 4 some.jsonl | jq -c 'del(.max_tokens)' > run/long.jsonl
    env --default-signal=INT moe-decode $settings --ignore-eos -n 300 run/long.jsonl --parallel 3 --stream run/old.moes -o run/old.json \
        2> run/said &
    for _ in $(seq 600); do
        [ ! -e run/old.moes.part ] || [ "$(stat -c %s run/old.moes.part)" -lt 20000 ] || break
        sleep 0.02
    done
    kill -INT $!
    code=0
    wait $! || code=$?
    [ $code = 130 ]
    grep -q '^moe-decode: ended by SIGINT after [0-9]* texts; to continue, run: ' run/said
    moe-decode $settings --ignore-eos -n 300 run/long.jsonl --resume run/old.moes --parallel 2 -o run/new.json
    moe-decode $settings --ignore-eos -n 300 run/long.jsonl | cmp - run/new.json
}

@test "unsupported combinations and too much memory are refused in one line" {
    local line
    while read -r line; do
        run moe-decode -q -m pocket.moe --parallel 3 $line p.jsonl
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ $output == "moe-decode: --parallel: "* ]]
    done <<-'END'
	--budget auto -d ngram
	END
    run moe-decode -m pocket.moe --parallel 129 p.jsonl
    [ "$status" -eq 2 ]
    [ ! -e run/x.moes ]
    # Texts of prompts that are not known in advance may be as long as the context.
    cp -r "$MOE_MODELS/pocket/model" run/long
    chmod -R u+w run/long
    jq '.max_position_embeddings = 100000000' "$MOE_MODELS/pocket/model/config.json" > run/long/config.json
    moe-convert -q run/long -o run/long.moe
    run moe-decode -q -m run/long.moe --parallel 100 - < <(cat p.jsonl)
    [ "$status" -eq 2 ]
    [[ $output == "moe-decode: --parallel: the KV caches of 100 texts of up to 1000"*" MiB are free beside the weights; give "* ]]
    moe-decode -q -m run/long.moe --parallel 100 some.jsonl | cmp - <(moe-decode -q -m pocket.moe some.jsonl)
}
