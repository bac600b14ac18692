#!/usr/bin/env bats
# Expert budgets as they are typed: in which forwards they hold, by which ranking, and what they change, measured.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    awk 'NR % 40 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe -n 24 "$@" prompts.jsonl; }
iterations() { moe-view --json "$1" | jq -c 'select(.type == "iter")'; }
# A sum over all iterations: STREAM, jq's expression of one.
total() { iterations "$1" | jq -s "map($2) | add"; }

tree='--tree dynamic:total=12,depth=4,topk=3'

@test "a budget for drafting alone leaves the text as it is, and drafts read less" {
    moe-profile -q -n 0 -m pocket.moe <(head -n 24 "$MOE_MODELS/pocket/calib.jsonl") | moe-coact rank-experts -q -o rank.moes
    decode > none.txt
    decode -d model:file=pocket.moe $tree --stream whole.moes -o whole.txt
    for budget in "-B 20 --rank rank.moes" "-B 6" "-B 6 --rank oracle --budget-mode truncate"; do
        decode -d model:file=pocket.moe $tree $budget --budget-phase draft --stream less.moes -o less.txt
        cmp less.txt none.txt
        moe-view --json less.moes | head -n 1 | jq -e '.labels["not lossless"] == null'
        [ "$(total less.moes .accepted)" -le "$(total whole.moes .accepted)" ]
        jq -n -e --argjson less "$(total less.moes .draft_bytes)" --argjson of "$(total less.moes .drafted)" \
            --argjson whole "$(total whole.moes .draft_bytes)" --argjson of_whole "$(total whole.moes .drafted)" \
            '$less / $of < $whole / $of_whole'
        lost="$lost $(($(total whole.moes .accepted) - $(total less.moes .accepted)))"
    done
    read -r static _ <<< "$lost"
    [ "$static" -gt 0 ] || { echo "lost:$lost"; false; }
}

@test "a budget for verification holds where there is a draft" {
    decode > none.txt
    decode -B 3 --budget-phase verify | cmp - none.txt
    decode -B 3 -d ngram --budget-phase verify --stream verify.moes -o verify.txt
    refute cmp -s verify.txt none.txt
    moe-view --json verify.moes | head -n 1 | jq -e '.labels["not lossless"] | test("with drafts only")'
    iterations verify.moes | jq -s -e 'all(.[]; .nodes == 1 or .experts_loaded <= 18) and
                                       any(.[]; .nodes == 1 and .experts_loaded > 18)'
    decode -B 3 -d ngram --stream decode.moes -o decode.txt
    iterations decode.moes | jq -s -e 'all(.[]; .experts_loaded <= 18)'
}

@test "without a budget nothing diverges from the model itself" {
    for drafts in "" "-d ngram -K 6" "-d model:file=draft.moe $tree" "-d model:file=draft.moe $tree --temperature 1"; do
        decode $drafts --reference self --stream same.moes -o same.txt
        iterations same.moes | jq -s -e 'all(.[]; .flips == 0 and (.divergence | length) == .emitted and
                                                  (.divergence | max) == 0)'
        decode $drafts | cmp - same.txt
    done
}

@test "rankings by path and oracle keep more of the model than the router's" {
    for rank in router path oracle; do
        decode -d model:file=draft.moe $tree -B 8 --rank $rank --reference self --reconstruction --stream $rank.moes -o $rank.txt
        iterations $rank.moes | jq -s -e 'all(.[]; .experts_loaded <= 48 and (.reconstruction | length) == 6 and
                                                   (.reconstruction | min) >= 0)'
        iterations $rank.moes | jq -s '{divergence: ((map(.divergence | add) | add) / (map(.emitted) | add)),
                                        error: (map(.reconstruction | add) | add / length / 6)}' > $rank.json
    done
    jq -n -e 'input as $router | input as $path | input as $oracle |
              $router.divergence > 2 * $path.divergence and $router.error > 2 * $oracle.error' router.json path.json oracle.json
    moe-bench report router.moes path.moes | grep -A 8 "What a budget changes" | grep -c "^all\|router\|path"
}

