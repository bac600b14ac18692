#!/usr/bin/env bats
# moe-profile features from the command line: states compared with those of transformers, masks, shards, and bad input.

load common

setup_file() {
    load common
    python=$(python_with_numpy) || skip "no python3 with msgpack and numpy"
    export python WORK="$BATS_FILE_TMPDIR" GOLDEN="$BATS_TEST_DIRNAME/../golden/features"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    head -n 6 "$MOE_MODELS/pocket/calib.jsonl" > texts.jsonl
    features texts.jsonl --layers 1,final --validation 0.4 -o whole.moes
}

setup() { cd "$WORK"; }

features() { moe-profile features -q -m pocket.moe "$@"; }
judge() { "$python" "$BATS_TEST_DIRNAME/features.py" "$@"; }
marked() { judge marked "$1" "$MOE_MODELS/pocket/model/tokenizer.json"; }

# The command fails with one line that contains $1, and leaves no file.
refuses() {
    local words=$1
    shift
    run features -o no.moes "$@"
    assert_trouble moe-profile
    [[ $output == *"$words"* ]] || { echo "'$output' does not say: $words"; return 1; }
    [ -z "$(ls | grep '^no\.moes')" ]
}

@test "states equal those of transformers" {
    features "$GOLDEN/texts.jsonl" --layers 4,0,1,final,2 --dtype f32 -o golden.moes
    judge golden golden.moes "$GOLDEN"
    # through memory that is not the host's
    features "$GOLDEN/texts.jsonl" --shard 1/4 --layers 0,1,2,4,final --dtype f32 --device ref -o ref.moes
    judge golden ref.moes "$GOLDEN"
    # the target's own answers to these prompts are the golden ones: states are equal bit by bit
    jq -c 'del(.answer_tokens) | .max_tokens = 24' "$GOLDEN/texts.jsonl" > asked.jsonl
    features asked.jsonl -n 99 --layers 0,1,2,4,final --dtype f32 -j 2 -o asked.moes
    judge same golden.moes asked.moes
    features "$GOLDEN/texts.jsonl" --layers 0,1,2,4,final | cat > narrow.moes
    judge rounded narrow.moes golden.moes
}

@test "features do not depend on shards, threads, order, other texts or drafts" {
    for shard in 1 2; do features texts.jsonl --layers 1,final --validation 0.4 --shard $shard/2 -o $shard.moes; done
    moe-coact merge 2.moes 1.moes -o merged.moes
    moe-view --verify merged.moes
    judge same whole.moes merged.moes
    tac texts.jsonl | features - --layers 1,final --validation 0.4 -j 3 -o back.moes
    judge same whole.moes back.moes
    features texts.jsonl -n 20 -o plain.moes
    features texts.jsonl -n 20 --draft ngram -K 6 -o drafted.moes
    judge same plain.moes drafted.moes
    apart() { moe-view --json --type begin "$1" | jq -c 'select(.validation) | .id'; }
    [ -z "$(apart plain.moes)" ]
    apart whole.moes > apart
    [ "$(wc -l < apart)" -gt 0 ] && [ "$(wc -l < apart)" -lt 6 ]
    features texts.jsonl -n 2 --validation 0.4 -o asked.moes        # only the prompt counts, whatever its answer
    apart asked.moes | diff apart -
}

