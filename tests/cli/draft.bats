#!/usr/bin/env bats
# Draft models, draft trees and acceptance rules from the command line. identity.bats compares texts; this file tests what they
# draft, how much of it is accepted, and what is refused.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    local step=50
    [ -z "$MOE_LONG" ] || step=16
    [ -z "$MOE_SANITIZED" ] || step=80
    awk -v step=$step 'NR % step == 1' "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    echo '[[0], [1], [2], [0,0], [0,1], [1,0], [0,0,0], [0,0,0,0]]' > tree.json
    head -c 3000 "$MOE_POCKET" > cut.moe
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe "$@"; }
answers() { decode --json "$@" prompts.jsonl | jq -c '[.id, .tokens, .text, .finish_reason]'; }
total() { jq -s "map(.$1) | add" "$2"; }

refuse() {
    local part=$1
    shift
    run moe-decode -m pocket.moe -p x "$@"
    assert_trouble moe-decode
    [[ $output == *"$part"* ]] || { echo "does not say '$part': $output"; return 1; }
}

shapes='chain static:file=tree.json dynamic:total=12,depth=4,topk=3'

@test "a draft model gives the same text in fewer iterations than prompt lookup" {
    for sampling in '' '--temperature 0.7 --seed 2' '--temperature 1 --top-k 40 --top-p 0.95 --min-p 0.01'; do
        answers $sampling > none.jsonl
        decode $sampling --json -d ngram prompts.jsonl > ngram.jsonl
        for tree in $shapes; do
            decode $sampling --json -d model:file=draft.moe --tree $tree prompts.jsonl > model.jsonl
            jq -c '[.id, .tokens, .text, .finish_reason]' model.jsonl | cmp - none.jsonl
            [ $((3 * $(total iterations model.jsonl))) -lt $((2 * $(total iterations ngram.jsonl))) ]
        done
    done
}

@test "prompt lookup in trees needs fewer iterations than in chains" {
    answers > none.jsonl
    decode --json -d ngram prompts.jsonl > chain.jsonl
    decode --json -d ngram --tree dynamic prompts.jsonl > tree.jsonl
    jq -c '[.id, .tokens, .text, .finish_reason]' tree.jsonl | cmp - none.jsonl
    [ "$(total iterations tree.jsonl)" -lt "$(total iterations chain.jsonl)" ]
    [ "$(total num_accepted_tokens tree.jsonl)" -gt "$(total num_accepted_tokens chain.jsonl)" ]
}

@test "drafts of the model itself are always accepted, above temperature 0, too" {
    for sampling in '' '--temperature 0.7 --seed 5' '--temperature 1 --top-p 0.9 --top-k 30'; do
        decode $sampling --json -n 24 --ignore-eos -d model:file=pocket.moe -K 5 prompts.jsonl > self.jsonl
        jq -s -e 'all(.[]; .num_accepted_tokens == .num_draft_tokens and .iterations == 4)' self.jsonl
        decode $sampling --json -n 24 --ignore-eos -d model:file=pocket.moe --tree static:file=tree.json prompts.jsonl > self.jsonl
        jq -s -e 'all(.[]; .iterations == 5)' self.jsonl
    done
}

@test "drafts of the model itself are always accepted by rejection, too" {
    for tree in chain static:file=tree.json; do
        decode --accept rejection --temperature 1 --json -n 41 --ignore-eos -d model:file=pocket.moe --tree $tree prompts.jsonl \
            > self.jsonl
        jq -s -e 'all(.[]; .iterations == 8)' self.jsonl
    done
}

