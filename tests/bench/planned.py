#!/usr/bin/env python3
"""planned.py CONFIG.json MACHINE.json RESULT.jsonl [KEY=VALUE ...]: plans of moe-bench plan --json had again from the config.json of
an OLMoE model and the machine's description, by another program that knows nothing of the C code. Keys: dtype, experts (their dtype),
context, prefix, texts, ranks, cache (a share of experts), hits, K; draft=KIND:key=value:...:accept=A/B/C, in order, whose file is an
OLMoE's config.json, too. Exits 1 with what differs."""
import json
import math
import sys

PAGE, LAYER_OPERATIONS, FORWARD_OPERATIONS = 4096, 6, 2


# ---- bytes

def matrix(dtype, outputs, inputs):
    unit = {"f32": 128 * inputs, "bf16": 128 * math.ceil(inputs / 2), "f16": 128 * math.ceil(inputs / 2),
            "q8": 1088 * math.ceil(inputs / 32), "q4": 576 * math.ceil(inputs / 32)}[dtype]
    return unit * math.ceil(outputs / 32)


class Model:
    def __init__(self, path, dtype="bf16", experts=None):
        c = json.load(open(path))
        self.hidden, self.layers, self.vocab = c["hidden_size"], c["num_hidden_layers"], c["vocab_size"]
        self.experts, self.top_k = c["num_experts"], c["num_experts_per_tok"]
        self.positions = c["max_position_embeddings"]
        head_dim = self.hidden // c["num_attention_heads"]
        q, self.kv = self.hidden, c["num_key_value_heads"] * head_dim
        plain = "bf16" if dtype in ("q8", "q4") else dtype
        experts = experts or dtype
        self.read, self.head, self.expert = {}, {}, {}
        for _ in range(self.layers):
            self.add(self.read, "f32", 4 * (2 * self.hidden + q + self.kv))         # norms
            self.add(self.read, dtype, matrix(dtype, q + 2 * self.kv, self.hidden) + matrix(dtype, self.hidden, q))
            self.add(self.read, plain, matrix(plain, self.experts, self.hidden))
        self.add(self.head, dtype, matrix(dtype, self.vocab, self.hidden))
        self.add(self.read, dtype, self.head[dtype])
        inner = c["intermediate_size"]
        one = matrix(experts, 32 * math.ceil(inner / 16), self.hidden) + matrix(experts, self.hidden, inner)
        self.slot = math.ceil(one / PAGE) * PAGE
        self.add(self.expert, experts, self.slot * self.layers)
        self.routed = self.slot * self.layers * self.experts
        self.unread = 4 * self.hidden + matrix(plain, self.vocab, self.hidden)       # final norm, embedding
        self.dense = sum(self.read.values()) + self.unread
        self.weights = self.dense + self.routed

    @staticmethod
    def add(to, dtype, count):
        to[dtype] = to.get(dtype, 0) + count

    def kv_bytes(self, tokens):
        return 4 * 2 * self.kv * self.layers * tokens

    def context(self, given):
        return min(given or 8192, self.positions, 8192 if not given else given)


# ---- the machine

class Machine:
    def __init__(self, path):
        self.m = m = json.load(open(path))
        self.gpu = m.get("gpu")
        self.host = m.get("available", m.get("memory"))
        self.memory = self.gpu["bytes"] if self.gpu else self.host
        pairs = [b for speed in m.get("products", {}).values() if isinstance(speed, list) for _, b in speed]
        self.bandwidth = max([self.gpu["bytes_per_second"] if self.gpu else m["read_bandwidth"], *pairs])
        self.operation = m.get("operation_us", 0) / 1e6
        self.network = m.get("network", {"bytes_per_second": 12.5e9, "latency_us": 10})

    def per_byte(self, dtype, rows):
        speed = self.m.get("products", {}).get(dtype)
        if isinstance(speed, list) and len(speed) == 1:
            product = rows / speed[0][1]
        elif isinstance(speed, list):
            points = [(r, 1 / b) for r, b in speed]
            at = next((i for i in range(1, len(points)) if points[i][0] >= rows), len(points) - 1)
            (x0, y0), (x1, y1) = points[at - 1], points[at]
            slope = (y1 - y0) / (x1 - x0)
            product = y0 + slope * (max(rows, 1) - x0) if rows <= x1 else y1 + max(slope, 0) * (rows - x1)
        else:
            product = rows / speed if speed else 0
        return max(1 / self.bandwidth, product)

    def product(self, parts, rows):
        return sum(count * self.per_byte(dtype, rows) for dtype, count in parts.items())

    def move(self, way, count, times):
        speed = self.m.get(way)
        return 0 if count <= 0 else math.nan if not speed else \
            count / speed["bytes_per_second"] + times * speed.get("latency_us", 0) / 1e6

    def gather(self, ranks, count):
        return (ranks - 1) * (self.network["latency_us"] / 1e6 + count / ranks / self.network["bytes_per_second"])


