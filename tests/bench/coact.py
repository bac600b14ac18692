"""Times moe-coact's analyses over a route stream, relative to `cat FILE | cat > /dev/null`, alternately, PAIRS times.

    coact.py STREAM [PAIRS]

Prints for each analysis the medians of its seconds, of cat's, and of the ratio of the two within a pair (below 2: at
least
half as fast), processor seconds, and the peak memory. Exit 1 if a ratio is above 2 or memory above 200 MiB."""
import os
import statistics
import sys
import time

ANALYSES = ["rank-experts", "coverage", "matrix", "union", "locality", "stats"]


def run(argv):
    """Returns seconds, processor seconds and MiB of one command."""
    start = time.monotonic()
    pid = os.posix_spawnp(argv[0], argv, os.environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(argv)}: exit status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    stream, pairs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    cat = ["sh", "-c", 'cat "$1" | cat > /dev/null', "sh", stream]
    failed = False
    run(cat)
    print(f"{'':14}{'seconds':>9}{'cat':>9}{'ratio':>9}{'CPU s':>9}{'MiB':>9}")
    for analysis in ANALYSES:
        command = ["moe-coact", analysis, "-q", "--phase", "all", stream, "-o", "/dev/null"]
        turns = [(run(cat), run(command)) for _ in range(pairs)]
        own = [turn[1] for turn in turns]
        ratio = statistics.median(turn[1][0] / turn[0][0] for turn in turns)
        memory = max(turn[2] for turn in own)
        failed |= ratio > 2 or memory > 200
        print(f"{analysis:14}{statistics.median(t[0] for t in own):9.2f}{statistics.median(t[0][0] for t in turns):9.2f}"
              f"{ratio:9.2f}{statistics.median(t[1] for t in own):9.2f}{memory:9.0f}")
    return failed


sys.exit(main())
