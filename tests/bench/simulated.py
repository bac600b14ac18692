#!/usr/bin/env python3
"""simulated.py MACHINE.json ROUTES.moes RESULT.jsonl: hits and times of moe-bench simulate had again from the routes by another
program, which knows nothing of the C code: LRU, LFU and Belady by plain lists, splits and an LRU cache with their clock; or, of
--forecasts, what popular, last and table name. Exits 1 with what differs. Needs msgpack and numpy."""
import json
import sys

import numpy as np

from streams import records


def forwards(path, prompts=False):
    """Returns the model, and for each forward (also of prompts on request): accepted flags, experts [tokens][layers][top_k],
    sequence, tokens, whether it is a prompt's."""
    model, found = None, []
    for kind, body in records(path):
        if kind == "header":
            model = body["model"]
        if kind == "route" and (prompts or body["phase"] != "prompt"):
            flags = body.get("accepted")
            found.append(([1] * body["n"] if flags is None else list(flags), body["experts"], body["sequence"], body["tokens"],
                          body["phase"] == "prompt"))
    return model, found


def undrafted(found):
    return [([1], experts[i:i + 1]) for flags, experts, *_ in found for i in range(len(flags)) if flags[i]]


def wants(found, layers):
    """Returns each forward's layers as {expert: tokens}."""
    for flags, experts, *_ in found:
        turn = []
        for layer in range(layers):
            often = {}
            for token in experts:
                for e in token[layer]:
                    if e >= 0:
                        often[int(e)] = often.get(int(e), 0) + 1
            turn.append(dict(sorted(often.items())))
        yield flags, turn


class Recency:
    """Per layer, experts by their last request: the lowest value has most experts of its layer requested after it; ties go
    to the layer whose turn was last."""

    def __init__(self):
        self.recent, self.value, self.clock = {}, {}, 0

    def want(self, layer, wanted):
        recent = self.recent.setdefault(layer, [])
        recent[:] = list(wanted)[::-1] + [e for e in recent if e not in wanted]
        self.clock += 1
        for rank, e in enumerate(recent):
            self.value[layer, e] = (-rank, -self.clock)

    def touch(self, key):
        recent = self.recent.setdefault(key[0], [])
        recent[:] = [key[1]] + [e for e in recent if e != key[1]]
        self.value[key] = (0, -self.clock)


class Cache:
    """Residents, and the victim: the one with the lowest value that is not requested now."""

    def __init__(self, slots, value):
        self.slots, self.value, self.here, self.hits, self.wanted = slots, value, set(), 0, 0

    def turn(self, keys, see):
        """Returns whether each expert was resident; `see` is called first."""
        see(keys)
        there = [key in self.here for key in keys]
        self.hits += sum(there)
        self.wanted += len(keys)
        placed = {key for key, hit in zip(keys, there) if hit}
        for key, hit in zip(keys, there):
            if not hit:
                if len(self.here) == self.slots:
                    others = self.here - placed
                    if not others:
                        continue
                    self.here.remove(min(others, key=self.value))
                self.here.add(key)
                placed.add(key)
        return there


def recency(slots, counts):
    last, often = Recency(), {}

    def see(keys):
        if keys:
            last.want(keys[0][0], [e for _, e in keys])
        for key in keys:
            often[key] = often.get(key, 0) + 1
    return Cache(slots, lambda key: (often[key] if counts else 0, last.value[key])), see


def belady(found, layers, slots, bypass=False):
    turns = [[(layer, e) for e in turn[layer]] for _, turn in wants(found, layers) for layer in range(layers)]
    future = {}
    for at, keys in enumerate(turns):
        for key in keys:
            future.setdefault(key, []).append(at)
    for uses in future.values():
        uses.reverse()
    next_use = lambda key: future[key][-1] if future[key] else 1 << 60
    cache = Cache(slots, lambda key: -next_use(key))
    for keys in turns:
        if not bypass:
            cache.turn(keys, lambda keys: [future[key].pop() for key in keys])
            continue
        cache.hits += len(cache.here & set(keys))           # the experts requested soonest stay
        cache.wanted += len(keys)
        for key in keys:
            future[key].pop()
        cache.here = set(sorted(cache.here | set(keys), key=next_use)[:slots])
    return cache


def seconds_of_split(found, layers, machine, experts, slots):
    resident = slots // experts
    now = 0.0
    for flags, turn in wants(found, layers):
        now += (len(flags) - 1) * machine["draft"]["token_us"] + machine.get("forward_us", 0)
        for layer in range(layers):
            where = machine["fast" if layer < resident else "slow"]
            now += machine.get("layer_us", 0)
            if turn[layer]:
                now += sum(where["expert_us"] + (n - 1) * where.get("token_us", 0) for n in turn[layer].values())
                now += where.get("join_us", 0) if layer >= resident else 0
    return now * 1e-6


