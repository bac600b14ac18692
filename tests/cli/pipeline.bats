#!/usr/bin/env bats
# The pipeline profile | rank | decode under a budget, in the shell and with files in between.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    if [ "$MOE_SANITIZED" ]; then export CALIB=8 PROMPTS=1; else export CALIB=60 PROMPTS=3; fi
    head -n "$CALIB" "$MOE_MODELS/pocket/calib.jsonl" > calib.jsonl
    for task in math code extract summ; do
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n "$PROMPTS"
    done > prompts.jsonl
    moe-profile -m pocket.moe calib.jsonl -o calib.moes
    moe-coact rank-experts calib.moes -o rank.moes
    moe-decode -q -m pocket.moe -n 40 prompts.jsonl > plain
}

setup() { cd "$WORK"; }

@test "a pipeline gives the same bytes as its parts with files in between" {
    moe-profile -m pocket.moe calib.jsonl | moe-coact rank-experts |
        moe-decode -m pocket.moe --draft ngram --budget 12 --rank - prompts.jsonl > piped
    moe-decode -m pocket.moe --draft ngram --budget 12 --rank rank.moes prompts.jsonl > filed
    cmp piped filed
    [ -s piped ]
    # the records, too; headers differ in their arguments and sources
    moe-profile -m pocket.moe calib.jsonl | moe-coact rank-experts | moe-view --json --type rank > piped
    moe-view --json --type rank rank.moes | cmp - piped
    moe-profile -m pocket.moe - < calib.jsonl | moe-view --json --type route | cmp - <(moe-view --json --type route calib.moes)
}

@test "with a static ranking the text is the same for every drafter and draft length" {
    decode() { moe-decode -q -m pocket.moe -n 40 --budget 20 --rank rank.moes prompts.jsonl "$@"; }
    for mode in substitute truncate; do
        decode --budget-mode $mode > $mode
        for K in 1 3 8; do
            decode --budget-mode $mode --draft ngram -K $K | cmp - $mode
        done
        decode --budget-mode $mode --temperature 1 --seed 3 > $mode.drawn
        decode --budget-mode $mode --temperature 1 --seed 3 --draft ngram | cmp - $mode.drawn
    done
    cmp -s substitute plain && return 1
    cmp -s substitute truncate && return 1
    true
}

@test "a budget of all experts or more has no effect" {
    for rank in rank.moes router; do
        for budget in 32 33 1000000 32,32,32,32,32,99; do
            moe-decode -q -m pocket.moe -n 40 --budget $budget --rank $rank --draft ngram prompts.jsonl | cmp - plain
        done
    done
    moe-decode -q -m pocket.moe -n 40 --budget 32 --budget-mode truncate prompts.jsonl | cmp - plain
}

@test "budgets by layer, and those that the ranking recommends" {
    moe-decode -q -m pocket.moe -n 40 --budget 8,12,16,20,24,28 --rank rank.moes prompts.jsonl > by-layer
    moe-coact rank-experts --budget 8,12,16,20,24,28 calib.moes |
        moe-decode -q -m pocket.moe -n 40 --budget rank --rank - prompts.jsonl | cmp - by-layer
    cmp -s by-layer plain && return 1
    run moe-decode -q -m pocket.moe --budget rank --rank rank.moes prompts.jsonl
    assert_trouble moe-decode
    run moe-decode -q -m pocket.moe --budget rank prompts.jsonl
    assert_trouble moe-decode
}

@test "no forward after the prompt loads more experts than its budget" {
    for rank in rank.moes router; do
        moe-decode -q -m pocket.moe -n 40 --draft ngram -K 8 --budget 5 --rank $rank prompts.jsonl --stream run.moes
        moe-view --json --type iter run.moes > iter.jsonl
        [ "$(jq -s '[.[] | .experts_loaded <= 6 * 5] | all' iter.jsonl)" = true ]
        [ "$(jq -s '[.[] | .experts_wanted > 6 * 5] | any' iter.jsonl)" = true ]
    done
}

@test "a stream under a budget is labelled and names its ranking" {
    moe-decode -q -m pocket.moe -n 4 --budget 12 --rank rank.moes prompts.jsonl --stream run.moes
    moe-view --json --type header run.moes > header.json
    jq -e '[.labels[]] | any(. == "budget 12 of 32, static by mass, substitute")' header.json
    jq -e '[.. | .kind? // empty] | contains(["decode", "rank", "route"])' header.json
}

