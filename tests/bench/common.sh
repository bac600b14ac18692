# Sourced by the measuring scripts of tests/: they run in the repository's top folder, use the pocket model, and leave their
# files in build/bench. MOE_BENCH_THREADS limits the threads.
set -e
cd "$(dirname "$0")/.."
out=build/bench
pocket=tests/models/pocket
threads=${MOE_BENCH_THREADS:+-j $MOE_BENCH_THREADS}
mkdir -p "$out"

say() { printf '\n== %s\n' "$1"; }
# once FILE COMMAND...: makes a file if it does not exist yet, completely or not at all
once() { [ -e "$1" ] || { file=$1; shift; "$@" -o "$file.part" && mv "$file.part" "$file"; }; }
# parts "NAMES" NAME...: requests these parts of the script, or all without a NAME; ends the script if a NAME is not in NAMES
parts() {
    names=$1
    shift
    for name; do
        case " $names " in *" $name "*) ;; *) echo "$0: unknown part '$name'; choose from $names" >&2; exit 2 ;; esac
    done
    wanted=" ${*:-$names} "
}
# wants NAME: whether this part was requested
wants() { case "$wanted" in *" $1 "*) ;; *) return 1 ;; esac; }