def seconds_of_fetching(found, layers, machine, slots, counts):
    cache, see = recency(slots, counts)
    now = link = 0.0
    latency = machine["link"].get("latency_us", 0)
    waits, takes = (latency, 0) if machine["link"].get("at_once") else (0, latency)
    transfer = takes + 1e6 * machine["model"]["expert_bytes"] / machine["link"]["bytes_per_second"]
    for flags, turn in wants(found, layers):
        now += (len(flags) - 1) * machine["draft"]["token_us"]
        for layer in range(layers):
            now += machine.get("layer_us", 0)
            there = cache.turn([(layer, e) for e in turn[layer]], see)
            work = [machine["fast"]["expert_us"] + (n - 1) * machine["fast"].get("token_us", 0) for n in turn[layer].values()]
            end = now + sum(w for w, hit in zip(work, there) if hit)
            missing = [w for w, hit in zip(work, there) if not hit]
            for w in missing:
                link = max(link, now + waits) + transfer
                end = end if machine["link"].get("together") else max(end, link) + w
            if missing and machine["link"].get("together"):
                end = max(end, link) + sum(missing)
            now = end
        now += machine.get("forward_us", 0)
    return now * 1e-6, cache


def named(score, most):
    return sorted((e for e in score if score[e] > 0), key=lambda e: (-score[e], e))[:most]


def forecasts(found, layers, experts_of_layer, results):
    """Computes each line of --forecasts that follows from routes alone, from whole histories."""
    wrong = []
    for r in results:
        if r["source"] not in ("popular", "last", "table"):
            continue
        right = names = agree = 0
        popular, rows, last, text = [{} for _ in range(layers)], {}, None, None
        for (flags, experts, sequence, tokens, _), (_, turn) in zip(found, wants(found, layers)):
            last = last if sequence == text else None
            text = sequence
            for layer in range(layers):
                if r["source"] == "popular":
                    score = popular[layer]
                elif r["source"] == "last":
                    score = {} if last is None else {int(e): 1 for e in last[layer] if e >= 0}
                else:
                    score = {}
                    for token in tokens:
                        row = rows.get(int(token), [{}] * layers)[layer]
                        for e, n in row.items():
                            score[e] = np.float32(score.get(e, 0) + np.float32(n) / np.float32(sum(row.values())))
                chosen = named(score, r["most"])
                names += len(chosen)
                right += sum(e in turn[layer] for e in chosen)
                agree += sum((e in chosen) == (e in turn[layer]) for e in range(experts_of_layer))
            for at, flag in enumerate(flags):
                for layer in range(layers if flag else 0):
                    row = rows.setdefault(int(tokens[at]), [{} for _ in range(layers)])[layer]
                    for e in experts[at][layer]:
                        if e >= 0:
                            popular[layer][int(e)] = popular[layer].get(int(e), 0) + 1
                            row[int(e)] = row.get(int(e), 0) + 1
                last = experts[at] if flag else last
        share = agree / (experts_of_layer * layers * len(found))
        if r["most"] == experts_of_layer and abs(share - r["hot_or_cold"]) > 1e-9:
            wrong.append(f"{r['source']}: {r['hot_or_cold']} hot or cold, not {share}")
        if (names, right) != (r["named"], r["right"]):
            wrong.append(f"{r['source']} of {r['most']}: {r['named']}, {r['right']} right, not {names}, {right}")
    return wrong


def main(machine_file, routes_file, result_file):
    machine = json.load(open(machine_file))
    model, found = forwards(routes_file)
    lines = [json.loads(line) for line in open(result_file)]
    if lines[0]["type"] == "forecast":
        wrong = forecasts(found, model["moe_layers"], model["experts"], lines)
        print("\n".join(wrong) or f"{len(lines)} forecasts: the same")
        return 1 if wrong else 0
    result = {r["system"]: r for r in lines}
    layers, experts = model["moe_layers"], model["experts"]
    slots = round(next(iter(result.values()))["cached"] * layers * experts)
    wrong = []

    def same(what, theirs, ours):
        if abs(theirs - ours) > 1e-9 * max(1, abs(ours)):
            wrong.append(f"{what}: {theirs}, not {ours}")

    for drafted, name in ((True, "static-split-draft"), (False, "static-split")):
        these = found if drafted else undrafted(found)
        if name in result:
            same(name, result[name]["seconds"], seconds_of_split(these, layers, machine, experts, slots))
        same(f"tokens of {name}", result[name]["tokens"], sum(sum(flags) for flags, *_ in found))
        bound = belady(these, layers, slots)
        after = "" if drafted else "_undrafted"
        same(f"belady, {name}", result[name]["belady_hits" + after], bound.hits / bound.wanted)
        bound = belady(these, layers, slots, True)
        same(f"belady with a bypass, {name}", result[name]["belady_bypass_hits" + after], bound.hits / bound.wanted)
    for name, counts in (("lru-fetch", False), ("lfu-fetch", True)):
        seconds, cache = seconds_of_fetching(found, layers, machine, slots, counts)
        same(f"hits of {name}", result[name]["hits"], cache.hits)
        same(f"wants of {name}", result[name]["wanted"], cache.wanted)
        same(f"seconds of {name}", result[name]["seconds"], seconds)
    print("\n".join(wrong) or f"{len(found)} forwards, {sum(len(f) for f, *_ in found)} tokens: the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
