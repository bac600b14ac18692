#!/usr/bin/env python3
"""Sixty steps of training the heads of Medusa and Hydra in tests/golden/heads, by gradients written out in NumPy, in f64.

    moe-profile features -m pocket.moe --layers final --dtype f32 --mask all -n 0 TEXTS -o STREAM
    tests/golden/train/make-guesses.py FOLDER STREAM        writes medusa.json and hydra.json beside itself

TEXTS has {"id", "tokens"} of sequences.json, of each the first 128 tokens; FOLDER the two heads' folders, unpacked. Formulas:
arXiv 2401.10774 and 2402.05109. With all four published heads, of which the fixtures have the first two, this program and
PyTorch's own gradients and optimiser agree in the losses of the first eight steps to 1.1e-7."""
import json, math, os, sys
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, '../../cli'))
from features import texts
from head import read_safetensors, read_source

HEADS, STEPS, WARMUP, RATE, BATCH, LONGEST = 2, 60, 6, 1e-3, 4, 128


def names(kind, i):
    """Returns the tensors of head i: the block's, the residual's, and the output's."""
    if kind == 'medusa':
        return f'{i}.0.linear', None, f'{i}.1'
    return f'hydra_mlp.{i}.0.linear', f'hydra_mlp.{i}.0.res_connection', f'hydra_lm_head.{i}'


def rows_of(kind, i, batch, embed):
    """Returns the input of head i after each state whose guessed token belongs to an answer, and that token."""
    rows, labels = [], []
    for ids, mask, state in batch:
        for j in range(len(ids) - 2 - i):
            if mask[j + 2 + i]:
                seen = [] if kind == 'medusa' else [embed[ids[j + 1 + e]] for e in range(i + 1)]
                rows.append(np.concatenate([state[j]] + seen))
                labels.append(ids[j + 2 + i])
    return np.array(rows), np.array(labels)


def head_gradient(kind, i, w, batch, embed, gradient):
    """Returns the loss of head i."""
    block, residual, output = names(kind, i)
    v, label = rows_of(kind, i, batch, embed)
    a = v @ w[block + '.weight'].T + w[block + '.bias']
    share = 1 / (1 + np.exp(-a))
    z = a * share + (v if residual is None else v @ w[residual + '.weight'].T + w[residual + '.bias'])
    logits = z @ w[output + '.weight'].T + w.get(output + '.bias', 0)
    logits -= logits.max(1, keepdims=True)
    total = np.exp(logits).sum(1)
    at = np.arange(len(label))
    loss = float(-(logits[at, label] - np.log(total)).mean())
    d = np.exp(logits) / total[:, None]
    d[at, label] -= 1
    d /= len(label)
    dz = d @ w[output + '.weight']
    da = dz * share * (1 + a * (1 - share))
    for name, by, x in ((output, d, z), (block, da, v), (residual, dz, v)):
        if name:
            gradient[name + '.weight'] = by.T @ x
            gradient[name + '.bias'] = by.sum(0)
    return loss


def norm(x):
    return math.sqrt(float((x * x).sum()))


def train(kind, w, sequences, embed):
    start = {name: x.copy() for name, x in w.items()}
    first, second = ({name: np.zeros_like(x) for name, x in w.items()} for _ in range(2))
    log, norms = [], None
    for step in range(STEPS):
        batch, found = [sequences[(step * BATCH + k) % len(sequences)] for k in range(BATCH)], {}
        losses = [head_gradient(kind, i, w, batch, embed, found) for i in range(HEADS)]
        gradient = {name: found[name] for name in w}
        norms = norms or {name: norm(g) for name, g in gradient.items()}
        whole = math.sqrt(sum(norm(g) ** 2 for g in gradient.values()))
        rate = RATE * (step / WARMUP if step < WARMUP else (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) / 2)
        for name in w:
            g = gradient[name] * min(1, 1 / (whole + 1e-6))
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g * g
            w[name] = w[name] - rate * first[name] / (1 - 0.9 ** (step + 1)) / (
                np.sqrt(second[name] / (1 - 0.999 ** (step + 1))) + 1e-8)
        log.append({'step': step, 'lr': rate, 'loss': sum(losses), 'grad_norm': whole,
                    **{f'head{i}': loss for i, loss in enumerate(losses)}})
    after = {name: {'norm': norm(x), 'sum': float(x.sum()), 'moved': norm(x - start[name]),
                    'samples': [float(x.flat[k * (x.size // 8)]) for k in range(8)]} for name, x in w.items()}
    return {'architecture': kind, 'initial_weights': kind, 'steps': STEPS, 'batch': BATCH, 'warmup': WARMUP, 'lr': RATE,
            'betas': [0.9, 0.999], 'wd': 0.0, 'clip': ['norm', 1.0], 'schedule': 'cosine', 'gradient_norms_step0': norms,
            'weights_after': after, 'steps_log': log}


def shorter(value):
    return json.loads(json.dumps(value), parse_float=lambda text: float('%.9g' % float(text)))


def main(folder, stream):
    model = os.path.join(here, '../../models/pocket/model/model.safetensors')
    embed = read_safetensors(model)['model.embed_tokens.weight'].astype(float)
    states = {text['id']: text['states'][0].astype(float) for text in texts(stream)}
    with open(os.path.join(here, 'sequences.json')) as file:
        sequences = [(s['ids'][:LONGEST], s['mask'][:LONGEST], states[s['id']]) for s in json.load(file)]
    for kind in ('medusa', 'hydra'):
        weights = {name: x.astype(float) for name, x in read_source(os.path.join(folder, kind))[1].items()}
        with open(os.path.join(here, kind + '.json'), 'w') as file:
            parts = [f'{json.dumps(k)}: {json.dumps(v)}' for k, v in shorter(train(kind, weights, sequences, embed)).items()]
            file.write('{\n' + ',\n'.join(parts).replace('}, {', '},\n {') + '\n}\n')


main(*sys.argv[1:])
