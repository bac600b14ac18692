#!/usr/bin/env bats
# Runs whose routes, text and drafts come from a recording: another model of the same shape behaves exactly as recorded.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    awk 'NR % 60 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    moe-decode -q -m pocket.moe -d model:file=draft.moe -K 4 -n 30 --record drafts --stream rec.moes -o rec.txt prompts.jsonl
    # The recorded prompts as ids, for a model that has no tokenizer.
    moe-view --json rec.moes | jq -c 'select(.type == "begin") | {id, tokens: .prompt}' > ids.jsonl
    moe-convert synthetic -q --like "$MOE_MODELS/pocket/model/config.json" --dtype f32 --seed 4 -o random.moe
}

setup() { cd "$WORK"; }

# Prints the counts of iterations: verified, accepted and emitted tokens, and experts.
did() { moe-view --json "$1" | jq -c 'select(.type == "iter") | [.sequence, .nodes, .accepted, .emitted, .experts_loaded]'; }
tokens() { moe-view --json "$1" | jq -c 'select(.type == "done") | .tokens'; }
without_last() { jq -s -c 'group_by(.[0]) | map(.[:-1]) | .[]'; }

@test "forced routes make a random model behave like the recorded one" {
    moe-decode -q -m random.moe --force-routes rec.moes --force-accept rec.moes -K 4 -n 30 --stream forced.moes -o /dev/null ids.jsonl
    tokens forced.moes | cmp - <(tokens rec.moes)
    did forced.moes | without_last > forced
    did rec.moes | without_last | cmp - forced
    moe-view --json forced.moes | head -n 1 | jq -e '.labels.forced == "routes of rec.moes, text and acceptance of rec.moes"'
}

@test "other lengths and other drafters are judged against the recorded text" {
    for drafts in "-K 0" "-K 1" "-d ngram -K 6" "-d ngram --tree dynamic:total=9,depth=3,topk=2" "-K auto"; do
        moe-decode -q -m random.moe --force-routes rec.moes --force-accept rec.moes $drafts -n 30 --stream forced.moes \
            -o /dev/null ids.jsonl
        tokens forced.moes | cmp - <(tokens rec.moes)
    done
    # Prompt lookup on the recorded text is accepted as with the recorded model.
    moe-decode -q -m pocket.moe -d ngram -K 6 -n 30 --stream ngram.moes -o /dev/null prompts.jsonl
    moe-decode -q -m random.moe --force-routes rec.moes --force-accept rec.moes -d ngram -K 6 -n 30 --stream forced.moes \
        -o /dev/null ids.jsonl
    did forced.moes | jq -c '.[0:4]' | without_last > forced
    did ngram.moes | jq -c '.[0:4]' | without_last | cmp - forced
}

@test "routes alone, and acceptance alone" {
    moe-decode -q -m random.moe -n 30 --stream free.moes -o /dev/null ids.jsonl
    moe-decode -q -m random.moe --force-routes rec.moes -n 30 --ignore-eos --stream routes.moes -o /dev/null ids.jsonl
    moe-view --json routes.moes | head -n 1 | jq -e '.labels.forced == "routes of rec.moes"'
    moe-decode -q -m random.moe --force-accept rec.moes -K 4 -n 30 --stream accept.moes -o /dev/null ids.jsonl
    tokens accept.moes | cmp - <(tokens rec.moes)
    refute cmp -s <(did accept.moes) <(did rec.moes)         # its own routes
}

@test "forced answers are not graded, and are labelled in reports" {
    jq -c '. + {answer: "1", task: "math"}' ids.jsonl > graded.jsonl
    echo '{"model": "random.moe", "prompts": "graded.jsonl", "options": {"max-tokens": 12}, "measure-seconds": 0, "settings":
          [{"name": "free"}, {"name": "forced", "force-routes": "rec.moes", "force-accept": "rec.moes", "draft-length": 4}]}' > s.json
    moe-bench run -q s.json -o s.moes
    [ "$(moe-bench report --json s.moes | jq -r 'select(.type == "row" and .setting == "forced") | .graded')" = 0 ]
    [[ "$(moe-bench report s.moes)" == *"forced: "*"routes of "* ]]
}

# Prints what iterations drafted, with which drafters, how much was accepted, and each drafter's share.
drafted() {
    moe-view --json "$1" | jq -c 'select(.type == "iter") | [.sequence, .nodes, .accepted, .emitted, .node_tokens, .node_parents,
        .node_drafters, .node_reviewers, .drafter_proposed, .drafter_verified, .drafter_accepted, .drafter_levels]'
}

# By the target, and by drafters.
bytes_read() { moe-view --json "$1" | jq -c 'select(.type == "iter") | [.bytes, .draft_bytes, .drafter_bytes]'; }

# Acceptance by drafter, over all iterations.
by_drafter() {
    moe-view --json "$1" | jq -c -s 'map(select(.type == "iter")) | [map(.drafter_verified), map(.drafter_accepted)] | map(transpose | map(add))'
}

