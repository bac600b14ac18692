#!/usr/bin/env bats
# moe-draft-train eval from the command line: the figures of an independent program, the same by text and by decoding, from
# texts, streams and pipes, and bad input.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    head -n 12 "$MOE_MODELS/pocket/calib.jsonl" > texts.jsonl
    jq -c '{id, task, tokens: .prompt_tokens, answer_tokens: .tokens}' "$MOE_MODELS/pocket/golden.jsonl" > greedy.jsonl
    for kind in eagle1 eagle3 jakiro kangaroo; do
        moe-convert head -q "$MOE_MODELS/pocket/heads/$kind" --target pocket.moe -o $kind.moe
    done
}

setup() { cd "$WORK"; }

judge() { moe-draft-train eval -q -m pocket.moe "$@"; }

# Prints the eval record without the origin of the head.
figures() { moe-view --json --type eval "$1" | jq -c 'del(.by, .acceptance, .conditional, .type, .index)'; }

# The command fails with one line that contains $1, and writes no file.
refuses() {
    local words=$1
    shift
    run moe-draft-train eval -q "$@" -o no.moes
    assert_trouble moe-draft-train
    [[ $output == *"$words"* ]] || { echo "'$output' does not say: $words"; return 1; }
    [ ! -e no.moes ]
}

# Counts of the program that trained the heads of tests/models/pocket, for HEAD: iterations with chains and trees (-: not
# counted), and acceptance.
counted() {
    local head=$1 chains=$2 trees=$3 accepted=$4
    shift 4
    judge $head.moe greedy.jsonl --cut 128 --json "$@" | jq -e --arg chains "$chains" --arg trees "$trees" --arg accepted "$accepted" '
        select(.type == "eval") | .texts == 240 and .tokens == 6920 and .iterations == ($chains | tonumber) and
        ($trees == "-" or .tree_iterations == ($trees | tonumber)) and
        (.acceptance | map(. * 10000 | round | . / 10000 | tostring) | join(" ")) == $accepted'
}

@test "the trained heads are right as often as in the program that trained them" {
    counted eagle1 2141 - "0.7965 0.6605 0.5247 0.4434 0.3904" --tree none
    [ -n "$MOE_LONG" ] || return 0
    counted eagle1 2141 1671 "0.7965 0.6605 0.5247 0.4434 0.3904"
    counted eagle3 2376 1748 "0.7348 0.5689 0.418 0.3285 0.2676"
    counted jakiro 2121 1623 "0.799 0.6548 0.5148 0.4269 0.3678"
    counted kangaroo 1679 - "0.8991 0.8307 0.7652 0.7105 0.6617"
}

@test "by the target's own answers and by decoding: the same figures, for each kind of head" {
    for arch in medusa hydra jakiro_star; do
        moe-draft-train train -q -m pocket.moe --arch $arch --rate 0.01 --steps 10 texts.jsonl -o $arch.moe
    done
    head -n 2 texts.jsonl > asked.jsonl
    for kind in eagle1 eagle3 jakiro kangaroo medusa hydra jakiro_star; do
        options="$kind.moe asked.jsonl -K 4 --tree dynamic:total=12,depth=5,topk=3 -n ${MOE_LONG:+3}8"
        judge $options -o text.moes
        judge $options --decode -o decoding.moes
        cmp <(figures text.moes) <(figures decoding.moes)
        moe-view --json --type eval text.moes | jq -e '.tokens > .iterations and .iterations >= .tree_iterations and .by == "answers"'
        moe-view --json --type eval decoding.moes | jq -e '.acceptance == .begun and .by == "decoding"'
    done
    # one of these heads can be decoded with as it was published, which states its kind
    star="-m pocket.moe -n 8 -d head:file=jakiro_star.moe --accept jakiro-star"
    moe-decode -v $star --temperature 1 --tree static:width=2,depth=2 --stream star.moes asked.jsonl > texts 2> said
    grep -qx 'moe-decode: not lossless: jakiro-star acceptance' said
    moe-view --json star.moes | head -n 1 | jq -e '.labels["not lossless"] == "jakiro-star acceptance"'
    cmp <(moe-decode -q $star asked.jsonl) <(moe-decode -q -m pocket.moe -n 8 asked.jsonl)
    run -2 moe-decode -q -m pocket.moe -d head:file=eagle1.moe --accept jakiro-star --temperature 1 asked.jsonl
    [[ "$output" == *"the head is of kind eagle1"* ]]
}

@test "texts, a stream of them and a pipe give the same record" {
    judge eagle3.moe texts.jsonl -o texts.moes
    moe-profile features -q -m pocket.moe --for eagle3.moe --dtype f32 texts.jsonl -o states.moes
    for part in "head -n 5" "tail -n +6"; do
        $part texts.jsonl | moe-profile features -q -m pocket.moe --for eagle3.moe --dtype f32 - -o "${part%% *}.moes"
    done
    judge eagle3.moe head.moes tail.moes -o stream.moes
    judge eagle3.moe - < states.moes > pipe.moes
    moe-profile features -q -m pocket.moe --layers 0,1,2,3,4,5,final --dtype f32 texts.jsonl | judge eagle3.moe > all.moes
    for made in stream pipe all; do
        cmp <(moe-view --json --type eval texts.moes) <(moe-view --json --type eval $made.moes)
    done
    moe-view --verify stream.moes
    # only the validation texts of a stream that has some
    moe-profile features -q -m pocket.moe --for eagle3.moe --validation 0.4 texts.jsonl -o split.moes
    judge eagle3.moe split.moes --validation --json | jq -es 'map(select(.type == "eval"))[0].texts | . > 0 and . < 12'
    judge eagle3.moe split.moes --json | jq -es 'map(select(.type == "eval"))[0].texts == 12'
}

