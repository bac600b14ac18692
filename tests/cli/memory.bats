#!/usr/bin/env bats
# A model larger than memory, a limit on address space, a file that is truncated while it is mapped, and a slow disk.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    head -n 2 "$MOE_MODELS/pocket/heldout.jsonl" > some.jsonl
    moe-decode -q -m pocket.moe -n 16 -d ngram some.jsonl --stream plain.moes > plain.txt
}

setup() { cd "$WORK"; }

# Runs a command that believes that $1 MiB of memory are left.
with_memory() {
    local mib=$1
    shift
    echo "MemAvailable: $((mib * 1024)) kB" > meminfo
    unshare -rm bash -c 'mount --bind meminfo /proc/meminfo && exec "$@"' - "$@"
}

wants_namespaces() { with_memory 1000 true 2> /dev/null || skip "no name spaces here"; }

# Prints a stream without times and facts of caches.
told() { moe-view --json "$1" | jq -c 'select(.type == "iter") | [.sequence, .drafted, .emitted, .tokens, .experts_loaded, .bytes]'; }

@test "a model larger than memory gets cached experts, with a note, and the same text" {
    wants_namespaces
    local note='moe-decode: pocket.moe: the weights take 16 MiB, and 12 MiB of memory are left; experts are cached (--cache-experts auto), and --cache-experts none maps the file; `moe-bench plan -m pocket.moe` shows what to expect'
    with_memory 12 moe-decode -c 256 -m pocket.moe -n 16 -d ngram some.jsonl --stream chosen.moes > text 2> notes
    [ "$(< notes)" = "$note" ]
    cmp text plain.txt
    cmp <(told chosen.moes) <(told plain.moes)
    [ "$(moe-view --json chosen.moes | jq -s '[.[] | select(.type == "iter").cache_misses] | add > 0')" = true ]
    # The automatic choice equals the option.
    with_memory 12 moe-decode -c 256 -m pocket.moe -n 16 -d ngram some.jsonl --cache-experts auto --stream auto.moes 2> notes | cmp - plain.txt
    [ ! -s notes ]
    moe-view --json auto.moes | jq -c 'select(.type == "iter") | [.cache_hits, .cache_misses]' > auto.jsonl
    moe-view --json chosen.moes | jq -c 'select(.type == "iter") | [.cache_hits, .cache_misses]' | cmp - auto.jsonl
    # Mapped if requested, and if memory suffices.
    with_memory 12 moe-decode -c 256 -m pocket.moe -n 16 -d ngram some.jsonl --cache-experts none --stream none.moes 2> notes | cmp - plain.txt
    with_memory 100 moe-decode -c 256 -m pocket.moe -n 16 -d ngram some.jsonl --stream enough.moes 2>> notes | cmp - plain.txt
    [ ! -s notes ]
    for stream in none enough; do
        [ "$(moe-view --json $stream.moes | jq -c -s '[.[] | select(.type == "iter").cache_misses] | unique')" = '[null]' ]
    done
    # Not even one token's experts fit: the file is mapped, and the line says what to do.
    with_memory 3 moe-decode -c 256 -m pocket.moe -n 16 -d ngram some.jsonl 2> notes | cmp - plain.txt
    [ "$(wc -l < notes)" = 1 ]
    grep -q 'so the file is mapped, which is slow: free memory' notes
}

@test "moe-profile and moe-bench run choose in the same way" {
    wants_namespaces
    moe-profile -q -m pocket.moe -n 4 some.jsonl > plain.route
    with_memory 12 moe-profile -c 256 -m pocket.moe -n 4 some.jsonl 2> notes > chosen.route
    grep -q '^moe-profile: pocket.moe: the weights take 16 MiB, .* experts are cached' notes
    cmp <(moe-view --json plain.route | jq -c 'select(.type == "route")') <(moe-view --json chosen.route | jq -c 'select(.type == "route")')
    echo '{"model": "pocket.moe", "prompts": "some.jsonl", "settings": [{"name": "a"}], "options": {"max-tokens": 4},
           "warm-up": 0, "measure-seconds": 0}' > suite.json
    with_memory 12 moe-bench run --context 256 suite.json -o bench.moes 2> notes
    [ "$(grep -c '^moe-bench: pocket.moe: the weights take 16 MiB, .* experts are cached' notes)" = 1 ]
    moe-view --json bench.moes | jq -e -s '[.[] | select(.type == "iter").cache_misses] | add > 0'
}

@test "options for cached experts are refused without cached experts" {
    local option
    for option in '--cache-policy lfu' '--prefetch last' '--hot-set hot.set' '--host-experts auto'; do
        run moe-decode -m pocket.moe -p NAME -n 2 --cache-experts none $option
        assert_trouble moe-decode
        [[ $output == *"${option%% *} has no effect without cached experts; add --cache-experts" ]]
    done
}

