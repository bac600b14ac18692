#!/usr/bin/env bats
# Draft heads from the command line: they do not change the text, the stream records the states that they read and the tokens that they
# draft, and heads of other models are refused in one line.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    for kind in eagle1 eagle3 kangaroo; do
        moe-convert head -q "$MOE_MODELS/pocket/heads/$kind" --target pocket.moe -o $kind.moe
    done
    awk 'NR % 60 == 1' "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    # Makes a tiny model with prediction layers, and a random head of each kind for it.
    moe-convert -q "$MOE_MODELS/../golden/mtp/glm4_moe/model" -o tiny.moe
    export DRAFTS=mtp TINY="$BATS_TEST_DIRNAME/../bench/identity-heads.jsonl"
    for kind in eagle1 eagle3 medusa hydra kangaroo jakiro jakiro_star; do
        moe-convert synthetic -q --head $kind --like "$BATS_TEST_DIRNAME/../bench/tiny-head.json" --target tiny.moe --seed 3 \
            -o tiny-$kind.moe
        DRAFTS+=" head:file=tiny-$kind.moe"
    done
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe -n 40 "$@" prompts.jsonl; }
# Prints the answers of the tiny model, [id, tokens] each; $1: a name for the stream.
tiny() { moe-decode -q -m tiny.moe --ignore-eos --json --stream "$1.moes" "${@:2}" "$TINY" | jq -c '[.id, .tokens]'; }
total() { moe-view --json "$1" | jq -s "map(select(.type == \"iter\") | $2) | add"; }

# Decoding with these options fails with one line that contains $1.
refuses() {
    local words=$1
    shift
    run moe-decode -q -m pocket.moe "$@" prompts.jsonl
    assert_trouble moe-decode
    [[ $output == *"$words"* ]] || { echo "'$output' does not say: $words"; return 1; }
}

@test "heads do not change the text, and save more than half of the iterations" {
    local kind tree
    decode --stream none.moes -o none.txt
    for kind in eagle1 eagle3 kangaroo; do
        decode -d head:file=$kind.moe -K 5 --stream chain.moes -o chain.txt
        cmp chain.txt none.txt
        decode -d head:file=$kind.moe --tree dynamic:total=25,depth=6,topk=4 --stream tree.moes -o tree.txt
        cmp tree.txt none.txt
        jq -n -e --argjson none "$(total none.moes 1)" --argjson chain "$(total chain.moes 1)" \
            --argjson tree "$(total tree.moes 1)" '$none > 2 * $chain and $chain > $tree'
        [ "$(total chain.moes .draft_bytes)" -gt 0 ]
    done
}

@test "a head reads each token of a prompt once" {
    decode -d head:file=eagle1.moe -K 3 --stream read.moes -o read.txt
    # Every token of each text except its prompt is read once: the tokens after which a draft was requested, and none before.
    moe-view --json read.moes | jq -s -e 'map(select(.type == "iter")) | group_by(.sequence)
        | all(.[]; (map(.catch_up) | add) <= (map(.emitted) | add) and .[0].catch_up == 1)'
}

@test "-v describes the opened heads" {
    moe-decode -v -m pocket.moe -n 2 -d head:file=eagle3.moe prompts.jsonl > /dev/null 2> said
    grep -q '^moe-decode: head:file=eagle3.moe: eagle3, 1.4 MB, reads states after layers 0, 2, 4$' said
    moe-decode -v -m pocket.moe -n 2 -d head:file=kangaroo.moe prompts.jsonl > /dev/null 2> said
    grep -q '^moe-decode: head:file=kangaroo.moe: kangaroo, 0.3 MB, reads states after layer 1$' said
    moe-decode -v -m pocket.moe -n 2 -d head:file=eagle1.moe prompts.jsonl > /dev/null 2> said
    grep -q '^moe-decode: head:file=eagle1.moe: eagle1, 0.9 MB, reads states after the final norm$' said
}

@test "recorded drafts are those of decoding" {
    local kind
    for kind in eagle3 kangaroo; do
        moe-decode -q -m pocket.moe -n 16 -d head:file=$kind.moe -K 3 --record drafts --stream recorded.moes prompts.jsonl > text
        moe-bench replay --policy static:K=3 recorded.moes > replayed
        awk '$1 == "static:K=3" { split($0, words, "  +"); same = words[length(words)] }
             END { split(same, part, " of "); exit !(part[1] > 10 && part[1] + 0 == part[2] + 0) }' replayed ||
            { cat replayed; return 1; }
    done
}

