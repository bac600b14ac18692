#!/usr/bin/env bats
# Parts of tests/gpu/all that can be tested without a GPU.

load common

gpu=$BATS_TEST_DIRNAME/../gpu

setup_file() { [ -n "$MOE_SANITIZED" ] || "$gpu/kit" "$BATS_FILE_TMPDIR/kit"; }

setup() {
    kit=$BATS_FILE_TMPDIR/kit
    cd "$BATS_TEST_TMPDIR"
}

@test "models go into the first folder that has room for them" {
    mkdir here
    [ "$("$gpu/room" 1 /dev/null/none here)" = here ]
    [ "$("$gpu/room" 1 new here)" = new ]
    # /dev/shm of a container has 64 MiB: it is writable, and too small.
    free=$(df -Pk here | awk 'END { print $4 }')
    run "$gpu/room" $((free + (1 << 30))) here
    [ "$status" = 1 ]
    [ -z "$output" ]
    if [ -w /dev/shm ] && shm=$(df -Pk /dev/shm | awk 'END { print $4 }') && [ "$free" -gt "$((shm + (1 << 20)))" ]; then
        [ "$("$gpu/room" $((shm + (1 << 10))) /dev/shm here)" = here ]
    fi
}

@test "a model's time with all its layers follows from two with few" {
    device=$MOE_BIN/../tests/gpu/bench_device
    [ -x "$device" ] || skip "this build has no bench_device"
    echo '{"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 32, "moe_intermediate_size": 32,
           "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "num_experts": 4,
           "num_experts_per_tok": 2, "norm_topk_prob": true, "vocab_size": 256, "max_position_embeddings": 512,
           "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false, "hidden_act": "silu"}' > tiny.json
    for try in 1 2 3 4 5; do                # a busy machine may take longer for fewer layers
        for layers in 1 9; do
            moe-convert synthetic -q --like tiny.json -l $layers --dtype bf16 -o model.moe
            "$device" decode host $layers.moes 300 model.moe
            moe-view --json $layers.moes | jq -c 'select(.type == "timing")' > $layers.jsonl
            jq -s -e "length == 1 and .[0].layers == $layers and .[0].bytes > 0" $layers.jsonl
        done
        jq -s -e '.[1].seconds > .[0].seconds' 1.jsonl 9.jsonl && break
    done
    "$device" deep 48 1.moes 9.moes | tee deep
    grep -q 'with 48 layers, from 1 and 9' deep
    # tokens/s, microseconds per layer, share of the copy: layers alone are between the two.
    jq -n -r --slurpfile few 1.jsonl --slurpfile more 9.jsonl '$few[0] as $a | $more[0] as $b |
        (($b.seconds - $a.seconds) / 8) as $layer | ($b.seconds + 39 * $layer) as $s |
        ($b.bytes + 39 * ($b.bytes - $a.bytes) / 8) as $bytes | [1 / $s, 1e6 * $layer, $bytes / $s / $b.copy] | @tsv' > want
    awk -F'|' '/decode by the host/ { print $3 + 0, $4 + 0, $5 + 0 }' deep > got
    paste -d' ' want got | tr '\t' ' ' | awk '
        function near(a, b, by) { return a - b < by && b - a < by }
        { exit !(NF == 6 && near($1, $4, .051) && near($2, $5, .051) && near($3, $6, .00051)) }'
    run "$device" deep 48 9.moes 1.moes
    [ "$status" = 2 ]
}