@test "masks cover answers with their end token, and nothing follows the last one" {
    cat > marks.jsonl <<'END'
{"id": "a", "messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}], "answer": "four"}
{"id": "b", "prompt": "One two", "answer": " three"}
END
    features marks.jsonl -o marks.moes
    marked marks.moes > seen
    jq -r .text seen > plain
    printf '<|user|>\nOne<|assistant|>\n[two<|end|>]\n<|user|>\nthree<|assistant|>\n[four<|end|>]\nOne two[ three<|end|>]\n' |
        diff - plain
    # each answer as a text of its own
    features marks.jsonl --turns each -o marks.moes
    marked marks.moes | jq -r .text > plain
    printf '<|user|>\nOne<|assistant|>\n[two<|end|>]\n<|user|>\nOne<|assistant|>\ntwo<|end|>\n<|user|>\nthree<|assistant|>\n[four<|end|>]\nOne two[ three<|end|>]\n' |
        diff - plain
    features marks.jsonl --mask all -o marks.moes
    marked marks.moes | jq -r .text | grep -c '^\[' | grep -qx 2
    # cut: the remaining part of an answer is learnt; a text without any is left out
    run moe-profile features -m pocket.moe marks.jsonl --cut 7 -o cut.moes
    [[ $output == *": 1 text, "*" of 7 tokens, 1 to be learnt; "*"; left out, as cut before anything to be learnt: 1" ]]
    marked cut.moes | jq -r .text | grep '^One two\[ [a-z]*\]$'
}

@test "the model answers each turn, regardless of given answers" {
    cat > turns.jsonl <<'END'
{"messages": [{"role": "user", "content": "Eva has 3 coins."}, {"role": "assistant", "content": "ZZZ"}, {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "YYY"}]}
{"turns": ["Eva has 3 coins.", "And now?"]}
END
    features turns.jsonl -n 12 -o turns.moes
    marked turns.moes | jq -r .text > seen
    refute grep -q 'ZZZ\|YYY' seen
    moe-view --json --type begin turns.moes | jq -sc 'map(.text_tokens - .prompt_tokens <= 12) | [length, all]' | grep -qx '\[4,true\]'
    # a conversation and its turns give the same prompts
    marked turns.moes | jq -sc '[.[0].text == .[2].text, .[1].text == .[3].text]' |
        grep -qx '\[true,true\]'
}

@test "--for NAME records the states that a head learns from" {
    for pair in eagle1:6 eagle2:6 medusa:6 hydra:6 jakiro_star:6 eagle3:1,2,6 kangaroo:1,6 kangaroo:exit=3:2,6 0,final:0,6; do
        features texts.jsonl --shard 1/6 --layers "${pair%:*}" -o kind.moes
        [ "$(moe-view --json --type feature kind.moes | jq -c .point)" = "[${pair##*:}]" ]
    done
    moe-convert head -q "$MOE_MODELS/pocket/heads/eagle3" --target pocket.moe -o eagle3.moe
    features texts.jsonl --shard 1/6 --for eagle3.moe -o kind.moes
    [ "$(moe-view --json --type feature kind.moes | jq -c .point)" = "[0,2,4,6]" ]
}

@test "the totals are printed as a note, or as a line in place of the stream" {
    run moe-profile features -m pocket.moe texts.jsonl --text --layers 1,final
    [ "$status" -eq 0 ]
    tokens=$(moe-view --json --type begin whole.moes | jq -s 'map(.text_tokens) | add')
    learnt=$(moe-view --json --type feature whole.moes | jq -s 'map(.mask | add) | add')
    [[ $output == "6 texts, 0 for validation, of $tokens tokens, $learnt to be learnt; states after layer 1 and the final norm in bf16: 0."*" MB" ]]
}

@test "bad input is reported in one line" {
    echo '{"prompt": "One two ", "answer": "three"}' > join.jsonl
    refuses "join.jsonl:1: one token contains both the prompt's end and the answer's beginning" join.jsonl
    refuses "the prompt has no answer" -p hi
    refuses "--layers: '6' is not a state; expected a layer from 0 to 5, or final" texts.jsonl --layers 6
    refuses "--layers: 'eagle9' is not a state" texts.jsonl --layers eagle9
    refuses "--layers: kangaroo" texts.jsonl --layers kangaroo:exit=7
    refuses "exclude each other" texts.jsonl --layers 1 --for pocket.moe
    refuses "is a model, not a draft head" texts.jsonl --for pocket.moe
    refuses "that any head of this kind reads, give --layers eagle1" texts.jsonl --for eagle1
    refuses "--temperature" texts.jsonl --temperature 1
    refuses "--shard" texts.jsonl --shard 3/2
    refuses "tokens, but the context is 40" texts.jsonl -c 40
    features texts.jsonl -c 40 --cut 40 -o short.moes
    jq -c 'select(.answer) | .answer *= 400' texts.jsonl | head -1 > long.jsonl
    refuses "tokens, but the context is" long.jsonl -c 1024
}
