#!/usr/bin/env python3
"""Writes tests/golden/self/drafts.jsonl: what the pocket model drafts for itself with parts of it left out, in numpy at double
precision, from the checkpoint. The committed text has the keys and values of the whole model; root and draft go through the
parts alone. The whole model, computed in the same way, must answer as transformers did (golden.jsonl). One line a prompt and
setting: the drafts after each of the first tokens of the answer, cut where the two best logits are too near to tell.
tests/cli/self.bats holds moe-decode against it.

    tests/golden/self/make.py
"""
import json
import os
import struct

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
POCKET = os.path.join(HERE, "..", "..", "models", "pocket")
PROMPTS, TOKENS, DRAFT, MARGIN = range(0, 240, 40), 10, 5, 0.1

with open(os.path.join(POCKET, "model", "config.json")) as f:
    C = json.load(f)
LAYERS, HEADS, KV, EXPERTS = (C["num_hidden_layers"], C["num_attention_heads"], C["num_key_value_heads"], C["num_experts"])
WIDTH = C["hidden_size"] // HEADS


def load():
    with open(os.path.join(POCKET, "model", "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            bits = numpy.frombuffer(data[begin:end], numpy.uint16).astype(numpy.uint32) << 16
            out[name] = bits.view(numpy.float32).astype(float).reshape(t["shape"])
    return out


W = load()


def norm(x, weight):
    return x / numpy.sqrt((x * x).mean() + C["rms_norm_eps"]) * weight


def turn(x, position):
    angle = position / C["rope_theta"] ** (numpy.arange(0, WIDTH, 2) / WIDTH)
    cos, sin = numpy.cos(angle), numpy.sin(angle)
    low, high = x[:, :WIDTH // 2], x[:, WIDTH // 2:]
    return numpy.concatenate([low * cos - high * sin, high * cos + low * sin], axis=1)


def attention(x, cache, position, name):
    h = norm(x, W[name + "input_layernorm.weight"])
    q, k, v = (W[f"{name}self_attn.{p}_proj.weight"] @ h for p in "qkv")
    q = turn(norm(q, W[name + "self_attn.q_norm.weight"]).reshape(HEADS, WIDTH), position)
    k = turn(norm(k, W[name + "self_attn.k_norm.weight"]).reshape(KV, WIDTH), position)
    cache.append((k, v.reshape(KV, WIDTH)))
    keys, values = (numpy.stack([entry[i] for entry in cache]) for i in (0, 1))
    out = []
    for head in range(HEADS):
        group = head // (HEADS // KV)
        score = keys[:, group] @ q[head] / WIDTH ** .5
        weight = numpy.exp(score - score.max())
        out.append(weight / weight.sum() @ values[:, group])
    return W[name + "self_attn.o_proj.weight"] @ numpy.concatenate(out)


def experts(x, name, top_k):
    h = norm(x, W[name + "post_attention_layernorm.weight"])
    logits = W[name + "mlp.gate.weight"] @ h
    weight = numpy.exp(logits - logits.max())
    weight /= weight.sum()
    out = numpy.zeros_like(x)
    for e in numpy.argsort(-weight, kind="stable")[:top_k]:
        part = f"{name}mlp.experts.{e}."
        gate = W[part + "gate_proj.weight"] @ h
        out += weight[e] * (W[part + "down_proj.weight"] @ (gate / (1 + numpy.exp(-gate)) * (W[part + "up_proj.weight"] @ h)))
    return out


def step(token, caches, position, skip=(), top_k=C["num_experts_per_tok"], layers=LAYERS):
    """Returns logits after the token, whose keys and values are added to the caches; skipped attention adds none."""
    x = W["model.embed_tokens.weight"][token]
    for n in range(layers):
        name = f"model.layers.{n}."
        if n in skip:
            continue
        x = x + attention(x, caches[n], position, name)
        x = x + experts(x, name, top_k)
    return W["lm_head.weight"] @ norm(x, W["model.norm.weight"])


SETTINGS = {"self:skip=0.5": {"skip": (1, 3)}, "self:skip=1": {"skip": (1, 2, 3, 4)}, "self:topk=2": {"top_k": 2},
            "self:exit=3": {"layers": 3}, "self:skip=0.5,topk=1": {"skip": (1, 3), "top_k": 1}}


def draft(root, caches, position, part):
    caches, out, token = [list(cache) for cache in caches], [], root
    for depth in range(DRAFT):
        logits = step(token, caches, position + depth, **part)
        second, first = numpy.argsort(logits, kind="stable")[-2:]
        if logits[first] - logits[second] < MARGIN:
            break
        token = int(first)
        out.append(token)
    return out


with open(os.path.join(POCKET, "golden.jsonl")) as f:
    golden = [json.loads(line) for line in f]
with open(os.path.join(HERE, "drafts.jsonl"), "w") as f:
    for number in PROMPTS:
        case, caches = golden[number], [[] for _ in range(LAYERS)]
        text, answer = case["prompt_tokens"], case["tokens"]
        for position, token in enumerate(text):
            logits = step(token, caches, position)
        drafts = {name: [] for name in SETTINGS}
        for at, token in enumerate(answer[:TOKENS]):
            assert int(logits.argmax()) == token, (case["id"], at)
            for name, part in SETTINGS.items():
                drafts[name].append(draft(token, caches, len(text) + at, part))
            logits = step(token, caches, len(text) + at)
        for name in SETTINGS:
            json.dump({"id": case["id"], "draft": name, "drafts": drafts[name]}, f)
            f.write("\n")
