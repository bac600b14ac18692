#!/bin/sh
# The compiler parses the kernels for instruction sets that this build leaves out (ISAS of GNUmakefile), without generating
# code. Packages have the portable plain set, even if they are built with the instruction sets of this machine.
cd "$(dirname "$0")/../.." || exit 2
"${MAKE:-make}" -s -n --no-print-directory deb ISAS=machine | grep "ISAS='.*plain-fma" && {
    echo "packages would need a processor with fused multiply-adds"
    exit 1
}
"${MAKE:-make}" -s --no-print-directory left-out-isas | while read -r isa line; do
    compile=${line#* , }
    for file in ${line%% , *}; do
        $compile -fsyntax-only "$file" || { echo "$file: does not compile for $isa"; exit 1; }
    done || exit 1
done
