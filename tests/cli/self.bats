#!/usr/bin/env bats
# Tests the model as its own drafter: skipped parts change bytes and acceptance, but never the text. Also tests invalid
# settings.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    moe-convert -q --dtype q4 "$MOE_MODELS/pocket/model" -o q4.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    awk 'NR % 40 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe -n 24 "$@" prompts.jsonl; }
# Prints a sum over all iterations: STREAM, key.
total() { moe-view --json "$1" | jq -s "map(select(.type == \"iter\") | $2) | add"; }

@test "self-drafts do not change the text, and read only the included parts" {
    local draft
    decode --stream none.moes -o none.txt
    for draft in self:skip=0.6 self:topk=1 self:experts=q4.moe self:exit=3 "self:exit=5,topk=2"; do
        decode -d "$draft" --stream self.moes -o self.txt
        cmp self.txt none.txt
        [ "$(total self.moes .accepted)" -gt 0 ]
        jq -n -e --argjson read "$(total self.moes .draft_bytes)" --argjson drafted "$(total self.moes .drafted)" \
            --argjson whole "$(total none.moes .bytes)" --argjson tokens "$(total none.moes 1)" \
            '$read / $drafted < $whole / $tokens'
    done
    # Quantised experts of the same weights nearly always predict the model's token.
    decode -d self:experts=q4.moe -K 1 --stream near.moes -o near.txt
    decode -d self:exit=3 -K 1 --stream far.moes -o far.txt
    [ "$(total near.moes .accepted)" -gt "$(total far.moes .accepted)" ]
}

@test "drafts equal those of an independent computation of the same layers" {
    local golden="$MOE_MODELS/../golden/self/drafts.jsonl" draft
    awk 'NR % 40 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > some.jsonl
    jq -r .draft "$golden" | sort -u > settings
    while read -r draft; do
        moe-decode -q -m pocket.moe -n 10 -K 5 -d "$draft" --stream drafts.moes -o drafts.txt some.jsonl
        moe-view --json drafts.moes | jq -s -e --arg draft "$draft" --slurpfile golden "$golden" '
            ($golden | map(select(.draft == $draft) | {(.id): .drafts}) | add) as $want
            | (map(select(.type == "begin") | {(.sequence | tostring): .id}) | add) as $id
            | map(select(.type == "iter")) | group_by(.sequence)
            | map(reduce .[] as $it ({at: 0, same: 0, other: 0};
                $want[$id[$it.sequence | tostring]][.at] as $drafted
                | ([($drafted | length), ($it.node_tokens | length - 1)] | min) as $n
                | (if $it.node_tokens[1:1 + $n] == $drafted[:$n] then .same += $n else .other += 1 end)
                | .at += $it.emitted))
            | (length == 6) and (map(.other) | add) == 0 and (map(.same) | add) > 40' > /dev/null ||
            { echo "$draft"; return 1; }
    done < settings
    [ "$(wc -l < settings)" -eq 5 ]
}

@test "layers before an exit are read once, for draft and verification" {
    decode -d self:exit=4 -K 3 --stream exit.moes -o exit.txt
    decode -d self:exit=4,topk=3 -K 3 --stream again.moes -o again.txt        # skips more, so no row is resumed
    cmp exit.txt again.txt
    jq -n -e --argjson once "$(total exit.moes .bytes)" --argjson iterations "$(total exit.moes 1)" \
        --argjson twice "$(total again.moes .bytes)" --argjson more "$(total again.moes 1)" '$once / $iterations < $twice / $more'
}

@test "invalid settings are refused in one line" {
    refuse() {
        local part=$1
        shift
        run moe-decode -q -m pocket.moe -n 2 -p x -d "$@"
        assert_trouble moe-decode
        [[ $output == *"$part"* ]] || { echo "does not say '$part': $output"; return 1; }
    }
    echo '{"skip": 1, "model": {"name": "x", "layers": 9}}' > deep.json
    refuse "exit=6: the model has 6 layers" self:exit=6
    refuse "exit" self:exit=0
    refuse "topk=4: the model uses 4 experts" self:topk=4
    refuse "is not a copy of pocket.moe" self:experts=draft.moe
    refuse "missing.moe" self:experts=missing.moe
    refuse "deep.json" self:skip=deep.json
    refuse "skip=0" self:skip=0
    refuse "skip=1.5" self:skip=1.5
    refuse "layers" self:layers=3
    run moe-decode -q -m draft.moe -n 2 -p x -d self:topk=1
    assert_trouble moe-decode
    [[ $output == *"no routed experts"* ]]
    cp q4.moe mine.moe
    run moe-decode -q -m pocket.moe -n 2 -p x -d self:experts=mine.moe -o mine.moe
    assert_trouble moe-decode
    cmp q4.moe mine.moe
}
