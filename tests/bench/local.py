#!/usr/bin/env python3
"""Routes of texts that have a ranking of experts of their own, and cache policies over them, by a program that knows nothing of
the C code (moe-bench simulate --skew local).

local.py fit [SEED]: what published traces show, beside what routes made here show.
local.py step MACHINE.json ROUTES.moes RESULT.jsonl: steps the systems below over these routes; seconds, hits and fetches must
be those that moe-bench simulate reported. Exits 1 with what differs.
local.py world MACHINE.json [SEED [COMMON [TOKENS [SYSTEM ...]]]]: makes routes of its own (4 texts of TOKENS, 512), steps the
systems over them, and prints tokens/s over those of static-split-draft and how often Algorithm 1 and the released rule say
rightly whether an expert of the last layer will be wanted. COMMON: what rankings of texts have in common, .5; 0: nothing.

Systems are named as in moe-bench simulate, with settings after a colon. Needs msgpack and numpy (step alone)."""
import heapq
import json
import math
import random
import sys
from bisect import bisect_left

SYSTEMS = ["static-split-draft", "lru", "utility", "utility-released", "utility-layers", "utility-kept"]
EXPONENTS = {"local": 1.65, "local-olmoe": 1.2}


# ---- routes

class Texts:
    """Experts of one token after the other: rank r of a text's own ranking with weight (r + 1) ** -exponent, without
    repetition; a quarter of them have the rank of an expert that the token chose in the layer before."""

    def __init__(self, layers, experts, top_k, exponent, common, seed):
        self.random = random.Random(seed)
        self.layers, self.experts, self.top_k, self.common = layers, experts, top_k, common
        total = sum((r + 1) ** -exponent for r in range(experts))
        self.up_to, sum_ = [], 0
        for r in range(experts):
            sum_ += (r + 1) ** -exponent / total
            self.up_to.append(sum_)
        self.shared = [[self.random.random() for _ in range(experts)] for _ in range(layers)]

    def begin(self):
        self.order = []
        for layer in range(self.layers):
            own = 1 - self.common
            key = [self.common * shared + own * self.random.random() for shared in self.shared[layer]]
            self.order.append(sorted(range(self.experts), key=key.__getitem__))
        self.rank = [{e: r for r, e in enumerate(order)} for order in self.order]

    def token(self):
        chosen, chance = [], self.random.random
        for layer in range(self.layers):
            mine = []
            for _ in range(self.top_k):
                if layer and chance() < 0.25:
                    rank = self.rank[layer - 1][chosen[-1][int(chance() * self.top_k)]]
                else:
                    rank = min(bisect_left(self.up_to, chance()), self.experts - 1)
                while self.order[layer][rank] in mine:
                    rank = min(bisect_left(self.up_to, chance()), self.experts - 1)
                mine.append(self.order[layer][rank])
            chosen.append(mine)
        return chosen

    def forwards(self, tokens, length, acceptance):
        """Drafts of `length`, each accepted with that probability after those before it: flags and experts of forwards."""
        left = tokens
        while left:
            drafted = min(left - 1, length)
            flags = [1]
            for _ in range(drafted):
                flags.append(int(flags[-1] and self.random.random() < acceptance))
            yield flags, [self.token() for _ in flags]
            left -= sum(flags)


def hits_of_lru(tokens, layer, slots, skip=0):
    order, hits, wanted = [], 0, 0
    for at, token in enumerate(tokens):
        for e in token[layer]:
            there = e in order
            if there:
                order.remove(e)
            elif len(order) >= slots:
                order.pop(0)
            order.append(e)
            hits, wanted = hits + (there and at >= skip), wanted + (at >= skip)
    return hits / wanted


