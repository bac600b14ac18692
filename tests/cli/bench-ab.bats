#!/usr/bin/env bats
# moe-bench ab: whether one build is slower than another

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    mkdir "$WORK/suites" && cd "$WORK/suites"
    cp "$MOE_POCKET" pocket.moe
    head -n 2 "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    cat > ab.json <<'SUITE'
{ "model": "pocket.moe", "prompts": "prompts.jsonl", "settings": [{"name": "K2", "draft": "ngram", "draft-length": 2}],
  "options": {"max-tokens": 6}, "repetitions": 4 }
SUITE
    sed 's/"repetitions"/"measure-seconds": 0, &/' ab.json > fast.json
    sed 's/"ngram"/"model:file=pocket.moe"/; s/"draft-length": 2/"draft-length": 12/' fast.json > slow.json
    cd ..
    moe-bench run -q suites/fast.json -o fast.moes
    moe-bench run -q suites/slow.json -o slow.moes
    # Builds whose runs always have the times of these streams.
    local speed
    for speed in fast slow; do
        mkdir -p $speed/bin
        printf '#!/bin/sh\necho "$@" >> %s/%s.log\nexec cat %s/%s.moes\n' "$WORK" $speed "$WORK" $speed > $speed/bin/moe-bench
        chmod +x $speed/bin/moe-bench
    done
}

