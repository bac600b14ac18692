#!/usr/bin/env python3
"""Writes tests/golden/draft/cases.jsonl: what drafters that propose from text should propose, each found anew from its whole
text by searching all of it, in plain Python. tests/unit/test_draft_text.c holds the drafters against it.

    tests/golden/draft/make.py
"""
import json, math, os, random

here = os.path.dirname(os.path.abspath(__file__))
chance = random.Random(5)


def make_text(length, alphabet):
    """Returns random tokens, with parts of earlier ones repeated, some of them with an error."""
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
    """Returns find_candidate_pred_tokens of prompt-lookup-decoding, and the length of the n-gram."""
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


def followers(texts, pattern, depth):
    """Returns the tokens that followed the pattern, by frequency; ties go to the one first seen last."""
    seen = {}
    if not 0 < len(pattern) < depth:
        return []
    for t, text in enumerate(texts):
        for at in range(len(text) - len(pattern)):
            if text[at:at + len(pattern)] == pattern:
                token = text[at + len(pattern)]
                seen.setdefault(token, [0, t, at])[0] += 1
    total = sum(count for count, _, _ in seen.values())
    order = sorted(seen.items(), key=lambda item: (-item[1][0], [-x for x in item[1][1:]]))
    return [(token, count / total) for token, (count, _, _) in order][:64]


def suffix_draft(texts, pattern, depth, nodes, levels, first, below, least):
    """Returns the likeliest nodes after the pattern, a probability at a time."""
    waiting, draft, came = [], [], 0
    def put(above, string, probability, parent, level, most):
        nonlocal came
        for token, share in followers(texts, above, depth)[:most]:
            if probability * share >= least:
                waiting.append((-probability * share, came, token, share, string + [token], parent, level))
                came += 1
    if levels:
        put(pattern, pattern, 1.0, -1, 1, first)
    while waiting and len(draft) < nodes:
        waiting.sort()
        value, _, token, share, string, parent, level = waiting.pop(0)
        draft.append((token, parent, level, share, -value))
        if level < levels:
            put(string, string, -value, len(draft) - 1, level + 1, below)
    return draft


def suffix(text, path, corpus, depth, factor, least, total, levels, siblings):
    """The drafted path is not part of the text that is searched."""
    best, score, match, whole = [], 0, 0, text + path
    for texts in ([text], corpus):
        for size in range(min(len(whole), depth), 0, -1):
            draft = suffix_draft(texts, whole[-size:], depth, min(total, int(factor * size)),
                                 total if siblings == 1 else levels, siblings or 512,
                                 1 if siblings else 512, least)
            if sum(node[4] for node in draft) > score:
                best, score, match = draft, sum(node[4] for node in draft), size
    best = [node for node in best if node[2] <= levels]
    return {'token': [node[0] for node in best], 'parent': [node[1] for node in best],
            'match': [match + node[2] - 1 for node in best], 'log': [round(math.log(node[3]), 9) for node in best]}


def suffix_cases():
    earlier = [make_text(60, 6) + [50, 51, 52], make_text(45, 6), make_text(2, 6)]
    with open(os.path.join(here, 'corpus.jsonl'), 'w') as out:
        for at, text in enumerate(earlier):
            out.write(json.dumps({'tokens': text} if at else text, separators=(',', ':')) + '\n')
    for depth, factor, least, total, alphabet, corpus in (
            (64, 1, .1, 64, 6, []), (64, 2, .001, 20, 3, []), (6, 4, .05, 64, 6, earlier), (24, 1.5, .1, 64, 2, []),
            (5, 3, .01, 9, 90, []), (64, 2, .02, 64, 6, earlier), (2, 4, .1, 64, 4, [])):
        text = make_text(220, alphabet)
        text[150:150] = [1] * 12 + [0, 1] * 9
        text[185:185] = earlier[0][-3:] + earlier[1][-6:]           # after which an earlier text ends
        asks = []
        for length in sorted(chance.sample(range(1, 10), 4) + chance.sample(range(10, len(text) + 1), 15) + [160, 168, 175, 188, 194]):
            siblings, levels, path = chance.choice((0, 0, 1, 1, 3)), chance.choice((1, 4, 64)), []
            if length != 188 and chance.random() < .3:
                path = [chance.choice(text) for _ in range(chance.randrange(1, 4))]
                at = chance.randrange(length)
                path = text[at:at + 3] if chance.random() < .5 else path
            asks.append({'length': length, 'siblings': siblings, 'tokens': levels, 'path': path,
                         **suffix(text[:length], path, corpus, depth, factor, least, total, levels, siblings)})
        yield {'draft': 'suffix:depth=%d,factor=%g,min=%g,total=%d%s' % (depth, factor, least, total,
                ',corpus=tests/golden/draft/corpus.jsonl' if corpus else ''), 'text': text, 'asks': asks}


def philox(counter, key):
    """Philox4x32-10, from the paper."""
    k, c = [key & 0xffffffff, key >> 32], list(counter)
    for _ in range(10):
        a, b = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xffffffff, a >> 32 ^ c[3] ^ k[1], a & 0xffffffff]
        k = [(k[0] + 0x9e3779b9) & 0xffffffff, (k[1] + 0xbb67ae85) & 0xffffffff]
    return c


def chosen(way):
    """Returns the scripted target's choice after a row, from the last tokens of its path."""
    a, b = ([0] + way)[-2:]
    return (3 * a + 5 * b + a * b + 7) % 12


