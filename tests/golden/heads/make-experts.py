#!/usr/bin/env python3
"""Jakiro's head with N experts of which a token uses K, its second branches, and Jakiro* by equation 4 of the paper.

    tests/golden/heads/make-experts.py      writes experts.json beside itself; needs numpy

Weights, tokens and the target's states are made up from a hash that tests/unit/test_head_experts.c computes as well; embedding
and output head are the pocket model's. All is computed in f64, every step over the whole text anew. From the paper
(arXiv 2502.06282): with y = norm u, r = gate y, s = softmax(r[:N])

    moe    = u + sum of s_j E_j(y) over the K experts with the largest s        (equations 2, 3, 5, 6)
    second = of the two experts with the largest s, a and b: (c_a, c_b) = softmax(r[N + a], r[N + b]);
             contrast u + larger c's E times it, less the other's; sum u + c_a E_a + c_b E_b        (equation 7)
    scaled (Jakiro*): f = u + s_0 E_0 + s_1 E_1; branches s_best f and s_other f, one softmax over both (equations 3 and 4)"""
import json, math, os, sys
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
from made_up import drawn, pocket

WIDTH, VOCAB, HEADS, KV, INNER, TOKENS, CHAIN = 192, 2048, 6, 3, 64, 40, 5
DIM = WIDTH // HEADS
VARIANTS = [('4-2', 4, 2, 'contrast'), ('2-1', 2, 1, 'contrast'), ('5-3', 5, 3, 'sum'), ('3-3', 3, 3, 'contrast'),
            ('3-1', 3, 1, 'none'), ('2-2', 2, 2, 'contrast'), ('scaled', 2, 2, 'star')]


EMBED, HEAD = (pocket(name).astype(np.float64) for name in ('model.embed_tokens.weight', 'lm_head.weight'))
TEXT = np.minimum(((drawn(900, TOKENS, 1) + 1) / 2 * VOCAB).astype(np.int64), VOCAB - 1)
STATES = drawn(1000, TOKENS * WIDTH, 3).reshape(TOKENS, WIDTH).astype(np.float64)


