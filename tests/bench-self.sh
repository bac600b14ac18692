#!/bin/sh
# Cost of a self-draft's step, and of a verification after an exit, relative to a whole forward of the same run and scaled by
# bytes (tests/bench/parts.c). `make bench-self` calls it, optionally with the number of pairs (30) and the layers of the random
# models of OLMoE's shape (4; the whole model has 16). The models, at most 2 GB, stay in build/bench. MOE_BENCH_THREADS sets the
# host's threads.
set -e
cd "$(dirname "$0")/.."
out=build/bench
pairs=${1:-30}
layers=${2:-4}
mkdir -p "$out"
for dtype in bf16 q4; do
    pocket=$out/pocket-$dtype-9088.moe
    olmoe=$out/olmoe-$dtype-$layers.moe
    if [ ! -e "$pocket" ]; then
        moe-convert -q --dtype $dtype tests/models/pocket/model -o "$out/pocket-$dtype.moe"
        moe-convert inflate -q --expert-ffn 9088 "$out/pocket-$dtype.moe" -o "$pocket"
    fi
    [ -e "$olmoe" ] || moe-convert synthetic -q --like olmoe-1b-7b -l "$layers" --dtype $dtype -o "$olmoe"
    for model in "$pocket" "$olmoe"; do
        echo "$model"
        parts "$model" "$pairs" "${MOE_BENCH_THREADS:-2}"
    done
done