@test "at temperature 0 every acceptance rule gives the text without drafts; above it streams are labelled" {
    answers > none.jsonl
    for rule in coupled rejection typical; do
        for tree in $shapes; do
            answers --accept $rule -d model:file=draft.moe --tree $tree | cmp - none.jsonl
        done
        answers --accept $rule -d ngram --tree dynamic | cmp - none.jsonl
    done
    local sampling='--temperature 2 -n 60'          # so hot that few prompts suffice to tell rules apart
    answers $sampling > none.jsonl
    for rule in coupled rejection typical:epsilon=0.2,delta=0.4; do
        decode $sampling --accept $rule -d model:file=draft.moe --stream ${rule%%:*}.moes prompts.jsonl > ${rule%%:*}.txt
        moe-view --json ${rule%%:*}.moes | jq -s -c 'map(select(.type == "done") | .tokens)' > ${rule%%:*}.ids
        moe-view --json ${rule%%:*}.moes | head -n 1 | jq -c .labels > ${rule%%:*}.labels
    done
    jq -s -c 'map(.[1])' none.jsonl | cmp - coupled.ids
    refute cmp -s coupled.ids rejection.ids
    refute cmp -s coupled.ids typical.ids
    refute grep -q acceptance coupled.labels
    grep -q '"not the same text":"rejection acceptance"' rejection.labels
    grep -q '"not lossless":"typical acceptance"' typical.labels
}

@test "a stream records trees, dropped nodes and the draft model's reads" {
    decode -d model:file=draft.moe --tree dynamic:total=12,depth=4,topk=3 --stream tree.moes prompts.jsonl > tree.txt
    moe-view --json tree.moes | jq -s -e 'map(select(.type == "iter")) | length > 10 and
        all(.[]; .nodes <= 12 and .drafted >= .nodes - 1 and .K == 4 and (.nodes == 1 or .draft_bytes > 0) and
                 .policy.tree == "dynamic" and .policy.total == 12 and .policy.topk == 3) and
        any(.[]; .drafted > .nodes - 1) and any(.[]; [.node_parents[] | select(. == 0)] | length > 1)'
    decode -d ngram --tree static:file=tree.json -K 2 --stream ngram.moes prompts.jsonl > ngram.txt
    moe-view --json ngram.moes | jq -s -e 'map(select(.type == "iter")) |
        all(.[]; has("draft_bytes") | not) and all(.[]; .nodes <= 7 and .K == 2 and .policy.tree == "static")'
    cmp tree.txt ngram.txt
    decode -d model:file=draft.moe --tree dynamic -K 0 --stream none.moes prompts.jsonl | cmp - tree.txt
    moe-view --json none.moes | jq -s -e 'map(select(.type == "iter")) | all(.[]; .nodes == 1)'
}

@test "the ref device drafts and verifies as well" {
    head -n 1 prompts.jsonl > one.jsonl
    decode --device ref -n 10 one.jsonl > none.txt
    for tree in chain dynamic:total=8,depth=3,topk=2; do
        decode --device ref -n 10 -d model:file=draft.moe --tree $tree one.jsonl | cmp - none.txt
    done
}

@test "a draft model's tokenizer may have a different but equivalent description" {
    cp -rL "$MOE_MODELS/pocket/draft" worded
    jq '.decoder = {type: "Sequence", decoders: [.decoder]} | .model.merges = .model.merges[:-1]' \
        "$MOE_MODELS/pocket/draft/tokenizer.json" > worded/tokenizer.json
    moe-convert -q worded -o worded.moe
    refute [ "$(moe-view --json --type model worded.moe | grep tokenizer_sha256)" = \
             "$(moe-view --json --type model draft.moe | grep tokenizer_sha256)" ]
    decode --json -d model:file=draft.moe prompts.jsonl > plain.jsonl
    decode --json -d model:file=worded.moe prompts.jsonl > worded.jsonl
    [ "$(total num_accepted_tokens plain.jsonl)" -gt 0 ]
    [ "$(total num_accepted_tokens plain.jsonl)" = "$(total num_accepted_tokens worded.jsonl)" ]
}

