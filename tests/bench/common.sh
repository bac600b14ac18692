# What the measuring scripts of tests/ begin with: they work at the repository's top, with the pocket model, and leave what they
# make in build/bench. MOE_BENCH_THREADS limits the threads.
set -e
cd "$(dirname "$0")/.."
out=build/bench
pocket=tests/models/pocket
threads=${MOE_BENCH_THREADS:+-j $MOE_BENCH_THREADS}
mkdir -p "$out"

say() { printf '\n== %s\n' "$1"; }
# once FILE COMMAND...: makes a file that is not there yet, whole or not at all.
once() { [ -e "$1" ] || { file=$1; shift; "$@" -o "$file.part" && mv "$file.part" "$file"; }; }
# parts "NAMES" NAME...: asks for these of the script's parts; without a NAME for all. Ends the script if a NAME is none of NAMES.
parts() {
    names=$1
    shift
    for name; do
        case " $names " in *" $name "*) ;; *) echo "$0: unknown part '$name'; choose from $names" >&2; exit 2 ;; esac
    done
    wanted=" ${*:-$names} "
}
# wants NAME: whether this part was asked for
wants() { case "$wanted" in *" $1 "*) ;; *) return 1 ;; esac; }