@test "a limit on address space is reported with a remedy" {
    [ -z "$MOE_SANITIZED" ] || skip "a sanitised build maps terabytes"
    truncate -s 3G huge
    local option
    for option in '' '--cache-experts 50%' '--cache-experts none'; do
        run bash -c 'ulimit -v 1000000; exec moe-decode "$@"' - -m huge $option -p NAME
        assert_trouble moe-decode
        [[ $output == "moe-decode: huge: "*"3221225472 bytes"*"; \`ulimit -v' limits addresses to 976 MiB: raise it "* ]]
    done
}

@test "a low limit on the stack is raised, or reported with a remedy" {
    [ "$(ulimit -S -s 256; moe-decode -q -m "$MOE_POCKET" -n 1 -j 2 -p 'Tom has')" = \
        "$(moe-decode -q -m "$MOE_POCKET" -n 1 -p 'Tom has')" ]
    # Only a process with this capability, usually root's, can raise the hard limit.
    local without=
    [ "$(id -u)" != 0 ] || without='setpriv --bounding-set -sys_resource'
    $without true || skip "there is no setpriv"
    run bash -c "ulimit -s 256; exec $without moe-decode -q -m $MOE_POCKET -n 1 -p a"
    assert_trouble moe-decode
    [ "$output" = "moe-decode: \`ulimit -s' allows at most 256 KiB of stack; raise it to 8192" ]
}

@test "a mapped model that is truncated while it runs: one line, exit 2, nothing half-written" {
    local option
    mkdir -p cut
    for option in '-j 1' '-j 2' '-j 2' '-j 2' '-j 2' '-j 2' '-j 2' '-j 2'; do
        cp pocket.moe cut/copy.moe
        rm -f cut/fifo
        mkfifo cut/fifo
        moe-decode -m cut/copy.moe -n 1900 --ignore-eos $option -p NAME --stream cut/out > cut/fifo 2> said &
        pid=$!
        exec 7< cut/fifo
        read -r -n 1 -u 7
        truncate -s 4096 cut/copy.moe
        status=0
        wait $pid || status=$?
        exec 7<&-
        cat said
        [ $status = 2 ]
        [ "$(< said)" = 'moe-decode: cut/copy.moe: was truncated while it was mapped, or cannot be read; restore it and run again' ]
        [ "$(ls cut)" = "$(printf 'copy.moe\nfifo')" ]
    done
}

# 20 MB/s for all reads here, by a control group of version 1; needs root.
@test "SIGINT does not wait for a slow disk" {
    local group=/sys/fs/cgroup/blkio/moe.$$ disk pid start option
    [ -n "$MOE_LONG" ] || skip "in the long check"
    [ -z "$MOE_SANITIZED" ] || skip "not for sanitisers"
    disk=$(lsblk -no MAJ:MIN "$(df --output=source . | tail -n 1)" | tr -d ' ') || skip "no disk of its own"
    mkdir $group || skip "no control group for disks"
    echo "$disk 20971520" > $group/blkio.throttle.read_bps_device
    moe-convert inflate -q pocket.moe --expert-ffn 4096 -o big.moe
    sync big.moe
    for option in auto none; do
        dd if=big.moe iflag=nocache count=0 2> /dev/null
        bash -c 'echo $$ > '$group'/cgroup.procs && exec env --default-signal=INT moe-decode -q -m big.moe --cache-experts '$option' -n 20 -p "Once upon a time there was a story"' > text &
        pid=$!
        sleep 3
        start=${EPOCHREALTIME/./}
        kill -INT $pid
        status=0
        wait $pid || status=$?
        [ $status = 130 ]
        echo "$option: $((${EPOCHREALTIME/./} - start)) microseconds"
        # Cached: at once. Mapped: the reads of each thread, and the kernel's read-ahead; 150 MB of 900 are one layer.
        [ $((${EPOCHREALTIME/./} - start)) -lt $([ $option = auto ] && echo 1000000 || echo 4000000) ]
    done
    rm big.moe
    rmdir $group
}

@test "concurrent texts need memory in each process of the host" {
    wants_mpi
    wants_namespaces
    local texts="-q -m pocket.moe -n 4 some.jsonl --parallel 24"
    # 16 MiB of weights, 9 of buffers, and 7 or 15 of KV caches.
    with_memory 36 moe-decode $texts > one.txt
    with_memory 60 mpirun -q -n 2 moe-decode --ranks mpi $texts < /dev/null | cmp - one.txt
    run with_memory 36 mpirun -q -n 2 moe-decode --ranks mpi $texts < /dev/null
    [ "$status" -eq 2 ]
    [[ $output == "moe-decode: "*" in each of 2 processes of this host need "* ]] || { echo "$output"; return 1; }
}
