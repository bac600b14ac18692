#!/usr/bin/env python3
"""What a store of experts does, stepped by another program that knows nothing of the C code.

stepped.py time MACHINE.json ROUTES.moes RESULT.jsonl [SOURCE]: reads, hits and seconds of moe-bench simulate on a link that is
shared, with policies lru and utility and, beforehand, what the policy asks for or what SOURCE (last, utility) names.
stepped.py tiers ROUTES.moes GAMMA DEVICE HOST TOLD.jsonl LIVE.jsonl: forward by forward, utility without prefetching in DEVICE slots
and in HOST slots of a second tier: what moe-bench simulate --iterations told, and what records of a live run did.
Exits 1 with what differs. Needs msgpack and numpy."""
import json
import math
import sys
from fractions import Fraction

import numpy as np

from simulated import Recency, forwards, wants

INFINITY = float("inf")


class Lru:
    """LRU by layer; a prefetch counts as a request."""

    def __init__(self, **_):
        self.recency = Recency()

    def want(self, cache, layer, wanted):
        self.recency.want(layer, wanted)

    def inserted(self, key, level):
        if level:
            self.recency.touch(key)

    def released(self, key):
        pass

    def value(self, key):
        return self.recency.value[key]

    def gives(self, victim, level):
        return True


class Levels:
    """Algorithm 1 as printed, with K = 4 and lambda = 0.1."""

    def __init__(self, gamma):
        self.state = {}
        self.start = gamma // 2

    def level(self, key):
        return self.state.get(key, (0, 0, self.start, self.start))[0]

    def step(self, key, f):
        level, before, up, down = self.state.get(key, (0, 0, self.start, self.start))
        change = f - before
        if change >= up:
            level = min(4, level + 1)
        elif -change >= down:
            level = max(0, level - 1)
        if change > 0:
            up = math.floor(Fraction(9, 10) * up + Fraction(1, 10) * change)
        if change < 0:
            down = math.floor(Fraction(9, 10) * down + Fraction(1, 10) * -change)
        self.state[key] = level, f, up, down


class Utility:
    """Tags are levels, 0 after use; on demand the lowest tag is evicted, for prefetches only tag 0."""

    def __init__(self, gamma, experts, asks=True):
        self.levels, self.experts, self.asks = Levels(gamma), experts, asks
        self.tag, self.used, self.verifies = {}, set(), True

    def want(self, cache, layer, wanted):
        self.used |= {(layer, e) for e in wanted}
        for e in range(self.experts):
            if self.verifies:
                self.levels.step((layer, e), wanted.get(e, 0))
            level = self.levels.level((layer, e))
            self.tag[layer, e] = level
            if level and self.asks:
                cache.ask((layer, e), level)

    def inserted(self, key, level):
        self.tag[key] = self.levels.level(key)
        if level:
            self.used.discard(key)

    def released(self, key):
        if key in self.used:
            self.tag[key] = 0
        self.used.discard(key)

    def value(self, key):
        return (self.tag[key], key)

    def gives(self, victim, level):
        return not level or self.tag[victim] < 1


class Cache:
    def __init__(self, slots, policy):
        self.slots, self.policy = slots, policy
        self.slot, self.held, self.unwanted = {}, {}, set()         # slot by key; requests by key; unused prefetches
        self.empty = list(range(slots))
        self.queue, self.expected = {}, {}                          # level: keys in order

    def drop_request(self, key):
        for keys in self.queue.values():
            if key in keys:
                keys.remove(key)

    def ask(self, key, level):
        if key not in self.queue.setdefault(level, []):
            self.drop_request(key)
            self.queue[level].append(key)

    def expect(self, key, tokens):
        self.expected[key] = self.expected.get(key, 0) + tokens
        self.ask(key, self.expected[key])

    def want(self, layer, wanted):
        """Returns how many are resident or in flight."""
        hits = sum((layer, e) in self.slot for e in wanted)
        self.unwanted -= {(layer, e) for e in wanted}
        for keys in self.queue.values():
            keys[:] = [key for key in keys if key[0] != layer]
        self.expected = {key: n for key, n in self.expected.items() if key[0] != layer}
        self.policy.want(self, layer, wanted)
        return hits

    def hold(self, key):
        self.held[key] = self.held.get(key, 0) + 1

    def release(self, key):
        self.held[key] -= 1
        if not self.held[key]:
            del self.held[key]
            self.policy.released(key)

    def insert(self, key, level=0):
        """Returns whether it gets a slot now, and holds the slot."""
        if self.empty:
            slot = self.empty.pop(0)
        else:
            free = [k for k in self.slot if k not in self.held]
            if not free:
                return False
            victim = min(free, key=lambda k: (self.policy.value(k), self.slot[k]))
            if not self.policy.gives(victim, level):
                return False
            slot = self.slot.pop(victim)
            self.unwanted.discard(victim)
        self.drop_request(key)
        self.slot[key] = slot
        self.hold(key)
        if level:
            self.unwanted.add(key)
        self.policy.inserted(key, level)
        return True

    def bring(self, keys):
        """Serves a layer's requests: resident experts stay, the others are read, and all are released."""
        for key in keys:
            if key in self.slot:
                self.hold(key)
        for key in keys:
            if key not in self.slot:
                self.insert(key)
        for key in keys:
            self.release(key)

    def fetch(self):
        """Returns the next expert to prefetch; None: none."""
        for level in sorted(self.queue, reverse=True):
            for key in list(self.queue[level]):
                if key not in self.slot:
                    return key if self.insert(key, level) else None
                self.drop_request(key)
                self.policy.inserted(key, level)
        return None

    def enough(self):
        return not self.empty and 2 * len(self.unwanted) >= self.slots