def shapes(experts, second):
    kv = KV * DIM
    out = {'fc.weight': (WIDTH, 2 * WIDTH), 'fc.bias': (WIDTH,)}
    for name, rows in (('q', WIDTH), ('k', kv), ('v', kv), ('o', WIDTH)):
        out['layers.0.self_attn.%s_proj.weight' % name] = (rows, WIDTH)
    out['layers.0.post_attention_layernorm.weight'] = (WIDTH,)
    out['layers.0.mlp_moe.gate.weight'] = (experts if second in ('none', 'star') else 2 * experts, WIDTH)
    for e in range(experts):
        name = 'layers.0.mlp_moe.experts.%d.' % e
        if second == 'star':
            out[name + 'fc.weight'], out[name + 'proj.weight'] = (INNER, WIDTH), (WIDTH, INNER)
        else:
            for part in ('gate', 'up', 'down'):
                out[name + part + '_proj.weight'] = (WIDTH, WIDTH)
    return out


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def rotate(x):
    """[rows][heads][dim], row i at position i."""
    angle = np.arange(len(x))[:, None] / 10000 ** (np.arange(0, DIM, 2) / DIM)
    angle = np.concatenate([angle, angle], -1)[:, None]
    half = np.concatenate([-x[..., DIM // 2:], x[..., :DIM // 2]], -1)
    return x * np.cos(angle) + half * np.sin(angle)


class Head:
    def __init__(self, experts, used, second, weights):
        self.experts, self.used, self.second = experts, used, second
        self.w = {key: value.astype(np.float64) for key, value in weights.items()}
        self.doubt = math.inf           # the smallest distance that decides which experts are used

    def expert(self, e, y):
        name = 'layers.0.mlp_moe.experts.%d.' % e
        if self.second == 'star':
            x = self.w[name + 'fc.weight'] @ y
            return self.w[name + 'proj.weight'] @ (x / 2 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x])))
        gate, up = self.w[name + 'gate_proj.weight'] @ y, self.w[name + 'up_proj.weight'] @ y
        return self.w[name + 'down_proj.weight'] @ (gate / (1 + np.exp(-gate)) * up)

    def last(self, u):
        """Returns the output that decoding continues from, and the branches."""
        y = self.w['layers.0.post_attention_layernorm.weight'] * u / np.sqrt((u ** 2).mean() + 1e-6)
        r, n = self.w['layers.0.mlp_moe.gate.weight'] @ y, self.experts
        s = softmax(r[:n])
        order = sorted(range(n), key=lambda e: (-s[e], e))
        for edge in {self.used, 2}:
            if edge < n:
                self.doubt = min(self.doubt, s[order[edge - 1]] - s[order[edge]])
        made = {e: self.expert(e, y) for e in order[:max(self.used, 2)]}
        f = u + sum(s[e] * made[e] for e in order[:self.used])
        if self.second == 'star':
            return f, [s[order[0]] * f, s[order[1]] * f]
        if self.second == 'none':
            return f, [f]
        a, b = order[:2]
        c = softmax(np.array([r[n + a], r[n + b]]))
        self.doubt = min(self.doubt, abs(c[0] - c[1]))
        if self.second == 'sum':
            return f, [f, u + c[0] * made[a] + c[1] * made[b]]
        return f, [f, u + (c[0] * made[a] - c[1] * made[b]) * (1 if c[0] > c[1] else -1)]

    def rows(self, tokens, states):
        """Row i from tokens[i + 1] and states[i]."""
        x = np.concatenate([EMBED[tokens[1:]], np.array(states)], -1) @ self.w['fc.weight'].T + self.w['fc.bias']
        q, k, v = ((x @ self.w['layers.0.self_attn.%s_proj.weight' % name].T).reshape(len(x), -1, DIM) for name in 'qkv')
        q, k = rotate(q), rotate(k)
        out = np.zeros((len(x), HEADS, DIM))
        for i in range(len(x)):
            for h in range(HEADS):
                out[i, h] = softmax(k[:i + 1, h * KV // HEADS] @ q[i, h] / math.sqrt(DIM)) @ v[:i + 1, h * KV // HEADS]
        u = x + out.reshape(len(x), WIDTH) @ self.w['layers.0.self_attn.o_proj.weight'].T
        return [self.last(row) for row in u]

    def said(self, branches):
        """log-probabilities of the next token."""
        if self.second == 'star':
            joint = softmax(np.concatenate([HEAD @ branches[0], HEAD @ branches[1]]))
            return np.log(joint[:VOCAB] + joint[VOCAB:])
        return np.log(softmax(HEAD @ branches[0]))


def pick(logp):
    first, second = np.argsort(-logp)[:2]
    return int(first), float(logp[first]), float(logp[first] - logp[second])


def chain(head, length):
    tokens, states = list(TEXT[:length]), list(STATES[:length - 1])
    out = {'length': length, 'tokens': [], 'logp': []}
    gap = math.inf
    for at in range(CHAIN):
        f, branches = head.rows(tokens, states)[-1]
        token, logp, sure = pick(head.said(branches))
        gap = min(gap, sure)
        if at == CHAIN - 2 and head.second in ('contrast', 'sum'):
            last, last_logp, sure = pick(np.log(softmax(HEAD @ branches[1])))
            gap = min(gap, sure)
            out['second_token'], out['second_logp'] = last, round(last_logp, 6)
        out['tokens'].append(token)
        out['logp'].append(round(logp, 6))
        tokens.append(token)
        states.append(f)
    return out, gap


def short(x):
    return [float('%.7g' % v) for v in x]


golden = {'tokens': TOKENS, 'heads': HEADS, 'kv_heads': KV, 'inner': INNER, 'variants': []}
for name, experts, used, second in VARIANTS:
    made, weights = {}, {}
    for number, (key, shape) in enumerate(shapes(experts, second).items()):
        norm = 'norm.' in key
        # a router that is sure of itself, so that a mistake in its weights shows
        bound = 0.3 if norm else (4 if 'mlp_moe.gate' in key else 1) / math.sqrt(shape[-1])
        made[key] = {'number': number, 'bound': bound, 'center': 1.0 if norm else 0.0, 'shape': list(shape)}
        weights[key] = drawn(number, int(np.prod(shape)), bound, made[key]['center']).reshape(shape)
    head = Head(experts, used, second, weights)
    rows = head.rows(TEXT, STATES[:-1])
    variant = {'name': name, 'experts': experts, 'used': used, 'second': second, 'made': made, 'rows': [], 'chains': []}
    for i in range(0, TOKENS - 1, 3):
        f, branches = rows[i]
        variant['rows'].append({'row': i, 'made': short(f), 'logits': [short((HEAD @ b)[::32]) for b in branches]})
    for length in range(4, TOKENS - 1):
        found, gap = chain(head, length)
        if gap > 2e-3 and len(variant['chains']) < 6:
            variant['chains'].append(found)
    assert head.doubt > 1e-5 and len(variant['chains']) == 6
    golden['variants'].append(variant)
    print(name, head.doubt)
with open(os.path.join(here, 'experts.json'), 'w') as file:
    json.dump(golden, file, separators=(',', ':'))
    file.write('\n')
