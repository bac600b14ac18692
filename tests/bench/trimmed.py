#!/usr/bin/env python3
"""Prints tables of trimmed drafts in replay: policies over one recording, cost in bytes.

usage: trimmed.py NAME RECORDING [TREE]

RECORDING was made by moe-decode --record drafts; TREE is the tree of the recording, dynamic:total=N,depth=N,topk=N; without it chains of up to 8
tokens. Prints two rows of Markdown tables. First, in tokens per byte relative to no drafts: the best fixed length or size, evict,
evict-experts, both with calibrated estimates, cascade-cost and dytc-verify; then the better evict over the best fixed draft and
the better evict-experts over it, with 95 % intervals (2,000 bootstrap samples of texts). Second: evict-experts as it is, with
true experts, with true acceptance, with both, and the oracle. Runs moe-bench of PATH. Needs numpy."""
import json
import subprocess
import sys

import numpy as np


def replay(recording, policy, *options):
    """Returns (tokens, cost) of each text; None: the recording lacks these drafts."""
    run = subprocess.run(["moe-bench", "replay", recording, "--cost", "bytes", "--iterations", "--policy", policy, *options],
                         capture_output=True, text=True)
    if run.returncode:
        return None
    texts = {}
    for line in map(json.loads, run.stdout.splitlines()):
        text = texts.setdefault(line["sequence"], [0, 0.0])
        text[0] += line["emitted"]
        text[1] += line["seconds"]
    return np.array([texts[key] for key in sorted(texts)])


def rate(texts):
    return texts[:, 0].sum() / texts[:, 1].sum()


def interval(one, other):
    """The ratio of two rates, and its interval."""
    random, values = np.random.default_rng(1), []
    for _ in range(2000):
        draw = random.integers(0, len(one), len(one))
        values.append(rate(one[draw]) / rate(other[draw]))
    low, high = np.quantile(values, [0.025, 0.975])
    return f"{rate(one) / rate(other):.3f} ({low:.3f}-{high:.3f})"


def fixed(recording, tree):
    """{name: texts} of fixed drafts, where they were recorded."""
    return {name: texts for name, texts in all_fixed(recording, tree).items() if texts is not None}


def all_fixed(recording, tree):
    made = {"none": replay(recording, "static:K=0", *(["--tree", "dynamic:total=2,depth=1,topk=1"] if tree else []))}
    if not tree:
        return made | {f"K={k}": replay(recording, f"static:K={k}") for k in range(1, 9)}
    given = dict(setting.split("=") for setting in tree.partition(":")[2].split(","))
    total, depth = int(given["total"]), int(given["depth"])
    for size in [s for s in (4, 6, 8, 12, 16, 24, 32, 48, 64) if s <= total]:
        for levels in range(1, depth + 1):
            shape = f"dynamic:total={size},depth={levels},topk={min(int(given['topk']), size - 1)}"
            made[f"{size - 1} nodes, {levels} levels"] = replay(recording, "static", "--tree", shape)
    return made | {f"chain, K={k}": replay(recording, f"static:K={k}", "--tree", "chain") for k in range(1, depth + 1)}


def main(name, recording, tree=None):
    options = ["--tree", tree] if tree else ["-K", "8"]
    of = fixed(recording, tree)
    none, best = of["none"], max(of, key=lambda key: rate(of[key]))
    run = lambda policy: replay(recording, policy, *options)
    truth = lambda what: run(f"evict-experts:truth={what},file={recording}")
    evict, experts = [run("evict"), run("evict:calibrated=1")], [run("evict-experts"), run("evict-experts:calibrated=1")]
    others = [] if tree else [run("cascade-cost"), run("dytc-verify")]
    show = lambda texts: f"{rate(texts) / rate(none):.3f}"
    better = lambda pair: max(pair, key=rate)
    cells = [name, f"{show(of[best])} ({best})"] + [show(t) for t in evict + experts + others] + ["" for _ in range(2 - len(others))]
    cells += [interval(better(evict), of[best]), interval(better(experts), better(evict))]
    print("| " + " | ".join(cells) + " |")
    oracle = "" if tree else show(run(f"oracle:file={recording},cost=bytes"))
    better_name = "" if rate(experts[0]) >= rate(experts[1]) else ",calibrated=1"
    predicted = run(f"evict-experts:truth=experts,file={recording}{better_name}")
    print("| " + " | ".join([name, show(better(experts)), show(predicted), show(truth("acceptance")), show(truth("both")), oracle,
                             f"{rate(better(experts)) / rate(predicted):.3f}"]) + " |", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