# ---- a plan

class Plan:
    def __init__(self, model, machine, setup):
        self.model, self.machine, self.setup = model, machine, setup
        self.drafts = [self.drafter(text) for text in setup["draft"]]

    def drafter(self, text):
        kind, *rest = text.split(":")
        keys = dict(word.split("=") for word in rest)
        accept = [float(word) for word in keys.get("accept", "0.6").split("/")]
        accept += [accept[-1]] * (3 - len(accept))
        target, step, operations, memory = self.model, {}, 0, 0
        if kind == "model":
            small = Model(keys["file"], keys.get("dtype", "bf16"))
            for parts, times in ((small.read, 1), (small.expert, small.top_k)):
                for dtype, count in parts.items():
                    Model.add(step, dtype, count * times)
            operations = LAYER_OPERATIONS * small.layers + FORWARD_OPERATIONS
            memory = small.weights + small.kv_bytes(small.context(self.setup["context"]))
        elif kind == "self":
            part = int(keys["exit"]) / target.layers if "exit" in keys else 1
            part *= 1 - float(keys.get("skip", 0 if "exit" in keys or "topk" in keys else 0.4))
            for parts, times in ((target.head, 1 - part), (target.read, part), (target.expert, part * int(keys.get("topk", target.top_k)))):
                for dtype, count in parts.items():
                    Model.add(step, dtype, count * times)
            operations = int(LAYER_OPERATIONS * part * target.layers) + FORWARD_OPERATIONS
        elif kind == "head":
            step = dict(target.head)
            Model.add(step, "bf16", int(keys["bytes"]))
            operations, memory = LAYER_OPERATIONS + FORWARD_OPERATIONS, int(keys["bytes"])
        else:
            assert kind in ("ngram", "pld", "suffix"), kind
        return {"text": text, "accept": accept, "seconds": self.machine.product(step, 1) + operations * self.machine.operation,
                "memory": memory}

    def place(self, texts, ranks):
        m, machine, setup = self.model, self.machine, self.setup
        own = math.ceil(m.experts / ranks)
        count, routed = own * m.layers, m.routed * own / m.experts
        kv, drafters = texts * m.kv_bytes(m.context(setup["context"])), sum(d["memory"] for d in self.drafts)
        fits = m.dense + routed + kv + drafters <= machine.memory
        slots, runs = count, True
        if not fits or setup["cache"] is not None:
            left = int(machine.memory - m.dense)
            room = left - left // 8 - int(kv + drafters) if left > 0 else 0
            slots = max(room, 0) // m.slot if setup["cache"] is None else math.floor(count * setup["cache"] + 1e-9)
            slots = min(slots, count)
            runs = slots >= m.top_k and (setup["cache"] is None or slots * m.slot + kv + drafters <= left)
        hits = 1 if slots == count else setup["hits"] if setup["hits"] is not None else slots / count
        host, disk = 0, 1 - hits
        if machine.gpu and slots < count:
            host = min(math.floor(0.75 * machine.host / m.slot), count)
            disk = min(disk, 1 - host / count)
        return {"fits": fits, "runs": runs, "slots": slots, "expert_count": count, "host_slots": host, "hits": hits, "disk": disk,
                "dense_bytes": m.dense, "expert_bytes": routed, "kv_bytes": kv, "drafter_bytes": drafters, "own": own}

    def busiest(self, chance, own):
        """The expected maximum over ranks of binomial numbers, by their probabilities one by one."""
        ranks = math.ceil(self.model.experts / own)
        if ranks == 1:
            return own * chance
        weight = [math.comb(own, x) * chance ** x * (1 - chance) ** (own - x) for x in range(own + 1)]
        return sum(1 - min(math.fsum(weight[:x + 1]), 1) ** ranks for x in range(own))

    def forward(self, texts, ranks, rows, place):
        m, machine = self.model, self.machine
        tokens = texts * rows
        distinct = m.experts * (1 - (1 - m.top_k / m.experts) ** tokens)
        loaded = self.busiest(distinct / m.experts, place["own"])
        kv = texts * 4 * 2 * m.kv * m.layers * self.setup["prefix"]
        missing = loaded * (1 - place["hits"])
        expert = sum(m.expert.values())
        seconds = kv / machine.bandwidth + machine.product(m.read, tokens)
        seconds += loaded * machine.product(m.expert, tokens * m.top_k / distinct)
        times = m.layers * min(1, missing)
        link, disk = (missing * expert if machine.gpu else 0), loaded * place["disk"] * expert
        seconds += machine.move("link", link, times) + machine.move("disk", disk, times)
        seconds -= (1 - 1 / ranks) * machine.product(m.head, tokens)
        seconds += m.layers * machine.gather(ranks, tokens * m.top_k * m.hidden * 4) + machine.gather(ranks, tokens * m.vocab * 4)
        seconds += (LAYER_OPERATIONS * m.layers + FORWARD_OPERATIONS) * machine.operation
        return seconds, {"memory_bytes": kv + sum(m.read.values()) - (1 - 1 / ranks) * sum(m.head.values()) + loaded * expert,
                          "link_bytes": link, "disk_bytes": disk,
                         "distinct_experts": distinct}

    def decode(self, texts, ranks, draft, place, length):
        tokens = 1 + sum(math.prod(draft["accept"][min(i, 2)] for i in range(n)) for n in range(1, length + 1)) if draft else 1
        seconds, read = self.forward(texts, ranks, 1 + length, place)
        seconds += texts * length * draft["seconds"] if draft else 0
        return {"tokens_per_iteration": tokens, "seconds": seconds,
                "tokens_per_second": texts * tokens / seconds if place["runs"] else math.nan, **read}

    def best(self, texts, ranks, draft, place):
        if self.setup["K"]:
            return self.decode(texts, ranks, draft, place, self.setup["K"] if draft else 0)
        return max((self.decode(texts, ranks, draft, place, k) for k in range(17 if draft else 1)),
                   key=lambda found: found["tokens_per_second"])


