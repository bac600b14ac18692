#!/usr/bin/env python3
"""Replays a policy that trims drafts, step by step, from a saved stream alone.

usage: evict_steps.py POLICY COST TOTAL DRAFTS < ITERATIONS

DRAFTS holds the records of `moe-view --json` of a stream with --record drafts, ITERATIONS those of `moe-bench replay
--policy POLICY:cost=COST --iterations` over it, COST is the cost table, TOTAL the most nodes of a draft that is verified.
From each recorded draft the nodes are scored and the number of verified ones is chosen anew; it must be K of the iteration.
Steepness of the cost and cost of drafting are those that the iteration states.
"""
import json
import math
import struct
import sys


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def forward_seconds(table, rows):
    points = [(point["m"], point["seconds"]) for point in table["cost"]]
    for (m0, s0), (m1, s1) in zip(points, points[1:]):
        if rows <= m1 or (m1, s1) == points[-1]:
            return s0 + (s1 - s0) * (rows - m0) / (m1 - m0)
    raise ValueError("a table of one point")


def choose(policy, scores, cost):
    """The number of nodes to verify; scores are sorted, the highest first."""
    gain = [1.0]
    for score in scores:
        gain.append(gain[-1] + score)
    rates = [g / cost(k) for k, g in enumerate(gain)]
    if policy == "evict":
        return max(range(len(rates)), key=lambda k: (rates[k], -k))
    if policy == "threshold":
        values = [g - cost(k) for k, g in enumerate(gain)]
        return max(range(len(values)), key=lambda k: (values[k], -k))
    if policy == "bastion":                     # as long as each node raises the rate
        return next((k for k in range(len(scores)) if rates[k + 1] <= rates[k]), len(scores))
    raise ValueError(policy)


def main():
    policy, cost_file, total, drafts_file = sys.argv[1:]
    table = json.load(open(cost_file))
    one = forward_seconds(table, 1)
    drafts = {}
    for line in open(drafts_file):
        record = json.loads(line)
        if record["type"] == "draft":
            drafts[record["sequence"], record["pos"]] = record
    steps = verified = 0
    for line in sys.stdin:
        step = json.loads(line)
        draft, state = drafts[step["sequence"], step["pos"]], step["policy"]
        assert state["name"] == policy, state
        if not state["made"]:
            continue
        score = [1.0]
        for node in range(1, draft["n"]):
            parent = draft["parents"][node] if "parents" in draft else node - 1
            score.append(score[parent] * min(1, math.exp(f32(draft["log_probability"][node]))))
        drafted = score[1:1 + state["made"]] if policy == "bastion" else score[1:]      # of a chain
        best = sorted(drafted, reverse=True)[:int(total)]

        def cost(k):
            return 1 + state["steepness"] * (forward_seconds(table, k + 1) / one - 1) + state["drafting"]

        want = choose(policy, best, cost)
        if want != step["K"] or step["nodes"] != 1 + want:
            sys.exit(f"sequence {step['sequence']}, position {step['pos']}: K {step['K']}, nodes {step['nodes']}; here {want}")
        steps += 1
        verified += want
    print(json.dumps({"steps": steps, "verified": verified}))


if __name__ == "__main__":
    main()