def fit(seed="1"):
    layers, mean = 6, lambda values: sum(values) / len(values)

    def texts(skew, experts, count, tokens):
        source, made = Texts(layers, experts, 8, EXPONENTS[skew], 0.5, int(seed)), []
        for _ in range(count):
            source.begin()
            made.append([source.token() for _ in range(tokens)])
        return made

    def lru(of, slots, tokens, skip=0):
        return mean([hits_of_lru(text[:tokens], layer, slots, skip) for text in of for layer in range(layers)])

    def show(what, source, published, here):
        print(f"{what:<72} {source:<22} {published:>12}  {100 * here:.1f} %")

    qwen = texts("local", 128, 8, 512)
    print(f"{'local: Qwen3-30B-A3B, 8 of 128 experts':<72} {'source':<22} {'published':>12}  here")
    for slots, published in (8, "36.6 %"), (24, "74.1 %"), (49, "89.4 %"), (81, "96.2 %"):
        show(f"hits of LRU, {slots} experts of a layer cached, 256 tokens", "kekzl/imp#1374", published, lru(qwen, slots, 256))
    show("hits of LRU, 24 experts of a layer cached", "JustVugg/colibri#698", "73 %", lru(qwen, 24, 512))
    show("hits of LRU, 51 experts of a layer cached, after 64 tokens", "kekzl/imp#1359", "90 - 95 %", lru(qwen, 51, 512, 64))
    near = [[e in text[at - 1][layer] for text in qwen for at in range(1, 512) for e in text[at][layer]]
            for layer in range(layers)]
    soon = [[any(e in before[layer] for before in text[at - 8:at])
             for text in qwen for at in range(8, 512) for e in text[at][layer]] for layer in range(layers)]
    show("choices that the token before made", "kekzl/imp#1359", "45 %", mean([mean(n) for n in near]))
    show("choices that one of the last 8 tokens made", "kekzl/imp#1359", "80 %", mean([mean(n) for n in soon]))
    own, other = [], []
    for layer in range(layers):
        often = [[0] * 128 for _ in qwen]
        for count, text in zip(often, qwen):
            for token in text:
                for e in token[layer]:
                    count[e] += 1
        best = [sorted(range(128), key=lambda e: -count[e])[:51] for count in often]
        for a in range(len(qwen)):
            for b in range(len(qwen)):
                (own if a == b else other).append(sum(often[b][e] for e in best[a]) / sum(often[b]))
    show("choices that the text's best 40 % of the experts take", "kekzl/imp#1358", "92.1 %", mean(own))
    show("choices that another text's best 40 % of the experts take", "kekzl/imp#1358", "67.6 %", mean(other))
    olmoe = texts("local-olmoe", 64, 4, 704)
    print("local-olmoe: OLMoE, 8 of 64 experts")
    for slots, published in (16, "51.4 %"), (24, "68.4 %"):
        show(f"hits of LRU, {slots} experts of a layer cached", "JustVugg/colibri", published, lru(olmoe, slots, 704))
    return []


# ---- policies

class Recency:
    """Per layer: the expert goes first after which most others of its layer were wanted; of equal ones that of the layer whose
    turn was last."""

    def __init__(self, layers, experts):
        self.order, self.clock = [list(range(experts)) for _ in range(layers)], 0
        self.of = {(layer, e): (-e, 0) for layer in range(layers) for e in range(experts)}

    def want(self, layer, wanted):
        self.clock += 1
        self.order[layer] = sorted(wanted, reverse=True) + [e for e in self.order[layer] if e not in wanted]
        for rank, e in enumerate(self.order[layer]):
            self.of[layer, e] = -rank, -self.clock

    def touch(self, key):
        self.order[key[0]].remove(key[1])
        self.order[key[0]].insert(0, key[1])
        self.of[key] = 0, -self.clock


class Lru:
    balances, asks_missed = False, True

    def __init__(self, shape, gamma, settings):
        self.recency = Recency(*shape)

    def want(self, cache, layer, wanted):
        self.recency.want(layer, wanted)

    def inserted(self, key, level):
        if level:
            self.recency.touch(key)

    def released(self, key):
        pass

    def value(self, key):
        return self.recency.of[key]

    def gives(self, victim, level):
        return True

    def grants(self, level):
        return True


