#!/usr/bin/python3
"""Analyses of MoE-Spec, computed from a route stream as the paper prints them, knowing nothing of the C code.

usage: moe_spec.py coverage STREAM COVERAGE.jsonl       what `moe-coact coverage --by router --json` printed of the stream
       moe_spec.py budget STREAM B [GROUPS KEPT RANK]   a stream recorded under --budget B --budget-mode truncate; of a family
                                                        that first chooses KEPT of so many groups, by their RANK best
       moe_spec.py concentration STREAM STATS.jsonl MATRIX.jsonl    what `moe-coact stats --json` and `matrix --json` printed
       moe_spec.py frequency STREAM RANK.jsonl PHASE    what `moe-coact rank-experts --by frequency --json` printed

Eq. 5: s_i = sum over the nodes of a forward of g_i, g_i being the router's score of all experts, and its correction for choosing
where the family has one. `coverage` holds mass and served of every budget and layer against it. `budget` shows that these are the
experts the engine keeps: of each node's natural top k, by recorded score and correction, those in the forward's shortlist and no
others. `concentration` is appendix D's: over every node of forwards that verify, eq. 9. `frequency` is eq. 4 over the accepted
tokens of a phase, or of `verify` all nodes. Exit 1 if anything differs. Needs msgpack and numpy; the first two need a stream
recorded with --record route,probs."""
import json
import sys

import numpy as np

sys.dont_write_bytecode = True
from streams import records


def rows_of(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def forwards(path):
    """Returns selected experts, scores, and the scores used for choosing, of each forward after a prompt: [n][layers][...]."""
    correction = 0
    for kind, body in records(path):
        if kind == "begin":
            correction = body.get("correction", np.zeros(())).astype(np.float64)
        elif kind == "route" and body["phase"] != "prompt":
            score = body["probs"].astype(np.float64)
            yield body["experts"], score, score + correction


def order_of(value):
    """Returns [layers][experts]: descending sums over the nodes, ties to the lower expert."""
    return np.argsort(-value.sum(0), axis=1, kind="stable")


def coverage(path, printed):
    mass, served, nodes, count = 0, 0, 0, 0
    for chosen, score, value in forwards(path):
        order = order_of(value)
        kept = np.take_along_axis(score.sum(0), order, 1).cumsum(1)
        mass += kept / kept[:, -1:]
        place = np.argsort(order, axis=1)
        for node in chosen:
            last = [max([place[layer][e] for e in slots if e >= 0], default=0) for layer, slots in enumerate(node)]
            served += np.arange(score.shape[2]) >= np.array(last)[:, None]
        nodes += len(chosen)
        count += 1
    rows = rows_of(printed)
    assert [row["layer"] for row in rows] == list(range(len(mass))) and count
    wrong = sum(row["tokens"] != nodes for row in rows)
    wrong += sum((np.abs(np.array(row["mass"]) - of / count) > 1e-7).sum() for row, of in zip(rows, mass))
    wrong += sum((np.abs(np.array(row["served"]) - of / nodes) > 1e-9).sum() for row, of in zip(rows, served))
    print(f"{count} forwards, {nodes} nodes, {wrong} wrong figures; a quarter of the experts keeps "
          f"{(mass / count)[:, mass.shape[1] // 4 - 1].mean():.3f}")
    return wrong


def natural(value, top_k, groups, kept, rank):
    """Returns the top_k of one node without a budget."""
    best = np.sort(value.reshape(groups, -1), axis=1)[:, -rank:].sum(1)
    open_ones = np.argsort(-best, kind="stable")[:kept]
    shut = ~np.isin(np.arange(len(value)) // (len(value) // groups), open_ones)
    return np.argsort(-np.where(shut, -np.inf, value), kind="stable")[:top_k]


def budget(path, size, groups=1, kept_groups=1, rank=1):
    wrong = count = dropped = 0
    for chosen, _, value in forwards(path):
        order = order_of(value)
        for layer in range(value.shape[1]):
            allowed = set(order[layer][:int(size)])
            for node, slots in enumerate(chosen[:, layer]):
                wanted = natural(value[node, layer], len(slots), int(groups), int(kept_groups), int(rank))
                kept = [e for e in slots if e >= 0]
                wrong += sorted(kept) != sorted(e for e in wanted if e in allowed)
                dropped += len(slots) - len(kept)
                count += 1
    print(f"{count} selections, {dropped} experts dropped, {wrong} selections that eq. 5 does not give")
    return wrong or not dropped


def selections(path, phase):
    """Returns the selected experts of each counted token, [layers][top_k], and the number of experts."""
    for kind, body in records(path):
        if kind == "header":
            yield body["model"]["experts"]
        if kind == "route" and body["phase"] in {"all": ("prompt", "decode", "verify"), "prompt": ("prompt",),
                                                 "decode": ("decode", "verify"), "verify": ("verify",)}[phase]:
            accepted = body.get("accepted", np.ones(body["n"]))
            yield from body["experts"][accepted > 0 if phase != "verify" else slice(None)]


def concentration(path, printed, matrix):
    source = selections(path, "verify")
    experts = next(source)
    tokens = np.stack(list(source))
    layers, top_k, wrong = tokens.shape[1], tokens.shape[2], 0
    expected = len(tokens) * top_k * (top_k - 1) / (experts * (experts - 1))
    for layer, row, pairs in zip(range(layers), rows_of(printed), rows_of(matrix)):
        selected = np.zeros((len(tokens), experts), int)
        np.put_along_axis(selected, tokens[:, layer].astype(int), 1, 1)
        together = selected.T @ selected
        best = np.triu(together, 1).max()
        wrong += row["tokens"] != len(tokens) or row["pair_tokens"] != best
        wrong += not np.isclose(row["concentration"], best / expected, rtol=1e-12)
        wrong += (together[pairs["first"], pairs["second"]] != pairs["count"]).sum()
    print(f"{len(tokens)} nodes, {wrong} wrong figures")
    return wrong


def frequency(path, printed, phase):
    source = selections(path, phase)
    experts = next(source)
    tokens = np.stack(list(source))
    wrong = 0
    for layer, row in enumerate(rows_of(printed)):
        count = np.bincount(tokens[:, layer].ravel(), minlength=experts)
        order = np.argsort(-count, kind="stable")
        wrong += list(order) != row["order"] or list(count[order]) != row["score"]
    print(f"{len(tokens)} tokens, {wrong} wrong layers")
    return wrong


sys.exit(1 if {f.__name__: f for f in (coverage, budget, concentration, frequency)}[sys.argv[1]](*sys.argv[2:]) else 0)