class Lookahead:
    """The window and the pool of lookahead decoding, as lists and a dictionary."""
    def __init__(self, level, window, guess, prompt, key, ordinal, sample):
        self.N, self.W, self.G, self.prompt = level, window, guess, prompt
        self.draw, self.text, self.pool, self.past = (key, ordinal, sample), [], {}, None

    def note(self, gram):
        seen = self.pool.setdefault(gram[0], [])
        if gram[1:] in seen:
            seen.remove(gram[1:])
        seen.append(gram[1:])
        del seen[:-self.G]

    def commit(self, tokens):
        for token in tokens:
            self.text.append(token)
            if self.prompt and len(self.text) >= self.N:
                self.note(self.text[-self.N:])

    def ride(self):
        """Returns rows as paths from the root (included), level by level."""
        if self.past is None:
            key, ordinal, sample = self.draw
            apart = philox((0x40000000, 0x6c6f6f6b, ordinal, sample), key)
            key = apart[0] << 32 | apart[1]
            self.past = [[self.text[philox((i, 0, ordinal, sample), key)[0] * len(self.text) >> 32]
                          for i in range(self.W + self.N - 3)]]
        self.root = self.text[-1]
        self.ways = [[[self.root] + self.past[0][:i + 1] for i in range(len(self.past[0]))]]
        for level in range(1, len(self.past)):
            self.ways.append([[self.root] + self.past[0][:i] + [self.past[l][i] for l in range(1, level + 1)]
                              for i in range(len(self.past[level]))])
        return [way for ways in self.ways for way in ways]

    def rode(self):
        new = [chosen(way) for way in self.ways[-1]]
        if len(self.past) < self.N - 1:
            self.past = [level[1:] for level in self.past] + [new[1:] if len(self.past) > 1 else new]
            return
        for i in range(self.W):
            self.note([([self.root] + self.past[0])[i]] + [level[i] for level in self.past[1:]] + [new[i]])
        self.past = [self.past[1][1:]] + self.past[2:] + [new]

    def draft(self, path, siblings, levels):
        nodes, first = [], []           # a node: its path from the leaf
        for guess in reversed(self.pool.get((self.text + path)[-1], [])):
            if siblings and (guess[0] in first or len(first) == siblings):
                continue
            first.append(guess[0])
            for i in range(min(len(guess), levels)):
                if guess[:i + 1] not in nodes:
                    nodes.append(guess[:i + 1])
        return {'token': [node[-1] for node in nodes], 'match': [len(node) for node in nodes],
                'parent': [nodes.index(node[:-1]) if node[:-1] else -1 for node in nodes]}


def lookahead_cases():
    for level, window, guess, prompt in ((5, 7, 7, False), (5, 7, 7, True), (3, 4, 2, True), (4, 1, 3, False), (8, 3, 5, True)):
        text, asks, at = make_text(130, 12), [], 0
        key, ordinal, sample = chance.getrandbits(64), chance.randrange(5), chance.randrange(5)
        mine = Lookahead(level, window, guess, prompt, key, ordinal, sample)
        while at < len(text):
            count = min(20 if not at else chance.randrange(1, 5), len(text) - at)
            mine.commit(text[at:at + count])
            at += count
            siblings, levels = chance.choice((0, 0, 1, 3)), chance.choice((2, 64))
            path = [chance.randrange(12)] if chance.random() < .2 else []
            ask = {'length': at, 'siblings': siblings, 'tokens': levels, 'path': path, **mine.draft(path, siblings, levels)}
            if chance.random() < .9:
                ways = mine.ride()
                ask['ride'] = ''.join('%x' % way[-1] for way in ways)
                ask['depth'] = ''.join('%x' % (len(way) - 1) for way in ways)
                mine.rode()
            asks.append(ask)
        yield {'draft': 'lookahead:level=%d,window=%d,guess=%d,prompt=%s' % (level, window, guess, 'yes' if prompt else 'no'),
               'key': '%x' % key, 'ordinal': ordinal, 'sample': sample, 'text': text, 'asks': asks}


def pld_cut(text, n, tokens):
    """PromptLookupCandidateGenerator.get_candidates of transformers: the first match that has a continuation, truncated at
    the end."""
    for size in range(min(n, len(text) - 1), 0, -1):
        for at in range(len(text) - size + 1):
            if text[at:at + size] == text[-size:]:
                start, end = at + size, min(at + size + tokens, len(text))
                if start < end:
                    return text[start:end], size
    return [], 0


def pld_cut_cases():
    for n, tokens, alphabet in ((2, 10, 6), (2, 10, 95), (1, 4, 8), (5, 3, 3), (3, 64, 2), (4, 20, 12)):
        text = make_text(200, alphabet)
        asks = []
        for length in sorted(chance.sample(range(1, 16), 8) + chance.sample(range(16, len(text) + 1), 17)):
            wanted = chance.choice((1, 4, 64))
            found, size = pld_cut(text[:length], n, tokens)
            asks.append({'length': length, 'siblings': 1, 'tokens': wanted, **chain(found[:wanted], size)})
        yield {'draft': 'pld:n=%d,tokens=%d,cut=1' % (n, tokens), 'text': text, 'asks': asks}


with open(os.path.join(here, 'cases.jsonl'), 'w') as out:
    for cases in (pld_cases, suffix_cases, lookahead_cases, pld_cut_cases):
        for case in cases():
            out.write(json.dumps(case, separators=(',', ':')) + '\n')