@test "several answers in a chat are judged one by one, and a text without any is left out" {
    cat > chat.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "Add 2 and 3."}, {"role": "assistant", "content": "2 + 3 = 5. The answer is 5."}, {"role": "user", "content": "Add 4."}, {"role": "assistant", "content": "5 + 4 = 9. The answer is 9."}]}
JSON
    judge eagle1.moe chat.jsonl --json > whole.json
    moe-profile features -q -m pocket.moe --turns each --dtype f32 chat.jsonl | judge eagle1.moe --json > each.json
    [ "$(jq 'select(.type == "eval") | .texts' whole.json)" = 1 ]
    [ "$(jq 'select(.type == "eval") | .texts' each.json)" = 2 ]
    cmp <(jq -c 'select(.type == "eval") | del(.texts)' whole.json) <(jq -c 'select(.type == "eval") | del(.texts)' each.json)
    moe-draft-train eval -m pocket.moe eagle1.moe texts.jsonl --cut 40 --json -o cut.json 2> said
    grep -qx 'moe-draft-train: [0-9]* texts have no answer within the first 40 tokens; such texts are left out' said
}

@test "the result as a table, JSON lines, CSV and a stream" {
    judge eagle1.moe texts.jsonl -o one.moes
    judge eagle1.moe texts.jsonl --text > table
    grep -qx 'eagle1.moe (eagle1, 442752 numbers): 12 texts, held against their answers' table
    grep -q '^position  accepted  conditional' table
    grep -Eq '^chains +[0-9]+ +[0-9]+ +[0-9]\.[0-9]{4}$' table
    judge eagle1.moe texts.jsonl --json > lines
    cmp lines <(moe-view --json one.moes | grep -E '^.{0,3}"type": ?"(run|eval)"')
    judge eagle1.moe texts.jsonl --csv -o positions.csv
    [ "$(wc -l < positions.csv)" = 6 ]
    head -n 1 positions.csv | grep -q 'position,acceptance,conditional,begun'
    judge eagle1.moe texts.jsonl --drafting parallel=0 -K 2 --tree none --json | jq -es '
        (map(select(.type == "run"))[0].options | fromjson | .draft_length == 2 and .tree == "none") and
        (map(select(.type == "eval"))[0] | .positions == 2 and (has("tree_iterations") | not))'
    moe-bench report one.moes > report
    tokens=$(moe-view --json --type eval one.moes | jq '.tokens_per_iteration * 1000 | round / 1000')
    grep -qF -- "$tokens" report
}

@test "a head with a stop threshold drafts less, and is evaluated on its drafts" {
    judge kangaroo.moe texts.jsonl --tree none -o all.moes
    judge kangaroo.moe texts.jsonl --tree none --drafting stop=0.6 -o stops.moes
    jq -en "$(moe-view --json --type eval stops.moes | jq .iterations) > $(moe-view --json --type eval all.moes | jq .iterations)"
}

@test "all texts of a named pipe are evaluated" {
    judge eagle1.moe texts.jsonl --tree none -K 1 -o file.moes
    judge eagle1.moe <(while read -r text; do echo "$text"; sleep 0.01; done < texts.jsonl) --tree none -K 1 -o pipe.moes
    cmp <(figures file.moes) <(figures pipe.moes)
}

@test "bad input is reported in one line" {
    refuses "no model is given" eagle1.moe texts.jsonl
    refuses "missing.moe" -m pocket.moe missing.moe texts.jsonl
    refuses "is a model, not a draft head" -m pocket.moe pocket.moe texts.jsonl
    refuses "missing.jsonl" -m pocket.moe eagle1.moe missing.jsonl
    refuses "--decode: no answers are generated" -m pocket.moe eagle1.moe --decode texts.jsonl
    refuses "exclude each other" -m pocket.moe eagle1.moe --json --csv texts.jsonl
    refuses "--tree" -m pocket.moe eagle1.moe --tree bush texts.jsonl
    refuses "-K: 0 is not between" -m pocket.moe eagle1.moe -K 0 texts.jsonl
    refuses "stop" -m pocket.moe eagle1.moe --drafting stop=7 texts.jsonl
    refuses "no room for drafts" -m pocket.moe eagle1.moe -c 6 texts.jsonl
    refuses "--validation: only feature streams mark validation texts, and the inputs are texts" -m pocket.moe eagle1.moe --validation texts.jsonl
    echo '{"prompt": "no answer"}' > bare.jsonl
    refuses "answer" -m pocket.moe eagle1.moe bare.jsonl
    moe-profile features -q -m pocket.moe texts.jsonl -o final.moes
    refuses "lacks the states after layer" -m pocket.moe eagle3.moe final.moes
    refuses "is a feature stream, which already contains answers" -m pocket.moe eagle1.moe -n 8 final.moes
    refuses "final.moes is a feature stream and cannot be combined with texts.jsonl" -m pocket.moe eagle1.moe final.moes texts.jsonl
    refuses "is a feature stream and cannot be combined with" -m pocket.moe eagle1.moe final.moes - < final.moes
    refuses "missing.moes: No such file" -m pocket.moe eagle1.moe final.moes missing.moes
    head -c 20000 final.moes > cut.moes
    refuses "cut.moes" -m pocket.moe eagle1.moe cut.moes
    printf '{"tokens": [5, 6, 7], "answer_tokens": [8, 9999]}\n' > wrong.jsonl
    refuses "wrong.jsonl" -m pocket.moe eagle1.moe wrong.jsonl
}