@test "auto uses the drafters that are present, and reports the value of each" {
    decode --json -n 40 prompts.jsonl | jq -c '[.id, .tokens]' > none.txt
    moe-decode -v -m pocket.moe --json -n 40 -d auto -d model:file=draft.moe --stream auto.moes -o auto.json prompts.jsonl 2> said.txt
    jq -c '[.id, .tokens]' auto.json | cmp - none.txt
    moe-view --json auto.moes | jq -e -s '(.[] | select(.type == "machine").drafters | fromjson) == ["model:file=draft.moe", "self", "suffix", "ngram"]
        and ([.[] | select(.type == "iter").policy.name] | unique) == ["dytc-verify"]
        and ([.[] | select(.type == "iter").drafter_proposed | add] | add) > 0'
    grep -q '^moe-decode: --draft auto: --policy dytc-verify verified drafts in .*; model:file=draft.moe: .*; self: .*; ngram: ' said.txt
    moe-decode -m pocket.moe --json -n 40 -d auto -K 3 --policy cascade prompts.jsonl | jq -c '[.id, .tokens]' | cmp - none.txt
    refuse "--draft: none and auto exclude each other" -d auto -d none
}

@test "attached drafters are used by auto, and drafters of other models are refused" {
    drafters() { moe-view --json "$1" | jq -c 'select(.type == "machine").drafters | fromjson'; }
    mkdir -p box/heads else
    cp "$MOE_POCKET" box/m.moe
    cp draft.moe box/a,b.moe
    moe-convert head -q "$MOE_MODELS/pocket/heads/eagle3" --target box/m.moe -o box/heads/eagle3.moe
    moe-convert head -q "$MOE_MODELS/pocket/heads/eagle1" --target box/m.moe -o else/eagle1.moe
    moe-convert attach box/m.moe box/heads/eagle3.moe box/a,b.moe else/eagle1.moe 2> said.txt
    grep -q '^moe-convert: box/m.moe: from now on -d auto can draft with head:file=box/heads/eagle3.moe$' said.txt
    jq -e --arg other "$PWD/else/eagle1.moe" '.drafters == 1 and (.files | map(.kind + " " + .file)) ==
        ["head heads/eagle3.moe", "model a,b.moe", "head " + $other]' box/m.moe.drafters
    moe-view --json box/m.moe | jq -s -e --slurpfile at box/m.moe.drafters 'map(select(.type == "model"))[0].source_sha256 == $at[0].source'
    mv box moved
    # The same text, from the attached drafters, wherever the folder is.
    decode -n 24 --json prompts.jsonl | jq -c '[.id, .tokens]' > none.txt
    moe-decode -q -m moved/m.moe -n 24 --json -d auto -d ngram --stream auto.moes -o auto.json prompts.jsonl
    jq -c '[.id, .tokens]' auto.json | cmp - none.txt
    [ "$(drafters auto.moes)" = "[\"ngram\",\"head:file=moved/heads/eagle3.moe\",\"model:file=moved/a\\\\,b.moe\",\"head:file=$PWD/else/eagle1.moe\",\"self\",\"suffix\"]" ]
    moe-view --json auto.moes | jq -e -s '[.[] | select(.type == "iter").drafter_proposed[1:4] | add] | add > 0'
    (cd moved && moe-convert attach m.moe | cmp - <(printf '%s\n' head:file=heads/eagle3.moe 'model:file=a\,b.moe' "head:file=$WORK/else/eagle1.moe"))
    # Refused, without a change to the file.
    cp moved/m.moe.drafters kept
    for wrong in "tiny.moe: only one of this model and" "tiny-head.moe: is a head for" "m.moe: is the model itself" "none.moe: No such"; do
        file=${wrong%%:*}
        [ "$file" != m.moe ] || file=moved/m.moe
        [ -e tiny.moe ] || moe-convert -q "$MOE_MODELS/../golden/mtp/glm4_moe/model" -o tiny.moe
        [ -e tiny-head.moe ] || moe-convert synthetic -q --head eagle1 --like "$BATS_TEST_DIRNAME/../bench/tiny-head.json" \
            --target tiny.moe -o tiny-head.moe
        run moe-convert attach moved/m.moe moved/heads/eagle3.moe $file
        assert_trouble moe-convert
        [[ $output == *"$wrong"* ]] || { echo "'$output' does not say $wrong"; return 1; }
        cmp kept moved/m.moe.drafters
    done
    run moe-convert attach moved/m.moe draft.moe draft.moe draft.moe draft.moe draft.moe
    assert_trouble moe-convert
    # Files of other weights, or with other contents, are refused when they are used; none is overwritten.
    cp tiny.moe moved/tiny.moe
    cp kept moved/tiny.moe.drafters
    run moe-decode -m moved/tiny.moe -d auto -p x
    assert_trouble moe-decode
    [[ $output == *"tiny.moe.drafters: lists drafters for a model whose weights differ from those of"* ]]
    run moe-decode -m moved/m.moe -d auto -p x -o moved/heads/eagle3.moe
    assert_trouble moe-decode
    [[ $output == *"an output needs a file of its own"* ]]
    for bad in '{}' '[]' '{"drafters": 2}' '{"drafters": 1, "source": "a", "files": []}' "$(jq -c '.files[0].kind = "tree"' kept)" \
               "$(jq -c '.files[1].file = ""' kept)" "$(jq -c '.more = 1' kept)" "$(jq -c '.files = [range(5) | {}]' kept)"; do
        echo "$bad" > moved/m.moe.drafters
        run moe-decode -m moved/m.moe -d auto -p x
        assert_trouble moe-decode
        [[ $output == *"m.moe.drafters: "* ]]
        moe-decode -q -m moved/m.moe -d ngram -n 1 -p x > plain.txt
    done
    rm moved/m.moe.drafters
    [ -z "$(moe-convert attach moved/m.moe)" ]
}

