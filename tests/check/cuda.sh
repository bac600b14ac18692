#!/bin/sh
# Kernels for GPUs keep their data in registers: ptxas reported no spill and no stack frame when the plug-in was built; and the
# plug-in has code for each requested processor. Without a build of these sources nothing is judged: the long check makes one if
# nvcc exists, and so does make check-cuda. Besides, nothing outside kernels/cuda includes a header of CUDA.
cd "$(dirname "$0")/../.." || exit 2
build=${MOE_BIN:-build/normal/bin}/..
bad=0
grep -rnE --include='*.[ch]' --include='*.cc' --include='*.cu' '^ *# *include *[<"](cuda|cublas|cooperative_groups|nccl|mma\.h|crt/)' \
    cmd common kernels tests | grep -v '^kernels/cuda/' && { echo "only kernels/cuda may include headers of CUDA"; bad=1; }
grep -nE '^ *# *include *[<"](cuda|cublas|cooperative_groups|nccl|mma\.h|crt/)' kernels/cuda/*.cu && {
    echo "sources include dev.h; only what comes after it knows CUDA"; bad=1; }

if [ ! -e "$build/lib/moekit/moe-cuda.so" ]; then
    echo "no moe-cuda.so: CUDA was left out of this build"
    exit $bad
fi
if [ -n "$(find kernels/cuda kernels/plain -newer "$build/lib/moekit/moe-cuda.so" -name '*.[chu]*' | head -n 1)" ]; then
    echo "moe-cuda.so is older than its sources: make check-cuda"
    exit $bad
fi
first= processors=
for number in $(cat "$build/cuda/processors"); do
    first=${first:-sm_$number} processors=$((processors + 1))
done
for source in kernels/cuda/*.cu; do
    said=$build/cuda/${source%.cu}.ptxas
    [ -e "$said" ] || { echo "$source: nothing of ptxas"; bad=1; continue; }
    awk -v source="$source" -v first="$first" -v processors="$processors" '
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; processor = part[4]; seen[processor]++ }
        /bytes stack frame/ && !/ 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/ {
            print source ": " kernel " for " processor ":" $0; bad = 1
        }
        END {
            for (p in seen) if (seen[p] != seen[first]) { print source ": not every kernel is there for " p; bad = 1 }
            if (length(seen) != 0 && length(seen) != processors) {
                print source ": code for " length(seen) " processors, not " processors; bad = 1
            }
            exit bad
        }' "$said" || bad=1
done
exit $bad