class Utility:
    """The levels of MoE-SpAc: by Algorithm 1 (signal change) or by the released program (signal state)."""
    asks_missed = False

    def __init__(self, shape, gamma, settings):
        self.layers, self.experts = shape
        word = {"signal": "change", "K": 4, "up": gamma // 2, "down": gamma // 2, "after": "zero", "gives": "cold",
                "ties": "number", "tau": 1, **settings}
        self.state, self.K = word["signal"] == "state", word["K"]
        self.after, self.gives_to, self.ties = word["after"], word["gives"], word["ties"]
        self.tau, self.balances, self.clock = word["tau"], not self.state, 0
        self.level = {(layer, e): 0 for layer in range(self.layers) for e in range(self.experts)}
        self.before = dict(self.level)
        self.up, self.down = (dict.fromkeys(self.level, word[which]) for which in ("up", "down"))
        self.tag, self.used, self.recency, self.turn = dict(self.level), set(), Recency(*shape), [0] * self.layers

    def learn(self, key, f):
        delta = f - (self.level[key] if self.state else self.before[key])
        if delta >= self.up[key]:
            self.level[key] = min(self.K, self.level[key] + 1)
        elif -delta >= self.down[key]:
            self.level[key] = max(0, self.level[key] - 1)
        if not self.state and delta > 0:
            self.up[key] = (9 * self.up[key] + delta) // 10
        if not self.state and delta < 0:
            self.down[key] = (9 * self.down[key] - delta) // 10
        self.before[key] = f

    def want(self, cache, layer, wanted):
        self.clock += 1
        self.turn[layer] = self.clock
        self.recency.want(layer, wanted)
        self.used |= {(layer, e) for e in wanted}
        for e in range(self.experts):
            key = layer, e
            self.learn(key, wanted.get(e, 0))
            self.tag[key] = self.level[key]
            if self.level[key]:
                cache.ask(key, self.level[key])

    def inserted(self, key, level):
        self.tag[key] = self.level[key]
        if level:
            self.used.discard(key)

    def released(self, key):
        if key in self.used and self.after == "zero":
            self.tag[key] = 0
        self.used.discard(key)

    def value(self, key):
        second = {"number": key[0] * self.experts + key[1], "last": self.recency.of[key], "layer": -self.turn[key[0]]}[self.ties]
        return self.tag[key], second

    def gives(self, victim, level):
        return self.tag[victim] < self.tau or (self.gives_to == "lower" and self.tag[victim] < level)

    def grants(self, level):
        return level >= self.tau


RELEASED = {"signal": "state", "K": 5, "up": 5, "down": 1}
POLICIES = {"lru": (Lru, {}), "utility": (Utility, {}), "utility-released": (Utility, RELEASED),
            "utility-layers": (Utility, {**RELEASED, "ties": "layer"}),
            "utility-kept": (Utility, {**RELEASED, "after": "level", "gives": "lower", "ties": "last"})}


# ---- the machine: a slow processor computes what is missing, a link moves one expert after the other

class Cache:
    def __init__(self, slots, policy):
        self.policy, self.slots = policy, slots
        self.slot, self.here, self.held, self.heap = {}, [None] * slots, {}, []
        self.level_of, self.queue = {}, [dict() for _ in range(65)]            # requests: in order by level

    def touch(self, key):
        if key in self.slot and key not in self.held:
            heapq.heappush(self.heap, (*self.policy.value(key), self.slot[key], key))

    def unask(self, key):
        if key in self.level_of:
            del self.queue[self.level_of.pop(key)][key]

    def ask(self, key, level):
        if self.level_of.get(key) != level:
            self.unask(key)
            self.level_of[key] = level
            self.queue[level][key] = True

    def want(self, layer, wanted, experts):
        for e in range(experts):
            self.unask((layer, e))
        self.policy.want(self, layer, wanted)
        for e in range(experts):
            self.touch((layer, e))

    def hold(self, key):
        self.held[key] = self.held.get(key, 0) + 1

    def release(self, key):
        self.held[key] -= 1
        if not self.held[key]:
            del self.held[key]
            self.policy.released(key)
            self.touch(key)

    def lowest(self):
        while self.heap:
            *value, slot, key = self.heap[0]
            if self.slot.get(key) == slot and key not in self.held and tuple(value) == self.policy.value(key):
                return key
            heapq.heappop(self.heap)
        return None

    def fetch(self):
        """Gives a slot to the first request, and holds it."""
        for level in range(64, 0, -1):
            while self.queue[level]:
                if not self.policy.grants(level):
                    return None
                key = next(iter(self.queue[level]))
                if key not in self.slot:
                    return self.bring(key, level)
                self.unask(key)
                self.policy.inserted(key, level)
                self.touch(key)
        return None

    def bring(self, key, level):
        if len(self.slot) < self.slots:
            slot = len(self.slot)
        else:
            victim = self.lowest()
            if victim is None or not self.policy.gives(victim, level):
                return None
            slot = self.slot.pop(victim)
        self.unask(key)
        self.slot[key], self.here[slot] = slot, key
        self.hold(key)
        self.policy.inserted(key, level)
        return key


