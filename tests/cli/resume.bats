#!/usr/bin/env bats
# Batches of moe-decode: killed and resumed, ended by signals, with invalid prompts.

load common

# Some texts come twice or three times, so that draws depend on the repetition; one is a chat of two turns.
setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    local pocket="${MOE_MODELS:-$BATS_TEST_DIRNAME/../models}/pocket"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    local step=40
    [ -z "$MOE_SANITIZED" ] || step=100
    awk -v step=$step 'NR % step == 1' "$pocket/heldout.jsonl" > some.jsonl
    { cat some.jsonl; head -n 3 some.jsonl; echo '{"id": "chat", "turns": ["Hello.", "And then?"]}'; head -n 2 some.jsonl; } |
        jq -c '.max_tokens = 12' > p.jsonl
    local form
    for form in '' --json; do
        decode $form --stream full.moes p.jsonl > full$form
    done
}

setup() { cd "$WORK"; rm -rf run; mkdir run; }

# Above temperature 0, with drafts: their counts are part of --json.
settings='-q -m pocket.moe --temperature 1.6 --seed 5 -d ngram'
decode() { moe-decode $settings "$@"; }

# Prints the records of a stream without their times.
timeless() {
    moe-view --json "$1" | jq -c 'select(.type | test("begin|iter|draft|done")) |
        with_entries(select(.key | test("_us$|bytes") | not))'
}

# Waits until a run in the background has written $2 bytes of a file, or until the stream that is being written has a whole
# answer; a text's first characters appear earlier.
wait_done() {
    for _ in $(seq 600); do
        ! grep -q '"done"' <(moe-view --json "$1" 2> /dev/null) || return 0
        sleep 0.1
    done
    return 1
}

wait_for() {
    local i
    for i in $(seq 600); do
        [ ! -e "$1" ] || [ "$(stat -c %s "$1")" -lt "$2" ] || return 0
        sleep 0.02
    done
    return 1
}

@test "a stream truncated anywhere is resumed with the same texts, counts and records" {
    local bytes at
    bytes=$(stat -c %s full.moes)
    # Equal prompts have different texts; otherwise a wrong count of repetitions would not show.
    [ "$(jq -r 'select(.id == "math-000").text' full--json | sort -u | wc -l)" -gt 1 ]
    local places="0 7 200 $((bytes / 3)) $((bytes * 2 / 3)) $((bytes - 1)) $bytes"
    [ -z "$MOE_SANITIZED" ] || places="200 $((bytes / 3))"
    for at in $places; do
        head -c $at full.moes > run/old
        decode --resume run/old --stream run/new.moes p.jsonl | cmp - full
        cmp <(timeless run/new.moes) <(timeless full.moes)
    done
    # After a crash zeros may follow the written data.
    { head -c $((bytes / 2)) full.moes; head -c 5000 /dev/zero; } > run/old
    decode --json --resume run/old p.jsonl | cmp - full--json
    # Other drafts and threads give the same text; the resumed stream can be resumed.
    head -c $((bytes / 2)) run/new.moes > run/newer
    moe-decode -q -m pocket.moe --temperature 1.6 --seed 5 -j 1 --resume run/newer p.jsonl | cmp - full
    moe-view --json run/new.moes | head -n 1 | jq -e '.sources[0].kind == "decode"'
}

@test "parts of the prompts, decoded separately, add up to the whole run" {
    local form part alone='with_entries(select(.key | startswith("shared") | not))'
    { cat p.jsonl; echo '{"prompt": 3}'; jq -c 'select(.turns) | .id = 7' p.jsonl; head -n 2 p.jsonl; jq -c 'select(.turns)' p.jsonl
    } > run/p.jsonl
    for form in "" "--json --parallel 3"; do
        run decode --keep-going $form --stream run/whole.moes -o run/whole run/p.jsonl
        [ "$status" -eq 1 ]
        rm -f run/parts
        for part in 1 2 3 4; do
            decode --keep-going $form --shard $part/4 --stream run/$part.moes run/p.jsonl >> run/parts 2> run/said ||
                grep -q "p.jsonl:[0-9]*:" run/said
        done
        cmp run/whole run/parts
        moe-coact merge run/4.moes run/[1-3].moes -o run/parts.moes
        cmp <(timeless run/parts.moes | jq -c "$alone") <(timeless run/whole.moes | jq -c "$alone")
    done
    [ "$(jq -c .id run/whole | sort -u | wc -l)" -gt 5 ]
    # Some equal chats have equal second turns, because a first answer is one of two tokens; their random numbers do not depend
    # on it.
    for part in 1 2 3 4 5 6; do echo '{"turns": ["Hello.", "And then?"], "max_tokens": 1}'; done > run/chats.jsonl
    for part in 1 2 3; do decode --json --top-k 2 --shard $part/3 run/chats.jsonl; done > run/parts
    decode --json --top-k 2 run/chats.jsonl | cmp - run/parts
    # A part is resumed only as the same part.
    head -c $(($(stat -c %s run/2.moes) / 2)) run/2.moes > run/old
    decode --json --keep-going --shard 2/4 --resume run/old run/p.jsonl | cmp - <(decode --json --keep-going --shard 2/4 run/p.jsonl)
    run decode --keep-going --shard 3/4 --resume run/old run/p.jsonl
    assert_trouble moe-decode
    [[ $output == *"run/old: the run was started with another shard, 2/4, not 3/4; resume it with the same" ]]
    run decode --keep-going --resume run/2.moes run/p.jsonl
    [[ $output == *"another shard, 2/4, not none; "* ]]
    # -p and files together, more parts than prompts.
    for part in 1 2 3 4; do decode -n 2 -p one -p two some.jsonl --shard $part/4; done | cmp - <(decode -n 2 -p one -p two some.jsonl)
    decode -n 2 --shard 9/9 -p one <(true) > run/none 2>&1 || grep -q 'cannot be counted' run/none
    run decode -n 2 --shard 3/3 -p one -p two
    assert_trouble moe-decode
    [[ $output == *"--shard 3/3: this part of the 2 prompts given with -p is empty; leave --shard out, or give prompts as a file" ]]
}

