#!/usr/bin/env python3
"""Writes tests/golden/draft/cases.jsonl: what drafters that propose from text should propose, each found anew from its whole
text by searching all of it, in plain Python. tests/unit/test_draft_text.c holds the drafters against it.

    tests/golden/draft/make.py
"""
import json, math, os, random

here = os.path.dirname(os.path.abspath(__file__))
chance = random.Random(5)


def make_text(length, alphabet):
    """Random tokens, with parts of what came before repeated, some of them with a fault."""
    text = []
    while len(text) < length:
        if text and chance.random() < .5:
            start = chance.randrange(len(text))
            part = text[start:start + chance.randrange(1, 30)]
            if chance.random() < .5:
                part[chance.randrange(len(part))] = chance.randrange(alphabet)
            text += part
        else:
            text += [chance.randrange(alphabet) for _ in range(chance.randrange(1, 6))]
    return text[:length]


def chain(tokens, match):
    return {'token': tokens, 'parent': list(range(-1, len(tokens) - 1)), 'match': [match + i for i in range(len(tokens))]}


def pld(text, n, tokens):
    """find_candidate_pred_tokens of prompt-lookup-decoding, and the length of the n-gram."""
    for size in range(min(n, len(text)), 0, -1):
        gram = text[-size:]
        for at in range(len(text) - size + 1):
            if text[at:at + size] == gram:
                start, end = at + size, at + size + tokens
                if end <= len(text) and start < len(text) - size:
                    return text[start:end], size
    return [], 0


def pld_cases():
    for n, tokens, alphabet in ((3, 10, 6), (3, 10, 95), (1, 4, 8), (5, 3, 3), (2, 1, 2), (4, 3, 2)):
        text = make_text(240, alphabet)
        asks = []
        for length in sorted(chance.sample(range(1, 16), 8) + chance.sample(range(16, len(text) + 1), 17)):
            wanted = chance.choice((1, 4, 64))
            found, size = pld(text[:length], n, tokens)
            asks.append({'length': length, 'siblings': 1, 'tokens': wanted, **chain(found[:wanted], size)})
        yield {'draft': 'pld:n=%d,tokens=%d' % (n, tokens), 'text': text, 'asks': asks}


with open(os.path.join(here, 'cases.jsonl'), 'w') as out:
    for case in pld_cases():
        out.write(json.dumps(case, separators=(',', ':')) + '\n')
