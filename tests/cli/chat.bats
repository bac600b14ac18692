#!/usr/bin/env bats
# moe-decode --chat at a terminal: turns, the text kept between them, Ctrl-C and Ctrl-D, a full context; and the line of
# summary.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
}

setup() { cd "$WORK"; }

# A terminal whose output is checked and at which keys are typed: see at-terminal.py.
at_terminal() { "$BATS_TEST_DIRNAME/at-terminal.py" --keys "$@" | tr -d '\r'; return "${PIPESTATUS[0]}"; }

# Runs a conversation of three messages; its answers as JSON lines go to turns.jsonl, the terminal's output to standard output.
three_turns() {
    at_terminal '> ' 'Hello there\n' '> ' 'And \\n' '. ' 'what then?\n' '> ' '\n' '> ' 'Why?\n' '> ' '^D' -- \
        bash -c 'exec moe-decode -m pocket.moe --chat --json -n 20 "$@" > turns.jsonl' - "$@"
}

# Runs the same as three runs, each with all messages so far.
three_runs() {
    jq -c -s --arg system "$1" '[.[].text] as $said |
        (if $system == "" then [] else [{role: "system", content: $system}] end) as $first |
        ["Hello there", "And \nwhat then?", "Why?"] as $asked |
        range(3) as $turn | {messages: ($first + [range($turn) | {role: "user", content: $asked[.]},
            {role: "assistant", content: $said[.]}] + [{role: "user", content: $asked[$turn]}])}' turns.jsonl
}

@test "a conversation answers as runs with all of its messages do" {
    local options system
    for options in '' '-d ngram -K 5' '-d ngram --temperature 0.8 --seed 5'; do
        [ -z "$MOE_SANITIZED" ] || [ "$options" = '-d ngram -K 5' ] || continue
        for system in '' 'Be brief.'; do
            three_turns $options ${system:+--system "$system"} > shown.txt
            [ "$(wc -l < turns.jsonl)" = 3 ]
            three_runs "$system" > runs.jsonl
            moe-decode -q -m pocket.moe --json -n 20 $options runs.jsonl | jq -c '[.prompt_tokens, .tokens, .text]' > want.jsonl
            jq -c '[.prompt_tokens, .tokens, .text]' turns.jsonl | cmp - want.jsonl
            jq -e -s 'map(.turn) == [0, 1, 2]' turns.jsonl
        done
    done
}

@test "a turn reads only the new part of the text" {
    three_turns -v -d ngram > shown.txt
    three_runs '' > runs.jsonl
    # Each prompt shares with the text before it everything but that text's last token, which is never read.
    moe-profile -q -m pocket.moe -n 0 runs.jsonl | moe-view --json |
        jq -n -c --slurpfile turns turns.jsonl 'reduce (inputs | select(.type == "route")) as $r ([];
            .[$r.sequence] += $r.tokens) | . as $prompts | range(3) as $t |
            (if $t == 0 then [] else $prompts[$t - 1] + $turns[$t - 1].tokens[:-1] end) as $text |
            [$prompts[$t] | length, ([range(length) as $i | select(.[$i] != $text[$i]) | $i] | first),
             ($turns[$t].tokens | length)] | "\(.[0]) prompt tokens, \(.[1]) of them already in the KV cache; \(.[2]) new tokens"' -r > want.txt
    cat want.txt
    [ "$(wc -l < want.txt)" = 3 ]
    refute grep -q ' 0 of them already in the KV cache' <(tail -n 2 want.txt)
    grep -o '[0-9]* prompt tokens, [0-9]* of them already in the KV cache; [0-9]* new tokens' shown.txt | cmp - want.txt
}