class Link:
    """Reads that share the bandwidth, each after its latency; times in microseconds."""

    def __init__(self, latency, takes):
        """takes(n): microseconds of n reads that start to transfer at once."""
        self.latency, self.takes, self.now, self.reads, self.ended = latency, takes, 0.0, [], []

    def start(self, key, now):
        self.until(now)
        self.reads.append({"key": key, "waits": self.latency, "left": 1.0})

    def step(self, until):
        """Advances to the next event, or to the given time; returns whether there was an event."""
        moving = [r for r in self.reads if not r["waits"]]
        events = [r["waits"] for r in self.reads if r["waits"]] + [r["left"] * self.takes(len(moving)) for r in moving]
        after = min(events, default=INFINITY)
        there = self.now + after <= until
        passed = after if there else until - self.now
        for r in self.reads:
            if r["waits"]:
                r["waits"] = 0 if r["waits"] - passed < 1e-9 else r["waits"] - passed
            else:
                r["left"] -= passed / self.takes(len(moving))
        self.now = self.now + after if there else until
        self.ended += [r["key"] for r in self.reads if r["left"] < 1e-12]
        self.reads = [r for r in self.reads if r["left"] >= 1e-12]
        return there

    def until(self, until):
        while self.now < until and self.step(until):
            pass


class Store:
    def __init__(self, cache, link):
        self.cache, self.link, self.now = cache, link, 0.0
        self.coming, self.beforehand, self.counts = set(), set(), {"wanted": 0, "hits": 0, "fetched": 0, "prefetched": 0}

    def read(self, key, beforehand):
        self.coming.add(key)
        self.beforehand |= {key} if beforehand else set()
        self.counts["prefetched" if beforehand else "fetched"] += 1
        self.link.start(key, self.now)

    def full(self):
        return len(self.link.reads) + len(self.link.ended) >= 64

    def look(self):
        self.link.until(self.now)
        while self.link.ended:
            self.end(self.link.ended.pop(0))

    def end(self, key):
        self.coming.remove(key)
        if key in self.beforehand:
            self.beforehand.remove(key)
            self.cache.release(key)

    def bring(self):
        while len(self.beforehand) < 8 and not self.full() and not self.cache.enough():
            key = self.cache.fetch()
            if key is None:
                break
            self.read(key, True)

    def layer(self, layer, wanted, seconds):
        self.counts["hits"] += self.cache.want(layer, wanted)
        self.counts["wanted"] += len(wanted)
        left = [(layer, e) for e in wanted]
        held = {key for key in left if key in self.cache.slot}
        for key in held:
            self.cache.hold(key)
        while left:
            ready = []
            while not ready:
                for turn in range(2):
                    for key in left:
                        if key not in held and key in self.cache.slot:
                            self.cache.hold(key)
                            held.add(key)
                        elif key not in held and not self.full() and self.cache.insert(key):
                            self.read(key, False)
                            held.add(key)
                    if not turn:
                        self.look()
                ready = [key for key in left if key in held and key not in self.coming]
                if not ready:
                    while not self.link.ended:
                        self.link.step(INFINITY)
                    self.now = max(self.now, self.link.now)
                    self.end(self.link.ended.pop(0))
            self.bring()
            for key in ready:
                self.now += seconds(wanted[key[1]])
            for key in ready:
                self.cache.release(key)
            # Ready copies are exchanged with those at the front, one after the other.
            front = 0
            for i in range(len(left)):
                if left[i] in ready:
                    left[front], left[i] = left[i], left[front]
                    front += 1
            left = left[front:]


class Source:
    """Returns what a source names for each layer before the forward: [(expert, level)], at most `most` of them."""

    def __init__(self, name, gamma, layers, experts, most):
        self.name, self.shape, self.most = name, (layers, experts), most
        self.levels, self.last = Levels(gamma), None

    def names(self, layer):
        if self.name == "last":
            return [(e, 1) for e in sorted({int(e) for e in self.last[layer]})][:self.most] if self.last is not None else []
        level = [(-self.levels.level((layer, e)), e) for e in range(self.shape[1])]
        return [(e, -n) for n, e in sorted(level) if n][:self.most]

    def learn(self, flags, experts, turn):
        kept = [at for at, flag in enumerate(flags) if flag]
        self.last = experts[kept[-1]] if kept else self.last
        for layer in range(self.shape[0]):
            for e in range(self.shape[1]):
                self.levels.step((layer, e), turn[layer].get(e, 0))