class Balancer:
    """Equations 7 to 12: tau of a layer."""

    def __init__(self, layers, K):
        self.cold = [[0] * (K + 1) for _ in range(layers)]
        self.hot = [[0] * (K + 1) for _ in range(layers)]
        self.pairs, self.experts, self.K = [0] * layers, [0] * layers, K

    def learn(self, layer, wanted, level):
        for e, tokens in wanted.items():
            for tau in range(1, self.K + 1):
                if level[layer, e] < tau:
                    self.cold[layer][tau] += tokens
                else:
                    self.hot[layer][tau] += 1
        self.pairs[layer] += sum(wanted.values())
        self.experts[layer] += len(wanted)

    def tau(self, layer, world, wanted):
        policy, cache, machine = world.cache.policy, world.cache, world.machine
        missing = [policy.level[layer, e] for e in range(world.experts) if (layer, e) not in cache.slot]
        # Appendix D: a slot is free if it is empty, or if its tag is 0 and the layer at work does not use it.
        room = sum(key is None or not (policy.tag[key] or key in policy.used) for key in cache.here)
        cpu_unit = world.slow_us / world.slow_pairs if world.slow_pairs else machine["slow"]["expert_us"]
        gpu_unit = world.fast_us / world.fast_experts if world.fast_experts else machine["fast"]["expert_us"]
        gamma, best, least = machine["draft"]["length"], self.K, math.inf
        for tau in range(1, self.K + 1):
            cpu = self.cold[layer][tau] / self.pairs[layer] * gamma * world.top_k * cpu_unit
            gpu = self.hot[layer][tau] / self.experts[layer] * len(wanted) * gpu_unit
            fetches = sum(level >= tau for level in missing)
            in_time = world.transfer * fetches <= max(cpu, gpu) + gamma * machine["draft"]["token_us"] / world.layers
            if in_time and fetches <= room and abs(cpu - gpu) < least:
                best, least = tau, abs(cpu - gpu)
        return best


class World:
    def __init__(self, machine, shape, cached, system):
        name, _, given = system.partition(":")
        kind, settings = POLICIES[name]
        pairs = (pair.split("=") for pair in given.split(",") if pair)
        settings = {**settings, **{name: int(value) if value.isdigit() else value for name, value in pairs}}
        self.layers, self.experts, self.top_k = shape
        self.machine, self.cache = machine, Cache(round(cached * self.layers * self.experts),
                                                  kind(shape[:2], machine["draft"]["length"], settings))
        link = machine["link"]
        self.transfer = 1e6 * machine["model"]["expert_bytes"] / link["bytes_per_second"] + link.get("latency_us", 0)
        self.now = self.seen = self.free = 0.0
        self.coming, self.arrives = None, 0.0
        self.wanted = self.hits = self.prefetched = self.tokens = 0
        self.slow_us = self.fast_us = 0.0
        self.slow_pairs = self.fast_experts = 0
        self.balancer = Balancer(self.layers, self.cache.policy.K) if self.cache.policy.balances else None

    def link(self, until):
        while True:
            if self.coming is not None:
                if self.arrives > until:
                    break
                self.cache.release(self.coming)
                self.coming, self.free = None, max(self.free, self.arrives)
            start = max(self.free, self.seen)
            if start >= until:
                break
            self.coming = self.cache.fetch()
            if self.coming is None:
                break
            self.arrives = start + self.transfer
            self.prefetched += 1
        self.seen = until

    def layer(self, layer, wanted):
        self.now += self.machine.get("layer_us", 0)
        self.link(self.now)
        if not wanted:
            return
        if self.balancer:
            self.balancer.learn(layer, wanted, self.cache.policy.level)
        self.cache.want(layer, wanted, self.experts)
        if self.balancer:
            self.cache.policy.tau = self.balancer.tau(layer, self, wanted)
        fast = slow = 0.0
        held = []
        for e, tokens in wanted.items():
            key = layer, e
            if key in self.cache.slot and key != self.coming:
                self.cache.hold(key)
                held.append(key)
                fast += self.machine["fast"]["expert_us"] + (tokens - 1) * self.machine["fast"].get("token_us", 0)
                self.fast_experts += 1
            else:
                if self.cache.policy.asks_missed:
                    self.cache.ask(key, 1)
                slow += self.machine["slow"]["expert_us"] + (tokens - 1) * self.machine["slow"].get("token_us", 0)
                self.slow_pairs += tokens
        self.fast_us, self.slow_us = self.fast_us + fast, self.slow_us + slow
        self.hits, self.wanted = self.hits + len(held), self.wanted + len(wanted)
        self.now += max(fast, slow + (self.machine["slow"].get("join_us", 0) if slow else 0))
        self.link(self.now)
        for key in held:
            self.cache.release(key)

    def forward(self, flags, turn):
        for _ in flags[1:]:
            self.now += self.machine["draft"]["token_us"]
            self.link(self.now)
        for layer, wanted in enumerate(turn):
            self.layer(layer, wanted)
        self.now += self.machine.get("forward_us", 0)
        self.link(self.now)
        self.tokens += sum(flags)