@test "a run begins with the acceptance estimates that another one saved" {
    first() { moe-view --json cal.moes | jq -s 'map(select(.type == "iter"))[0].policy | [.chance, .tried]' -c; }
    for run in 1 2; do
        decode -d ngram -K auto --calibration cal.json --stream cal.moes -o cal.txt prompts.jsonl
        first > first-$run.json
    done
    jq -e '. == [0.5, 0]' first-1.json
    jq -e '.[1] > 0 and .[0] != 0.5' first-2.json || { cat first-2.json; return 1; }
    decode -d ngram -K auto -o none.txt prompts.jsonl
    cmp none.txt cal.txt
    # Concurrent texts begin with the file's estimates; the file then gets the mean of their estimates.
    cp cal.json before.json
    decode -d ngram -K auto --parallel 3 --calibration cal.json --stream cal.moes -o cal.txt prompts.jsonl
    cmp none.txt cal.txt
    moe-view --json --type iter cal.moes | jq -se 'group_by(.sequence) | map(.[0].policy.tried) | min > 0' > /dev/null
    jq -s -e '.[0].drafters.ngram.seen as $old | .[1].drafters.ngram.seen > $old' before.json cal.json > /dev/null
    refuse 'policy static does not estimate acceptance probabilities' -d ngram --calibration cal.json
    echo '{}' > bad.json
    refuse '--calibration: bad.json: this is not a calibration' -d ngram -K auto --calibration bad.json
    [ "$(cat bad.json)" = '{}' ]
}

@test "a file, or a kind of head, in place of a drafter: head:file= is named" {
    refuse "'head.moe' is a file, not a drafter; write head:file=head.moe for a draft head, or model:file=head.moe for a draft model" -d head.moe
    refuse "'eagle3' is a kind of draft head, not a drafter; write head:file=head.moe, because the file determines the kind" -d eagle3:file=head.moe
    refuse 'write head:file=FILE' -d medusa
}