def close(a, b):
    if a is None or (isinstance(b, float) and math.isnan(b)):
        return a is None and (b is None or math.isnan(b))
    return a == b if isinstance(b, bool) else abs(a - b) <= 3e-6 * max(abs(a), abs(b))


def main(config, machine, result, *words):
    setup = {"dtype": "bf16", "experts": None, "context": 0, "prefix": 64, "texts": 1, "ranks": 1, "cache": None, "hits": None,
             "K": 0, "draft": []}
    for word in words:
        key, value = word.split("=", 1)
        if key == "draft":
            setup["draft"].append(value)
        else:
            setup[key] = value if key in ("dtype", "experts") else float(value) if key in ("cache", "hits") else int(value)
    plan = Plan(Model(config, setup["dtype"], setup["experts"]), Machine(machine), setup)
    lines, bad = [json.loads(line) for line in open(result)], []

    def check(what, told, own):
        for key, value in own.items():
            if key in told and not close(told[key], value):
                bad.append(f"{what}: {key}: {told[key]}, here {value}")

    drafts = [None] + plan.drafts
    seen = {"plan": 0, "decode": 0, "curve": 0, "stops": 0}
    last = {}
    for line in lines:
        texts, ranks = line.get("texts"), line.get("ranks")
        if line["type"] == "plan":
            place = plan.place(texts, ranks)
            check("plan", line, dict(place, weight_bytes=plan.model.weights, memory=plan.machine.memory))
            where = (texts, ranks, place)
        elif line["type"] == "decode":
            own = plan.best(*where[:2], drafts[seen["decode"]], where[2])
            told = plan.decode(*where[:2], drafts[seen["decode"]], where[2], line["length"])
            check(f"decode {line['draft']}", line, told)
            check(f"decode {line['draft']}: best length", line, {"tokens_per_second": own["tokens_per_second"]})
            if line["seconds"] is not None and not close(sum(line["parts"].values()), line["seconds"]):
                bad.append(f"decode {line['draft']}: parts do not add up")
        elif line["type"] == "curve":
            place = plan.place(texts, ranks)
            check(f"{texts} texts, {ranks} ranks", line, place)
            for told, draft in zip(line["results"], drafts):
                own = plan.best(texts, ranks, draft, place)
                check(f"{texts} texts, {ranks} ranks, {told['draft']}", told, {"tokens_per_second": own["tokens_per_second"]})
                if told["tokens_per_second"] is not None:
                    last.setdefault((line["by"], told["draft"]), []).append((line[line["by"]], told["length"]))
        else:
            for by in ("texts", "ranks"):
                curve = last.get((by, line["draft"]), [])
                paying = max((i for i, (_, length) in enumerate(curve) if length), default=-1)
                stops = curve[paying + 1][0] if paying + 1 < len(curve) else None
                if line[by] != stops:
                    bad.append(f"{line['draft']} stops paying at {line[by]} {by}, here {stops}")
        seen[line["type"]] += 1
    if seen != {"plan": 1, "decode": len(drafts), "curve": 18, "stops": len(drafts) - 1}:
        bad.append(f"lines: {seen}")
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