@test "gpu-kit's programs need no newer libc than 2.35" {
    [ -z "$MOE_SANITIZED" ] || skip "the same without sanitisers"
    [ -s "$kit/libs" ]
    "$kit/bin/make" --version | grep -q 'GNU Make'
    nm -u "$kit"/lib/*.a 2> errors | awk '$1 == "U" { print $2 }' | sort -u > wanted
    nm -g --defined-only "$kit"/lib/*.a 2> errors | awk 'NF == 3 { print $3 }' | sort -u > brought
    objdump -T "$(gcc -print-file-name=libc.so.6)" | awk '/ [(]?GLIBC_2\.(3[6-9]|[4-9][0-9])/ { print $NF }' | sort -u > newer
    comm -12 wanted newer | comm -23 - brought > missing
    [ "$(wc -l < wanted)" -gt 100 ]
    [ ! -s missing ]
    # Shared libraries name the versions themselves.
    [ -z "$(objdump -T "$kit"/lib/*.so* | grep -E 'GLIBC_2\.(3[6-9]|[4-9][0-9])')" ]
}

@test "a packed kit is unpacked in place, and again when it is newer" {
    command -v python3 || skip "no python3"
    mkdir -p made/gpu-kit/bin build
    echo first > made/gpu-kit/libs
    tar -C made -cJf build/gpu-kit.tar.xz gpu-kit
    unpack() { self=test DEVICE=emu COMMIT=abc PATH=$PATH sh -c '. "$0/common.sh"; unpack_kit; echo "$kit $commit"' "$gpu"; }
    [ "$(unpack)" = "build/gpu-kit abc" ]
    grep -qx first build/gpu-kit/libs
    echo kept > build/gpu-kit/mark
    unpack
    [ -e build/gpu-kit/mark ]
    echo second > made/gpu-kit/libs
    tar -C made -cJf build/gpu-kit.tar.xz gpu-kit
    touch -d '+1 minute' build/gpu-kit.tar.xz
    unpack
    grep -qx second build/gpu-kit/libs
    echo damaged > build/gpu-kit.tar.xz
    touch -d '+2 minutes' build/gpu-kit.tar.xz
    run unpack
    [ "$status" = 125 ]
    [[ $output == *"cannot be unpacked with python3"* ]]
}

@test "the programs for a GPU link with gpu-kit alone, and run" {
    [ -z "$MOE_SANITIZED" ] || skip "the same without sanitisers"
    O=$(realpath "$MOE_BIN/..")
    # KIT decides which libraries are linked, also in a folder that was built without one.
    cp "$O/flags" "$O/libs" "$O/cflags" .
    make -s -C "$gpu/../.." O="$PWD" KIT="$kit" "$PWD/libs"
    grep -q -- "-L$kit/lib" libs
    link() { gcc -O2 -pthread -o "$1" "${@:2}" "$O/libmoe.a" @libs -lcmocka -lm; }
    link slab "$O"/tests/device/slab_runner.o "$O"/tests/unit/test_slab.o
    link forward "$O"/tests/device/test_forward.o "$O"/tests/device/mirror.o
    link upload "$O"/tests/device/test_upload.o
    for kernel in mix route; do link $kernel "$O"/device/small/test_$kernel.o "$O"/tests/device/mirror.o; done
    link linear "$O"/device/small/test_linear.o "$O"/tests/device/mirror.o
    # Libraries of the kit, not this machine's.
    ! objdump -p slab | grep -E 'NEEDED.*lib(archive|jansson|crypto)'
    ln -s "$O/lib" lib
    mkdir bin
    for program in slab forward upload linear mix route; do mv $program bin/; done
    MOE_TEST_DEVICE=emu bin/upload
    # Detects memory that is not the device's, with shapes for sanitisers.
    for kernel in mix route; do MOE_SANITIZED=1 MOE_TEST_DEVICE=emu-race bin/$kernel; done
    MOE_TEST_DEVICE=emu bin/slab slab other_formats_are_refused
}

# Makes a tree in which tests/gpu/all runs stubs: each adds its name to `ran`; `hangs` and `fails` list those that do so.
stub_tree() {
    mkdir -p tree/tests/gpu tree/tests/kernel tree/tests/emu tree/kernels/cuda tree/common tree/cmd bin
    cp "$gpu/all" "$gpu/common.sh" tree/tests/gpu
    cat > stub <<'STUB'
#!/bin/bash
top=${TOP:?}
case $0 in */bench) name=bench_$1 ;; *) name=${MOE_TEST_EXACT:+exact_}${MOE_TEST_DEVICE#emu}${0##*/} ;; esac
case $1 in --version | -m) exit ;; esac
echo "$name" >> "$top/ran"
[ "$name" != bench_tiny_bf16 ] || { mkdir -p "$4"; echo records > "$4/a.moes"; echo "figures of $1"; }
[ "$name" != mma_emu ] || printf '1..2\nok 1 - sums\nnot ok 2 # SKIP not on this device\n'
! grep -qx "$name" "$top/hangs" || sleep 300
! grep -qx "$name" "$top/fails" || { echo "not ok 1 - because"; echo 1..1; exit 1; }
STUB
    cat > bin/make <<'MAKE'
