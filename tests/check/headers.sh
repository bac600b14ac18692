#!/bin/sh
# Every header compiles alone and includes what it uses. The build checks a header that its own source file includes first.
cd "$(dirname "$0")/../.." || exit 2
bad=0
for header in $(find common kernels tests/unit tests/kernel tests/emu -name '*.h' 2>/dev/null | sort); do
    source=${header%.h}.c
    case $header in */mpi/*) source= ;; esac        # not built on a machine without MPI
    [ -e "$source" ] && [ "$(grep -m 1 '^#include' "$source")" = "#include \"$header\"" ] && continue
    # Headers that only .cu files and the emulator include are C++; those that follow nvcc's definitions need nvcc.
    case $header in
    kernels/cuda/dev_nvcc.h) continue ;;
    kernels/cuda/*.h | tests/emu/*.h)
        echo "#include \"$header\"" |
            ${CXX:-g++} -std=gnu++14 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-function -I. -fsyntax-only -x c++ - || {
                echo "$header: does not compile alone"
                bad=1
            }
        continue ;;
    esac
    # kernels/cpu is compiled once per instruction set and needs the set's name.
    case $header in kernels/cpu/*) isa='-DISA=plain -DISA_PLAIN=1';; *) isa=;; esac
    echo "#include \"$header\"" |
        ${CC:-gcc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-function $isa -I. -fsyntax-only -x c - || {
            echo "$header: does not compile alone"
            bad=1
        }
done
exit $bad