@test "heads of every kind do not change the text on other devices" {
    local device draft
    head -n 1 "$TINY" > short.jsonl
    TINY=short.jsonl
    for device in ref emu; do
        [ $device = ref ] || [ -e "${MOE_BIN%/bin}/lib/moekit/moe-emu.so" ] || continue
        plain() { tiny plain -j 1 -n 5 --device $device --temperature 0.9 --seed 2 "$@"; }
        plain > none
        for draft in $DRAFTS; do
            plain -d $draft --tree dynamic:total=16,depth=2,topk=8 | cmp - none
            [ "$(total plain.moes .drafted)" -gt 0 ]
            [ $device = ref ] || continue
            plain -d $draft -K 2 | cmp - none
        done
    done
}

@test "heads of every kind draft under a budget, and are recorded, calibrated and replayed" {
    local draft mode
    moe-profile -q -m tiny.moe -n 8 "$TINY" -o route.moes
    moe-coact rank-experts -q route.moes -o rank.moes
    for mode in truncate substitute; do
        tiny none -n 16 -B 3 --rank rank.moes --budget-mode $mode --temperature 0.8 > budget.$mode
    done
    tiny none -n 16 --temperature 0.8 > none.8
    cmp -s none.8 budget.truncate && return 1
    tiny none -n 16 > none
    for draft in $DRAFTS; do
        for mode in truncate substitute; do
            tiny budget -n 16 -B 3 --rank rank.moes --budget-mode $mode --temperature 0.8 -d $draft \
                --tree dynamic:total=32,depth=3,topk=8 > text
            cmp text budget.$mode
            [ "$(total budget.moes .accepted)" -gt 0 ]
        done
        # The recording has the tokens of decoding, of which a replay uses those of a draft of three.
        [[ $draft != *tiny-jakiro.moe* ]] || draft+=,parallel=0         # otherwise no length begins like a longer one
        tiny record -n 16 -d $draft -K 3 --record drafts --overlap > text
        cmp text none
        moe-bench replay --policy static:K=3 record.moes > replayed
        awk '$1 == "static:K=3" { split($0, words, "  +"); same = words[length(words)] }
             END { split(same, part, " of "); exit !(part[1] > 10 && part[1] + 0 == part[2] + 0) }' replayed ||
            { cat replayed; return 1; }
        tiny route -n 16 -d $draft -K auto --record route > text
        cmp text none
    done
}

@test "Kangaroo keeps its rows of accepted tokens, and reads them again if a budget changed them" {
    local budget
    moe-profile -q -m tiny.moe -n 8 "$TINY" -o route.moes
    moe-coact rank-experts -q route.moes -o rank.moes
    for budget in '' '-B 8' '-B 2'; do
        # Verification resumes after the early layers unless a budget applies; with a budget of all experts it does not.
        tiny keep -n 24 --temperature 0.8 -d head:file=tiny-kangaroo.moe -K 4 ${budget:+$budget --rank rank.moes} > text
        read -r caught emitted accepted <<< "$(total keep.moes ".catch_up // 0") $(total keep.moes .emitted) $(total keep.moes .accepted)"
        echo "budget '$budget': read $caught of $emitted, accepted $accepted"
        [ "$accepted" -gt 4 ]
        case $budget in
        '-B 2') [ "$caught" -ge $((emitted - 9)) ] ;;
        *) [ "$caught" -lt $((emitted / 2)) ] ;;
        esac
    done
}

@test "heads of other models and invalid numbers are refused in one line" {
    cp "$MOE_POCKET" model.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    refuses 'write head:file=FILE' -d head
    refuses 'nothing.moe' -d head:file=nothing.moe
    refuses 'is a model' -d head:file=model.moe
    refuses 'stop' -d head:file=eagle1.moe,stop=2
    refuses 'so a budget cannot limit its drafting' -d head:file=eagle1.moe -B 4 --budget-phase draft
    run moe-decode -q -m draft.moe -d head:file=eagle1.moe prompts.jsonl
    assert_trouble moe-decode
    [[ $output == *'eagle1.moe: is a head for '*'use a head made for this model'* ]]
    # The same weights in another format are the same model.
    moe-convert -q --dtype q8 "$MOE_MODELS/pocket/model" -o q8.moe
    moe-decode -q -m q8.moe -n 4 -d head:file=eagle1.moe prompts.jsonl > /dev/null
    # Only moe-view --verify checks the digests of the data.
    cp eagle1.moe nan.moe
    head -c 4096 /dev/zero | tr '\0' '\377' | dd of=nan.moe bs=4096 seek=1 conv=notrunc status=none
    run bash -c 'moe-decode -q -m pocket.moe -d head:file=nan.moe prompts.jsonl 2>&1 > nan.txt'
    assert_trouble moe-decode
    [[ $output == *'nan.moe: logits are not finite'* ]]
}