# On the recorded model drafts equal live ones; on a model with random weights, whose own tokens are never right, drafts and
# acceptance are the recorded ones. Live and forced runs have the same settings, except that random weights are never certain;
# texts end by their number of tokens, because forced drafts end with the text. The computation of a draft equals the live one.
@test "drafters with a model write what was recorded, on any model" {
    jq 'del(.layer_types)' "$MOE_MODELS/pocket/draft/config.json" > dense.json
    moe-convert synthetic -q --like dense.json -l 5 --dtype f32 --seed 5 -o dense.moe
    moe-convert synthetic -q --like dense.json --dtype f32 --seed 6 -o dense-draft.moe
    moe-convert synthetic -q --head medusa --target dense.moe -o dense-head.moe
    moe-convert head -q "$MOE_MODELS/pocket/heads/eagle1" --target pocket.moe -o head.moe
    jq -n -c '[range(1; 4) as $depth | range(pow(3; $depth)) | . as $path | [range($depth) | ($path / pow(3; .) | floor) % 3]]' > three.json
    head -n 2 prompts.jsonl > two.jsonl
    head -n 2 ids.jsonl > two-ids.jsonl
    local live forced same
    while IFS='|' read -r live forced same; do
        moe-decode -q -m pocket.moe $live -n 20 --ignore-eos --record drafts --stream live.moes -o /dev/null two.jsonl
        moe-decode -q -m pocket.moe ${same:-$live} -n 20 --ignore-eos --force-accept live.moes --stream same.moes -o /dev/null two.jsonl
        diff <(drafted live.moes) <(drafted same.moes)
        diff <(bytes_read live.moes) <(bytes_read same.moes)
        moe-decode -q -m dense.moe ${forced:-$live} -n 20 --force-accept live.moes --stream forced.moes -o /dev/null two-ids.jsonl
        diff <(tokens live.moes) <(tokens forced.moes)
        diff <(drafted live.moes) <(drafted forced.moes)
        diff <(by_drafter live.moes) <(by_drafter forced.moes)
        moe-view --json forced.moes | jq -e -s '[.[] | select(.type == "iter").accepted] | add > 5'
        moe-view --json forced.moes | head -n 1 | jq -e '.labels.forced == "text, acceptance and drafts of live.moes"'
    done <<'RUNS'
-d model:file=draft.moe -K 4|-d model:file=dense-draft.moe -K 4
-d self:exit=4,stop=0.6 -K 6|-d self:skip=0.4 -K 6|-d self:exit=4 -K 6
-d head:file=head.moe -K 4 --temperature 0.7|-d head:file=dense-head.moe -K 4 --temperature 0.7
-d ngram -d model:file=draft.moe -K 4|-d ngram -d model:file=dense-draft.moe -K 4
-d self:exit=5 -d model:file=draft.moe --policy static --tree dynamic:total=12,depth=3,topk=3|-d self:skip=0.4 -d model:file=dense-draft.moe --policy static --tree dynamic:total=12,depth=3,topk=3
RUNS
}

@test "invalid combinations are refused in one line" {
    refuse() {
        local part=$1
        shift
        run moe-decode -q -n 4 --stream none.moes -o none.txt "$@"
        assert_trouble moe-decode
        [[ $output == *"$part"* ]] || { echo "does not say '$part': $output"; return 1; }
    }
    moe-convert synthetic -q --like "$MOE_MODELS/pocket/model/config.json" -l 2 -o small.moe
    moe-decode -q -m pocket.moe -n 4 --stream plain.moes -o plain.txt -p x
    refuse "routes of 6 layers with 4 of 32 experts" -m small.moe --force-routes rec.moes ids.jsonl
    refuse "record it with --record drafts" -m random.moe --force-accept plain.moes ids.jsonl
    refuse "contains no answer of at least two tokens to this prompt" -m pocket.moe --force-accept rec.moes -p other
    refuse "--accept: has no effect on forced text" -m pocket.moe --force-accept rec.moes --accept rejection ids.jsonl
    refuse "--budget" -m pocket.moe --force-routes rec.moes -B 4 ids.jsonl
    refuse "missing.moes" -m pocket.moe --force-routes missing.moes ids.jsonl
    # Drafts that drafters with a model would need, and that are not recorded.
    refuse "contains chains, but model is to draft trees" -m pocket.moe --force-accept rec.moes -d model:file=draft.moe \
        --tree dynamic:total=12,depth=3,topk=3 prompts.jsonl
    refuse "but only 1 were recorded" -m pocket.moe --force-accept rec.moes -d model:file=draft.moe --policy tr prompts.jsonl
    refuse "contains drafts of 1 drafter, but model is drafter number 2" -m pocket.moe --force-accept rec.moes -d ngram \
        -d model:file=draft.moe prompts.jsonl
    refuse "leave search out" -m pocket.moe --force-accept rec.moes -d self:search=1 prompts.jsonl
    refuse "leave --overlap out" -m pocket.moe --force-accept rec.moes -d model:file=draft.moe --overlap prompts.jsonl
    moe-decode -q -m pocket.moe -d ngram -d model:file=draft.moe -n 4 --record drafts --stream both.moes -o both.txt prompts.jsonl
    refuse "contains drafts of several drafters, but those of one are needed" -m pocket.moe --force-accept both.moes prompts.jsonl
}
