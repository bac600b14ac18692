#!/usr/bin/env bats
# moe-view: the same stream as lines, JSON and CSV; an incomplete stream is never called complete.

load common

setup() {
    streams=$(cd "$BATS_TEST_DIRNAME/../golden/stream" && pwd)
    scratch=$(mktemp -d)
    cd "$scratch"
}

teardown() { rm -rf "$scratch"; }

# Runs it; it must succeed; sets $lines from $output.
fine() {
    run "$@"
    [ "$status" -eq 0 ] || { echo "exit $status: $*: $output"; return 1; }
}

# One line on stderr that contains $1, and exit 2. Standard output is left in the file stdout.
refused() {
    local words=$1 status=0
    shift
    bounded "$@" > stdout 2> stderr || status=$?
    [ "$status" -eq 2 ] || { echo "exit $status: $*"; return 1; }
    [ "$(wc -l < stderr)" -eq 1 ] || { cat stderr; return 1; }
    [[ $(cat stderr) == "moe-view: "*"$words"* ]] || { echo "$(cat stderr) does not say: $words"; return 1; }
}

@test "a stream is printed as text" {
    fine moe-view "$streams/rank.moes"
    [ "${lines[0]}" = "rank stream, version 1, by moe-coact 0.1.0:" ]
    [[ $output == *"model tiny: 3 layers, 2 with a router, 4 experts, 2 a token"* ]]
    [[ $output == *"    route stream, version 1, by moe-test 0.1: moe-test -o a b"* ]]
    [[ $output == *'rank 1  layer 1  method "mass"  budget 3'* ]]
    [[ $output == *"    order  i32 [4] 2 0 3 1"* ]]
    [[ $output == *'x-note 2  note "café, \"quoted\""'* ]]
    [ "${lines[-1]}" = "end  records {rank 2, x-note 1}  bytes 1277" ]
}

@test "JSON lines have every key, the header first and the end last" {
    moe-view --json "$streams/route.moes" > out
    [ "$(wc -l < out)" -eq 5 ]
    fine python3 - out <<'PY'
import json, sys
header, begin, route, end_sequence, end = map(json.loads, open(sys.argv[1]))
assert header['type'] == 'header' and header['kind'] == 'route' and header['seed'] == '18446744073709551615'
assert header['producer']['argv'] == ['moe-test', '-o', 'a b'] and header['labels'] == {'inflated': '64 to 2048'}
assert begin == {'type': 'begin', 'sequence': 7, 'id': 'pé', 'prompt_tokens': 2}
assert route['experts'] == [[[0, 1], [2, 3]], [[3, -1], [1, 0]]]
assert route['weights'][0] == [[0.5, 0.25], [1.0, 0.0]] and route['phase'] == 'verify'
assert route['logits'][0][3:7] == [3.0, None, None, 6.0] and len(route['logits'][1]) == 16
assert end == {'type': 'end', 'records': {'begin': 1, 'route': 1, 'end_sequence': 1}, 'bytes': 1370}
PY
}

@test "filters choose type, sequence and layer" {
    fine moe-view --json --type iter --sequence 1 "$streams/decode.moes"
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == '{"type": "iter", "sequence": 1, '* ]]
    fine moe-view --json -t route -l 1 "$streams/route.moes"
    [[ $output == *'"experts": [[[2, 3]], [[1, 0]]]'* ]]
    [[ $output == *'"mass": [[5.0, 6.0, 7.0, 8.5]]'* ]]
    [[ $output == *'"tokens": [3, 15]'* ]]
    fine moe-view --json -t rank -l 1 "$streams/rank.moes"
    [ "${#lines[@]}" -eq 1 ]
    refused "--sequence 99: no such sequence in $streams/route.moes; it has the sequences 0 to" moe-view -s 99 "$streams/route.moes"
    refused "have no sequence numbers" moe-view --json -s 0 "$streams/rank.moes"
    refused "no record of this --type has this number" moe-view --csv -s 0 -t machine "$streams/decode.moes"
    refused "--layer 9: no such layer in $streams/rank.moes; its model has 2 layers with a router" moe-view -l 9 "$streams/rank.moes"
    fine moe-view --json -t end "$streams/route.moes"
    [ "${#lines[@]}" -eq 1 ]
    refused "the model has 2 layers with a router" moe-view -l 2 "$streams/route.moes"
    refused "--type foo: no such record type; route streams have the types begin, route, end_sequence" moe-view -t foo "$streams/route.moes"
}

