#!/usr/bin/env python3
"""The steps of `--policy dytc`, decided again by another program that knows nothing of the C code.

dytc.py STREAM.moes LIMIT [SETTING=VALUE ...]: for each iteration of moe-decode --record drafts (or route) whose drafters were not
on trial, finds from the recorded estimates (acceptance, costs) and the recorded nodes (probability, match) which leaves, drafter and
number of tokens (leaf, drafter, k) come next, step by step, and where the draft ends. The acceptance rates themselves are averaged again from what
earlier iterations kept. LIMIT: the tokens of an answer (-n). Settings are those of the policy. Prints how many steps and iterations agree; exits 1 with the first that differs. Needs msgpack and numpy."""
import math
import sys

from streams import records

SETTINGS = {"max": 16, "nodes": 32, "width": 2, "steps": 5, "top-p": 0.8, "min": 0.8, "bracket": "whole", "lookahead": "yes",
            "lambda": 0.7, "window": 20}
ALIKE = 1e-9


def chances(nodes, alpha):
    """Acceptance probability of each node with all nodes above it; nodes: (parent, drafter, log probability, match)."""
    total = []
    for at, (parent, drafter, log_probability, match) in enumerate(nodes):
        if not math.isnan(log_probability):
            own = min(1.0, math.exp(log_probability))
        elif match > 0:
            own = match / (match + 1)
        else:
            siblings = sum(other[0] == parent for other in nodes[:at])
            own = alpha[drafter] * (1 - alpha[drafter]) ** siblings
        total.append(own * (total[parent] if parent >= 0 else 1))
    return total


def next_step(nodes, alpha, cost, dry, depth_max, s):
    """Returns (leaf, leaves, [(objective, drafter, k), ...]), or None if the draft ends. leaf: 0 is the root."""
    if depth_max < 1:
        return None
    depth = []
    for parent, *_ in nodes:
        depth.append(1 if parent < 0 else depth[parent] + 1)
    chance = chances(nodes, alpha)
    if nodes:
        inner = {parent for parent, *_ in nodes}
        open_leaves = [i for i in range(len(nodes)) if i not in inner and depth[i] < depth_max]
        if not open_leaves:
            return None
        leaf = max(open_leaves, key=lambda i: (chance[i], -i))
        if chance[leaf] < s["min"]:
            return None
        family = [i for i in range(len(nodes)) if nodes[i][0] == nodes[leaf][0]]
        taken, leaves = chance[leaf], 1
        others = sorted((i for i in family if i != leaf and i not in inner), key=lambda i: (-chance[i], i))
        for i in others:
            if taken >= s["top-p"] * sum(chance[i] for i in family):
                break
            taken += chance[i]
            leaves += 1
        above = depth[leaf]
    else:
        leaf, leaves, above = -1, 1, 0
    choices = []
    last = len(alpha) - 1
    for i, a in enumerate(alpha):
        a = min(0.999, a)
        for k in range(1, s["steps"] + 1):
            if i in dry or above + k > depth_max or len(nodes) + s["width"] * k + (leaves - 1) * k > s["nodes"]:
                continue
            now = sum(a ** j for j in range(1, k + 1))
            later, later_cost = (a ** k * alpha[last], cost(last, 1)) if s["lookahead"] == "yes" else (0.0, 0.0)
            c = max(1e-9, cost(i, k)) + later_cost
            choices.append(((now + later) / c if s["bracket"] == "whole" else now + later / c, i, k))
    if not choices:
        return None
    return leaf + 1, leaves, choices


def fail(where, message):
    sys.exit(f"dytc.py: {where}: {message}")


