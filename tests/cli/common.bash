# Loaded by every file of command tests: `load common`. The commands are in PATH; $MOE_POCKET is the pocket model
# converted, $MOE_MODELS the folder of test models, $MOE_SANITIZED set under sanitisers (take less then).

: "${MOE_MODELS:=$BATS_TEST_DIRNAME/../models}"
top=$BATS_TEST_DIRNAME/../..

# Bats before 1.4 makes no folder for a test; this one is removed by the system's own cleaning.
if [ -z "$BATS_TEST_TMPDIR" ]; then
    BATS_TEST_TMPDIR=$(mktemp -d)
fi

# Makes the folder $2 of a checkpoint of family $1 with a predictor (tests/golden/mtp/qwen.py, exaone.py).
with_predictor() {
    local golden=$BATS_TEST_DIRNAME/../golden shard=$1
    [ "$1" != qwen3_5_moe ] || shard=qwen3_next
    mkdir -p "$2"
    ln -s "$golden/families/$1/model/config.json" "$2"
    ln -s "$golden/families/$1/model/model.safetensors" "$2/model-00001-of-00002.safetensors"
    ln -s "$golden/mtp/$shard/model-00002-of-00002.safetensors" "$2"
}

# With drafts by its predictor, the model $2 of family $1 accepts in each iteration as many tokens as an independent program
# states, in chains and in trees, and writes the same text.
drafts_as_golden() {
    local golden=$BATS_TEST_DIRNAME/../golden/mtp/$1/golden.json shape
    jq -c '{id: "one", tokens: .prompt[:12]}' "$golden" > accepted.jsonl
    for shape in 'chain -K 4' 'tree --tree dynamic:total=10,depth=3,topk=3'; do
        # shellcheck disable=SC2086
        moe-decode -q -m "$2" -n 60 --ignore-eos --json -d mtp ${shape#* } --stream accepted.moes accepted.jsonl > accepted.json
        moe-view --json accepted.moes | jq -s -e --slurpfile text accepted.json --slurpfile golden "$golden" --arg kind "${shape%% *}" '
            [.[] | select(.type == "iter" and .drafted > 0) | .accepted] == $golden[0].accepted[$kind] and
            $text[0].tokens == $golden[0].answer' > /dev/null || { echo "$1: ${shape%% *}: others are accepted"; return 1; }
    done
}

# Prints the largest difference of a logit to transformers': FAMILY, the model file, and options of moe-profile. FAMILY.jsonl
# has the prompt of the golden, which has logits of every fourth position or of more.
distance() {
    local family=$1 model=$2
    shift 2
    moe-profile -q -m "$model" --record logits "$@" $family.jsonl | moe-view --json |
        jq -s --slurpfile golden "$GOLDEN/$family/golden.json" '
            [.[] | select(.type == "route") | .logits[]] as $got | $golden[0].logits as $want |
            (($got | length) / ($want | length)) as $step |
            if ([1, 2, 4] | index($step) | not) or ($got[0] | length) != ($want[0] | length) then "other shapes" else
            [range($want | length) as $t | range($want[0] | length) as $v |
             $got[($t + 1) * $step - 1][$v] - $want[$t][$v] | fabs] | max end'
}

within() { jq -n -e --argjson d "$1" "\$d < $2" > /dev/null || { echo "a logit is off by $1"; return 1; }; }

# The commands that exist, one per word.
commands() { (cd "$top/cmd" && ls moe-*.c | sed 's/\.c$//'); }

# Finds the first Python that has msgpack and numpy: Debian's own if another is first in PATH. tests/run-checks searches once.
python_with_numpy() {
    local python
    [ -z "$MOE_PYTHON" ] || { echo "$MOE_PYTHON"; return; }
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import msgpack, numpy' 2>/dev/null && { echo "$python"; return; }
    done
    return 1
}

# Ends a command, or a function that runs commands, after $1 seconds of processor time: so a test that expects a refusal fails
# instead of waiting for a command that computes. Commands that wait without computing are ended with their job (tests/run-job).
slowness=${MOE_SLOWNESS:-1}
bound=$((120 * ${slowness%.*}))
bounded() (ulimit -t "$bound"; "$@")

# Replaces the `run` of bats, which takes twice as long: bounds the command, and sets $output (with standard error), $status and
# $lines. -N: the command must end with exit status N.
run() {
    local run_expected= run_flags=$-
    [[ $1 != -[0-9]* ]] || { run_expected=${1#-}; shift; }
    set +eET
    output=$(ulimit -t "$bound"; "$@" 2>&1)
    status=$?
    IFS=$'\n' read -d '' -r -a lines <<< "$output"
    set "-$run_flags"
    if [ "$status" -ne "${run_expected:-$status}" ] || [ "$status" = 127 ]; then
        echo "exit status $status: $*: $output"
        return 1
    fi
}

# The command must fail by itself, not by a signal or the bound. A plain `! command` is no check, because a test ends only where
# a simple command fails.
refute() {
    local ended=0
    bounded "$@" || ended=$?
    [ "$ended" -ne 0 ] && [ "$ended" -lt 124 ] || { echo "exit status $ended: $*"; return 1; }
}

# flip FILE AT [MASK]: inverts bits of one byte, the lowest one by default. A constant might equal the file's byte.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\x$(printf %x $((byte ^ ${3:-1})))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# Skips without MPI (make deps-mpi); otherwise allows Open MPI to start as root, and more processes than processors.
wants_mpi() {
    command -v mpirun > /dev/null && [ -e "$MOE_BIN/../lib/moekit/moe-ranks-mpi.so" ] || skip "no MPI here: make deps-mpi"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none
}

# Checks that `run` caught one line on stderr that begins with the command's name, and that the exit status is 2.
assert_trouble() {
    [ "$status" -eq 2 ] || { echo "exit status $status: $output"; return 1; }
    [ "${#lines[@]}" -eq 1 ] || { echo "not one line: $output"; return 1; }
    [[ $output == "$1: "* ]] || { echo "does not begin with $1: $output"; return 1; }
}
