# Loaded by every file of command tests: `load common`. The commands are in PATH; $MOE_POCKET is the pocket model
# converted, $MOE_MODELS the folder of test models, $MOE_SANITIZED set under sanitisers (take less then).

: "${MOE_MODELS:=$BATS_TEST_DIRNAME/../models}"
top=$BATS_TEST_DIRNAME/../..

# Bats before 1.4 makes no folder for a test; this one is removed by the system's own cleaning.
if [ -z "$BATS_TEST_TMPDIR" ]; then
    BATS_TEST_TMPDIR=$(mktemp -d)
fi

# The commands that exist, one a word.
commands() { (cd "$top/cmd" && ls moe-*.c | sed 's/\.c$//'); }

# The first Python that has msgpack and numpy: Debian's own when another comes first in PATH.
python_with_numpy() {
    local python
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import msgpack, numpy' 2>/dev/null && { echo "$python"; return; }
    done
    return 1
}

# The command must fail. A plain `! command` is no check: a test ends only where a simple command fails.
refute() { ! "$@"; }

# Skips where there is no MPI (make deps-mpi); else tells Open MPI that it may start as root, and more processes than processors.
wants_mpi() {
    command -v mpirun > /dev/null && [ -e "$MOE_BIN/../lib/moekit/moe-ranks-mpi.so" ] || skip "no MPI here: make deps-mpi"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none
}

# What `run` caught is one line on stderr that begins with the command's name, and the exit status is 2.
assert_trouble() {
    [ "$status" -eq 2 ] || { echo "exit status $status: $output"; return 1; }
    [ "${#lines[@]}" -eq 1 ] || { echo "not one line: $output"; return 1; }
    [[ $output == "$1: "* ]] || { echo "does not begin with $1: $output"; return 1; }
}