#!/bin/bash
[ ! -e "$TOP/unbuildable" ] || { echo "a.c:1: error: no such thing"; exit 2; }
mkdir -p build/gpu/bin build/gpu/lib build/gpu/tests/device build/gpu/tests/gpu
for name in linear attention expert_ffn slab rows route coded mix delta top learn learn_loss; do cp "$TOP/stub" build/gpu/tests/device/small_$name; done
for name in mma_emu test_twin test_forward test_slab test_upload; do cp "$TOP/stub" build/gpu/tests/device/$name; done
cp "$TOP/stub" build/gpu/bin/moe-decode
printf '#!/bin/sh\n[ "$1" != join ] || cat "$3" > "$2"\n' > build/gpu/tests/gpu/bench_device
chmod +x build/gpu/tests/gpu/bench_device
MAKE
    printf '#!/bin/sh\necho "Kernel 0 of $0: $*"\n' > bin/cuda-gdb
    chmod +x stub bin/*
    for name in texts loop identity tiers train budget bench; do cp stub tree/tests/gpu/$name; done
    for name in linear attention; do echo kernel > tree/kernels/cuda/$name.cu; echo test > tree/tests/kernel/test_$name.c; done
    touch hangs fails ran tree/tests/kernel/support.h
    export TOP=$PWD PATH=$PWD/bin:$PATH DEVICE=emu COMMIT=abc MOE_GPU_SECONDS=100
}
all() { : > ran; OUT=$TOP/out tree/tests/gpu/all "$@" 2>&1; }

@test "tests/gpu/all runs every kernel test that is built for devices" {
    built=$(sed -n 's/^EMU_KERNELS *:= *//p' "$gpu/../../kernels/cuda/cuda.mk")
    [ -n "$built" ]
    [ "$(sed -n 's/^tests=kernel .*kernels="\([^"]*\)"$/\1/p' "$gpu/all")" = "$built" ]
}

@test "tests/gpu/all runs each part once, keeps its state in OUT, and runs again what changed" {
    command -v python3 || skip "no python3"
    stub_tree
    run all
    echo "$output"
    [ "$status" = 0 ]
    [[ ${lines[-1]} == *" passed, 0 failed" ]]
    [ -z "$(sort ran | uniq -d)" ]
    for name in texts mma_emu small_linear bench_tiny_bf16 exact_small_top; do grep -qx $name ran; done
    [ "$(ls out | paste -sd ' ')" = "bench.moes logs.tgz report.md results" ]
    [ "$(cat out/bench.moes)" = records ]
    grep -qx 'figures of tiny_bf16' out/report.md
    # The state in OUT comes along; nothing else is left of the first call.
    mkdir kept
    cp out/logs.tgz kept
    rm -r tree/build out/*
    mkdir -p tree/build/gpu/out
    cp kept/logs.tgz tree/build/gpu/out
    run all
    [ "$status" = 0 ]
    [ ! -s ran ]
    [[ $output == *"passed before: texts twin_mma"* ]]
    [ "$(cat out/bench.moes)" = records ]
    # A failed part runs again.
    sed -i 's/^\(loop [0-9]* [0-9]*\) 0 /\1 1 /' tree/build/gpu/work/results
    run all
    [ "$status" = 0 ]
    [ "$(cat ran)" = loop ]
    # An edited kernel, related ones, and parts that use all kernels.
    echo edited > tree/kernels/cuda/linear.cu
    run all check
    [ "$status" = 0 ]
    for name in small_linear small_coded exact_small_linear texts; do grep -qx $name ran; done
    ! grep -qx 'small_attention' ran
    ! grep bench_ ran
    run all twin_mma
    [ "$(cat ran)" = mma_emu ]
}

@test "tests/gpu/all names parts that fail, hang or do not build, and the next call does the rest" {
    command -v python3 || skip "no python3"
    stub_tree
    # Killed within a part, whose processes end with it, although the parent of the killed process does not wait for it.
    echo loop > hangs
    (OUT=$TOP/out tree/tests/gpu/all texts loop > log 2>&1 3>&- & echo $! > call; exec sleep 60) &
    parent=$!
    for try in {1..100}; do grep -qx loop ran && break; sleep 0.1; done
    kill -KILL "$(cat call)"
    : > hangs
    run all texts
    echo "$output"
    grep ') Z ' "/proc/$(cat call)/stat"
    kill $parent
    [ "$status" = 0 ]
    ! pgrep -f "tests/gpu/loop build/gpu emu" -a
    grep -q '^texts ' out/results
    ! grep '^loop ' out/results
    # Running out of time is not a failure.
    echo tiers > hangs
    MOE_GPU_SECONDS=16 run all tiers
    echo "$output"
    [ "$status" = 3 ]
    [[ $output == *"left for another call: tiers"* ]]
    # A part that does not end is inspected; one that fails prints its command and runs last in the next call.
    echo loop > fails
    MOE_GPU_SLOW=1/60 run all texts tiers loop
    echo "$output"
    [ "$status" = 1 ]
    [[ $output == *"FAILED: tiers (exit status 124, no end within 2 s)"*"Kernel 0 of "*"info cuda kernels"* ]]
    [[ $output == *"FAILED: loop"*"MOE_TEST_DEVICE=emu"*" tests/gpu/loop build/gpu emu"*"not ok 1 - because"* ]]
    [[ ${lines[-1]} == "1 passed, 2 failed" ]]
    touch unbuildable
    run all texts
    [ "$status" = 1 ]
    [[ $output == *"FAILED: build"*"a.c:1: error: no such thing"* ]]
    [ ! -s ran ]
    tar -xOzf out/logs.tgz ./logs/build | grep 'no such thing'
}