@test "invalid combinations are refused in one line" {
    refuse "model: no file" -d model
    refuse "none.moe" -d model:file=none.moe
    refuse "cut.moe" -d model:file=cut.moe
    refuse "tree.json" -d model:file=tree.json
    refuse "did you mean file" -d model:fil=draft.moe
    cp -rL "$MOE_MODELS/pocket/draft" other
    jq '.model.vocab |= with_entries(if .value == 300 then .value = 301 elif .value == 301 then .value = 300 else . end)' \
        "$MOE_MODELS/pocket/draft/tokenizer.json" > other/tokenizer.json
    moe-convert -q other -o other.moe
    refuse "other.moe: its tokenizer differs from that of pocket.moe" -d model:file=other.moe
    rm other/tokenizer.json
    moe-convert -q other -o mute.moe
    refuse "mute.moe: only one of this model and pocket.moe has a tokenizer" -d model:file=mute.moe
    refuse "nothing to draft with" --tree dynamic
    refuse "--tree: static" -d ngram --tree static
    refuse "did you mean dynamic" -d ngram --tree dynamo
    refuse "--tree: dynamic: total" -d ngram --tree dynamic:total=1000
    echo '[[0],[1,0]]' > orphan.json
    refuse "orphan.json: path 2" -d ngram --tree static:file=orphan.json
    refuse "did you mean rejection" -d ngram --accept rejecton
    refuse "epsilon" -d ngram --accept typical:epsilon=2
    # A model that others cannot draft for drafts for itself.
    moe-decode -q -m other.moe -d model:file=other.moe -n 4 -p x > other.txt
    moe-decode -q -m other.moe -n 4 -p x | cmp - other.txt
}

@test "a corpus of earlier answers is ids, text, a stream or its index, and drafts the same from each" {
    decode -n 40 --json prompts.jsonl > earlier.jsonl
    decode -n 40 --stream earlier.moes prompts.jsonl > earlier.txt
    jq -c .tokens earlier.jsonl > ids.jsonl
    decode -n 40 --json -d suffix prompts.jsonl > alone.jsonl
    moe-decode -v -m pocket.moe -n 40 --json -d suffix:corpus=earlier.jsonl,save=index prompts.jsonl > known.jsonl 2> told
    grep -q "suffix:corpus=earlier.jsonl,save=index: [0-9]* tokens of $(wc -l < prompts.jsonl) texts, index of .* built" told
    [ $((2 * $(total iterations known.jsonl))) -lt "$(total iterations alone.jsonl)" ]
    for corpus in ids.jsonl earlier.moes index; do
        decode -n 40 --json -d suffix:corpus=$corpus prompts.jsonl | cmp - known.jsonl
    done
    cp index first
    decode -n 4 -d suffix:corpus=index,save=index prompts.jsonl > out
    cmp index first
    # Text is tokenised by the model; an answer's text may have other ids than the answer, so the expectation is lower.
    decode -n 40 --json -d suffix:corpus=earlier.txt prompts.jsonl > text.jsonl
    [ "$(total iterations text.jsonl)" -lt "$(total iterations alone.jsonl)" ]
    for file in alone known text; do
        jq -c '[.id, .tokens, .text]' $file.jsonl | cmp - <(jq -c '[.id, .tokens, .text]' earlier.jsonl)
    done
}

@test "a growing corpus contains the answers of this run, and drafts alike from text and index" {
    cat prompts.jsonl prompts.jsonl > twice.jsonl
    decode -n 40 --json -d suffix twice.jsonl > alone.jsonl
    decode -n 40 --json -d suffix:grow=1 twice.jsonl > grown.jsonl
    for file in alone grown; do
        jq -c '[.id, .tokens, .text]' $file.jsonl > $file.texts
    done
    cmp alone.texts grown.texts
    # The second time each answer is in the corpus.
    local first
    first=$(wc -l < prompts.jsonl)
    tail -n "$first" grown.jsonl > again.jsonl
    head -n "$first" grown.jsonl > once.jsonl
    [ $((2 * $(total iterations again.jsonl))) -lt "$(total iterations once.jsonl)" ]
    decode -n 40 --json prompts.jsonl > earlier.jsonl
    decode -n 40 --json -d suffix:corpus=earlier.jsonl,save=grows,grow=1 twice.jsonl > built.jsonl
    decode -n 40 --json -d suffix:corpus=grows,grow=1 twice.jsonl | cmp - built.jsonl
    decode -n 40 --json -d suffix:divisor=occurrences,grow=1 twice.jsonl | jq -c '[.id, .tokens, .text]' | cmp - alone.texts
    refuse "cannot be recorded" -d suffix:grow=1 --record drafts --stream out.moes
}