def seconds_of_split(turns, machine, shape, cached):
    layers, experts, _ = shape
    here, now = round(cached * layers * experts) // experts, 0.0
    for flags, turn in turns:
        now += (len(flags) - 1) * machine["draft"]["token_us"] + machine.get("forward_us", 0)
        for layer, wanted in enumerate(turn):
            processor = machine["fast" if layer < here else "slow"]
            now += machine.get("layer_us", 0) + (0 if layer < here else processor.get("join_us", 0))
            now += sum(processor["expert_us"] + (n - 1) * processor.get("token_us", 0) for n in wanted.values())
    return 1e-6 * now


def counted(experts):
    """Of one forward's experts [tokens][layers][top_k], each layer's {expert: tokens}."""
    turn = []
    for layer in range(len(experts[0])):
        often = {}
        for token in experts:
            for e in token[layer]:
                often[e] = often.get(e, 0) + 1
        turn.append(dict(sorted(often.items())))
    return turn


def step(machine_file, routes_file, result_file):
    from simulated import forwards, wants
    machine = json.load(open(machine_file))
    model, found = forwards(routes_file)
    shape = model["moe_layers"], model["experts"], model["top_k"]
    turns, wrong, stepped = list(wants(found, shape[0])), [], 0
    for told in map(json.loads, open(result_file)):
        if told["system"].partition(":")[0] not in POLICIES:
            continue
        world = World(machine, shape, told["cached"], told["system"])
        for flags, turn in turns:
            world.forward(flags, turn)
        for what in "tokens", "wanted", "hits", "prefetched":
            if told[what] != getattr(world, what):
                wrong.append(f"{told['system']}: {told[what]} {what}, not {getattr(world, what)}")
        if abs(told["seconds"] - 1e-6 * world.now) > 1e-9 * told["seconds"]:
            wrong.append(f"{told['system']}: {told['seconds']} s, not {1e-6 * world.now}")
        if not told["prefetched"]:
            wrong.append(f"{told['system']}: nothing was fetched")
        stepped += 1
    return wrong if stepped else ["no system to step"]


def accuracy(turns, shape, gamma, rule):
    """The share of the last layer's experts of which a level of 1 or more says rightly that the next forward wants them."""
    policy, last = Utility((1, shape[1]), gamma, rule), shape[0] - 1
    right = 0
    for _, turn in turns:
        for e in range(shape[1]):
            right += (policy.level[0, e] >= 1) == (e in turn[last])
            policy.learn((0, e), turn[last].get(e, 0))
    return right / shape[1] / len(turns)


def world(machine_file, seed="1", common="0.5", tokens="512", *systems):
    machine = json.load(open(machine_file))
    model, draft = machine["model"], machine["draft"]
    shape = model["layers"], model["experts"], model["top_k"]
    source, turns = Texts(*shape, EXPONENTS["local"], float(common), int(seed)), []
    for _ in range(4):
        source.begin()
        turns += [(flags, counted(experts))
                  for flags, experts in source.forwards(int(tokens), draft["length"], draft["acceptance"])]
    split = seconds_of_split(turns, machine, shape, machine["cached"])
    many = sum(sum(flags) for flags, _ in turns)
    distinct = sum(len(wanted) for _, turn in turns for wanted in turn) / len(turns) / shape[0]
    print(f"static-split-draft {many / split:.2f} tokens/s, {distinct:.1f} experts a layer and forward", flush=True)
    for system in systems or SYSTEMS[1:]:
        run = World(machine, shape, machine["cached"], system)
        for flags, turn in turns:
            run.forward(flags, turn)
        print(f"{system} {split / (1e-6 * run.now):.3f} x, hits {100 * run.hits / run.wanted:.1f} %, "
              f"{run.prefetched / len(turns):.0f} fetched a forward", flush=True)
    for name, rule in ("printed", {}), ("released", RELEASED):
        print(f"hot or cold, {name}: {accuracy(turns, shape, draft['length'], rule):.3f}")
    return []


def main(what, *given):
    wrong = {"fit": fit, "step": step, "world": world}[what](*given)
    if wrong or what == "step":
        print("\n".join(wrong) or "the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