@test "a run that is killed twice still ends with the same text" {
    local old= new pid k
    for k in 0 1 2; do
        new=run/$k.moes
        mkfifo run/out$k
        moe-decode $settings --json ${old:+--resume $old} --stream $new p.jsonl > run/out$k &
        pid=$!
        { for _ in $(seq $((2 + 2 * k))); do read -r line; done; kill -9 $pid; cat; } < run/out$k > /dev/null
        wait $pid || [ $? = 137 ]
        [ ! -e $new ]
        old=$new.part
        moe-view $old > /dev/null 2> run/said && false
        grep -q 'truncated' run/said
    done
    decode --json --resume $old --stream run/end.moes p.jsonl | cmp - full--json
    moe-view --verify run/end.moes
    # A run with the same name notes an earlier one's leftovers and keeps them until it ends; also if it is interrupted.
    mkfifo run/in
    moe-decode -m pocket.moe -n 1 --stream run/0.moes < run/in > run/x.txt 2> run/said &
    pid=$!
    exec 7> run/in
    echo '{"prompt": "x"}' >&7
    wait_for run/x.txt 2
    kill -TERM $pid
    wait $pid || [ $? = 143 ]
    exec 7>&-
    grep -q 'run/0.moes: contains finished texts of an interrupted run; to reuse them, stop and start with --resume run/0.moes' run/said
    decode --json --resume run/0.moes p.jsonl | cmp - full--json
    moe-decode -m pocket.moe -n 1 --stream run/0.moes -p x 2> run/said
    grep -q 'to reuse them, stop and start with --resume .*/0.moes$' run/said
    [ ! -e run/0.moes.part.old ]
}