@test "divergence from another model is that of the logits that both give" {
    head -n 1 prompts.jsonl > one.jsonl
    moe-decode -q -m pocket.moe -n 24 -d ngram --reference draft.moe --stream apart.moes -o apart.txt one.jsonl
    iterations apart.moes | jq -s '[.[].divergence[]]' > got.json
    moe-decode -q -m pocket.moe -n 24 --json one.jsonl | jq -c .tokens > answer.json
    moe-view --json apart.moes | jq -c 'select(.type == "begin") | .prompt' > prompt.json
    jq -n -c 'input as $a | input as $p | {id: "x", tokens: ($p + $a)}' answer.json prompt.json > both.jsonl
    for model in pocket draft; do
        moe-profile -q -n 0 -m $model.moe --record logits both.jsonl | moe-view --json |
            jq -c 'select(.type == "route") | .logits[]' > $model.logits
    done
    jq -n --slurpfile q pocket.logits --slurpfile p draft.logits --slurpfile prompt prompt.json --slurpfile answer answer.json '
        def normal: max as $m | (map(. - $m | exp) | add | log) as $z | map(. - $m - $z);
        [range($answer[0] | length - 1) + ($prompt[0] | length) | ($p[.] | normal) as $a | ($q[.] | normal) as $b |
         [range($a | length) | ($a[.] | exp) * ($a[.] - $b[.])] | add]' > want.json
    jq -n -e 'input as $got | input as $want | ($got | length) == 23 and ($want | length) == 23 and ($want | max) > 0.1 and
              ([range(23) | $got[.] - $want[.] | fabs] | max) < 1e-5' got.json want.json
    flips=$(jq -n --slurpfile q pocket.logits --slurpfile p draft.logits --slurpfile prompt prompt.json --slurpfile answer answer.json '
        def best: index(max); [range($answer[0] | length - 1) + ($prompt[0] | length) | select(($p[.] | best) != ($q[.] | best))] | length')
    [ "$(total apart.moes .flips)" = "$flips" ]
}

@test "an automatic budget stays within its divergence, and one that no budget can keep leaves the text as it is" {
    decode > none.txt
    decode -d model:file=draft.moe $tree --rank path -B auto:kl=1e-9,every=2 --stream strict.moes | cmp - none.txt
    iterations strict.moes | jq -s -e 'all(.[]; .policy.budget == 32)'
    awk 'NR % 8 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > more.jsonl
    moe-decode -q -m pocket.moe -n 40 -d model:file=draft.moe $tree --rank path -B auto:kl=0.02,every=2 --reference self \
        --stream auto.moes -o auto.txt more.jsonl
    moe-view --json auto.moes | head -n 1 | jq -e '.labels["not lossless"] | test("budget auto, KL 0.02, of 32, path")'
    iterations auto.moes | jq -s -e '(map(.divergence | add) | add) / (map(.emitted) | add) < 0.02 and
                                     (.[0].policy.budget == 32) and (.[-1].policy.budget <= 16)'
}

@test "what makes no sense is refused in one line" {
    refuse() {
        local part=$1
        shift
        run moe-decode -q -m pocket.moe -n 2 -p x "$@"
        assert_trouble moe-decode
        [[ $output == *"$part"* ]] || { echo "does not say '$part': $output"; return 1; }
    }
    refuse "--budget-phase: says which" --budget-phase draft
    refuse "'prompt' is none" -B 4 --budget-phase prompt
    refuse "knows only the forward that verifies" -B 4 --rank path --budget-phase decode,draft -d model:file=pocket.moe
    refuse "nothing to draft with" -B 4 --budget-phase draft
    refuse "ngram: a budget for drafting" -B 4 --budget-phase draft -d ngram
    refuse "draft.moe: the budget is for 6 layers of 32 experts" -B 4 --budget-phase draft -d model:file=draft.moe
    refuse "auto: kl" -B auto:kl=0
    refuse "every" -B auto:evry=4
    refuse "'automatic' is not a budget" -B automatic
    refuse "an automatic budget is for decode or verify" -B auto --budget-phase draft -d model:file=pocket.moe
    refuse "--reference: missing.moe" --reference missing.moe
    refuse "there is no budget" --reconstruction
    refuse "there is no budget" --reconstruction -B 4 --budget-phase draft -d model:file=pocket.moe
}
