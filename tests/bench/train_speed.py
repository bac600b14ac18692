#!/usr/bin/env python3
"""Training of EAGLE's head in PyTorch, as a script for it would be written: processor seconds a step, on one thread.

    train_speed.py STEPS HIDDEN INNER HEADS VOCABULARY TEXTS TOKENS

Prints a JSON line a step. Values are random; what is computed does not depend on them. States lie in a file of f32 that is mapped,
and what a step needs of it is copied. Attention is scaled_dot_product_attention, AdamW the fused one, and logits are made for
rows that count alone: the fastest that was tried."""
import json, sys, tempfile, time

import torch
from torch import nn
from torch.nn import functional as F


class Head(nn.Module):
    def __init__(self, hidden, inner, heads):
        super().__init__()
        self.heads = heads
        self.joint = nn.Linear(2 * hidden, hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, embedded, states, cos, sin):
        x = self.joint(torch.cat((embedded, states), -1))
        texts, tokens, hidden = x.shape
        q, k, v = self.qkv(x).view(texts, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

        def turn(t):
            first, second = t.chunk(2, -1)
            return t * cos + torch.cat((-second, first), -1) * sin

        a = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        u = x + self.out(a.transpose(1, 2).reshape(texts, tokens, hidden))
        gate, up = self.gate_up(self.norm(u)).chunk(2, -1)
        return u + self.down(F.silu(gate) * up)


def step_of(head, optimiser, output, embedding, ids, states, mask, cos, sin):
    target = states[:, 1:]
    out = head(F.embedding(ids[:, 1:], embedding), states[:, :-1], cos, sin)
    out, target = out[mask], target[mask]
    count = mask.sum() + 1e-5
    feature = F.smooth_l1_loss(out, target, reduction="none").mean(-1).sum() / count
    with torch.no_grad():
        p = torch.softmax(target @ output.T, -1)
    token = F.cross_entropy(out @ output.T, p, reduction="sum") / count
    optimiser.zero_grad(set_to_none=True)
    (feature + 0.1 * token).backward()
    nn.utils.clip_grad_value_(head.parameters(), 0.5)
    optimiser.step()
    return feature.item() + 0.1 * token.item()


def main():
    steps, hidden, inner, heads, vocabulary, texts, tokens = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    head = Head(hidden, inner, heads)
    output, embedding = torch.randn(vocabulary, hidden) * 0.02, torch.randn(vocabulary, hidden)
    optimiser = torch.optim.AdamW(head.parameters(), lr=3e-5, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    dim = hidden // heads
    angle = torch.outer(torch.arange(tokens - 1.0), 10000 ** (-torch.arange(0, dim, 2) / dim))
    cos, sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()
    ids = torch.randint(vocabulary, (texts, tokens))
    mask = torch.zeros(texts, tokens - 1, dtype=torch.bool)
    mask[:, 8:] = True
    with tempfile.NamedTemporaryFile() as file:
        torch.randn(texts * tokens * hidden).numpy().tofile(file.name)
        stored = torch.from_file(file.name, size=texts * tokens * hidden, dtype=torch.float32)
        for step in range(steps):
            begin = time.process_time()
            states = stored.view(texts, tokens, hidden).clone()
            loss = step_of(head, optimiser, output, embedding, ids, states, mask, cos, sin)
            print(json.dumps({"step": step, "loss": loss, "processor_seconds": time.process_time() - begin}), flush=True)


if __name__ == "__main__":
    main()