@test "CSV is a table of one type" {
    fine moe-view --csv -t coverage "$streams/coact.moes"
    [ "$output" = "layer,method,tokens,points,budget,mass,served
0,mass,100,3,1,0.25,0.0
0,mass,100,3,2,0.5,0.125
0,mass,100,3,4,1.0,1.0" ]
    fine moe-view --csv "$streams/rank.moes"
    [ "${lines[0]}" = layer,method,budget,order,score ]
    [ "${lines[1]}" = 0,mass,,2,4.0 ]
    [ "${#lines[@]}" -eq 9 ]
    fine moe-view --csv -t done "$streams/decode.moes"
    [ "${lines[0]}" = sequence,id,n,text,finish_reason,num_drafts,num_draft_tokens,num_accepted_tokens ]
    [ "${lines[1]}" = '0,a,2,"one, ""two""' ]
    fine moe-view --csv -t iter "$streams/decode.moes"
    python3 -c 'import csv, sys
row = next(csv.DictReader(sys.stdin))
assert None not in row and row["policy"] == "{\"K\": 2, \"phase\": \"set\", \"utility\": 1.25}", row' <<< "$output"
    [[ ${lines[1]} == *',123456789012,'* ]]
    # An iteration names its setting in a bench stream, its prompt, and its number in that text.
    echo '{"model": "'"$MOE_POCKET"'", "prompts": "two.jsonl", "options": {"max-tokens": 3, "ignore-eos": true},
        "settings": [{"name": "a, b"}, {"name": "K2", "draft": "ngram", "draft-length": 2}], "repetitions": 2,
        "measure-seconds": 0, "warm-up": 0}' > suite.json
    printf '{"id": "x", "prompt": "NAME"}\n{"id": "y", "prompt": "SUM"}\n' > two.jsonl
    moe-bench run -q suite.json -o bench.moes
    fine moe-view --csv -t iter bench.moes
    [[ ${lines[0]} == setting,repeat,id,iteration,sequence,t_us,* ]]
    [ "$(python3 -c 'import csv, sys
rows = [row for row in csv.DictReader(sys.stdin) if row["setting"] == "a, b"]
print(*(row["repeat"] + row["id"] + row["iteration"] for row in rows))' <<< "$output")" = '0x0 0x1 0y0 0y1 1x0 1x1 1y0 1y1' ]
    fine moe-view --csv -t iter -s 5 bench.moes
    [[ ${lines[1]} == '"a, b",1,x,0,5,'* ]]
    fine moe-view --csv -t iter "$streams/decode.moes"
    [[ ${lines[1]} == ,,a,0,0,* ]]
    refused "choose it with --type: machine, begin, iter, draft, done" moe-view --csv "$streams/decode.moes"
}

@test "a pipe is read like a file, and each record is shown when it arrives" {
    moe-view --json "$streams/decode.moes" > file
    cat "$streams/decode.moes" | moe-view --json > pipe
    cat "$streams/decode.moes" | moe-view --json - > dash
    cmp file pipe
    cmp file dash
    mkfifo in
    moe-view --json in > live 7>&- 3>&- &
    exec 7> in
    head -c 1700 "$streams/decode.moes" >&7
    for _ in $(seq 100); do
        [ "$(wc -l < live)" -ge 5 ] && break
        sleep 0.05
    done
    [ "$(wc -l < live)" -ge 5 ]
    tail -c +1701 "$streams/decode.moes" >&7
    exec 7>&-
    wait
    cmp file live
}

@test "a non-blocking pipe is waited for" {
    fine python3 - "$streams/decode.moes" <<'PY'
import fcntl, os, subprocess, sys, time
read, write = os.pipe()
fcntl.fcntl(read, fcntl.F_SETFL, os.O_NONBLOCK)
data = open(sys.argv[1], 'rb').read()
viewer = subprocess.Popen(['moe-view', '--verify'], stdin=read)
os.close(read)
for part in data[:500], data[500:]:
    time.sleep(0.1)
    os.write(write, part)
os.close(write)
sys.exit(viewer.wait())
PY
}

@test "--verify accepts only complete files" {
    fine moe-view --verify "$streams/decode.moes"
    [[ $output == *"decode.moes: whole: a decode stream of 7 records, 2.0 kB" ]]
    size=$(wc -c < "$streams/decode.moes")
    for cut in 0 1 10 14 15 100 1100 1500 $((size - 1)); do
        head -c "$cut" "$streams/decode.moes" > cut.moes
        refused "cut.moes: " moe-view --verify cut.moes
        [ ! -s stdout ]
    done
    cat "$streams/rank.moes" "$streams/rank.moes" > twice.moes
    refused "the end record is followed by more bytes" moe-view --verify twice.moes
    for at in 5 20 300 1200 1500 2000 2044; do
        cp "$streams/decode.moes" flip.moes
        flip flip.moes "$at"
        refused "flip.moes: " moe-view --verify flip.moes
    done
}

@test "--verify reads several files, and reports for each whether it is complete" {
    fine moe-view --verify "$streams/decode.moes" "$streams/rank.moes" "$MOE_POCKET"
    [ "${#lines[@]}" -eq 3 ]
    [[ ${lines[1]} == *"rank.moes: whole: a rank stream of 3 records, 1.3 kB" ]]
    [[ ${lines[2]} == *": whole: a model of 51 tensors" ]]
    head -c 1000 "$streams/decode.moes" > cut.moes
    status=0
    moe-view --verify cut.moes "$streams/rank.moes" none.moes > stdout 2> stderr || status=$?
    [ "$status" -eq 2 ]
    [ "$(wc -l < stdout)" -eq 1 ]
    grep -q "rank.moes: whole" stdout
    [ "$(wc -l < stderr)" -eq 3 ]
    grep -q "^moe-view: cut.moes: is truncated" stderr
    grep -q "^moe-view: none.moes: No such file" stderr
    [ "$(tail -n 1 stderr)" = "moe-view: 2 of 3 files are incomplete or damaged" ]
    refused "is a second file, and only --verify reads several" moe-view "$streams/rank.moes" cut.moes
    refused "standard input is named twice" moe-view --verify - - < cut.moes
}

@test "files that are not streams are identified" {
    : > empty
    refused "empty: is empty, so its producer wrote nothing" moe-view empty
    echo '{"prompt": "hello"}' > prompts.jsonl
    refused "prompts.jsonl: is not a moekit stream" moe-view prompts.jsonl
    refused "none.moes: No such file" moe-view none.moes
    refused "is a folder; name a file" moe-view .
    refused "exclude each other" moe-view --json --csv "$streams/rank.moes"
    sed 's/\r//' "$streams/rank.moes" > unix.moes
    refused "unix.moes: a conversion of line ends damaged the stream" moe-view unix.moes
}

@test "a model file is shown and verified too" {
    fine moe-view "$MOE_POCKET"
    [[ $output == *"6 layers with 32 experts of inner width 64, 4 a token"* ]]
    [[ $output == *"    8.5 M parameters, 2.3 M of them active for a token"* ]]
    [[ $output == *"    from model.safetensors, 17.1 MB, "* ]]
    [[ $output == *"layers.5.experts "*" 32 of [192][64] "*" 2.4 MB at "* ]]
    fine moe-view --csv -l 5 "$MOE_POCKET"
    [[ ${lines[1]} == layers.5.attention.norm,vector,f32,5,192,1,1,* ]]
    moe-view --json "$MOE_POCKET" > out
    fine python3 - out <<'PY'
import json, sys
model, *tensors = map(json.loads, open(sys.argv[1]))
assert model['type'] == 'model' and model['experts'] == 32 and model['eos'] == [2047] and model['norm_epsilon'] == 1e-05
count = lambda t: (3 if t['kind'] == 'experts' else 1) * t['count'] * t['outputs'] * t['inputs']
assert model['parameters'] == sum(map(count, tensors)) == 8495040
assert model['active_parameters'] == sum(count(t) // (8 if t['kind'] == 'experts' else 1) for t in tensors)
assert len(tensors) == 51 and {t['type'] for t in tensors} == {'tensor'}
PY
    fine moe-view --verify "$MOE_POCKET"
    [[ $output == *": whole: a model of 51 tensors" ]]
    cp "$MOE_POCKET" flip.moe
    flip flip.moe 2000000
    refused "flip.moe" moe-view --verify flip.moe
    refused "standard input: a model file cannot be read from a pipe, because it is mapped" moe-view < flip.moe
    refused "a model file has the types model and tensor" moe-view -t rank flip.moe
}

@test "-o writes complete files only" {
    moe-view --json "$streams/rank.moes" -o out.json
    moe-view --json "$streams/rank.moes" | cmp - out.json
    head -c 1200 "$streams/rank.moes" > cut.moes
    refused "truncated" moe-view --json cut.moes -o bad.json
    [ ! -e bad.json ]
    refused "No space left" moe-view --json "$streams/rank.moes" -o /dev/full
    fine bash -c "moe-view '$streams/decode.moes' | head -1"
    run bash -c "moe-view '$streams/decode.moes' > /dev/full"
    [ "$status" -eq 2 ]
}

@test "memory is bounded whatever sizes a stream claims" {
    { head -c 15 "$streams/rank.moes"; printf '\xdd\x05\xff\xff\xff\xc0'; } > claim.moes
    limit=400000
    ( ulimit -v "$limit"; moe-view --version ) > /dev/null 2>&1 || limit=unlimited      # a sanitised build maps terabytes
    ( ulimit -v "$limit"; refused "more than the limit" moe-view claim.moes )
    { head -c 15 "$streams/rank.moes"; head -c 100 /dev/zero | tr '\0' '\221'; } > deep.moes
    refused "nested more than 32 deep" moe-view deep.moes
}

@test "the examples of moe-view(1) run as written" {
    cp "$streams/rank.moes" "$streams/decode.moes" .
    awk '/^\.Sh / { inside = ($2 == "EXAMPLES") } /^\.Ed/ { on = 0 } inside && on; /^\.Bd/ { on = 1 }' \
        "$BATS_TEST_DIRNAME/../../man/moe-view.1" > examples
    [ "$(grep -c moe-view examples)" -ge 4 ]
    fine bash -e -o pipefail examples
    [[ $output == *"rank.moes: whole: a rank stream of 3 records"* ]]
    [[ ${lines[-1]} == '{"type": "done", "sequence": 1, '* ]]
    [ "$(wc -l < iter.csv)" -eq 3 ]
}