def timed(machine_file, routes_file, result_file, source=None):
    machine = json.load(open(machine_file))
    model, found = forwards(routes_file)
    layers, experts = model["moe_layers"], model["experts"]
    link, gamma, wrong = machine["link"], machine["draft"]["length"], []
    for line in open(result_file):
        told = json.loads(line)
        latency = link.get("latency_us", 0)
        many, speeds = zip(*link.get("reads", [[1, link["bytes_per_second"]]]))
        takes = lambda n: n * (1e6 * machine["model"]["expert_bytes"] / np.interp(n, many, speeds) +
                               (0 if link.get("at_once") else latency))
        policy = {"lru-fetch": Lru, "utility-fetch": Utility}[told["system"]](gamma=gamma, experts=experts)
        store = Store(Cache(round(told["cached"] * layers * experts), policy), Link(latency if link.get("at_once") else 0, takes))
        names = Source(source, gamma, layers, experts, 2 * model["top_k"]) if source else None
        text = None
        for (flags, chosen, sequence, *_), (_, turn) in zip(found, wants(found, layers)):
            if names and sequence != text:
                names.last = None
            text = sequence
            for layer in range(layers if names else 0):
                for e, level in names.names(layer):
                    store.cache.expect((layer, e), level)
                store.look()
                store.bring()
            store.now += (len(flags) - 1) * machine["draft"]["token_us"]
            for layer in range(layers):
                store.now += machine.get("layer_us", 0)
                if turn[layer]:
                    fast = machine["fast"]
                    store.layer(layer, turn[layer], lambda n: fast["expert_us"] + (n - 1) * fast.get("token_us", 0))
            store.now += machine.get("forward_us", 0)
            if names:
                names.learn(flags, chosen, turn)
        for what, count in store.counts.items():
            if told[what] != count:
                wrong.append(f"{told['system']}: {told[what]} {what}, not {count}")
        if abs(told["seconds"] - 1e-6 * store.now) > 1e-9 * told["seconds"]:
            wrong.append(f"{told['system']}: {told['seconds']} s, not {1e-6 * store.now}")
        if not told["prefetched"] and (source or told["system"] == "utility-fetch"):
            wrong.append(f"{told['system']}: nothing was read beforehand")
    return wrong


def tiered(routes_file, gamma, device_slots, host_slots, told_file, live_file):
    """The host sees all requests; experts that the device lacks pass through it and stay held until the layer is computed."""
    read = lambda name, kind: [r for r in map(json.loads, open(name)) if r["type"] == kind]
    model, found = forwards(routes_file, prompts=True)
    layers, experts = model["moe_layers"], model["experts"]
    tiers = [Cache(int(slots), Utility(int(gamma), experts, asks=False)) for slots in (device_slots, host_slots)]
    device, host = tiers
    stepped, told_of, wrong, on_host = [], [], [], 0
    for (flags, chosen, *_), (_, turn), prompt in zip(found, wants(found, layers), [f[4] for f in found]):
        counts = [0, 0, 0]
        for cache in tiers:
            cache.policy.verifies = not prompt
        for layer in range(layers):
            keys = [(layer, e) for e in turn[layer]]
            counts[1] += sum(key not in device.slot and key in host.slot for key in keys)
            hits = device.want(layer, turn[layer])
            host.want(layer, turn[layer])
            counts[0] += hits
            counts[2] += len(keys) - hits
            held = [(device, key) for key in keys if key in device.slot]
            for cache, key in held:
                cache.hold(key)
            for key in keys:
                if key in device.slot:
                    continue
                for cache in tiers:
                    if key in cache.slot:
                        cache.hold(key)
                    elif not cache.insert(key):
                        continue
                    held.append((cache, key))
            for cache, key in held:
                cache.release(key)
        if not prompt:
            levels = [0] * 5
            for layer in range(layers):
                for e in range(experts):
                    levels[device.policy.levels.level((layer, e))] += 1
            stepped.append(counts + levels)
            on_host += counts[1]
    levels = lambda state: [state[f"level{level}"] for level in range(5)]
    told = [[r["hits"], r["host_hits"], r["misses"]] + levels(r["cache"]) for r in read(told_file, "forward") if not r["prompt"]]
    live = [[r["cache_hits"], r["cache_host_hits"], r["cache_misses"]] + levels(r["cache"]) for r in read(live_file, "iter")]
    for name, theirs in (("simulated", told), ("live", live)):
        if len(theirs) != len(stepped):
            wrong.append(f"{name}: {len(theirs)} forwards, not {len(stepped)}")
        wrong += [f"{name}, forward {at}: {a}, not {b}" for at, (a, b) in enumerate(zip(theirs, stepped)) if a != b]
    if not on_host or len({tuple(s[3:]) for s in stepped}) < 4:
        wrong.append("too little happens to tell anything")
    return wrong


def main(what, *given):
    wrong = {"time": timed, "tiers": tiered}[what](*given)
    print("\n".join(wrong) or "the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
