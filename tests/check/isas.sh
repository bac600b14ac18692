#!/bin/sh
# The compiler parses the kernels for instruction sets that this build leaves out (ISAS of GNUmakefile), without generating
# code.
cd "$(dirname "$0")/../.." || exit 2
"${MAKE:-make}" -s --no-print-directory left-out-isas | while read -r isa line; do
    compile=${line#* , }
    for file in ${line%% , *}; do
        $compile -fsyntax-only "$file" || { echo "$file: does not compile for $isa"; exit 1; }
    done || exit 1
done
