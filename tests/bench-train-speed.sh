#!/bin/sh
# A step of moe-draft-train beside a step of the same training in PyTorch, in turns: EAGLE's head for a random model of
# OLMoE's shape (hidden 2048, vocabulary 50304, inner width 8192), batches of 4 x 512 tokens, f32, one thread each, features
# from a stream.
# `make bench-train-speed` calls it; it takes 2 GB of disk, 6 GB of memory and minutes a turn.
#
# Processor seconds (user and system) are compared, as they tell something on a busy machine, too: of moe-draft-train what three
# steps take more than one, halved; of PyTorch the second step. Then where the time of moe-draft-train goes, by perf, where
# there is one. OPENBLAS_CORETYPE in the environment holds OpenBLAS to older kernels. MOE_BENCH_PAIRS=N turns (3); MOE_BENCH_PYTHON is a python3 that has torch, without which there is nothing to compare.
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
python=${MOE_BENCH_PYTHON:-python3}
pairs=${MOE_BENCH_PAIRS:-3}
export OMP_NUM_THREADS=1

once "$out/olmoe-bf16-1.moe" moe-convert synthetic -q --like olmoe-1b-7b -l 1 --dtype bf16
[ -e "$out/olmoe-texts.jsonl" ] || jq -cn 'range(8) as $text | {id: "text-\($text)", tokens: [range(8) | . * 37 + $text + 5],
    answer_tokens: [range(504) | (. * 7919 + $text * 104729) % 50000 + 3]}' > "$out/olmoe-texts.jsonl"
once "$out/olmoe-states.moes" moe-profile features -q -m "$out/olmoe-bf16-1.moe" --dtype f32 "$out/olmoe-texts.jsonl"

# Prints the processor seconds of $1 steps.
seconds() {
    bash -c 'TIMEFORMAT="%U %S"; time "$@" > /dev/null' timed moe-draft-train train -q -j 1 -m "$out/olmoe-bf16-1.moe" \
        --arch eagle1 --batch 4 --cut 512 --steps "$1" "$out/olmoe-states.moes" -o "$out/speed-head.moe" 2> "$out/speed.time"
    tail -n 1 "$out/speed.time" | awk '{ print $1 + $2 }'
}

load() { cut -d' ' -f1 /proc/loadavg; }

say "a step of moe-draft-train train beside PyTorch's, processor seconds: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2)"
OPENBLAS_VERBOSE=2 moe-draft-train --version 2>&1 | sed -n 's/^Core: /kernels of OpenBLAS: /p'
if "$python" -c 'import torch' 2> "$out/speed-torch.log"; then
    "$python" -c 'import torch; print("PyTorch", torch.__version__)'
    echo "| turn | load | moe-draft-train | PyTorch | PyTorch / moe-draft-train |"
    echo "|---|---|---|---|---|"
    for turn in $(seq "$pairs"); do
        begun=$(load)
        one=$(seconds 1)
        theirs=$("$python" tests/bench/train_speed.py 2 2048 8192 16 50304 4 512 | tail -n 1 | jq .processor_seconds)
        three=$(seconds 3)
        echo "$turn $begun $(load) $one $three $theirs" | awk '{ own = ($5 - $4) / 2
            printf "| %d | %s to %s | %.1f | %.1f | %.2f |\n", $1, $2, $3, own, $6, $6 / own }'
    done
else
    echo "skipped: $python has no torch (MOE_BENCH_PYTHON names one that has)"
fi

command -v perf > /dev/null || { echo "no perf: where the time goes is not told"; exit 0; }
say "where its time goes, start and writing the head included"
perf record -q -F 49 --call-graph dwarf,16384 -o "$out/speed.perf" moe-draft-train train -q -j 1 -m "$out/olmoe-bf16-1.moe" \
    --arch eagle1 --batch 4 --cut 512 --steps 3 "$out/olmoe-states.moes" -o "$out/speed-head.moe" 2> "$out/speed-perf.log"
perf script -F ip,sym,dso -i "$out/speed.perf" 2>> "$out/speed-perf.log" | awk '
    function finish() { if (name != "") { count[name]++; all++ } name = "" }
    NF == 0 { finish(); next }
    name == "" { name = "other" ; if (/openblas/) name = "products"; }
    /read_stream|feature_source_/ { name = "reading features" }
    /read_stream|feature_source_|openblas/ { next }
    /unpack_units/ && name == "other" { name = "unpacking the output head" }
    /vector_adam|optimiser_step/ && name == "other" { name = "AdamW" }
    /run_row[+ ]|run_target[+ ]|run_smooth/ && name == "other" { name = "softmax and losses" }
    /trainer_step/ && name == "other" { name = "other parts of a step" }
    END { finish(); count["reading features"] += 0; for (n in count) printf "%5.1f %% %s\n", 100 * count[n] / all, n }' | sort -rn
rm -f "$out/speed.perf" "$out/speed-head.moe"