@test "Ctrl-C ends an answer, and the conversation where there is none" {
    # An answer of 900 tokens, interrupted soon after it began; the next one continues from its visible part.
    run at_terminal '> ' 'Hello there\n' '72' '^C' '> ' 'Why?\n' 'cut off after 900 tokens' '' '> ' '^C' -- \
        moe-decode -v -m pocket.moe --chat --ignore-eos -n 900 --stream chat.moes
    echo "$output"
    [ "$status" = 130 ]
    [[ $output == *"the answer was interrupted"*"the answer was cut off after 900 tokens, the limit set with -n"*"the conversation was ended by SIGINT"* ]]
    moe-view --verify chat.moes > /dev/null
    moe-bench report chat.moes > /dev/null
    moe-view --json chat.moes > records.jsonl
    jq -e -n '[inputs | select(.type == "done")] | map(.finish_reason) == ["abort", "length"] and
        (.[0].tokens | length) < 800 and (.[1].tokens | length) == 900' records.jsonl
    jq -n -c '[inputs | select(.type == "done")] | {messages: [{role: "user", content: "Hello there"},
        {role: "assistant", content: .[0].text}, {role: "user", content: "Why?"}]}' records.jsonl > whole.jsonl
    moe-decode -q -m pocket.moe --ignore-eos -n 900 --json whole.jsonl | jq -c .tokens |
        cmp - <(jq -n -c '[inputs | select(.type == "done")][1].tokens' records.jsonl)
    # Before the first question it ends at once; an unfinished file is removed.
    run at_terminal '> ' '^C' -- moe-decode -m pocket.moe --chat
    [ "$status" = 130 ]
    [[ $output == *"the conversation was ended by SIGINT"* ]]
}

@test "Ctrl-D ends a conversation, with what it wrote" {
    run at_terminal '> ' 'Hello there\n' '> ' '^D' -- moe-decode -m pocket.moe --chat -n 8 -o said.txt
    [ "$status" = 0 ]
    moe-decode -q -m pocket.moe --chat -n 8 -p 'Hello there' | cmp - said.txt
    [[ $output == *"8 prompt tokens, 8 new tokens"* ]]
    run at_terminal '> ' '^D' -- moe-decode -m pocket.moe --chat
    [ "$status" = 0 ]
    [[ $output != *"tokens"* ]]
}

@test "a full context is reported" {
    # The answer fills the context; a message that does not fit is refused, and a shorter one is then answered.
    run at_terminal '> ' 'Hello there\n' 'tokens is full, so the answer is cut off' '' '> ' 'Why?\n' 'shorten the prompt' '' '> ' '^D' -- \
        moe-decode -m pocket.moe --chat -c 24 --ignore-eos
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *"the context of 24 tokens is full, so the answer is cut off"*"message 2: the prompt has "*" tokens"* ]]
    run at_terminal '> ' 'one two three four five six seven eight nine ten\n' 'shorten the prompt' '' '> ' 'Hello there\n' \
        '> ' '^D' -- moe-decode -m pocket.moe --chat -c 24 -n 4
    [ "$status" = 0 ]
    [[ $output == *"message 1: the prompt has "*"12 prompt tokens, 4 new tokens"* || $output == *"8 prompt tokens, 4 new tokens"* ]]
}