@test "a signal ends the run after a token: texts and stream stay, and can be resumed" {
    local signal number cached
    decode --json --ignore-eos -n 300 some.jsonl > whole
    for signal in INT TERM; do
        number=$(kill -l $signal)
        cached=$([ $signal = INT ] || echo "--cache-experts 30% --prefetch last")
        env --default-signal=INT moe-decode $settings --json --ignore-eos -n 300 some.jsonl --stream run/old.moes $cached \
            -o run/old.json 2> run/said &
        wait_for run/old.moes.part 20000
        kill -$signal $!
        code=0
        wait $! || code=$?
        [ $code = $((128 + number)) ]
        again="moe-decode --resume run/old.moes $settings --json --ignore-eos -n 300 some.jsonl --stream run/old.moes"
        again+="${cached:+ $cached} -o run/old.json"
        grep -q "^moe-decode: ended by SIG$signal after [0-9] texts; to continue, run: $again\$" run/said
        [ "$(wc -l < run/said)" = 1 ]
        [ "$(ls run)" = "$(printf 'old.json\nold.moes\nsaid')" ]
        # The current text is written as far as it was decoded, and marked as incomplete.
        [ "$(tail -n 1 run/old.json | jq -r .finish_reason)" = abort ]
        run moe-view --json run/old.moes
        [ "$status" -eq 2 ]
        [[ ${lines[-1]} == "moe-view: run/old.moes: is incomplete, because its producer, moe-decode, failed: ended by SIG$signal"* ]]
        echo "${lines[-2]}" | jq -e '.type == "abort" and (.message | test("^ended by SIG"))'
        [ "$(moe-view --json --type abort run/old.moes 2> /dev/null | wc -l)" = 1 ]
        run moe-bench report run/old.moes
        [ "$status" -eq 2 ]
        decode --json --ignore-eos -n 300 some.jsonl --resume run/old.moes -o run/new.json
        cmp whole run/new.json
        head -n 1 run/new.json | cmp - <(head -n 1 run/old.json) || [ "$(wc -l < run/old.json)" = 1 ]
        # The command in the note works as printed; nothing is decoded again once finished, and the stream stays.
        $(sed 's/.*to continue, run: //' run/said) 2> /dev/null
        cmp run/new.json run/old.json
        moe-view --verify run/old.moes
        cp run/old.moes run/before
        $(sed 's/.*to continue, run: //; s/ -q / /' run/said) 2> run/note
        cmp run/new.json run/old.json
        cmp run/old.moes run/before
        grep -q "run/old.moes: is already complete, so nothing is decoded" run/note
        rm run/*
    done
}

@test "a second signal ends the run at once, and a single one while it waits for input" {
    local pid tokens=1800
    [ -z "$MOE_SANITIZED" ] || tokens=300
    echo "{\"tokens\": [$(seq -s, 1 $tokens)]}" > run/long.jsonl
    moe-decode -q -m pocket.moe --device ref -n 1 run/long.jsonl -o run/x.txt &
    pid=$!
    for _ in $(seq 200); do [ -z "$(ls run | grep tmp)" ] || break; sleep 0.02; done
    sleep 0.1
    kill -TERM $pid
    kill -TERM $pid                             # two signals at once are one; and a long prompt is not waited for
    wait $pid || [ $? = 143 ]
    [ "$(ls run)" = "$(printf 'long.jsonl\nx.txt')" ]
    [ ! -s run/x.txt ]
    # A reader that does not read blocks it: the first signal waits for that, the second does not.
    mkfifo run/full
    moe-decode $settings --ignore-eos -n 1900 -p NAME --stream - > run/full &
    pid=$!
    exec 8< run/full
    local before= now=-
    while [ "$before" != "$now" ]; do
        before=$now
        sleep 0.3
        now=$(cut -d' ' -f14,15 /proc/$pid/stat)
    done
    kill -TERM $pid
    sleep 0.2
    kill -TERM $pid
    code=0
    wait $pid || code=$?
    exec 8<&-
    [ $code = 143 ]
    mkfifo run/in
    moe-decode $settings -n 4 - --stream run/x.moes < run/in > run/x.txt &
    pid=$!
    exec 7> run/in
    echo '{"prompt": "NAME"}' >&7
    wait_done run/x.moes.part
    kill -TERM $pid
    wait $pid || [ $? = 143 ]
    exec 7>&-
    run moe-view run/x.moes
    [[ $output == *"failed: ended by SIGTERM after 1 texts"* ]]
}

@test "a mismatch with the stream is refused before anything is decoded" {
    local all=$settings settings words part
    echo '{"prompt": "none of them"}' > other.jsonl
    tac p.jsonl > reversed.jsonl
    head -c $(($(stat -c %s full.moes) * 2 / 3)) full.moes > run/old
    while IFS='|' read -r words part; do
        settings=$all
        [[ $words != *--temperature* ]] || settings=${all/--temperature 1.6/}
        [[ $words != *--seed* ]] || settings=${all/--seed 5/}
        run decode $words
        assert_trouble moe-decode
        [[ $output == *"$part"* ]] || { echo "$words: $output"; false; }
    done <<'WRONG'
--resume run/old --temperature 0.8 p.jsonl|run/old: the run was started with another temperature, 1.6, not 0.8
--resume run/old --seed 6 p.jsonl|run/old: the run was started with another seed, 5, not 6
--resume run/old --kv-dtype bf16 p.jsonl|run/old: the run was started with another kv-dtype, f32, not bf16
--resume run/old --isa plain p.jsonl|run/old: the run was started with another isa
--resume run/old --activations bf16 p.jsonl|run/old: the run was started with another setting of activations, auto, not bf16; resume
--resume run/old -n 5 p.jsonl|run/old: the run was started with another max-tokens, none, not 5
--resume run/old --stop x p.jsonl|run/old: the run was started with another stop, [], not ["x"]
--resume run/old -B 4 p.jsonl|run/old: the run was started with
--resume run/old --accept rejection p.jsonl|run/old: the run was started with
--resume run/old --record route --stream run/new p.jsonl|run/old: the run was started with another record
--resume run/old --forecasts --stream run/new p.jsonl|run/old: the run was started with another forecasts, false, not true
--resume run/old other.jsonl|matches none of the remaining prompts
--resume run/old reversed.jsonl|matches none of the remaining prompts
--resume other.jsonl p.jsonl|other.jsonl: is not a moekit stream
--resume pocket.moe p.jsonl|pocket.moe: is a model file, not a stream; moe-view shows it
--cache-experts nonee p.jsonl|--cache-experts: 'nonee' is not a size; give a size such as 2G, a share such as 30%, auto or none
--resume - p.jsonl|--resume: standard input cannot be read twice; name a file
--resume run/old -o run/old p.jsonl|an output needs a file of its own
WRONG
}

@test "a stream is resumed into itself, from any remainder" {
    local bytes name
    bytes=$(stat -c %s full.moes)
    for name in x.moes x.moes.part x.moes.part.old; do
        head -c $((bytes / 2)) full.moes > run/$name
        for resume in run/x.moes run/$name; do
            cp run/$name saved
            decode --resume $resume --stream run/x.moes p.jsonl | cmp - full
            cmp <(timeless run/x.moes) <(timeless full.moes)
            [ "$(ls run)" = x.moes ]
            [ "$resume" != run/x.moes ] || moe-view --json run/x.moes | head -n 1 | jq -e '.sources == null or .sources == []'
            rm run/*
            mv saved run/$name
        done
        rm run/*
    done
    # The longest remainder counts, unless a whole stream was being replaced.
    head -c $((bytes / 3)) full.moes > run/x.moes.part
    head -c $((bytes / 2)) full.moes > run/x.moes
    texts() { { moe-view --json -t done "$1" 2> /dev/null || true; } | wc -l; }
    local half third
    half=$(texts run/x.moes) third=$(texts run/x.moes.part)
    [ "$third" -lt "$half" ]
    moe-decode ${settings/-q/} --resume run/x.moes --stream run/y.moes p.jsonl 2>&1 > /dev/null | grep -q "run/x.moes: reuses the $half texts"
    cp full.moes run/x.moes
    moe-decode ${settings/-q/} --resume run/x.moes --stream run/x.moes p.jsonl 2>&1 > run/text | grep -q "x.moes: reuses the $third texts"
    cmp run/text full
    rm run/*
    # One command line serves the first run, too; a link's target is replaced.
    ln -s z.moes run/link
    moe-decode ${settings/-q/} --resume run/link --stream run/link p.jsonl 2> run/said | cmp - full
    grep -q 'run/link: contains no finished text of an earlier run, so all prompts are decoded' run/said
    run decode --resume run/missing p.jsonl
    assert_trouble moe-decode
}

@test "prompts are checked before the first one; --keep-going skips invalid ones" {
    { head -n 2 p.jsonl; echo '{"prompt": '; sed -n 3p p.jsonl; echo '{"id": "long", "tokens": ['$(seq -s, 1 2000)',1]}'
      echo '{"id": "empty", "prompt": ""}'; tail -n +4 p.jsonl; } > bad.jsonl
    for input in 'bad.jsonl' '- < bad.jsonl'; do
        run sh -c "moe-decode -q -m pocket.moe $input"
        assert_trouble moe-decode
        [[ $output == *":3: column 11: not valid JSON"* ]]
    done
    head -n 2 p.jsonl > run/good.jsonl
    run sh -c 'cat bad.jsonl | moe-decode -q -m pocket.moe | wc -l'
    [ "${lines[-1]}" -ge 2 ]                     # a pipe cannot be read twice
    code=0
    decode -c 512 --keep-going --stream run/old.moes bad.jsonl > run/text 2> run/said || code=$?
    [ $code = 1 ]
    cmp run/text full
    [ "$(sed 's/^moe-decode: //; s/: .*//' run/said | paste -sd' ')" = "bad.jsonl:3 bad.jsonl:5 bad.jsonl:6 3 prompts were skipped, $(jq -s length full--json) texts are finished" ]
    moe-view --json run/old.moes | jq -c 'select(.type == "failed") | [.id, .message]' > run/failed
    [ "$(jq -r '.[0]' run/failed | paste -sd,)" = 2,long,empty ]
    jq -r '.[1]' run/failed | sed 's/^/moe-decode: /' | cmp - <(head -n 3 run/said)
    decode -c 512 --keep-going --json bad.jsonl > run/json 2> /dev/null || true
    [ "$(jq -r 'select(.finish_reason == "error") | .id' run/json | paste -sd,)" = 2,long,empty ]
    # Once corrected, they are decoded at their place; equal prompts count as they would have.
    sed '3s/.*/{"prompt": "NAME", "max_tokens": 9}/; 5d; 6s/""/"NAME"/' bad.jsonl > mended.jsonl
    decode -c 512 mended.jsonl > run/want
    decode -c 512 --resume run/old.moes --stream run/new.moes mended.jsonl | cmp - run/want
    moe-view --verify run/new.moes
}
