#!/usr/bin/env python3
"""Prints how well acceptance probabilities are calibrated, for each task of one drafter, from saved streams alone.

usage: reliability.py [--skip N] [--recorded] STREAM...

STREAMs are of moe-decode with one drafter, one text after another, and count as one run. The estimates are those of
auto_steps.py's estimator, which learns from the drafted tokens of all STREAMs; with --recorded those of the streams' own policy,
which may begin anew in each STREAM. Each drafted token is judged if the text contains its parent; the first N (500) of a task do
not count. Prints for each task the number of tokens, their Brier score and expected calibration error (ten bins, as moe-bench
report), and this error of 1,000 samples of outcomes that the estimates predict correctly: the mean, and the number that 95 % of
the samples do not exceed. Needs msgpack and numpy."""
import argparse
import collections
import copy
import math

import numpy as np

import auto_steps
from streams import records

TAKEN_OVER, FADING = 0.25, 0.9995       # of common/predict/tasks.h, and per iteration as in dytc-verify


class Draft:
    def __init__(self, record, estimator):
        self.tree, self.at, self.estimate = [], None, {}
        for i in range(1, record["nodes"]):
            parent = int(record["node_parents"][i])
            self.tree.append(auto_steps.Node(self.tree[parent - 1] if parent else None, int(record["node_tokens"][i]), 0,
                                             float(record["node_log_probability"][i]), int(record["node_match"][i])))
        self.signal = dict(zip(map(id, self.tree), auto_steps.signals(self.tree)))
        for i, node in enumerate(self.tree):
            self.estimate[id(node)] = estimator.of(self.signal[id(node)]) if estimator else float(record["node_acceptance"][1 + i])

    def judge(self, token, estimator):
        """Yields (estimate, kept) of each node whose parent the text has reached."""
        reached = self.at
        for node in self.tree:
            if node.parent is reached:
                kept = node.token == token
                yield self.estimate[id(node)], kept
                if estimator:
                    estimator.observe(self.signal[id(node)], kept)
                self.at = node if kept else self.at
        if self.at is reached:
            self.tree = []


def judged(paths, recorded):
    """{task: [(estimate, kept), ...]}"""
    tasks, now, out, recent = {}, None, collections.defaultdict(list), []
    for path in paths:
        for kind, record in records(path):
            if kind == "begin":
                task, recent = record.get("task"), []
                if task not in tasks:
                    tasks[task] = copy.deepcopy(now) if now else auto_steps.Estimator(0.999)
                    if now:
                        tasks[task].fade(TAKEN_OVER)
                now = tasks[task]
            if kind != "iter" or (recorded and "node_acceptance" not in record):
                continue
            now.fade(FADING)
            recent.append(Draft(record, None if recorded else now))
            for token in map(int, record["tokens"]):
                for draft in recent:
                    out[task] += draft.judge(token, None if recorded else now)
                recent = [draft for draft in recent if draft.tree]
    return out


def error(p, kept):
    return np.abs(np.bincount(np.minimum(9, (10 * p).astype(int)), p - kept, 10)).sum() / len(p)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip", type=int, default=500)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("streams", nargs="+")
    args = parser.parse_args()
    random = np.random.default_rng(1)
    for task, pairs in sorted(judged(args.streams, args.recorded).items(), key=str):
        pairs = [pair for pair in pairs[args.skip:] if not math.isnan(pair[0])]
        if not pairs:
            continue
        p, kept = (np.array(values, float) for values in zip(*pairs))
        chance = [error(p, random.random(len(p)) < p) for _ in range(1000)]
        print(f"{task}: {len(p)} tokens, Brier score {((p - kept) ** 2).mean():.4f}, error {error(p, kept):.4f}, "
              f"by chance {np.mean(chance):.4f} (95 % below {np.quantile(chance, 0.95):.4f})", flush=True)


if __name__ == "__main__":
    main()
