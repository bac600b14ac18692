#!/usr/bin/env bats
# Published prompt sets, graded by moe-bench: the rule that their answers require, and the report's figures.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    cp "$MOE_POCKET" pocket.moe
    grep '"task": "math"' "$MOE_MODELS/pocket/heldout.jsonl" | head -n 4 > math.jsonl
    moe-decode -q -m pocket.moe -n 40 math.jsonl --json > said.jsonl
    # answers FILTER FILE: the prompts without task, with the right answer made from the number that the model gives
    answers() {
        jq -c -n --slurpfile said said.jsonl --slurpfile asked math.jsonl '$asked | to_entries[] |
            {id: .value.id, messages: .value.messages, number: ($said[.key].text | [scan("[0-9]+")][-1])} |
            .answer = ('"$1"') | del(.number)' > "$2"
    }
    answers '"48 / 2 = <<48/2=24>>24, so\n#### \(.number)"' gsm8k.jsonl
    answers '"Hence $\\boxed{\(.number)}$."' boxed.jsonl
    answers '"\(.number) pens"' words.jsonl
    for set in gsm8k words; do moe-bench run -q -m pocket.moe -d none -n 40 --measure-seconds 0 -o $set.moes $set.jsonl; done
}

setup() { cd "$WORK"; }

# figures STREAM: graded and correct answers and the rules of its row
figures() { moe-bench report --json "$1" | jq -r 'select(.type == "row") | "\(.graded) \(.correct) \(.rules | join(" "))"'; }

@test "right answers of GSM8K are right without a task or rule" {
    [ "$(figures gsm8k.moes)" = "4 4 number" ]
    moe-bench report gsm8k.moes > report
    grep -q '4/4  number$' report
    refute grep -q 'none is right' report
    moe-bench report --csv gsm8k.moes | grep -q ',number$'
    # the same afterwards, and boxed answers
    moe-bench grade -p boxed.jsonl gsm8k.moes | grep -Eq '^none .* 4 +4 +100.0 % +1.000 +number'
    # a letter
    jq -c '.answer = "C"' gsm8k.jsonl > letters.jsonl
    moe-bench grade --json -p letters.jsonl gsm8k.moes | jq -s -e 'map(select(.type == "answer") | .rule) | unique == ["letter"]'
    moe-bench grade --json -p letters.jsonl --command '=true' gsm8k.moes | jq -s -e '.[-1].correct == 4'
}

@test "a task without a right exact answer is noted, and --rule works without a task" {
    [ "$(figures words.moes)" = "4 0 exact" ]
    moe-bench report words.moes > report
    grep -q '^4 answers were graded exactly, and none is right; moe-bench grade --rule RULE grades by another rule' report
    moe-bench report --html words.moes | grep -q 'none is right'
    moe-bench grade -p words.jsonl --rule number words.moes --stream anew.moes | grep -Eq '^none .* 4 +4 +100.0 % .*number'
    [ "$(figures anew.moes)" = "4 4 number" ]
    # the rule of a task takes precedence over the rule for all
    jq -c '.task = "pens"' words.jsonl > tasks.jsonl
    moe-bench run -q -m pocket.moe -d none -n 40 --measure-seconds 0 -o tasks.moes tasks.jsonl
    moe-bench report tasks.moes | grep -q '^pens: 4 answers were graded exactly.*--rule pens=RULE'
    moe-bench grade -p tasks.jsonl --rule pens=number --rule exact tasks.moes | grep -Eq '^none +pens +4 +4 '
    moe-bench grade -p tasks.jsonl --rule exact --rule pens=number --rule pens=exact tasks.moes | grep -Eq '^none +pens +0 +4 '
    run moe-bench grade -p words.jsonl --rule numbers words.moes
    assert_trouble moe-bench
    [[ $output == *"'numbers'"*"number, exact"* ]]
    # one rule for all tasks of a suite
    echo '{"model": "pocket.moe", "prompts": "words.jsonl", "grade": "number", "settings": [{"name": "none"}],
           "options": {"max-tokens": 40}, "measure-seconds": 0}' > suite.json
    moe-bench run -q suite.json -o suite.moes
    [ "$(figures suite.moes)" = "4 4 number" ]
}

@test "MT-bench's question_id and category are id and task, and run says which turns it asks" {
    cat > mt.jsonl <<'PROMPTS'
{"question_id": 81, "category": "writing", "turns": ["Noah has 25 pens. How many?", "And 5 more?"]}
{"question_id": 82, "category": "math", "turns": ["Finn fills 5 bags with 12 plums each. How many plums?"], "answer": 60}
PROMPTS
    moe-bench run -m pocket.moe -d none -n 12 --measure-seconds 0 -o mt.moes mt.jsonl 2> said
    grep -q '1 of 2 prompts have several turns, and only the first is decoded; moe-decode decodes all turns' said
    refute grep -q 'is not read' said
    [ "$(moe-view --json mt.moes | jq -r 'select(.type == "begin") | "\(.task) \(.id)"' | paste -sd ,)" = "writing 81,math 82" ]
    [ "$(moe-decode -q -m pocket.moe -n 4 --json mt.jsonl | jq -r '"\(.task) \(.id) \(.turn)"' | paste -sd ,)" = \
      "writing 81 0,writing 81 1,math 82 null" ]
    # the same keys name the answers of grade, numbers too
    moe-bench grade --json -p mt.jsonl mt.moes | jq -s -e '.[0] | .id == "82" and .task == "math" and .expected == "60"'
    # keys of its own come first
    echo '{"id": "a", "question_id": 81, "task": "x", "category": "writing", "prompt": "One"}' > both.jsonl
    [ "$(moe-decode -q -m pocket.moe -n 1 --json both.jsonl | jq -r '"\(.task) \(.id)"')" = "x a" ]
}
