#!/usr/bin/env python3
"""Replays policy evict-experts step by step from a saved stream alone, with all that it learns.

usage: evict_experts_steps.py COST TOTAL DRAFTS < ITERATIONS

DRAFTS holds the records of `moe-view --json` of a stream with --record drafts and a dynamic tree, ITERATIONS those of
`moe-bench replay --policy evict-experts:cost=COST --iterations` over it, COST is the cost table, TOTAL the most nodes of a draft
that is verified. From each recorded draft the policy's choice is made anew: the experts that each token is predicted to want are
those that it wanted when the text last had it, and the usual union of k tokens is an average over the text's own last tokens.
K and the nodes must be those of the iteration. Steepness of the cost and cost of drafting are those that the iteration states.
"""
import json
import math
import struct
import sys

UNION_TOKENS = 65                               # maximum number of tokens whose union is averaged
FORGETTING = 1 - 0.97                           # minimum weight of the newest union in an average
CLOSE = 1e-9                                    # rates closer than this are treated as equal


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def forward_seconds(table, rows):
    points = [(point["m"], point["seconds"]) for point in table["cost"]]
    for (m0, s0), (m1, s1) in zip(points, points[1:]):
        if rows <= m1 or (m1, s1) == points[-1]:
            return s0 + (s1 - s0) * (rows - m0) / (m1 - m0)
    raise ValueError("a table of one point")


class Learned:
    """The text's knowledge about experts; a row is a list of layers, each with a list of experts."""

    def __init__(self, experts):
        self.experts, self.wanted, self.average = experts, {}, []
        self.recent = []

    def learn(self, token, row):
        if token is not None:
            self.wanted[token] = {(layer, e) for layer, chosen in enumerate(row) for e in chosen}
        self.recent = (self.recent + [row])[-UNION_TOKENS:]
        layers, unions = len(row), [set() for _ in row]
        for back, old in enumerate(reversed(self.recent)):
            for layer, chosen in enumerate(old):
                unions[layer].update(chosen)
            now = sum(map(len, unions)) / layers
            if back == len(self.average):
                self.average.append([0, 0])
            mean = self.average[back]
            mean[1] += 1
            mean[0] += max(FORGETTING, 1 / mean[1]) * (now - mean[0])

    def pairs(self, tokens, layers, top_k):
        """Returns the number of pairs of layer and expert that `count` neighbouring tokens usually load."""
        tokens = min(tokens, UNION_TOKENS)
        if tokens <= len(self.average):
            return layers * self.average[tokens - 1][0]
        return layers * self.experts * (1 - (1 - top_k / self.experts) ** tokens)


def choose(nodes, parent, score, predicted, layers, experts, top_k, learned, cost_of, base):
    """Returns the order of the nodes (row 0 is the root), and the cost of the first k of them."""
    everything, each = layers * experts, layers * top_k
    named, size, unknown = set(), 0.0, 0.0

    def added(row):
        if predicted[row] is None:
            return each * (1 - size / everything)
        return len(predicted[row] - named) * (1 - unknown / everything)

    def cost(k, pairs):
        usual = learned.pairs(k + 1, layers, top_k) - each
        return base + cost_of(k) * ((pairs - each) / usual if usual > 0 else 1)

    def join(row):
        nonlocal size, unknown
        more = added(row)
        size += more
        if predicted[row] is None:
            unknown += more
        else:
            named.update(predicted[row])

    join(0)
    order, costs = [], [base]
    for k in range(1, len(nodes) + 1):
        best = None
        for node in nodes:
            if node in order or (parent[node] != 0 and parent[node] not in order):
                continue
            more = max(1e-9, cost(k, size + added(node)) - costs[-1])
            if best is None or score[node] * best[1] > score[best[0]] * more:
                best = (node, more)
        join(best[0])
        order.append(best[0])
        costs.append(cost(k, size))
    return order, costs


def main():
    cost_file, total, drafts_file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    table = json.load(open(cost_file))
    one = forward_seconds(table, 1)
    drafts, texts, experts, top_k = {}, {}, 0, 0
    for line in open(drafts_file):
        record = json.loads(line)
        if record["type"] == "header":
            experts, top_k = record["model"]["experts"], record["model"]["top_k"]
        if record["type"] == "begin":
            texts[record["sequence"]] = record["prompt"]
        if record["type"] == "done":
            texts[record["sequence"]] = texts[record["sequence"]] + record["tokens"]
        if record["type"] == "draft":
            drafts[record["sequence"], record["pos"]] = record
    learned = Learned(experts)
    counts = {"steps": 0, "verified": 0, "predicted": 0, "by_size": 0, "close": 0}
    sequence = None
    for line in sys.stdin:
        step = json.loads(line)
        state = step["policy"]
        assert state["name"] == "evict-experts", state
        if step["sequence"] != sequence:
            sequence, last = step["sequence"], None
            learned.recent = []               # another text; averages and predictions are kept
        draft = drafts[sequence, step["pos"]]
        parent, token = draft["parents"], draft["tokens"]
        layers = len(draft["experts"][0])
        if state["made"]:
            score = [1.0]
            for node in range(1, draft["n"]):
                score.append(score[parent[node]] * min(1, math.exp(f32(draft["log_probability"][node]))))
            by_path = [0.0]
            for node in range(1, draft["n"]):
                by_path.append(f32(by_path[parent[node]] + f32(draft["log_probability"][node])))
            # The tree grows to the `total` best paths; then the policy chooses.
            nodes = sorted(sorted(range(1, draft["n"]), key=lambda node: -by_path[node])[:total])
            assert len(nodes) == state["made"], (len(nodes), state)
            # The root's own prediction exists only if it was the root of an earlier draft.
            known = [learned.wanted.get(token[node]) for node in range(draft["n"])]
            known[0] = learned.wanted.get(last) if last is not None else None
            order, costs = choose(nodes, parent, score, known, layers if learned.wanted else 1, experts, top_k, learned,
                                  lambda k: state["steepness"] * (forward_seconds(table, k + 1) / one - 1), 1 + state["drafting"])
            gain, rates = 1.0, [1 / costs[0]]
            for node, price in zip(order, costs[1:]):
                gain += score[node]
                rates.append(gain / price)
            want = max(range(len(rates)), key=lambda k: (rates[k], -k))
            if want != step["K"] and abs(rates[step["K"]] / rates[want] - 1) < CLOSE:
                counts["close"] += 1
                want = step["K"]
            if want != step["K"] or step["nodes"] != 1 + want:
                sys.exit(f"sequence {sequence}, position {step['pos']}: K {step['K']}, nodes {step['nodes']}; here {want}")
            counts["steps"] += 1
            counts["verified"] += want
            counts["predicted"] += sum(known[node] is not None for node in nodes)
            by_size = sorted(nodes, key=lambda node: -score[node])[:want]
            counts["by_size"] += set(by_size) != set(order[:want])
        # The text continues: each token of it that was read teaches the experts it used. The policy does not learn from a
        # text's first root.
        for i in range(step["emitted"]):
            read = drafts[sequence, step["pos"] + i]
            learned.learn(last if not i else read["tokens"][0], read["experts"][0])
        last = texts[sequence][step["pos"] + step["emitted"]]
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