@test "what has no effect in a conversation is refused" {
    local option
    for option in '--resume x.moes' --keep-going '--field text' --whole; do
        run at_terminal 'tokens' '' -- moe-decode -m pocket.moe --chat $option
        [[ $output == *"has no effect in a conversation at the terminal"* ]]
    done
    # A model that cannot chat reports it before the first input; a raw text has no messages.
    mkdir bare
    cp "$MOE_MODELS"/pocket/model/* bare
    jq 'del(.chat_template)' "$MOE_MODELS/pocket/model/tokenizer_config.json" > bare/tokenizer_config.json
    moe-convert -q bare -o bare.moe
    run at_terminal 'no chat template' '' -- moe-decode -q -m bare.moe --chat
    [ "$status" = 2 ]
    [[ $output != *"> "* ]]
    run moe-decode -q -m pocket.moe --system 'Be brief.' -n 4 -p hi
    assert_trouble moe-decode
    [[ $output == *"--system: this prompt is raw text, not a chat; add --chat" ]]
}

@test "the summary compares with no drafts, and reports saved forwards only if that saved time" {
    local options line lost=
    # A draft as expensive as the model takes three times as long. On a busy machine times vary: one of five runs must report
    # it.
    for options in '-d self:exit=5 -K 8'{,,,,} '-d ngram -K auto' "-d model:file=$(dirname "$MOE_POCKET")/draft.moe"; do
        [[ -z $lost || $options != *exit* ]] || continue
        line=$(moe-decode -v -m pocket.moe -n 40 $options -p 'How many are 25 and 16?' 2>&1 > /dev/null | grep 'new tokens')
        echo "$line"
        [[ $line =~ about\ ([0-9.]+)x\ the\ tokens/s\ of\ no\ drafts ]] || [[ $line == *"nothing was drafted" ]] || false
        if [[ $line == *"they cost time here" ]]; then
            [[ ${BASH_REMATCH[1]} == 0.* ]]
            [[ $line != *saved* ]]
        elif [[ $line != *"nothing was drafted" ]]; then
            [[ ${BASH_REMATCH[1]} != 0.* ]]
            [[ $line == *"% of forwards saved"* ]]
        fi
        [[ $options != *exit* || $line != *"they cost time here" ]] || lost=yes
    done
    [ "$lost" = yes ]
}

@test "a line of summary stands at the end on a terminal, and with -v; its numbers are the stream's" {
    local stream=run.moes
    head -n 3 "$MOE_MODELS/pocket/heldout.jsonl" > some.jsonl
    moe-decode -m pocket.moe -n 30 -d ngram some.jsonl --stream $stream > plain.txt 2> notes.txt
    [ ! -s notes.txt ]
    moe-decode -v -m pocket.moe -n 30 -d ngram some.jsonl --stream $stream 2> notes.txt | cmp - plain.txt
    moe-view --json $stream | jq -r -s '[.[] | select(.type == "begin")] as $b | [.[] | select(.type == "done")] as $d |
        ([$d[].tokens | length] | add) as $n | ([.[] | select(.type == "iter")] | length) as $iterations |
        (1 + ([$d[].num_accepted_tokens] | add) / ([$d[].num_drafts] | add)) as $length |
        "\([$b[].prompt_tokens] | add) \($n) \($length) \(100 - 100 * $iterations / ($n - ($d | length))) " +
        "\(([$b[].prefill_us] | add) / 1000 / ($b | length))"' > want.txt
    sed -n -E 's/^moe-decode: ([0-9]+) prompt tokens, ([0-9]+) new tokens; first token after \(mean\) ([0-9.]+) ms, then [0-9.]+ tokens\/s; acceptance length ([0-9.]+)(, ([0-9.]+) % of forwards saved)?; about [0-9.]+x the tokens\/s of no drafts(: they cost time here)?$/\1 \2 \4 \6 \3/p' notes.txt |
        awk 'NF == 4 { $5 = $4; $4 = "-" } { print }' > got.txt
    cat want.txt got.txt
    paste -d ' ' want.txt got.txt | awk 'function near(a, b, by) { return a - b < by && b - a < by }
        { exit !(NF == 10 && $1 == $6 && $2 == $7 && near($3, $8, 0.006) && ($9 == "-" || near($4, $9, 0.06)) && near($5, $10, 0.01 * $5 + 0.01)) }'
    # Shown on a terminal without -v; -q removes it.
    run at_terminal 'new tokens' '' -- moe-decode -m pocket.moe -n 30 -d ngram -p hi
    [ "$status" = 0 ]
    [[ $output == *"prompt tokens, 30 new tokens; first token after "* ]]
    run at_terminal 'e' '' -- moe-decode -q -m pocket.moe -n 30 -d ngram -p hi
    [[ $output != *"new tokens"* ]]
    # Not shown in a pipe, whatever standard error is.
    run at_terminal 'done' '' -- bash -c 'moe-decode -m pocket.moe -n 30 -p hi | cat; echo done'
    [[ $output != *"new tokens"* ]]
}

@test "moe-profile says that it reads from the terminal, and ends by Ctrl-C; an archive is not typed" {
    local note='moe-profile: type prompts, as JSON lines or one text, and end with Ctrl-D; or give one with -p TEXT'
    run at_terminal "$note" '^C' -- moe-profile -m pocket.moe
    [ "$status" = 130 ]
    [[ $output == *"moe-profile: ended by SIGINT within text 0" ]]
    run -0 at_terminal "$note" 'some text\n^D' -- moe-profile -m pocket.moe
    [[ $output == *"1 texts, 3 tokens; experts of each layer by frequency"* ]]
    run -2 at_terminal 'is a terminal; ' '' -- moe-convert - -o x.moe
}
