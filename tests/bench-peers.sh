#!/bin/sh
# moekit beside llama.cpp, ik_llama.cpp and transformers on the same weights; tests/peers/bench.py documents what is measured.
#
# usage: [IK_LLAMA=FOLDER] tests/bench-peers.sh [OPTION...]    options of bench.py; needs moe-convert and moe-bench in PATH
# Installs public Python packages into build/peers-bench/venv, which takes minutes the first time: llama.cpp is compiled. clang
# does that where it is: gcc before 12.4 leaves out what AMX tiles are configured with, and products of q8 and q4 then end in a
# segmentation fault. All peers and formats take about an hour on two cores: `--pairs 10` a third of it.
# IK_LLAMA is a source tree of ik_llama.cpp, which gcc builds into build/peers-bench/ik (clang stops at an error); without it
# `--peers ik` and formats other than bf16, q8 and q4 are refused.
cd "$(dirname "$0")/.." || exit 2
work=build/peers-bench venv=build/peers-bench/venv
mkdir -p $work
case "$*" in
*--peers*) wanted=$(printf '%s\n' "$@" | sed -n '/^--peers/{s/^--peers=//;t keep;n;:keep;p;}') ;;
*) wanted=llama,transformers ;;
esac

# The libraries, llama-quantize and forward.cc of ik_llama.cpp.
build_ik() {
    cmake -S "$IK_LLAMA" -B $work/ik -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=ON -DLLAMA_CURL=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ &&
        cmake --build $work/ik -j "$(nproc)" --target llama llama-quantize &&
        g++ -O2 -I "$IK_LLAMA/include" -I "$IK_LLAMA/ggml/include" tests/peers/forward.cc -o $work/ik/bin/forward \
            -L $work/ik/src -L $work/ik/ggml/src -lllama -lggml \
            -Wl,-rpath,"$PWD/$work/ik/src" -Wl,-rpath,"$PWD/$work/ik/ggml/src"
}

[ -x $venv/bin/python ] || python3 -m venv $venv || exit 2
packages='numpy gguf'
case $wanted in *llama*) packages="$packages llama-cpp-python" ;; esac
case $wanted in *transformers*) packages="$packages torch transformers" ;; esac
(
    [ -n "$CC" ] || ! command -v clang++ > /dev/null || export CC=clang CXX=clang++
    # shellcheck disable=SC2086
    $venv/bin/pip install -q $packages
) || exit 2
if [ -n "$IK_LLAMA" ]; then
    if ! build_ik > $work/ik.log 2>&1; then
        tail $work/ik.log >&2
        echo "bench-peers: ik_llama.cpp does not build; see $work/ik.log" >&2
        exit 2
    fi
    set -- --ik $work/ik/bin "$@"
fi
exec $venv/bin/python tests/peers/bench.py $work/work "$@"
