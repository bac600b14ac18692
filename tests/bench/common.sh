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
