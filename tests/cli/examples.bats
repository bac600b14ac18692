#!/usr/bin/env bats
# Every example in a man page runs as written, in a folder with the files it names. An example is a line `.Dl` or a block `.Bd
# -literal` whose first word is a program; a block that begins with a brace is the file that the text before it names.

load common

# Splits the examples of page $1 into files: 01.sh, 02.sh, ... in order, and the files that the page shows.
extract() {
    awk '
        function text(line) { gsub(/\\e/, "\\", line); gsub(/\\-/, "-", line); gsub(/\\&/, "", line); gsub(/\\\(aq/, "\047", line); return line }
        function begin_script() { file = sprintf("%02d.sh", ++number) }
        /^\.Sh / { inside = ($2 == "EXAMPLES" || FILENAME ~ /\.7$/) }
        !inside { next }
        /^\.Pa / { named = $2 }
        /^\.Dl / { begin_script(); print text(substr($0, 5)) > file; close(file); next }
        /^\.Bd -literal/ { block = 1; first = 1; next }
        /^\.Ed/ { if (block) close(file); block = 0; next }
        block {
            if (first && /^[{[]/) file = named
            else if (first) begin_script()
            first = 0
            print text($0) > file
        }' "$1"
}

# The files that examples name, made from the pocket model: small, because they only need to run.
sandbox() {
    mkdir -p "$1"
    cd "$1"
    ln -s "$MOE_POCKET" pocket.moe
    cp "$MOE_POCKET" olmoe.moe                          # not a link: an example overwrites it
    cp -r "$MOE_MODELS/pocket/model" olmoe              # not a link: tar would pack it as one
    ln -s "$MOE_MODELS/pocket/draft" draft
    ln -s "$MOE_MODELS/pocket/heads/eagle3" eagle3
    head -n 3 "$MOE_MODELS/pocket/calib.jsonl" > calib.jsonl
    head -n 2 "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    for task in code extract; do        # together as many as moe-bench compare requires
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 2 >> prompts.jsonl
    done
    if [ -n "$MOE_SANITIZED" ] && [ -z "$MOE_LONG" ]; then      # slow there: as many, but shorter
        for task in math code extract; do
            grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 2
        done | jq -c '.messages[].content |= (.[:14] + .[:14]) | .answer |= .[:14]' > prompts.jsonl
        head -n 2 prompts.jsonl > calib.jsonl
    fi
}

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    sandbox "$WORK/common"
    moe-convert -q draft -o draft.moe
    moe-profile -q -m pocket.moe -n 8 calib.jsonl -o routes.moes
    moe-coact rank-experts routes.moes -o rank.moes
    moe-decode -q -m pocket.moe -n 8 --draft ngram prompts.jsonl --stream decode.moes > /dev/null
}

run_page() {
    local page=$top/man/$1 script
    mkdir -p "$WORK/$1"
    cd "$WORK/$1"
    cp -rd "$WORK"/common/* .
    extract "$page"
    ls [0-9][0-9].sh > /dev/null || { echo "$1 has no examples"; return 1; }
    # Two examples write more than a gigabyte: unchanged only in the long check.
    [ "$MOE_LONG" ] || sed -i 's/ --expert-ffn 4096 / --expert-ffn 96 /; s/ --step 3% / --step 40% /; s/^\(moe-convert synthetic .*\)$/\1 --dry-run/' [0-9][0-9].sh
    # The measurements of a run, `roofline' or `plan' fill half a gigabyte each time.
    [ "$MOE_LONG" ] || sed -i 's/^  "settings": \[$/  "measure-seconds": 0,\n&/; s/^moe-bench run -m/moe-bench run --measure-seconds 0 -m/; s/^moe-bench plan .*$/& --seconds 0 --size 4M/
        s/^moe-bench roofline/& --size 32M/' [0-9][0-9].sh $(find . -name '*.json')
    # Sanitised commands are slow, and find the same errors in short answers as in long ones.
    [ -z "$MOE_SANITIZED" ] || [ "$MOE_LONG" ] || sed -i 's/-n \(256\|64\|24\)/-n 6/; s/"max-tokens": 24/"max-tokens": 4/; s/\[1, 4, 8\]/[4]/
        s/"prompts-per-task": 5/&, "max-tokens": 4/; s/ eval .*--text/& --tree dynamic:total=8,depth=3,topk=2/; s/--steps 10 /--steps 3 /; s/moe-profile skip/& --iterations 4 --window 8/; / -n /!s/moe-decode -m [a-z]*.moe/& -n 6/' [0-9][0-9].sh $(find . -name '*.json')
    for script in [0-9][0-9].sh; do
        grep -q "moe-" "$script" || { echo "$1: no command of this toolkit in: $(cat "$script")"; return 1; }
        run bash -e -o pipefail "$script" <<< 'What is 2 + 3?'         # a conversation reads its first turn there
        [ "$status" -eq 141 ] && grep -q '^yes ' "$script" && run bash -e "$script" < /dev/null       # yes(1) always ends by SIGPIPE
        [ "$status" -eq 0 ] || { echo "$1: $(cat "$script")"; echo "exit status $status: $output"; return 1; }
    done
    rm -f ./*.moe
}

@test "every command has a page with examples" {
    for name in $(commands); do
        mkdir -p "$WORK/has"
        cd "$WORK/has"
        rm -f [0-9][0-9].sh
        extract "$top/man/$name.1"
        ls [0-9][0-9].sh > /dev/null || { echo "man/$name.1 has no examples"; return 1; }
    done
}

@test "the examples of moe(7) run" { run_page moe.7; }

@test "the examples of moe-bench(1) run" { run_page moe-bench.1; }

# Each of Slurm's jobs runs by itself, with its number in the array. Without GNU parallel or mpirun a few lines run the jobs one
# after the other.
@test "the jobs of moe-cluster(7) run, and their parts add up to the whole" {
    mkdir -p "$WORK/jobs"
    command -v parallel > /dev/null || cat > "$WORK/jobs/parallel" <<'END'
#!/bin/bash
[ "$1 $3" = "-j -k" ] || exit 2
shift 3
while read -r each; do "${@//\{\}/$each}" < /dev/null || exit; done
END
    command -v mpirun > /dev/null || cat > "$WORK/jobs/mpirun" <<'END'
#!/bin/sh
[ "$1" = -n ] || exit 2
export OMPI_COMM_WORLD_SIZE=$2 OMPI_COMM_WORLD_RANK=0
shift 2
while [ $OMPI_COMM_WORLD_RANK -lt $OMPI_COMM_WORLD_SIZE ]; do
    "$@" || exit
    OMPI_COMM_WORLD_RANK=$((OMPI_COMM_WORLD_RANK + 1))
done
END
    chmod -f +x "$WORK/jobs/"* || true
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    PATH=$WORK/jobs:$PATH SLURM_ARRAY_TASK_ID=2 run_page moe-cluster.7
    ln -s "$MOE_POCKET" pocket.moe
    limit=$(grep -ho -- '-n \(24\|6\) ' 01.sh)
    moe-decode -q -m pocket.moe $limit prompts.jsonl | cmp - answers.txt
    moe-decode -q -m pocket.moe $limit --json prompts.jsonl | sed -n 2p | cmp - part-02.jsonl
    moe-profile -q -m pocket.moe $limit prompts.jsonl -o whole.moes
    cmp <(moe-coact rank-experts --json whole.moes) <(moe-coact rank-experts --json routes.moes)
    [ "$(moe-view --json --type done ranks.moes | wc -l)" = "$(wc -l < prompts.jsonl)" ]
}

@test "the examples of moe-coact(1) run" { run_page moe-coact.1; }

@test "the examples of moe-convert(1) run" { run_page moe-convert.1; }

@test "the examples of moe-decode(1) run" { run_page moe-decode.1; }

@test "the examples of moe-draft-train(1) run" { run_page moe-draft-train.1; }

@test "the examples of moe-drafting(7) run" { run_page moe-drafting.7; }

@test "the examples of moe-offload(7) run" { run_page moe-offload.7; }

@test "the examples of moe-profile(1) run" { run_page moe-profile.1; }

@test "the examples of moe-ranks(7) run" {
    wants_mpi
    [ -z "$MOE_SANITIZED" ] || [ "$MOE_LONG" ] || skip "processes that wait for each other are slow there; the long check has them"
    run_page moe-ranks.7
}

@test "the examples of moe-view(1) run" { run_page moe-view.1; }

@test "no page is left out above" {
    for page in "$top"/man/moe*.[17]; do
        grep -q "run_page $(basename "$page")" "$BATS_TEST_FILENAME" || { echo "$page"; return 1; }
    done
}

# Subcommands that scripts rely on, and options of every command: a name may be added, none may be removed.
@test "names that other projects rely on exist" {
    while read -r name subcommands; do
        "$name" --help=spec > "$BATS_TEST_TMPDIR/spec"
        for word in $subcommands; do
            grep -q "^subcommand	$word	" "$BATS_TEST_TMPDIR/spec" || { echo "$name $word is gone"; return 1; }
        done
    done <<'NAMES'
moe-convert build head synthetic inflate list
moe-coact rank-experts coverage union locality merge
moe-bench run report roofline simulate
moe-profile record features skip
moe-draft-train train eval
moe-decode
moe-view
NAMES
    while read -r name options; do
        "$name" --help=spec > "$BATS_TEST_TMPDIR/spec"
        for option in help version $options; do
            awk -F '\t' -v option="$option" '$1 == "option" && $3 == option { found = 1 } END { exit !found }' \
                "$BATS_TEST_TMPDIR/spec" || { echo "$name --$option is gone"; return 1; }
        done
    done <<'NAMES'
moe-convert output dtype expert-dtype dry-run quiet progress threads
moe-profile model output max-tokens record shard draft policy budget rank text quiet device threads seed progress
moe-coact output by budget rank svg json csv text phase force quiet
moe-decode model output max-tokens temperature top-p top-k min-p stop ignore-eos draft draft-length policy budget rank budget-mode stream record json chat field whole template-arg prompt device threads seed force quiet progress
moe-bench output device threads text markdown csv json
moe-view verify json csv type sequence layer output
NAMES
}