@test "an invalid corpus is refused" {
    echo '[1, 2, 3, 1, 2, 3]' > small.jsonl
    decode -n 1 -p x -d suffix:corpus=small.jsonl,save=small > out
    : > empty
    echo '[1, 2, 300000]' > large.jsonl
    echo '{"answer": "x"}' > other.jsonl
    head -c 100 small > short
    head -c 60 small > shorter
    { printf '\377'; head -c 3000 /dev/urandom; } > noise
    decode -n 4 -p x -d suffix --stream cut.moes > out
    truncate -s -10 cut.moes
    cp small small.v3
    flip small.v3 8 1                                   # 2 becomes 3
    refuse "empty: the corpus is empty" -d suffix:corpus=empty
    refuse "nowhere" -d suffix:corpus=nowhere
    refuse "large.jsonl: line 1: token 300000 is outside the vocabulary" -d suffix:corpus=large.jsonl
    refuse "other.jsonl: line 1: expected a list of token ids" -d suffix:corpus=other.jsonl
    refuse "is not valid UTF-8, so this is not text, nor is it an index, a decode stream or token ids" -d suffix:corpus=noise
    refuse "cut.moes" -d suffix:corpus=cut.moes
    refuse "pocket.moe" -d suffix:corpus=pocket.moe
    refuse "short: the index is damaged: its sizes contradict its length of 100 bytes" -d suffix:corpus=short
    refuse "shorter: the index is truncated" -d suffix:corpus=shorter
    refuse "small.v3: the index has version 3" -d suffix:corpus=small.v3
    cp small bent
    flip bent 100
    refuse "bent: the index is damaged: its digest" -d suffix:corpus=bent
    refuse "prompts.jsonl: already exists, and is not the index of a corpus" -d suffix:corpus=small.jsonl,save=prompts.jsonl
    refuse "add corpus=FILE" -d suffix:save=index
    cp -rL "$MOE_MODELS/pocket/draft" apart
    jq '.model.vocab |= with_entries(if .value == 300 then .value = 301 elif .value == 301 then .value = 300 else . end)' \
        "$MOE_MODELS/pocket/draft/tokenizer.json" > apart/tokenizer.json
    moe-convert -q apart -o apart.moe
    moe-decode -q -m apart.moe -n 1 -p x -d suffix:corpus=small.jsonl,save=foreign --stream foreign.moes > out
    refuse "foreign: the index has tokens of another tokenizer" -d suffix:corpus=foreign
    refuse "foreign.moes: its tokens come from another tokenizer" -d suffix:corpus=foreign.moes
    refuse "cannot be recorded" -d lookahead --record drafts --stream out.moes
    refuse "cannot be recorded" -d ngram -d self:search=1,window=5 --record drafts --stream out.moes
    refuse "choose another --tree" -d suffix --tree own --record drafts --stream out.moes
    decode -n 8 -d suffix --record drafts --stream chains.moes prompts.jsonl > out
    moe-view --verify chains.moes
}

@test "suffix and lookahead draft their own trees, and chains where they are asked for" {
    # Even among few prompts one repeats itself, so that there is much to look up.
    local count='one two three four five six seven eight nine ten'
    { cat prompts.jsonl; echo "{\"prompt\": \"$count $count one two\", \"max_tokens\": 60}"; } > repeats.jsonl
    for draft in suffix lookahead; do
        decode --json -d $draft --stream own.moes repeats.jsonl > own.jsonl
        moe-view --json own.moes | jq -s -e 'map(select(.type == "iter").nodes) | any(. > 4) and all(. < 64)'
        decode --json -d $draft --tree own:total=64 repeats.jsonl | cmp - own.jsonl
        decode --json -d $draft --tree chain repeats.jsonl > chain.jsonl
        jq -s -e 'all(.num_draft_tokens <= 4 * .num_drafts)' chain.jsonl
        decode -d $draft -K 2 --stream deep.moes repeats.jsonl > out
        moe-view --json deep.moes | jq -s -e 'map(select(.type == "iter")) | all(.K == 2) and any(.nodes > 2)'
    done
}

