#!/usr/bin/env bats
# moe-draft-train and moe-decode under mpirun: several processes produce the head, or the text, of one; an error of one ends all
# in one line, and killed runs resume. Skipped without MPI (make deps-mpi).

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    head -n 24 "$MOE_MODELS/pocket/calib.jsonl" > texts.jsonl
    head -n 3 "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
}

setup() { cd "$WORK"; }

options="train -m pocket.moe --arch eagle1 --rate 0.004 --noise 0.2"

# mpi PROCESSES OPTION...: runs moe-draft-train with that many processes; -q is mpirun's own.
mpi() {
    local count=$1
    shift
    timeout 100 mpirun -q -n "$count" moe-draft-train "$@" < /dev/null
}

losses() { moe-view --json --type step "$1" | jq -c '[.loss, .gradient_norm] + [.parts[]?]'; }

# Two lists of numbers agree within a hundred-thousandth.
near() {
    paste -d' ' "$1" "$2" | jq -es '[range(0; length; 2) as $i | [.[$i], .[$i + 1]] | transpose[]
        | (.[0] - .[1]) as $d | ($d * $d) <= (1e-10 * .[0] * .[0])] | length > 5 and all'
}

# Kills process 1 of the job $job, whose command lines match the pattern, and waits for the job, which must fail. Sets $victim.
kill_process_1() {
    local pid
    for pid in $(pgrep -f -- "$1"); do
        tr '\0' '\n' < "/proc/$pid/environ" | grep -qx OMPI_COMM_WORLD_RANK=1 && victim=$pid
    done
    kill -KILL "$victim"
    wait $job && false || [ $? -ne 0 ]
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
        grep -qx 'moe-draft-train: training finished: 6 steps, loss of the last step [0-9.]*' said
        [ "$(grep -c . said)" = 1 ]
        moe-view --verify head.moe head.moes
    done
    # a process that was not started as part of a job is a job of its own, and so is each if requested
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
    # Two processes are killed after their first checkpoint; one process resumes.
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
    kill_process_1 "^moe-draft-train .*dies.moe$"
    # by process 0 if it was waiting for it, in any case by mpirun
    grep -e "moe-draft-train: process 1 of 3 ($(hostname), pid $victim) ended unexpectedly" -e 'rank 1 .*on node .* exited on signal 9' said
    [ "$(grep -c '^moe-draft-train: ' said)" -le 1 ]
    [ ! -e dies.moe ]
    mpi 2 $options --steps 100000 --every 0 --resume texts.jsonl -o dies.moe 3>&- 2> said & job=$!
    for _ in $(seq 500); do grep -q 'continues after step' said && break; sleep 0.02; done
    # a signal to one of them stops all after a step
    kill -TERM "$(pgrep -f -- "^moe-draft-train .*dies.moe$" | tail -n 1)"
    wait $job && false || [ $? -ne 0 ]
    grep -q '^moe-draft-train: ended by .* after step [0-9]*; --resume continues$' said
    [ "$(grep -c '^moe-draft-train: ' said)" = 2 ]
}

