#!/usr/bin/python3
"""Scores sources of forecasts anew, from the routes of an answer alone.

usage: forecast_steps.py SCORED ROUTES

SCORED holds the records of `moe-view --json` of moe-decode --forecasts without drafts, ROUTES those of moe-profile -n with the
same prompts. For every iteration and layer, what popular, last, table and pairs name, and how much of it is right, must be what
the record says. Of each layer the experts with the highest scores above 0 are named, at most twice as many as a token wants;
equal ones by their number.
"""
import collections
import json
import sys

import numpy as np


def best(score, most):
    order = sorted((e for e in range(len(score)) if score[e] > 0), key=lambda e: (-score[e], e))
    return set(order[:most])


def main():
    scored, routes, experts = collections.defaultdict(list), collections.defaultdict(list), 0
    for line in open(sys.argv[1]):
        record = json.loads(line)
        if record["type"] == "header":
            experts = record["model"]["experts"]
        if record["type"] == "iter":
            scored[record["sequence"]].append(record)
    for line in open(sys.argv[2]):
        record = json.loads(line)
        if record["type"] == "route" and record["phase"] == "decode":
            routes[record["sequence"]].append((record["tokens"][0], record["experts"][0]))
    layers = len(routes[0][0][1])
    popular = np.zeros((layers, experts))
    table = collections.defaultdict(lambda: np.zeros((layers, experts)))
    after = np.zeros((layers, experts, experts), np.float32)
    followed = np.zeros((layers, experts), np.float32)
    iterations = compared = 0
    for sequence, records in scored.items():
        last = None
        for record, (token, chosen) in zip(records, routes[sequence]):
            assert record["node_tokens"] == [token], (record["node_tokens"], token)
            names = record["forecast_sources"].split()
            for layer in range(layers):
                wanted, top_k = set(chosen[layer]), len(chosen[layer])
                pairs = np.zeros(experts, np.float32)
                for e in sorted(last[layer]) if last else ():
                    if followed[layer, e]:
                        pairs += after[layer, e] / followed[layer, e]
                score = {"popular": popular[layer], "table": table[token][layer], "pairs": pairs,
                         "last": [last is not None and e in last[layer] for e in range(experts)]}
                assert record["forecast_wanted"][layer] == len(wanted)
                for source, values in score.items():
                    at, named = names.index(source), best(values, 2 * top_k)
                    have = record["forecast_named"][at][layer], record["forecast_right"][at][layer]
                    if have != (len(named), len(named & wanted)):
                        sys.exit(f"sequence {sequence}, layer {layer}, {source}: named and right are {have}, here "
                                 f"{len(named), len(named & wanted)}")
                    compared += 1
            for layer in range(layers):
                for e in chosen[layer]:
                    popular[layer, e] += 1
                    table[token][layer, e] += 1
                for e in last[layer] if last else ():
                    followed[layer, e] += 1
                    for other in chosen[layer]:
                        after[layer, e, other] += 1
            last = chosen
            iterations += 1
    print(json.dumps({"iterations": iterations, "compared": compared}))


if __name__ == "__main__":
    main()
