#!/usr/bin/env bats
# moe-draft-train under mpirun: several processes make the head of one, a fault of one ends all in one line, and what is killed
# goes on. Skipped where there is no MPI (make deps-mpi).

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    head -n 24 "$MOE_MODELS/pocket/calib.jsonl" > texts.jsonl
}

setup() { cd "$WORK"; }

options="train -m pocket.moe --arch eagle1 --rate 0.004 --noise 0.2"

# mpi PROCESSES OPTION...: moe-draft-train of so many processes; -q is mpirun's own.
mpi() {
    local count=$1
    shift
    timeout 100 mpirun -q -n "$count" moe-draft-train "$@"
}

losses() { moe-view --json --type step "$1" | jq -c '[.loss, .gradient_norm] + [.parts[]?]'; }

# Two lists of numbers are the same but for a hundred-thousandth.
near() {
    paste -d' ' "$1" "$2" | jq -es '[range(0; length; 2) as $i | [.[$i], .[$i + 1]] | transpose[]
        | (.[0] - .[1]) as $d | ($d * $d) <= (1e-10 * .[0] * .[0])] | length > 5 and all'
}

@test "two and three processes have the losses of one process, and write once" {
    wants_mpi
    moe-draft-train $options --steps 6 -q texts.jsonl -o one.moe --stream one.moes
    losses one.moes > one
    for count in 2 3; do
        mpi $count $options --steps 6 texts.jsonl -o head.moe --stream head.moes 2> said
        losses head.moes > many
        [ "$(wc -l < many)" = 6 ]
        near one many
        grep -qx 'moe-draft-train: 6 steps, the last loss [0-9.]*' said
        [ "$(grep -c . said)" = 1 ]
        moe-view --verify head.moe head.moes
    done
    # what nobody started as a job is one process, and so is each where it is asked for
    moe-draft-train $options --steps 6 -q --ranks none texts.jsonl -o none.moe
    cmp one.moe none.moe
}

@test "with --fold any number of processes gives the same bytes, from a checkpoint of another number, too" {
    wants_mpi
    moe-profile features -q -m pocket.moe --dtype f32 --validation 0.2 texts.jsonl -o states.moes
    fold="--fold --micro-batch 1 --epochs 2 --batch 3 states.moes"
    judged() { moe-view --json --type eval "$1" | jq -c '[.step, .loss, .best]'; }
    moe-draft-train $options -q $fold -o one.moe --best one-best.moe --stream one.moes
    mpi 3 $options -q $fold -o three.moe --best three-best.moe --stream three.moes
    judged one.moes > one
    [ "$(wc -l < one)" = 2 ]
    judged three.moes | cmp - one
    cmp one.moe three.moe
    cmp one-best.moe three-best.moe
    # Two are killed after their first checkpoint; one goes on.
    mpi 2 $options -q --every 0 $fold -o part.moe --best part-best.moe 3>&- > /dev/null 2>&1 & job=$!
    for _ in $(seq 500); do [ ! -e part.moe.checkpoint ] || break; sleep 0.02; done
    pkill -KILL -f -- '^moe-draft-train .* part.moe ' || true
    wait $job || true
    [ -e part.moe ] || moe-draft-train $options -q --every 0 $fold --resume -o part.moe --best part-best.moe
    cmp one.moe part.moe
    refute moe-draft-train $options -q --fold texts.jsonl -o no.moe
}

@test "a process that dies ends the job and is named; the job resumes from its checkpoint" {
    wants_mpi
    mpirun -n 3 moe-draft-train $options --steps 100000 --every 0 texts.jsonl -o dies.moe 3>&- 2> said & job=$!
    for _ in $(seq 500); do [ ! -e dies.moe.checkpoint ] || break; sleep 0.02; done
    for pid in $(pgrep -f -- "^moe-draft-train .*dies.moe$"); do
        tr '\0' '\n' < "/proc/$pid/environ" | grep -qx OMPI_COMM_WORLD_RANK=1 && victim=$pid
    done
    kill -KILL "$victim"
    wait $job && false || [ $? -ne 0 ]
    # by process 0 if it waited for it just then, in any case by mpirun
    grep -e "moe-draft-train: process 1 of 3 ($(hostname), pid $victim) has died" -e 'rank 1 .*on node .* exited on signal 9' said
    [ "$(grep -c '^moe-draft-train: ' said)" -le 1 ]
    [ ! -e dies.moe ]
    mpi 2 $options --steps 100000 --every 0 --resume texts.jsonl -o dies.moe 3>&- 2> said & job=$!
    for _ in $(seq 500); do grep -q 'goes on after step' said && break; sleep 0.02; done
    # a signal to one of them stops all after a step
    kill -TERM "$(pgrep -f -- "^moe-draft-train .*dies.moe$" | tail -n 1)"
    wait $job && false || [ $? -ne 0 ]
    grep -q '^moe-draft-train: ended by .* after step [0-9]*; --resume goes on$' said
    [ "$(grep -c '^moe-draft-train: ' said)" = 2 ]
}

@test "a fault ends all processes, with one line and exit status 2" {
    wants_mpi
    while IFS='|' read -r words part; do
        run mpi 2 train -m pocket.moe --arch eagle1 $words
        [ "$status" -eq 2 ] || { echo "$words: exit status $status: $output"; return 1; }
        [ "$(grep -c '^moe-draft-train: ' <<< "$output")" = 1 ] || { echo "$words: $output"; return 1; }
        [[ $output == *"$part"* ]] || { echo "$words: $output"; return 1; }
        [ ! -e no.moe ]
    done <<'WRONG'
nothing.jsonl -o no.moe|moe-draft-train: nothing.jsonl
- -o no.moe|standard input: several processes cannot read one pipe
texts.jsonl -o nowhere/no.moe|process 0 of 2 (
texts.jsonl -o no.moe --steps 2 --stream /dev/full|No space left on device
texts.jsonl -o no.moe --pin --steps 1|--pin: 2 processes may run on the same processors
WRONG
}

@test "several processes without an MPI plug-in are refused" {
    mkdir -p alone/bin
    cp "$MOE_BIN/moe-draft-train" alone/bin
    # as mpirun would have it; of the two one says it
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 run alone/bin/moe-draft-train $options --steps 1 texts.jsonl -o no.moe
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 run alone/bin/moe-draft-train $options --steps 1 texts.jsonl -o no.moe
    assert_trouble moe-draft-train
    [[ $output == *"this build has no moe-ranks-mpi.so; build where mpicc is; make deps-mpi installs it" ]]
    run alone/bin/moe-draft-train $options --ranks mpi --steps 1 texts.jsonl -o no.moe
    assert_trouble moe-draft-train
}
