#!/usr/bin/env bats
# Expert budgets from the command line: the forwards in which they apply, their rankings, and their measured effects.

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
# Prints a sum over all iterations: STREAM, jq's expression of one.
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

@test "a budget for verification applies to iterations with a draft" {
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

@test "without a budget the divergence from the model is 0" {
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

@test "the oracle by the printed equation is a ranking of its own" {
    drafts="-d model:file=draft.moe $tree"
    for rank in oracle oracle:as=routed oracle:as=printed; do
        decode $drafts -B 8 --rank $rank --reference self --stream $rank.moes -o $rank.txt
        iterations $rank.moes | jq -s -c 'map(.divergence)' > $rank.json
    done
    cmp oracle.json oracle:as=routed.json
    refute cmp -s oracle.json oracle:as=printed.json
    moe-view --json oracle:as=printed.moes | head -n 1 | jq -e '.labels["not lossless"] | test("oracle as printed")'
    iterations oracle:as=printed.moes | jq -s -e 'all(.[]; .experts_loaded <= 48)'
}

@test "divergence from another model is computed from the logits of both" {
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

# Prints the mean divergence that --reference measured, relative to the bound: STREAM, BOUND.
share() {
    moe-view --json "$1" | jq -s --argjson kl "$2" \
        'map(select(.type == "iter")) | (map(.divergence | add) | add) / (map(.emitted) | add) / $kl'
}

# Checks the ranking and the iterations of a stream under a budget: each forward kept to its budget, and the decoder's account
# of divergence, of texts whose tokens were all probed or have divergence 0, equals what --reference measured.
honest() {
    moe-view --json "$1" | jq -s -e --argjson static "$2" 'map(select(.type == "iter")) as $all |
        all($all[]; .policy.budget >= 4 and .policy.budget <= 32 and
                    (if $static or .nodes > 1 then .experts_loaded <= 6 * .policy.budget + 1e-9 else true end)) and
        any($all[]; .policy.budget < 32) and any($all[]; .probe) and
        all($all[] | select(.probe); .probe_us > 0 and .probe_us <= .other_us and .probe_bytes > 0 and .probe_bytes < .bytes) and
        ([range(1; $all | length) | . as $i | select($all[$i].sequence != $all[$i - 1].sequence) |
          ($all[:$i] | (map(.divergence | add) | add) / (map(.emitted) | add)) as $seen |
          ($all[$i].policy.kl - $seen | fabs) <= 1e-5 * $seen + 1e-12] | length > 10 and all)'
}

rank_statically() {
    [ -e frequency.moes ] || moe-profile -q -n 0 -m pocket.moe <(head -n 24 "$MOE_MODELS/pocket/calib.jsonl") |
        moe-coact rank-experts -q --by frequency -o frequency.moes
}

@test "an automatic budget holds its bound against the model without one, and uses it" {
    rank_statically
    awk 'NR % 12 == 5' "$MOE_MODELS/pocket/heldout.jsonl" > twenty.jsonl
    automatic() {
        moe-decode -q -m pocket.moe -n 64 -B "$1" --rank "$2" "${@:3}" --reference self --stream auto.moes -o auto.txt twenty.jsonl
    }
    automatic 28 frequency.moes -d ngram
    jq -n -e --argjson share "$(share auto.moes 0.1)" '$share > 1'
    automatic auto:kl=0.1 frequency.moes -d ngram
    moe-view --json auto.moes | head -n 1 | jq -e '.labels["not lossless"] | test("budget auto, KL 0.1, of 32, static by freq")'
    honest auto.moes true
    jq -n -e --argjson share "$(share auto.moes 0.1)" '0.4 < $share and $share < 1.1'
    automatic auto:kl=0.1,every=4 router -d model:file=draft.moe $tree
    honest auto.moes false
    jq -n -e --argjson share "$(share auto.moes 0.1)" '$share < 1.1'
}

@test "an automatic budget holds bounds that one token could break, before anything is emitted" {
    rank_statically
    awk 'NR % 12 == 5' "$MOE_MODELS/pocket/heldout.jsonl" > twenty.jsonl
    # In `make check` each way to draft has one of the bounds.
    local number=0 drafts kl
    for drafts in "-d ngram" "-d model:file=draft.moe $tree --temperature 1 --accept rejection" ""; do for kl in 0.005 0.02; do
        [ -n "$MOE_LONG" ] || [ $((number++ % 4 % 3)) = 0 ] || continue
        moe-decode -q -m pocket.moe -n 64 -B auto:kl=$kl --rank frequency.moes $drafts --reference self --stream tight.moes \
            -o tight.txt twenty.jsonl
        honest tight.moes true
        # No token spends more than allowed; a restored token has exactly the logits of the model without a budget.
        iterations tight.moes | jq -s -e --argjson kl $kl '
            [.[] | .divergence[]] as $each | ($each | add / length / $kl) as $share | 0.4 < $share and $share < 0.75 and
            (reduce $each[] as $d ({n: 0, sum: 0, good: true}; .n += 1 | .sum += $d | .good = (.good and .sum <= $kl * .n)) | .good)'
        iterations tight.moes | jq -s -e 'any(.[]; .restored) and
            all(.[] | select(.restored); . as $i | ([$i.divergence[] | select(. == 0)] | length) >= $i.restored)'
        moe-view --verify tight.moes
    done; done
    moe-decode -q -m pocket.moe -n 64 -B auto:kl=0.005,check=0 --rank frequency.moes -d ngram --stream loose.moes -o loose.txt \
        twenty.jsonl
    iterations loose.moes | jq -s -e 'all(.[]; .restored == null) and any(.[]; .probe)'
}

@test "an automatic budget changes nothing in forwards of one token, and little under a bound of 0" {
    decode > none.txt
    for rank in router path oracle; do
        decode -B auto:kl=1 --rank $rank --stream alone.moes -o alone.txt
        cmp alone.txt none.txt
        iterations alone.moes | jq -s -e 'all(.[]; .probe == null)'
        # A single token does not reduce what later forwards may spend.
        iterations alone.moes | jq -s -e 'all(.[]; .policy.budget >= 31)'
    done
    decode -d model:file=draft.moe $tree --rank path -B auto:kl=1e-9,every=2 --stream strict.moes -o strict.txt
    cmp strict.txt none.txt
    iterations strict.moes | jq -s -e 'all(.[]; (.policy.kl // 0) <= 1e-9) and any(.[]; .policy.budget < 32)'
    decode -B auto:kl=1 -d ngram --budget-phase verify --stream verify.moes -o verify.txt
    iterations verify.moes | jq -s -e 'all(.[] | select(.nodes == 1); .policy.budget == 32)'
}

@test "an automatic budget holds every bound, by every ranking and drafter" {
    [ -n "$MOE_LONG" ] && [ -z "$MOE_SANITIZED" ] || skip "takes minutes"
    rank_statically
    awk 'NR % 12 == 5' "$MOE_MODELS/pocket/heldout.jsonl" > twenty.jsonl
    wide='--tree dynamic:total=32,depth=6,topk=5'
    for rank in router path oracle frequency.moes; do for drafts in "-d ngram" "-d model:file=draft.moe $wide" ""; do
        decode_twenty() {
            moe-decode -q -m pocket.moe -n 512 --ignore-eos --temperature 1 $drafts --rank $rank -B "$1" --reference self \
                --stream long.moes -o long.txt twenty.jsonl
        }
        decode_twenty 28
        cp long.moes fixed.moes
        for kl in 0.005 0.02 0.1; do
            decode_twenty auto:kl=$kl
            jq -n -e --argjson fixed "$(share fixed.moes $kl)" --argjson share "$(share long.moes $kl)" \
                '$share < 1.1 and ($fixed <= 1 or $share > 0.4)' || { echo "$rank $drafts $kl: $(share long.moes $kl)"; false; }
        done
    done; done
}

@test "an automatic budget holds every bound over short texts" {
    [ -n "$MOE_LONG" ] && [ -z "$MOE_SANITIZED" ] || skip "takes minutes"
    rank_statically
    moe-profile -q -n 0 -m pocket.moe <(head -n 24 "$MOE_MODELS/pocket/calib.jsonl") |
        moe-coact rank-experts -q --by mass -o mass.moes
    for rank in frequency.moes mass.moes router path oracle oracle:as=printed; do for kl in 0.005 0.02 0.1; do for set in 0 2 4 6 8 10; do
        awk "NR % 12 == $set" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 20 > some.jsonl
        decode_some() {
            moe-decode -q -m pocket.moe -n 64 -B "$1" --rank $rank -d model:file=draft.moe $tree --reference self \
                --stream short.moes -o short.txt some.jsonl
        }
        decode_some 28
        cp short.moes fixed.moes
        decode_some auto:kl=$kl
        jq -n -e --argjson fixed "$(share fixed.moes $kl)" --argjson share "$(share short.moes $kl)" \
            '$share < 1.1 and ($fixed <= 1 or $share > 0.4)' || { echo "$rank $kl $set: $(share short.moes $kl)"; false; }
    done; done; done
}

@test "invalid combinations are refused in one line" {
    refuse() {
        local part=$1
        shift
        run moe-decode -q -m pocket.moe -n 2 -p x "$@"
        assert_trouble moe-decode
        [[ $output == *"$part"* ]] || { echo "does not say '$part': $output"; return 1; }
    }
    refuse "--budget-phase: says which" --budget-phase draft
    refuse "unknown phase 'prompt'" -B 4 --budget-phase prompt
    refuse "--rank path ranks experts by the finished draft, so it cannot limit drafting" -B 4 --rank path --budget-phase decode,draft -d model:file=pocket.moe
    refuse "--budget-phase: no drafter is given whose experts could be limited" -B 4 --budget-phase draft
    refuse "ngram: this drafter has no experts, so a budget cannot limit its drafting" -B 4 --budget-phase draft -d ngram
    refuse "draft.moe: the budget is for 6 layers with 32 experts" -B 4 --budget-phase draft -d model:file=draft.moe
    refuse "auto: kl" -B auto:kl=0
    refuse "--rank: oracle: as" -B 4 --rank oracle:as=written
    refuse "--rank: oracle" -B 4 --rank oracle:like=printed
    refuse "every" -B auto:evry=4
    refuse "'automatic' is not a budget" -B automatic
    refuse "an automatic budget applies to phases decode and verify only, because the divergence of drafts is not measured" -B auto --budget-phase draft -d model:file=pocket.moe
    refuse "--reference: missing.moe" --reference missing.moe --stream x.moes
    refuse "there is no budget" --reconstruction
    refuse "measures the error of a budget" --reconstruction --stream x.moes -B 4 --budget-phase draft -d model:file=pocket.moe
}