def check(number, it, room, s):
    """Returns the steps of one iteration. Returns how many were compared."""
    state = it["policy"]
    drafters = sum(key.startswith("chance_") for key in state)
    alpha = [state[f"chance_{i}"] for i in range(drafters)]
    level = state["level_us"]

    def cost(i, k):
        us = state[f"step_us_{i}"] + k * state[f"token_us_{i}"] + k * state[f"node_us_{i}"]
        return us / (level if level > 0 else 1e6)

    makers = list(it.get("node_drafters", [0] * it["nodes"]))
    every = [(int(it["node_parents"][i]) - 1, int(makers[i]), float(it["node_log_probability"][i]), int(it["node_match"][i]))
             for i in range(1, it["nodes"])]
    steps = list(zip(*(map(int, it[f"step_{name}"]) for name in ("kind", "leaf", "leaves", "drafter", "tokens", "added"))))
    dry, at = set(), 0
    for index, (kind, leaf, leaves, drafter, tokens, added) in enumerate(steps):
        where = f"iteration {number}, step {index}"
        found = next_step(every[:at], alpha, cost, dry, min(s["max"], room), s)
        if kind != 1 or not found:
            fail(where, f"kind {kind} is recorded; here the draft {'goes on' if found else 'has ended'}")
        if found[:2] != (leaf, leaves):
            fail(where, f"{leaves} leaves from {leaf} on are recorded, {found[1]} from {found[0]} on expected")
        best = max(value for value, *_ in found[2])
        mine = [value for value, i, k in found[2] if (i, k) == (drafter, tokens)]
        if not mine or mine[0] < best - ALIKE * abs(best):
            fail(where, f"drafter {drafter} with {tokens} tokens is recorded, of {sorted(found[2])[-1][1:]} expected")
        dry = (dry - {drafter}) | ({drafter} if not added else set())
        at += added
    if at != len(every):
        fail(f"iteration {number}", f"steps added {at} nodes, {len(every)} were verified")
    if next_step(every, alpha, cost, dry, min(s["max"], room), s):
        fail(f"iteration {number}", "the draft has ended; another step was expected")
    return len(steps)


class Rates:
    """Returns lambda a + (1 - lambda) m for each drafter; m is the mean over its last judged tokens, initially .5. A token
    is judged if all tokens above it were kept; a second choice, beside a token of the same drafter, is not counted. No
    stream states which tokens after the end of a text were kept: after such an iteration nothing is compared (with
    --ignore-eos there is none)."""

    def __init__(self, s):
        self.s, self.rate, self.kept, self.lost, self.compared = s, {}, {}, False, 0

    def check(self, number, state):
        for key, value in state.items():
            i = key.removeprefix("chance_")
            if self.lost or not i.isdigit():
                continue
            self.compared += 1
            if abs(value - self.rate.get(int(i), 0.5)) > ALIKE:
                fail(f"iteration {number}", f"the acceptance rate of drafter {i} is {value}, {self.rate.get(int(i), 0.5)} expected")

    def learn(self, it):
        self.lost = self.lost or it["emitted"] <= it["accepted"]
        if self.lost:
            return
        parents, tokens = [int(p) for p in it["node_parents"]], [int(t) for t in it["node_tokens"]]
        makers, path = [-1] + list(map(int, it.get("node_drafters", [0] * it["nodes"])))[1:], [0]
        for token in list(map(int, it["tokens"]))[:it["accepted"]]:
            path.append(next(i for i in range(1, it["nodes"]) if parents[i] == path[-1] and tokens[i] == token))
        seen, judged = set(), set()
        for i in range(1, it["nodes"]):
            if parents[i] in path and (parents[i], makers[i]) not in seen:
                seen.add((parents[i], makers[i]))
                judged.add(makers[i])
                self.kept[makers[i]] = (self.kept.get(makers[i], []) + [i in path])[-self.s["window"]:]
        for i in judged:
            mean = sum(self.kept[i]) / len(self.kept[i])
            self.rate[i] = self.s["lambda"] * self.rate.get(i, 0.5) + (1 - self.s["lambda"]) * mean


def main():
    s = dict(SETTINGS)
    for word in sys.argv[3:]:
        name, value = word.split("=")
        s[name] = value if name in ("bracket", "lookahead") else type(SETTINGS[name])(value)
    limit, tokens, number = int(sys.argv[2]), 1, 0
    compared = iterations = trials = 0
    rates = Rates(s)
    for kind, it in records(sys.argv[1]):
        if kind == "begin":
            tokens = 1
        if kind != "iter":
            continue
        rates.check(number, it["policy"])
        rates.learn(it)
        if it["policy"]["trial"] >= 0:
            trials += 1
            if it["steps"] > 1 or [int(d) for d in it["step_drafter"]] != [it["policy"]["trial"]] * it["steps"]:
                fail(f"iteration {number}", "a trial is one step of the drafter on trial")
        else:
            compared += check(number, it, limit - tokens - 1, s)
            iterations += 1
        tokens += it["emitted"]
        number += 1
    print(f"{compared} steps of {iterations} iterations agree, {trials} trials beside them; {rates.compared} rates agree")


if __name__ == "__main__":
    main()