@test "shards ranked together decode like the whole" {
    for i in 1 2 3; do moe-profile -m pocket.moe --shard $i/3 calib.jsonl -o shard$i.moes; done
    moe-decode -q -m pocket.moe -n 40 --budget 16 --rank rank.moes prompts.jsonl > whole
    moe-coact merge shard3.moes shard1.moes shard2.moes | moe-coact rank-experts |
        moe-decode -q -m pocket.moe -n 40 --budget 16 --rank - prompts.jsonl | cmp - whole
    moe-coact rank-experts shard2.moes shard3.moes shard1.moes | moe-view --json --type rank |
        cmp - <(moe-view --json --type rank rank.moes)
}

@test "an inflated model accepts the ranking of its source model, with the same text" {
    moe-convert inflate pocket.moe --expert-ffn 96 -o inflated.moe 2> /dev/null
    moe-decode -q -m pocket.moe -n 20 --budget 16 --rank rank.moes prompts.jsonl > small
    moe-decode -m inflated.moe -n 20 --budget 16 --rank rank.moes prompts.jsonl 2> note > large
    cmp small large
    grep -q "^moe-decode: .*rank.moes" note
}

@test "a ranking of another model is refused, with one line" {
    mkdir other renamed
    cp "$MOE_MODELS"/pocket/model/* other
    cp "$MOE_MODELS"/pocket/model/* renamed
    sed -i 's/"num_experts_per_tok": 4/"num_experts_per_tok": 3/' other/config.json
    sed -i 's/<|pad|>/<|pax|>/g' renamed/*.json
    moe-convert other -o other.moe 2> /dev/null
    moe-convert renamed -o renamed.moe 2> /dev/null
    moe-convert "$MOE_MODELS/pocket/draft" -o dense.moe 2> /dev/null
    for model in other renamed dense; do
        run moe-decode -q -m $model.moe --budget 12 --rank rank.moes prompts.jsonl
        assert_trouble moe-decode
    done
    moe-decode -m renamed.moe -n 4 --force --budget 12 --rank rank.moes prompts.jsonl 2> note > /dev/null
    grep -q "^moe-decode: .*--force" note
    run moe-decode -q -m pocket.moe --budget 12 --rank calib.moes prompts.jsonl
    assert_trouble moe-decode
    run moe-decode -q -m pocket.moe --budget 12 --rank pocket.moe prompts.jsonl
    assert_trouble moe-decode
}

@test "a truncated ranking is never used" {
    size=$(stat -c %s rank.moes)
    [ "$MOE_SANITIZED" ] && step=499 || step=97
    for ((at = 0; at < size; at += at > size - 12 ? 1 : step)); do
        head -c $at rank.moes > cut.moes
        run moe-decode -q -m pocket.moe -n 2 --budget 12 --rank cut.moes prompts.jsonl
        assert_trouble moe-decode
    done
}

@test "a failing producer ends the whole pipeline, and nothing is decoded" {
    head -c 20000 calib.moes > cut.moes
    moe-coact rank-experts cut.moes 2> ranker |
        moe-decode -q -m pocket.moe --budget 12 --rank - prompts.jsonl 2> decoder > text && return 1
    [ ! -s text ]
    [ "$(wc -l < ranker)" = 1 ]
    [ "$(wc -l < decoder)" = 1 ]
    { cat calib.jsonl; echo "not JSON"; } > bad.jsonl
    moe-profile -q -m pocket.moe bad.jsonl 2> profiler | moe-coact rank-experts 2> ranker |
        moe-decode -q -m pocket.moe --budget 12 --rank - prompts.jsonl 2> decoder > text && return 1
    [ ! -s text ]
    grep -q "bad.jsonl:$((CALIB + 1))" profiler
    grep -q "bad.jsonl:$((CALIB + 1))" ranker               # reported by the abort record
    [ "$(wc -l < decoder)" = 1 ]
    # The second of two parts of one prompt is empty.
    head -n 1 calib.jsonl > one.jsonl
    moe-profile -q -m pocket.moe --shard 2/2 one.jsonl | moe-coact rank-experts 2> ranker |
        moe-decode -q -m pocket.moe --budget 12 --rank - prompts.jsonl 2> decoder > text && return 1
    [ ! -s text ]
    grep -q "the routes have no tokens of this --phase" ranker
}

@test "ranking and prompts cannot both come from standard input" {
    for words in "--rank -" "--rank - -"; do
        run moe-decode -q -m pocket.moe --budget 12 $words < rank.moes
        assert_trouble moe-decode
    done
}
