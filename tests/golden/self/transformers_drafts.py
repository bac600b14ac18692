#!/usr/bin/env python3
"""Holds tests/golden/self/drafts.jsonl, which make.py computes in numpy, against transformers running the same parts of the pocket
model in double precision: layers that are passed over hand on what they were given, fewer experts are chosen, or the model ends after
some layers. The cache has the whole model's keys and values of the text. Prints how many drafts are the same; 1 if one is not.

    tests/golden/self/transformers_drafts.py
"""
import copy
import json
import os
import sys

import torch
from transformers import OlmoeForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
POCKET = os.path.join(HERE, "..", "..", "models", "pocket")
PARTS = {"self:skip=0.5": {"skip": (1, 3)}, "self:skip=1": {"skip": (1, 2, 3, 4)}, "self:topk=2": {"top_k": 2},
         "self:exit=3": {"layers": 3}, "self:skip=0.5,topk=1": {"skip": (1, 3), "top_k": 1}}


class Passed(torch.nn.Module):
    """A decoder layer that is skipped."""

    def forward(self, hidden_states, **_):
        return hidden_states


def part_of(model, skip=(), top_k=None, layers=None):
    """Returns the model without some parts; it shares the weights."""
    part = copy.copy(model)
    part._modules = dict(model._modules)
    part.model = copy.copy(model.model)
    part.model._modules = dict(model.model._modules)
    part.model.config = copy.copy(model.model.config)
    kept = [Passed() if n in skip else layer for n, layer in enumerate(model.model.layers)][:layers]
    if top_k:
        kept = [copy.deepcopy(layer) for layer in kept]
        for layer in kept:
            if not isinstance(layer, Passed):
                layer.mlp.gate.top_k = top_k
    part.model.layers = torch.nn.ModuleList(kept)
    part.model.config.num_hidden_layers = len(kept)
    return part


@torch.no_grad()
def draft(part, cache, root, position, tokens):
    """Returns the likeliest tokens, one after another, as many as were drafted; with the margin to the second likeliest of
    each."""
    cache, out, token = copy.deepcopy(cache), [], root
    for depth in range(tokens):
        logits = part(torch.tensor([[token]]), past_key_values=cache, use_cache=True,
                      position_ids=torch.tensor([[position + depth]])).logits[0, -1]
        token = int(logits.argmax())
        out.append(token)
    return out


def main():
    model = OlmoeForCausalLM.from_pretrained(os.path.join(POCKET, "model"), dtype=torch.float64,
                                             experts_implementation="eager").eval()
    parts = {name: part_of(model, **part) for name, part in PARTS.items()}
    with open(os.path.join(POCKET, "golden.jsonl")) as f:
        texts = {case["id"]: case for case in map(json.loads, f)}
    caches, same, other = {}, 0, 0
    with open(os.path.join(HERE, "drafts.jsonl")) as f:
        for line in map(json.loads, f):
            case = texts[line["id"]]
            for at, want in enumerate(line["drafts"]):
                text = case["prompt_tokens"] + case["tokens"][:at + 1]
                if (line["id"], at) not in caches:
                    with torch.no_grad():
                        caches[line["id"], at] = model(torch.tensor([text[:-1]]), use_cache=True).past_key_values
                got = draft(parts[line["draft"]], caches[line["id"], at], text[-1], len(text) - 1, len(want))
                same += got == want
                if got != want:
                    other += 1
                    print(f"{line['id']} {line['draft']} after {at + 1} tokens: {got}, not {want}")
    print(f"{same} of {same + other} drafts are those of transformers")
    return 1 if other or not same else 0


sys.exit(main())
