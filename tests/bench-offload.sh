#!/bin/sh
# Compares moekit's disk tier with llama.cpp's mmap under one limit of memory (tests/peers/offload.py describes how): `make
# bench-offload` calls it, optionally with the MiB of the inflated pocket model (2000) and options of offload.py. Installs
# public Python packages into build/peers-bench/venv like tests/bench-peers.sh: compiling llama.cpp takes ten minutes. Needs
# root, and control groups of version 1. Goal: twice as fast.
. tests/bench/common.sh
mib=${1:-2000}
[ $# = 0 ] || shift
model=$out/pocket-disk-$mib.moe
ffn=$((mib * 1048576 / 192 / 1152))
venv=build/peers-bench/venv
[ -w /sys/fs/cgroup/memory ] || { echo "bench-offload: no control groups for memory can be made here" >&2; exit 2; }
[ -x $venv/bin/python ] || python3 -m venv $venv || exit 2
$venv/bin/python -c 'import llama_cpp, gguf' 2> /dev/null || $venv/bin/pip install -q numpy gguf llama-cpp-python || exit 2
once "$out/pocket.moe" moe-convert -q "$pocket/model"
once "$model" moe-convert inflate -q --expert-ffn $ffn "$out/pocket.moe"
say "experts on disk; load average $(cut -d' ' -f1-3 /proc/loadavg)"
exec $venv/bin/python tests/peers/offload.py "$out" "$model" "$pocket/model" $ffn "$@"
