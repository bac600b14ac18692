#!/usr/bin/env bats
# moe-coact from the command line, compared with figures that transformers gave for the pocket model, and on incomplete streams.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    head -n 6 "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    moe-profile -q -m pocket.moe -n 16 --record route,probs prompts.jsonl -o routes.moes
    moe-profile -q -m pocket.moe -p "A short one." -o short.moes
    # a model that differs in one number, and one that differs in its tokenizer
    mkdir other renamed
    cp "$MOE_MODELS"/pocket/model/* other
    cp "$MOE_MODELS"/pocket/model/* renamed
    sed -i 's/"num_experts_per_tok": 4/"num_experts_per_tok": 3/' other/config.json
    sed -i 's/<|pad|>/<|pax|>/g' renamed/*.json
    moe-convert other -o other.moe 2> /dev/null
    moe-convert renamed -o renamed.moe 2> /dev/null
    moe-profile -q -m other.moe prompts.jsonl -o other.moes
    moe-profile -q -m renamed.moe prompts.jsonl -o renamed.moes
}

setup() { cd "$WORK"; }

near() { awk -v a="$1" -v b="$2" -v by="$3" 'BEGIN { d = a - b; exit !((d < 0 ? -d : d) <= by) }' ||
           { echo "$1 is not $2"; return 1; }; }

# Prints the mean over layers of column $3 where column $1 is $2, of CSV with a header.
mean_of() {
    awk -F, -v key="$1" -v value="$2" -v what="$3" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at[key] == value { sum += $at[what]; n++ } END { if (!n) exit 1; print sum / n }'
}

@test "coverage, unions and locality of all held-out texts equal those computed from transformers" {
    [ -z "$MOE_SANITIZED" ] || skip "takes long under sanitisers, and shows nothing about memory that others do not"
    moe-profile -q -m pocket.moe -n 512 "$MOE_MODELS/pocket/heldout.jsonl" -o heldout.moes
    moe-coact coverage --by mass --csv heldout.moes > coverage.csv
    for point in 4:0.16:0 8:0.31:0.01 12:0.45:0.04 16:0.58:0.12 24:0.82:0.51; do
        IFS=: read -r budget mass served <<< "$point"
        near "$(mean_of budget $budget mass < coverage.csv)" $mass 0.006
        near "$(mean_of budget $budget served < coverage.csv)" $served 0.006
    done
    near "$(mean_of budget 32 served < coverage.csv)" 1 0
    moe-coact union --csv --phase decode heldout.moes > union.csv
    for point in 2:7.2:7.5 4:12.1:13.2 8:18.2:21.0 16:23.8:28.2; do
        IFS=: read -r width distinct alike <<< "$point"
        near "$(mean_of width $width distinct < union.csv)" $distinct 0.1
        near "$(mean_of width $width alike < union.csv)" $alike 0.05
    done
    moe-coact locality --json --phase decode heldout.moes > locality.jsonl
    near "$(jq -s '[.[].common[0]] | add / length' locality.jsonl)" 0.202 0.006
    near "$(jq -s '.[0].alike' locality.jsonl)" 0.125 0
    # the weights of OLMoE are the probabilities of the selected experts, not renormalised
    near "$(moe-view --json --type route heldout.moes | jq -c .weights |
            jq -n '[inputs | .[][] | add] | add / length')" 0.461 0.002
}

@test "a ranking is a sorted permutation that sums to the counts" {
    for by in frequency mass; do
        moe-coact rank-experts --by $by --json routes.moes > rank.jsonl
        [ "$(wc -l < rank.jsonl)" = 6 ]
        [ "$(jq -s "[.[] | (.order | sort) == [range(32)] and (.score == (.score | sort | reverse)) and
                     .method == \"$by\"] | all" rank.jsonl)" = true ]
        tokens=$(moe-view --json routes.moes | jq -s '[.[] | select(.type == "route") | .n] | add')
        for sum in $(jq '.score | add' rank.jsonl); do
            near "$sum" "$([ $by = mass ] && echo "$tokens" || echo $((4 * tokens)))" 0.01
        done
    done
}

@test "tables and figures show the values of the stream" {
    for analysis in "rank-experts --budget 7" "rank-experts --by pairs --total 99" "coverage" "coverage --by router" "matrix --phase all" \
                    "union" "union --trees" "locality --phase prompt" "stats --phase all" "reuse -K 3" "signal -K 2"; do
        moe-coact $analysis routes.moes -o made.moes
        moe-view --verify made.moes
        moe-view --json made.moes | jq -c 'select(.type != "header" and .type != "end")' > viewed
        moe-coact $analysis --json routes.moes | jq -c . | cmp - viewed
        moe-coact $analysis --csv routes.moes > table.csv
        moe-view --csv --type "$(head -n 1 viewed | jq -r .type)" made.moes | cmp - table.csv
    done
    [ "$(moe-coact coverage --csv -l 2 routes.moes | awk -F, 'NR > 1 { print $1 }' | sort -u)" = 2 ]
}

@test "drift needs states and probabilities, and prints every form" {
    run moe-coact drift routes.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == *"no hidden states; record them with moe-profile --record"* ]]
    moe-profile -q -m pocket.moe -n 8 --record route,probs,hidden -p "A short one." -o states.moes
    moe-coact drift states.moes -o made.moes
    moe-view --verify made.moes
    moe-coact drift --json states.moes | jq -e -s 'length == 6 and .[0].bound == null and
        all(.[1:][]; .bound > .score_mean and .growth_max >= .growth_mean)'
    moe-coact drift --svg states.moes > figure.svg
    python3 -c 'import xml.dom.minidom as m; m.parse("figure.svg")'
}

@test "phases partition the tokens" {
    all=$(moe-coact union --json routes.moes | jq -s '.[0].tokens')
    prompt=$(moe-coact union --json --phase prompt routes.moes | jq -s '.[0].tokens')
    decode=$(moe-coact union --json --phase decode routes.moes | jq -s '.[0].tokens')
    [ $((prompt + decode)) = "$all" ]
    [ "$prompt" -gt 0 ]
    [ "$decode" -gt 0 ]
}

@test "recommended budgets: one for all, one a layer, or what keeps a share" {
    [ "$(moe-coact rank-experts --budget 3,4,5,6,7,99 --json routes.moes 2> said | jq -sc '[.[].budget]')" = "[3,4,5,6,7,32]" ]
    [ "$(< said)" = "moe-coact: --budget 3,4,5,6,7,99: a layer of the model has 32 experts; more than that leaves none out" ]
    moe-coact rank-experts --keep 0.5 --json routes.moes > keep.jsonl
    [ "$(jq -s '[.[] | (.score | add) as $all | (.score[:.budget] | add) >= 0.5 * $all and
                 (.score[:.budget - 1] | add // 0) < 0.5 * $all] | all' keep.jsonl)" = true ]
    run moe-coact rank-experts --keep 0.5 --budget 3 routes.moes -o no.moes
    assert_trouble moe-coact
    run moe-coact rank-experts --budget 3,4 routes.moes -o no.moes
    assert_trouble moe-coact
    [ ! -e no.moes ]
}

@test "coverage of another ranking than the routes' own" {
    moe-coact rank-experts --by frequency short.moes -o short.rank
    moe-coact coverage --rank short.rank --csv routes.moes > other.csv
    moe-coact coverage --by frequency --csv routes.moes > own.csv
    near "$(mean_of budget 32 mass < other.csv)" 1 0
    awk -v a="$(mean_of budget 12 served < other.csv)" -v b="$(mean_of budget 12 served < own.csv)" 'BEGIN { exit !(a < b) }'
}

@test "curves are well-formed SVG" {
    moe-coact coverage --svg routes.moes > coverage.svg
    if command -v xmllint > /dev/null; then
        xmllint --noout coverage.svg
    else
        python3 -c 'import xml.dom.minidom as m; m.parse("coverage.svg")'
    fi
    [ "$(grep -c '<path fill="none"' coverage.svg)" = 16 ]      # two panels of six layers, their mean, and all alike
    for figure in "coverage --by router" "matrix --phase all" "matrix --phase all -l 3" "union" "union -l 0" "union --trees" "locality" "reuse" "signal -K 3 -l 1"; do
        moe-coact $figure --svg routes.moes > figure.svg
        python3 -c 'import xml.dom.minidom as m; m.parse("figure.svg")'
    done
}

@test "a ranking by joint coverage serves more tokens than one by single experts" {
    for by in frequency coverage pairs; do
        moe-coact coverage --by $by --csv routes.moes > $by.csv
        for budget in 8 12 16; do mean_of budget $budget served < $by.csv; done > $by.served
    done
    paste frequency.served coverage.served pairs.served > served
    awk '!($2 > $1 && $3 > $1 && $2 >= $3) { print; exit 1 }' served
    # the score is an expert's gain: the sum of the first scores is the share that coverage shows
    moe-coact rank-experts --by coverage --json routes.moes > rank.jsonl
    moe-coact coverage --by coverage --json routes.moes > coverage.jsonl
    [ "$(jq -s --slurpfile shown coverage.jsonl '[range(length) as $l | .[$l].score as $score | $shown[$l] as $s |
         range(32) | ($score[:. + 1] | add) - $s.served[.] * $s.tokens | fabs < 0.001] | all' rank.jsonl)" = true ]
}

@test "budgets that share a total" {
    for total in 6 7 72 191 192; do
        moe-coact rank-experts --by coverage --total $total --json routes.moes > total.jsonl
        [ "$(jq -s '[.[].budget] | add' total.jsonl)" = $total ]
    done
    for words in "--total 5" "--total 193" "--total 72 --keep 0.5" "--total 72 --budget 3"; do
        run moe-coact rank-experts $words routes.moes -o no.moes
        assert_trouble moe-coact
        [ ! -e no.moes ]
    done
}

@test "pairs equal the counts of the routes, in shards or whole" {
    cat > pairs.jq <<'JQ'
[.[] | select(.type == "route") | .experts[] | .[2] | . as $e | range(4) as $a | range(4) as $b | "\($e[$a]) \($e[$b])"]
| group_by(.) | map({key: .[0], value: length}) | sort_by(.key)
JQ
    moe-view --json routes.moes | jq -sc -f pairs.jq > counted
    moe-coact matrix --phase all --json -l 2 routes.moes |
        jq -c '. as $m | [range(.points) | select($m.count[.] > 0) | {key: "\($m.first[.]) \($m.second[.])", value: $m.count[.]}]
               | sort_by(.key)' | cmp - counted
    [ "$(moe-coact matrix --phase all --json routes.moes | jq -sc '[.[] | .first[range(0; 1024; 32)]] | length')" = 192 ]
    for i in 1 2 3; do moe-profile -q -m pocket.moe -n 16 --record route,probs --shard $i/3 prompts.jsonl -o shard$i.moes; done
    for words in "matrix --phase all" "stats --phase all" "union" "union --trees" "coverage --by router" \
                 "rank-experts --by coverage"; do
        moe-coact $words --json shard3.moes shard1.moes shard2.moes > shards
        moe-coact $words --json routes.moes | cmp - shards
    done
}

@test "unions of real drafts, from routes and from the stream of decoding" {
    moe-profile -q -m pocket.moe -n 24 --draft ngram -K 4 prompts.jsonl -o drafted.moes
    moe-coact union --trees --json drafted.moes > routes.jsonl
    moe-view --json drafted.moes | jq -s '[.[] | select(.type == "route" and .phase != "prompt" and .n == 5) | .experts |
        [.[][1][]] | unique | length] | {trees: length, mean: (add / length)}' > mean.json
    [ "$(jq -s '.[1] | .windows[.width | index(5)]' routes.jsonl)" = "$(jq .trees mean.json)" ]
    near "$(jq -s '.[1] | .distinct[.width | index(5)]' routes.jsonl)" "$(jq .mean mean.json)" 1e-9
    # experts outside a budget need not be loaded, in either kind of stream
    for budget in "" "--budget 6"; do
        moe-profile -q -m pocket.moe -n 24 --draft ngram -K 4 $budget prompts.jsonl | moe-coact union --trees --json > routes.jsonl
        moe-decode -q -m pocket.moe -n 24 --draft ngram -K 4 $budget prompts.jsonl --record route --stream decoded.moes > /dev/null
        moe-coact union --trees --json decoded.moes > decoded.jsonl
        jq -c '[.width, .windows, .distinct, .alike]' routes.jsonl > expected
        jq -c '[.width, .windows, .distinct, .alike]' decoded.jsonl | cmp - expected
        [ "$(jq -c '.independent | unique' decoded.jsonl | sort -u)" = "[null]" ]
    done
    moe-coact union --trees --phase verify --json decoded.moes | jq -s -e 'all(.width[0] > 1)'
    run moe-coact union decoded.moes
    assert_trouble moe-coact
    moe-decode -q -m pocket.moe -n 4 --draft ngram prompts.jsonl --stream bare.moes > /dev/null
    run moe-coact union --trees bare.moes
    assert_trouble moe-coact
    [[ $output == *"moe-decode --record route"* ]]
    run moe-coact union --trees short.moes
    assert_trouble moe-coact
    run moe-coact union --trees --phase prompt routes.moes
    assert_trouble moe-coact
    run moe-coact coverage --by router --rank x routes.moes
    assert_trouble moe-coact
}

@test "merged streams hold the records of all, renumbered" {
    moe-coact merge --force routes.moes short.moes routes.moes -o merged.moes 2> notes
    [ "$(grep -c "because of --force" notes)" -eq 2 ]
    moe-view --verify merged.moes
    moe-view --json merged.moes > merged.jsonl
    [ "$(jq -s '[.[] | select(.type == "begin") | .sequence] == [range(13)]' merged.jsonl)" = true ]
    [ "$(jq -s '.[0].sources | length' merged.jsonl)" = 3 ]
    cat > strip.jq <<'JQ'
select(.type == "begin" or .type == "route" or .type == "end_sequence") | del(.sequence)
JQ
    jq -c -f strip.jq merged.jsonl > merged
    for part in routes short routes; do moe-view --json $part.moes | jq -c -f strip.jq; done | cmp - merged
    moe-coact merge -q --force - routes.moes < short.moes | moe-view --verify
    moe-decode -q -m pocket.moe -n 4 prompts.jsonl --stream decode.moes > /dev/null
    moe-coact merge -q --force decode.moes decode.moes | moe-view --json | jq -s -e '[.[] | select(.type == "done")] | length == 12'
}

@test "parts of a run are merged in their order, each once" {
    for i in 1 2 3; do moe-profile -q -m pocket.moe --shard $i/3 prompts.jsonl -o part$i.moes; done
    moe-profile -q -m pocket.moe prompts.jsonl -o whole.moes
    records() { moe-view --json "$1" | jq -c 'select(.type != "header" and .type != "end")'; }
    records whole.moes > whole.jsonl
    moe-coact merge part3.moes part1.moes part2.moes -o parts.moes
    records parts.moes | cmp - whole.jsonl
    moe-view --json --type header part2.moes | jq -e '[.part, .parts] == [2, 3]'
    moe-view part2.moes | grep -qx ' *part 2 of 3 of the prompts'
    moe-view --json --type header parts.moes | jq -e '.parts == null and [.sources[].part] == [1, 2, 3]'
    run moe-coact merge part3.moes part1.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == "moe-coact: part 2 of 3 is not among the streams; add it, or use --force" ]]
    run moe-coact merge part1.moes part2.moes -o no.moes
    [[ $output == "moe-coact: part 3 of 3 is not"* ]]
    moe-profile -q -m pocket.moe --shard 2/3 prompts.jsonl -j 1 -o again.moes
    run moe-coact merge part1.moes again.moes part2.moes part3.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == "moe-coact: again.moes and part2.moes are both part 2 of 3; give each part once, or use --force" ]]
    [ ! -e no.moes ]
    run moe-coact merge --force part3.moes part1.moes -o some.moes
    [ "$status" -eq 0 ]
    [[ $output == "moe-coact: part 2 of 3 is not among the streams; used because of --force" ]]
    records some.moes | jq -se '[.[] | select(.type == "begin") | .sequence] | . == [range(length)] and length > 3'
}

@test "streams made with different options are not merged, nor one with itself" {
    moe-profile -q -m pocket.moe -n 4 -d ngram -K4 -p "A short one." -o a.moes
    moe-profile -j 1 -m pocket.moe --pin --draft=ngram -qK 4 --max-tokens=4 -p "Another." -o b.moes
    moe-profile -q -m pocket.moe -n 4 --draft ngram -K 2 -p "A short one." --temperature 0.70 -o c.moes
    moe-profile -q -m pocket.moe -n 4 -d ngram -d pld --draft-length 2 -p "A short one." --temperature .7 -o d.moes
    moe-profile -q -m pocket.moe -n 4 -d ngram -K 2 --ignore-eos --accept rejection -p "Else." --temperature 7e-1 -o e.moes
    moe-coact merge a.moes b.moes -o ab.moes
    run moe-coact merge b.moes c.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == "moe-coact: c.moes was made otherwise than b.moes (--temperature 0.70, not without it; --draft-length 2, not 4); merge streams made alike, or use --force" ]]
    run moe-coact merge c.moes d.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == *"(--draft ngram + pld, not ngram);"* ]]
    run moe-coact merge c.moes e.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == *"(with --ignore-eos; --accept rejection, not without it);"* ]]
    run moe-coact merge ab.moes c.moes -o no.moes                  # the parts of merged streams count
    assert_trouble moe-coact
    [[ $output == *"c.moes was made otherwise than ab.moes"* ]]
    moe-coact merge ab.moes a.moes | moe-view --verify
    cp a.moes copy.moes
    run moe-coact merge a.moes b.moes copy.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == "moe-coact: copy.moes is the same stream as a.moes; give it once, or use --force" ]]
    [ ! -e no.moes ]
    run moe-coact merge --force b.moes c.moes b.moes -o yes.moes
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
    moe-view --verify yes.moes
}

@test "a merged stream is labelled as each of its parts is" {
    for budget in 8 12; do
        moe-decode -q -m pocket.moe -n 4 -B $budget -d ngram prompts.jsonl --stream budget$budget.moes -o /dev/null
    done
    moe-decode -q -m pocket.moe -n 4 prompts.jsonl --stream whole.moes -o /dev/null
    labels() { moe-view --json "$@" | head -n 1 | jq -r '.labels["not lossless"]'; }
    eight=$(labels budget8.moes)
    twelve=$(labels budget12.moes)
    [[ $eight == "budget 8"* && $twelve == "budget 12"* ]]
    moe-coact merge -q --force whole.moes budget8.moes budget8.moes whole.moes budget12.moes budget8.moes -o labels.moes
    [ "$(labels labels.moes)" = "$eight; $twelve" ]
    moe-coact merge -q --force budget8.moes whole.moes -o labels.moes
    [ "$(labels labels.moes)" = "$eight" ]
}

@test "streams that do not belong together are refused" {
    moe-coact rank-experts routes.moes -o rank.moes
    for pair in "routes.moes other.moes" "routes.moes renamed.moes"; do
        for command in rank-experts coverage "matrix --phase all" union "union --trees" locality "stats --phase all" merge; do
            run moe-coact $command $pair -o no.moes
            assert_trouble moe-coact
        done
    done
    run moe-coact coverage --rank rank.moes other.moes -o no.moes
    assert_trouble moe-coact
    run moe-coact merge rank.moes rank.moes -o no.moes
    assert_trouble moe-coact
    run moe-coact merge routes.moes rank.moes -o no.moes
    assert_trouble moe-coact
    run moe-coact rank-experts rank.moes -o no.moes
    assert_trouble moe-coact
    run moe-coact rank-experts - - -o no.moes
    assert_trouble moe-coact
    [ ! -e no.moes ]
    moe-coact rank-experts --force routes.moes renamed.moes --json 2> note > forced.jsonl
    grep -q "^moe-coact: .*--force" note
    for force in "" --force; do
        run moe-coact rank-experts $force routes.moes other.moes -o no.moes
        assert_trouble moe-coact
        [[ $output != *--force* ]]
        run moe-coact merge $force routes.moes other.moes -o no.moes
        assert_trouble moe-coact
        [[ $output != *--force* ]]
    done
}

@test "routes without tokens give no result" {
    head -n 1 prompts.jsonl > one.jsonl
    moe-profile -q -m pocket.moe --shard 2/2 one.jsonl > empty.moes
    for command in rank-experts "rank-experts --by coverage" "rank-experts --by pairs" coverage "coverage --by router" matrix \
                   union "union --trees" locality stats "union --phase decode"; do
        run moe-coact $command empty.moes -o no.moes
        assert_trouble moe-coact
    done
    run moe-coact rank-experts --phase decode short.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == *"the routes have no tokens of this --phase"*"-n)" ]]
    run moe-coact union --phase decode short.moes -o no.moes
    assert_trouble moe-coact
    [ ! -e no.moes ]
    moe-coact merge -q --force empty.moes short.moes empty.moes | moe-view --verify
}

@test "a truncated stream gives no result" {
    size=$(stat -c %s short.moes)
    [ "$MOE_SANITIZED" ] && step=997 || step=211
    for ((at = 0; at < size; at += (at < 40 || at > size - 60) ? 1 : step)); do
        head -c $at short.moes > cut.moes
        for command in rank-experts "merge -q --force routes.moes"; do
            run moe-coact $command cut.moes -o no.moes
            assert_trouble moe-coact
            [ ! -e no.moes ]
        done
    done
    cat short.moes short.moes > doubled.moes
    run moe-coact rank-experts doubled.moes -o no.moes
    assert_trouble moe-coact
    [ ! -e no.moes ]
}

@test "a stream with one flipped bit gives no result" {
    size=$(stat -c %s short.moes)
    count=75
    [ -z "$MOE_LONG" ] || count=150
    [ -z "$MOE_SANITIZED" ] || count=40
    for ((i = 0; i < count; i++)); do
        at=$((i * size / count)) bit=$((1 << i % 8))
        cp short.moes turned.moes
        flip turned.moes $at $bit
        run moe-coact rank-experts turned.moes -o no.moes
        assert_trouble moe-coact
        [ ! -e no.moes ]
    done
}

@test "options are checked before the work" {
    for words in "rank-experts --json --csv" "coverage --svg --text" "coverage -l 6 --csv" "coverage -l 0" "union -l 9 --json" \
                 "rank-experts --by luck" "rank-experts --by router" "matrix --phase all -l 6 --csv" "stats --svg" "rank-experts --phase both" "rank-experts --keep 1.5" "merge" "rank" \
                 "rank-experts --sgv"; do
        run moe-coact $words routes.moes -o no.moes
        [ "$words" = merge ] || assert_trouble moe-coact
    done
    run moe-coact merge
    assert_trouble moe-coact
    run moe-coact
    assert_trouble moe-coact
    rm -f no.moes
}

@test "a full disk, a read-only folder and a closed pipe are handled" {
    run moe-coact rank-experts routes.moes -o /dev/full
    assert_trouble moe-coact
    run moe-coact coverage --text routes.moes -o /dev/full
    assert_trouble moe-coact
    run moe-coact coverage --csv routes.moes -o nowhere/coverage.csv
    assert_trouble moe-coact
    moe-coact merge -q --force routes.moes routes.moes | head -c 10 > /dev/null
    ended=${PIPESTATUS[0]}
    [ "$ended" -eq 0 ] || [ "$ended" -eq 141 ]
}
