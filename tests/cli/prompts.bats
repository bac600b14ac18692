#!/usr/bin/env bats
# Prompts in common forms: lists, chats of other tools, packed files; files that are not prompts are identified.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    printf '%s\n' '{"prompt": "NAME"}' '{"messages": [{"role": "user", "content": "Hi"}]}' '{"prompt": "3 + 4 ="}' > lines.jsonl
    moe-decode -q -m pocket.moe -n 6 --json lines.jsonl > lines.json
    printf 'NAME\n3 + 4 =\n' > lines.txt
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe -n 6 --json "$@"; }

@test "lists and packed files give the same prompts as lines" {
    jq -s . lines.jsonl > list.json
    jq -c -s . lines.jsonl > flat.jsonl
    gzip -k list.json lines.jsonl lines.txt
    bzip2 -k lines.jsonl
    local file
    for file in list.json flat.jsonl list.json.gz lines.jsonl.gz lines.jsonl.bz2; do
        decode "$file" | cmp - lines.json
        decode < "$file" | cmp - lines.json
        cat "$file" | decode - | cmp - lines.json
    done
    command -v zstd > /dev/null && {
        zstd -q lines.jsonl
        decode lines.jsonl.zst | cmp - lines.json
    }
    # The name before .gz states the format; a text has one prompt per line.
    decode lines.txt > texts.json
    decode lines.txt.gz | cmp - texts.json
    # A truncated or damaged file is reported once, and with --keep-going the next file follows.
    gzip -c lines.jsonl | head -c 60 > cut.jsonl.gz
    run decode cut.jsonl.gz
    assert_trouble moe-decode
    [[ $output == *"cut.jsonl.gz:"*"cannot be unpacked: "* ]]
    run decode --keep-going cut.jsonl.gz lines.jsonl
    [ "$status" = 1 ]
    [ "$(grep -c '"finish_reason":"error"' <<< "$output")" = 1 ]
    [ "$(grep -c '"finish_reason":"[^e]' <<< "$output")" = 3 ]
}

@test "files that are not prompts are identified by all commands" {
    moe-decode -q -m pocket.moe -n 2 --stream run.moes -p hi
    cp run.moes run.jsonl
    gzip -c run.moes > run.gz
    tar cf texts.tar lines.jsonl
    tar czf texts.tar.gz lines.jsonl
    python3 -c 'import zipfile; zipfile.ZipFile("texts.zip", "w").write("lines.jsonl")'
    printf 'GGUF\3\0\0\0' > m.gguf
    cp "$MOE_MODELS"/pocket/model/model.safetensors m.safetensors
    local file what command
    while read -r file what; do
        for command in 'moe-decode -m pocket.moe' 'moe-profile -m pocket.moe -o out.moes' \
            'moe-profile features -m pocket.moe -o out.moes' 'moe-draft-train train --arch eagle1 -m pocket.moe -o out.moe'; do
            [ "$command" != 'moe-draft-train train --arch eagle1 -m pocket.moe -o out.moe' ] || [ "$file" = texts.tar ] || continue
            run $command "$file"
            assert_trouble "${command%% *}"
            [[ $output == *"$file:1: is $what"* ]] || { echo "$command: $output"; false; }
            [ ! -e out.moes ] && [ ! -e out.moe ]
        done
        run moe-decode -m pocket.moe --whole - < "$file"
        assert_trouble moe-decode
        [[ $output == *"standard input:1: is $what"* ]]
    done <<'EOF'
pocket.moe a model file
run.moes a stream
run.jsonl a stream
run.gz a stream
texts.tar an archive (tar)
texts.tar.gz an archive (tar)
texts.zip an archive (zip)
m.gguf a checkpoint (GGUF)
m.safetensors a checkpoint (safetensors)
EOF
    printf '{"model": "pocket.moe", "prompts": ["texts.zip"], "settings": [{"name": "a", "max-tokens": 2}]}' > suite.json
    run moe-bench run suite.json -o out.moes
    [ "$status" = 2 ]
    [[ $output == *"texts.zip:1: is an archive (zip)"* ]]
}

@test "unexpected input in prompts is noted, except under -q" {
    printf '{"promt": "x", "prompt": "NAME", "source": 3}\n' > odd.jsonl
    : > none.jsonl
    run moe-decode -m pocket.moe -n 2 odd.jsonl none.jsonl
    [ "$status" = 0 ]
    [[ ${lines[0]} == 'moe-decode: odd.jsonl:1: the key "promt" is not read; did you mean "prompt"?' ]]
    [[ ${lines[1]} == 'moe-decode: odd.jsonl:1: the key "source" is not read' ]]
    [[ $output == *"moe-decode: none.jsonl: has no prompts"* ]]
    run moe-decode -q -m pocket.moe -n 2 odd.jsonl none.jsonl
    [ "${#lines[@]}" = 1 ]
    run moe-decode -m pocket.moe -n 2 - < /dev/null
    [ "$status" = 2 ]
    [ "$output" = 'moe-decode: standard input: has no prompts; give a text or a JSON object with "prompt" on each line' ]
    # With --field the other keys are known.
    run moe-decode -m pocket.moe -n 2 --field prompt odd.jsonl
    [ "${#lines[@]}" = 1 ]
}

# A terminal's end of input is not a state: each read after Ctrl-D waits for another one.
@test "at a terminal one Ctrl-D ends the prompts" {
    local text
    for text in '3 + 4 =\n' '{"prompt": "3 + 4 ="}\n{"prompt": "NAME"}\n' '[{"prompt": "3 + 4 ="}]\n'; do
        timeout 20 "$BATS_TEST_DIRNAME/at-terminal.py" --keys 'Ctrl-D' "$text" '=' '^D' -- moe-decode -m pocket.moe -n 8
    done
}

@test "files without prompts are an error of every command, which writes nothing" {
    mkdir -p none
    cd none
    ln -sf "$MOE_POCKET" pocket.moe
    : > empty.jsonl
    printf '\n \n' > blank.txt
    echo '{"model": "pocket.moe", "prompts": "empty.jsonl", "settings": [{"name": "a"}]}' > suite.json
    local before command
    before=$(ls)
    for command in "moe-decode -m pocket.moe --stream out" "moe-decode -m pocket.moe --keep-going --stream out" \
        "moe-profile -m pocket.moe -o out" "moe-profile features -m pocket.moe -o out" \
        "moe-profile skip -m pocket.moe -o out"; do
        run $command empty.jsonl
        assert_trouble "${command%% *}"
        [[ $output == *": empty.jsonl: has no prompts; give "* ]]
        run $command -q empty.jsonl blank.txt
        assert_trouble "${command%% *}"
        run $command < empty.jsonl
        assert_trouble "${command%% *}"
        run $command <(:)
        assert_trouble "${command%% *}"
    done
    for command in "run suite.json -o out" "identity suite.json -o out"; do
        run moe-bench $command
        assert_trouble moe-bench
    done
    [ "$(ls)" = "$before" ]
    # A text beside it is enough.
    run moe-decode -m pocket.moe -n 2 -p NAME empty.jsonl
    [ "$status" = 0 ]
    [[ $output == *"moe-decode: empty.jsonl: has no prompts"* ]]
}

@test "a model, or words, in place of a file of prompts: the option is named" {
    cp pocket.moe q4.moe
    run moe-decode pocket.moe
    assert_trouble moe-decode
    [[ $output == *"give -m pocket.moe" ]]
    run moe-decode --chat q4.moe
    assert_trouble moe-decode
    [[ $output == *"give -m q4.moe" ]]
    run moe-profile pocket.moe
    assert_trouble moe-profile
    [[ $output == *"give -m pocket.moe" ]]
    run moe-decode -m pocket.moe Once upon a time.
    assert_trouble moe-decode
    [[ $output == *' -p "Once upon a time."' ]]
    run moe-decode -m pocket.moe -p Once upon a time
    assert_trouble moe-decode
    [[ $output == *'upon: no such file; if this is the prompt'*' -p "Once upon a time"' ]]
    # A name that looks like a file is a missing file.
    run moe-decode -m pocket.moe Once.jsonl
    assert_trouble moe-decode
    [[ $output != *" -p "* ]]
}