setup() { cd "$WORK"; rm -f ./*.log; }

@test "a build is not slower than itself, and a slower one is" {
    run moe-bench ab --build fast --build fast/bin/moe-bench suites/ab.json
    [ "$status" = 0 ]
    [[ "${lines[1]}" =~ ^"K2 ".*" 1.000 "\ *" 1.000  1.000-1.000  holds"$ ]]     # 8 rounds do not bound the measured ratio
    [[ "${lines[2]}" == "8 rounds; "*"least times in 1 run; limit: 5 %" ]]
    [ "$(sort -u fast.log)" = "run -q -" ]
    [ "$(wc -l < fast.log)" = 16 ]
    run moe-bench ab -j 1 --device host --build fast/bin --build slow suites/ab.json
    [ "$status" = 1 ]
    [[ "${lines[-1]}" == "moe-bench: setting 'K2' is slower: 0."*" times the earlier speed, at most 0."* ]]
    [ "$(sort -u slow.log)" = "run -q - -j 1 --device host" ]
    [ "$(wc -l < slow.log)" = 8 ]
    rm slow.log
    moe-bench ab --cache-experts 50% --build slow --build fast suites/ab.json
    [ "$(sort -u slow.log)" = "run -q - --cache-experts 50%" ]
    moe-bench ab --limit 99.9% --build fast --build slow suites/ab.json
}

@test "an undecided ab estimates the number of further rounds" {
    run moe-bench ab --rounds 3 --build fast --build fast suites/ab.json
    [ "$status" = 125 ]
    [ "${lines[-1]}" = "moe-bench: undecided after 3 rounds: 'K2' runs at 1.000 times the earlier speed; about 5 more rounds are needed for a verdict within 5 %: give --rounds 8" ]
    moe-bench ab --rounds 8 --build fast --build fast suites/ab.json
    run moe-bench ab --limit 0 --build fast --build fast suites/ab.json
    [ "$status" = 0 ]
}

@test "real builds run interleaved, and the kept streams reproduce every figure" {
    [ -z "$MOE_SANITIZED" ] || skip "takes long with sanitisers"
    [ -n "$MOE_LONG" ] || sed -i 's/"repetitions": 4/"repetitions": 2/' suites/ab.json
    code=0
    moe-bench ab --rounds 4 --build "$MOE_BIN" --build "$MOE_BIN/moe-bench" --keep kept --json suites/ab.json > ab.jsonl || code=$?
    [ $code = 125 ]
    [ "$(ls kept | paste -sd' ')" = "base-1.moes base-2.moes base-3.moes base-4.moes now-1.moes now-2.moes now-3.moes now-4.moes" ]
    moe-view --json kept/now-4.moes | jq -se 'any(.[]; .type == "machine") and all(.[]; .read_bandwidth == null)'
    tail -n 1 ab.jsonl | jq -e '.verdict == "undecided" and .rounds == 4 and .rounds_per_block == 2 and (.reason | test("more rounds"))'
    python3 "$top/tests/bench/interleaved.py" ab.jsonl kept
    sed '/"row"/s/"ratio":\([0-9.]*\)/"ratio":1\1/' ab.jsonl > wrong.jsonl
    run python3 "$top/tests/bench/interleaved.py" wrong.jsonl kept
    [ "$status" = 1 ]
}

@test "a real delay is detected under load" {
    [ -n "$MOE_LONG" ] && [ -z "$MOE_SANITIZED" ] || skip "takes a minute"
    printf '#!/bin/sh\nsed s/ngram/model:file=pocket.moe/ | "%s/moe-bench" "$@"\n' "$MOE_BIN" > delayed
    chmod +x delayed
    timeout 300 sh -c 'while :; do :; done' & one=$!
    timeout 300 sh -c 'while :; do :; done' & two=$!
    code=0
    moe-bench ab --build "$MOE_BIN" --build ./delayed suites/ab.json || code=$?
    moe-bench ab --limit 20% --build "$MOE_BIN" --build "$MOE_BIN" suites/ab.json
    kill $one $two
    [ $code = 1 ]
}

@test "a failing build is reported in one line, with its error" {
    local words part
    printf '#!/bin/sh\necho moe-bench: no such thing >&2; echo more >&2; exit 2\n' > fails
    printf '#!/bin/sh\nkill -SEGV $$\n' > dies
    printf '#!/bin/sh\necho text\n' > talks
    printf 'x' > nothing
    chmod +x fails dies talks nothing
    while IFS='|' read -r words part; do
        run moe-bench ab $words
        assert_trouble moe-bench
        [[ $output == *"$part"* ]] || { echo "$words: $output does not say $part"; return 1; }
    done <<'WRONG'
--build fast suites/ab.json|--build: expected two builds, got 1; give --build OLD --build NEW
suites/ab.json|--build: expected two builds, got
--build fast --build none suites/ab.json|--build none: contains no moe-bench; name the program, or the folder
--build fast --build suites suites/ab.json|--build suites: contains no moe-bench
--build fast --build ./fails suites/ab.json|--build ./fails: ended with exit status 2: moe-bench: no such thing
--build fast --build ./dies suites/ab.json|--build ./dies: ended with signal 11
--build fast --build ./talks suites/ab.json|--build ./talks: /proc/self/fd/
--build fast --build ./nothing suites/ab.json|--build ./nothing: ended with exit status 127
--build fast --build fast suites/none.json|suites/none.json
--build fast --build fast suites/prompts.jsonl|suites/prompts.jsonl
--build fast --build fast -|give it as a file
--build fast --build fast --limit 2x suites/ab.json|--limit
--build fast --build fast --keep fast.moes suites/ab.json|--keep fast.moes: is not a folder
--build fast --build fast|SUITE
WRONG
}

@test "the recipe of moe-bench(1) passes, fails, and does not pass if ab is undecided" {
    [ -z "$MOE_SANITIZED" ] || skip "takes long with sanitisers"
    mkdir recipe
    cp suites/pocket.moe suites/prompts.jsonl recipe
    cd recipe
    awk '/^\.Ss In continuous/ { inside = 1 } /^\.Ed/ { if (block) exit } block; inside && /^\.Bd/ { block = 1 }' \
        "$top/man/moe-bench.1" > recipe.sh
    [ "$(grep -c moe-bench recipe.sh)" = 5 ]
    ln -s ../fast old
    ln -s ../fast new
    sed 's/"repetitions": [0-9]/"gate": [{"setting": "K2", "figure": "acceptance_length", "least": 1}], "measure-seconds": 0, &/' \
        ../suites/ab.json > suite.json
    sed 's/{"name": "K2"/{"name": "none"}, &/' ../suites/fast.json > same.json
    cp ../fast.moes .
    sh recipe.sh
    grep -q '<html' report.html
    grep -q 'failures="0"' junit.xml
    ln -sfn ../slow new
    run sh recipe.sh
    [ "$status" = 1 ]
    [[ "${lines[-1]}" == *"'K2' is slower"* ]]
    ln -sfn ../fast new
    sed -i 's/moe-bench ab/& --rounds 2/' recipe.sh
    run sh recipe.sh
    [ "$status" = 125 ]
    sed -i 's/"least": 1/"least": 9/' suite.json
    run sh recipe.sh
    [ "$status" = 1 ]
    [[ "${lines[-1]}" == *"1 of the suite's 1 gates failed" ]]
}

@test "a signal also ends the running build" {
    printf '#!/bin/sh\necho $$ > pid\nexec sleep 60\n' > waits
    chmod +x waits
    moe-bench ab --build ./waits --build ./waits suites/ab.json &
    for _ in $(seq 200); do [ ! -s suites/pid ] || break; sleep 0.02; done
    kill -TERM $!
    code=0
    wait $! || code=$?
    [ $code = 143 ]
    for _ in $(seq 50); do kill -0 "$(cat suites/pid)" 2> /dev/null || break; sleep 0.02; done
    refute kill -0 "$(cat suites/pid)" 2> /dev/null
}