# 240 answers have enough tokens: rejection reaches the bound, common noise stays between its own bound and that, and a token of
# prompt lookup is accepted with the model's probability of it.
@test "acceptance is reported with its upper bound" {
    [ -z "$MOE_SANITIZED" ] || skip "its statistics want many answers"
    awk -v step=${MOE_LONG:-3} 'NR % step == 0' "$MOE_MODELS/pocket/heldout.jsonl" > some.jsonl
    for accept in coupled rejection; do
        moe-decode -m "$MOE_POCKET" --draft model:file=draft.moe -K 3 --temperature 1 --accept $accept --overlap -n 40 \
            some.jsonl --stream $accept.moes > out
    done
    moe-decode -m "$MOE_POCKET" --draft ngram -K 3 --temperature 1 --overlap -n 40 some.jsonl --stream ngram.moes > out
    moe-bench report --json coupled.moes rejection.moes ngram.moes > report.jsonl
    figure() { jq -r "select(.type == \"row\" and .task == null and .setting == \"$1\") | .$2" report.jsonl; }
    for setting in coupled rejection ngram; do
        n=$(figure $setting trials)
        [ "$n" -gt 1000 ]
        [ "$(figure $setting 'bound_per_pos | length')" = 3 ]
    done
    # Within four deviations of a share of that many tokens; for common noise not below its own bound by more than that.
    awk -v n="$(figure rejection trials)" -v kept="$(figure rejection trials_kept)" -v bound="$(figure rejection bound)" \
        'BEGIN { d = kept - bound; s = 4 * sqrt(bound * (1 - bound) / n); exit !(d < s && -d < s) }'
    awk -v n="$(figure ngram trials)" -v kept="$(figure ngram trials_kept)" -v bound="$(figure ngram bound)" \
        'BEGIN { d = kept - bound; s = 4 * sqrt(bound * (1 - bound) / n); exit !(d < s && -d < s) }'
    awk -v n="$(figure coupled trials)" -v kept="$(figure coupled trials_kept)" -v bound="$(figure coupled bound)" \
        -v least="$(figure coupled bound_common_noise)" \
        'BEGIN { s = 4 * sqrt(bound * (1 - bound) / n); exit !(kept < bound + s && kept > least - s && least < bound) }'
    moe-bench report rejection.moes | grep "at most"
    # Without --overlap it is not reported.
    moe-decode -m "$MOE_POCKET" --draft ngram --temperature 1 -n 4 -p "1 + 1" --stream plain.moes > out
    run moe-bench report plain.moes
    [[ $output != *"at most"* ]]
}

@test "the catch-up of a draft model after a rest is recorded" {
    draft=model:file=$(dirname "$MOE_POCKET")/draft.moe
    moe-decode -m "$MOE_POCKET" -p "Write a function" -n 24 --ignore-eos -d "$draft" --policy table:rows=0:2/6:0/14:2 \
        --stream "$BATS_TEST_TMPDIR/rest.moes" -o /dev/null
    moe-view --json --type iter "$BATS_TEST_TMPDIR/rest.moes" | jq -e -s '
        [.[] | select(.type == "iter")] as $all | [$all[] | select(.drafted > 0)] as $drafts |
        all($all[]; (.drafted > 0) == has("catch_up") and ((has("catch_up") | not) or (.catch_up_us > 0 and .catch_up_us <= .draft_us))) and
        ([$drafts[1:][] | select(.catch_up >= 8)] | length) == 1 and ([$drafts[1:][] | select(.catch_up <= 3)] | length) >= 2'
}
