#!/usr/bin/env python3
"""measured_machine.py FOLDER EXPERT_BYTES CACHED: a machine's description for moe-bench simulate from what all rounds of
tests/bench-simulated.sh have measured in FOLDER: reads, of whose bursts of each length the median, and iterations with all experts
in memory, of whose times

    verify = forward + layers layer + experts expert + (pairs - experts) token

is the fit of least squares with no negative part; forward and layer are one number, which is told as layers. With --compare
FOLDER ROUND CACHE: the tokens a second of that round's real iterations beside those simulated."""
import json
import statistics
import sys
from fractions import Fraction

LAYERS, EXPERTS, TOP_K = 6, 32, 4


def speeds(path):
    """Bytes a second by the reads of a burst."""
    found = {}
    for _, reads, speed in map(str.split, open(path)):
        found.setdefault(int(reads), []).append(float(speed))
    return {reads: statistics.median(of) for reads, of in found.items()}


def lines(path, number=None):
    found = [json.loads(line) for line in open(path)]
    return found if number is None else [r for r in found if r["round"] == number]


def fit(columns, want):
    """Least squares by the normal equations, in exact numbers."""
    rows = [[sum(Fraction(x) * Fraction(y) for x, y in zip(a, b)) for b in columns + [want]] for a in columns]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda j: abs(rows[j][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(len(rows)):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i])]
    return [float(row[-1]) for row in rows]


def positive_fit(columns, want):
    """Least squares whose coefficients are not negative: what is negative is left out, the most negative first."""
    used = list(range(len(columns)))
    while True:
        found = fit([columns[i] for i in used], want)
        if min(found) >= 0:
            return [found[used.index(i)] if i in used else 0.0 for i in range(len(columns))]
        used.pop(found.index(min(found)))


def describe(folder, expert_bytes, cached):
    iters = lines(f"{folder}/simulated-all.jsonl")
    loaded = [i["experts_loaded"] for i in iters]
    further = [i["nodes"] * LAYERS * TOP_K - i["experts_loaded"] for i in iters]
    fixed, expert, token = positive_fit([[1] * len(iters), loaded, further], [i["verify_us"] for i in iters])
    besides = sum(i["us"] - i["verify_us"] - i["draft_us"] for i in iters) / len(iters)
    drafting = sum(i["draft_us"] for i in iters) / max(1, sum(i["nodes"] - 1 for i in iters))
    reads = speeds(f"{folder}/simulated-reads.txt")
    return {"machine": "this one, its disk past the page cache", "source": "measured by tests/bench-simulated.sh",
            "cached": float(cached),
            "model": {"name": "pocket, inflated", "layers": LAYERS, "experts": EXPERTS, "top_k": TOP_K,
                      "expert_bytes": int(expert_bytes)},
            "draft": {"length": 7, "token_us": drafting, "acceptance": 0.5}, "layer_us": fixed / LAYERS, "forward_us": besides,
            "fast": {"expert_us": expert, "token_us": token}, 
            "link": {"bytes_per_second": max(reads.values()), "together": True, "reads": sorted(reads.items())}}


def compare(folder, number, cache):
    expert_bytes = json.load(open(f"{folder}/simulated-machine.json"))["model"]["expert_bytes"]
    iters = lines(f"{folder}/simulated-{cache}.jsonl", number)
    real = 1e6 * sum(i["emitted"] for i in iters) / sum(i["us"] for i in iters)
    told = lines(f"{folder}/simulated-result.jsonl")[0]
    early = sum(i["cache_prefetched_bytes"] for i in iters) / expert_bytes
    print("%s, round %s: %.2f tok/s, simulated %.2f, ratio %.3f; misses %d and %d, read beforehand %d and %d" % (
        cache, number, real, told["tokens_per_second"], told["tokens_per_second"] / real, sum(i["cache_misses"] for i in iters),
        told["fetched"], round(early), told["prefetched"]))


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        compare(*sys.argv[2:5])
    else:
        json.dump(describe(*sys.argv[1:4]), sys.stdout)