@test "a fault ends all processes, with one line and exit status 2" {
    wants_mpi
    while IFS='|' read -r words part; do
        run mpi 2 train -m pocket.moe --arch eagle1 $words
        [ "$status" -eq 2 ] || { echo "$words: exit status $status: $output"; return 1; }
        [ "$(grep -c '^moe-draft-train: ' <<< "$output")" = 1 ] || { echo "$words: $output"; return 1; }
        [[ $output == *"$part"* ]] || { echo "$words: $output"; return 1; }
        # the head is complete before the end of the stream cannot be written
        [ ! -e no.moe ] || [[ $words == */dev/full ]]
        rm -f no.moe
    done <<'WRONG'
nothing.jsonl -o no.moe|moe-draft-train: nothing.jsonl
- -o no.moe|standard input: several processes cannot read one pipe
texts.jsonl -o nowhere/no.moe|process 0 of 2 (
texts.jsonl -q -o no.moe --steps 2 --stream /dev/full|No space left on device
texts.jsonl -o no.moe --nope|unknown option --nope
texts.jsonl -o no.moe --pin --steps 1|--pin: 2 processes share the same processors
WRONG
}

# Records of a decode stream without times and facts that depend on the number of processes.
untimed() {
    moe-view --json "$1" | jq -c 'select(.type != "header" and .type != "machine" and .type != "end")
        | walk(if type == "object" then with_entries(select(.key | test("_us$") | not)) else . end)'
}

decodes="-m pocket.moe -n 24 --ignore-eos prompts.jsonl"

@test "moe-decode: two and three processes share the experts, and have text and records of one" {
    wants_mpi
    moe-profile -q -n 0 -m pocket.moe prompts.jsonl | moe-coact rank-experts -q --by mass -o rank.moes
    while read -r count words; do
        moe-decode -q $decodes ${words/--placement rank.moes} --json --stream one.moes > one.jsonl
        timeout 100 mpirun -q -n "$count" moe-decode --ranks mpi -q $decodes $words --json --stream many.moes \
            > many.jsonl < /dev/null
        cmp one.jsonl many.jsonl || { echo "$count processes: $words"; return 1; }
        untimed one.moes > one
        [ "$(wc -l < one)" -gt 20 ]
        untimed many.moes | cmp one - || { echo "$count processes: $words"; return 1; }
        moe-view --json many.moes | jq -se --arg many "$count share the experts" '.[0].labels.processes == $many' > /dev/null
    done <<'RUNS'
2 -d ngram
2 --placement rank.moes
3 -d ngram --tree dynamic:total=8,depth=4,topk=2 --temperature 0.8 --record route
2 --parallel 2 -d ngram -K 3 --stop e.
RUNS
    # a policy that uses measured times follows process 0's times in all processes: texts are equal, and no process diverges
    moe-decode -q $decodes > one.txt
    timeout 100 mpirun -q -n 2 moe-decode --ranks mpi -q $decodes -d ngram --policy cascade-cost -o many.txt
    cmp one.txt many.txt
    timeout 100 mpirun -q -n 2 moe-decode --ranks mpi -q $decodes -d ngram --policy cascade --parallel 3 -o many.txt
    cmp one.txt many.txt
}

@test "moe-decode: a process does not read the experts of the others" {
    wants_mpi
    # The experts e of layer n with (e + n) mod 2 = 1 belong to process 1; process 0's file lacks them.
    moe-view --json pocket.moe | jq -r 'select(.type == "tensor" and .kind == "experts") | . as $t | range(.count)
        | select((. + $t.layer) % 2 == 1) | [$t.offset + . * $t.stride, $t.stride] | @tsv' > others
    [ "$(wc -l < others)" -gt 50 ]
    cp pocket.moe own.moe
    python3 -c 'import sys
with open("own.moe", "r+b") as file:
    for line in open("others"):
        at, count = map(int, line.split())
        file.seek(at)
        file.write(b"\xff" * count)'
    moe-decode -q $decodes > one.txt
    timeout 100 mpirun -q -n 1 moe-decode --ranks mpi -q ${decodes/pocket/own} -o own.txt : \
        -n 1 moe-decode --ranks mpi -q $decodes -o own.txt
    cmp one.txt own.txt
    moe-decode -q ${decodes/pocket/own} > other.txt 2> /dev/null || true
    refute cmp -s other.txt one.txt
}

@test "moe-decode: a fault, or a difference, ends all processes in one line; what was done goes on" {
    wants_mpi
    while IFS='|' read -r first second part; do
        run timeout 100 mpirun -q -n 1 moe-decode --ranks mpi $decodes -o no.txt $first : \
            -n 1 moe-decode --ranks mpi $decodes -o no.txt $second < /dev/null
        [ "$status" -eq 2 ] || { echo "$first: exit status $status: $output"; return 1; }
        [ "$(grep -c '^moe-decode: ' <<< "$output")" = 1 ] || { echo "$first: $output"; return 1; }
        [[ $output == *"$part"* ]] || { echo "$first: $output"; return 1; }
        [ ! -e no.txt ]
    done <<'WRONG'
--parallel 2||moe-decode: --ranks: the options of process 1 of 2 differ from those of process 0
--cache-experts 50%|--cache-experts 50%|moe-decode: --ranks: each process maps its own experts; leave --cache-experts out
|-d ngram --calibration nowhere/file|moe-decode: process 1 of 2 (
--isa plain||, process 0 host plain; choose an instruction set
|--temperature 0.5|moe-decode: --ranks: the options of process 1 of 2 differ from those of process 0
|--placement rank.moes|does not compute what process 0 computes
--placement prompts.jsonl|--placement prompts.jsonl|moe-decode: --placement: prompts.jsonl
|texts.jsonl|does not compute what process 0 computes
WRONG
    # one process checks the file, too
    run moe-decode --ranks auto --placement prompts.jsonl $decodes -o no.txt
    [ "$status" -eq 2 ] && [[ $output == "moe-decode: --placement: prompts.jsonl"* ]]
    # a process with another file
    moe-convert synthetic -q --like "$MOE_MODELS/pocket/model/config.json" --seed 2 -o other.moe
    run timeout 100 mpirun -q -n 1 moe-decode --ranks mpi $decodes -o no.txt : \
        -n 1 moe-decode --ranks mpi ${decodes/pocket/other} -o no.txt < /dev/null
    [ "$status" -eq 2 ] && [ ! -e no.txt ]
    [[ $output == "moe-decode: --ranks: process 1 of 2 has a model file whose index has the digest "*"; copy one file to all machines"* ]]
    long="-m pocket.moe -n 2000 -c 2040 --ignore-eos prompts.jsonl --stream dies.moes"
    mpirun -q -n 3 moe-decode --ranks mpi $long -o dies.txt 3>&- 2> said & job=$!
    for _ in $(seq 500); do [ ! -s dies.moes.part ] || break; sleep 0.02; done
    kill_process_1 "^moe-decode .*dies.txt$"
    grep -e "^moe-decode: process 1 of 3 ($(hostname), pid $victim) ended unexpectedly" -e 'rank 1 .*on node .* exited on signal 9' said
    [ ! -e dies.txt ] && [ ! -e dies.moes ]
}

@test "moe-bench machine: several processes measure the network between them, for plans" {
    wants_mpi
    timeout 100 mpirun -q -n 2 moe-bench machine --ranks mpi --products --seconds .01 --size 1M --json > machine.json < /dev/null
    [ "$(wc -l < machine.json)" = 1 ]
    jq -e '.network.bytes_per_second > 0 and .network.latency_us >= 0' machine.json
    moe-bench plan -m pocket.moe --machine machine.json --ranks 2 --json -d ngram | jq -se 'map(select(.by == "ranks")) | .[-1].ranks == 1024'
    run moe-bench machine --ranks mpi --products --seconds .01
    [ "$status" -eq 2 ]
    [[ $output == "moe-bench: --ranks: "*"mpirun -n 2" ]]
}

@test "a process that is killed before all have met is named, and an mpirun that then hangs is ended" {
    mkdir -p early/bin early/lib/moekit
    cp "$MOE_BIN/moe-decode" early/bin
    mkfifo early/lib/moekit/moe-ranks-mpi.so early/never    # a process waits where it opens the plug-in
    cat > early/mpirun <<'LAUNCHER'
#!/bin/bash
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_RANK=1
exec 3<> early/never
early/bin/moe-decode --ranks mpi -m pocket.moe prompts.jsonl 2> early/said &
until pgrep -P $! > /dev/null; do read -rt 0.02 -u 3; done
echo $! > early/victim
kill -KILL $!
read -ru 3
LAUNCHER
    chmod +x early/mpirun
    run timeout 60 early/mpirun
    [ "$status" -eq 137 ] || { echo "exit status $status: $output"; return 1; }
    diff early/said - <<< "moe-decode: process 1 of 2 ($(hostname), pid $(cat early/victim)) ended unexpectedly"
}

@test "several processes without an MPI plug-in are refused" {
    mkdir -p alone/bin
    cp "$MOE_BIN/moe-draft-train" alone/bin
    # as mpirun would have it; process 1 leaves the message to process 0, and waits until mpirun ends it
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 run timeout 1 alone/bin/moe-draft-train $options --steps 1 texts.jsonl -o no.moe
    [ "$status" -eq 124 ]
    [ -z "$output" ]
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 run alone/bin/moe-draft-train $options --steps 1 texts.jsonl -o no.moe
    assert_trouble moe-draft-train
    [[ $output == *"moe-ranks-mpi.so is not part of this build; build it on a machine with mpicc, which make deps-mpi installs" ]]
    run alone/bin/moe-draft-train $options --ranks mpi --steps 1 texts.jsonl -o no.moe
    assert_trouble moe-draft-train
}
