#!/usr/bin/env python3
"""Steps of training Jakiro*, Hydra with a prefix layer, and Jakiro with N experts, of which a token uses K, and each of its second
branches, by PyTorch's own gradients and optimiser: 60, of the last ones 20.

    tests/golden/train/make.py [NAME...]    writes NAME.json, if not given all, beside itself; needs torch and numpy

Weights, texts and states are made up from a hash that tests/unit/test_train_golden.c computes as well; embedding and output head
are the pocket model's. The other files of this folder but those of make-guesses.py come from another program, over the pocket
model's own states. Formulas:
Jakiro, arXiv 2502.06282, and its program (jakiro_star); Hydra, arXiv 2402.05109, and its program (prefix-mlp)."""
import json, math, os, sys
import numpy as np
import torch
import torch.nn.functional as F

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
from made_up import drawn, pocket

torch.set_num_threads(1)
WIDTH, VOCAB, HEADS, KV, INNER = 192, 2048, 6, 3, 64
STEPS, WARMUP, RATE = 60, 6, 1e-3
LENGTHS = [21, 9, 16, 30, 12, 25, 18, 7]


def texts():
    out = []
    for i, length in enumerate(LENGTHS):
        ids = (drawn(900 + i, length, 1) + 1) / 2 * VOCAB
        mask = [1 if k >= 3 + i % 4 else 0 for k in range(length)]
        out.append((np.minimum(ids.astype(np.int64), VOCAB - 1), mask, drawn(1000 + i, length * WIDTH, 3).reshape(length, WIDTH)))
    return out


def batch(step, all_texts):
    chosen = [all_texts[(step * 4 + k) % len(all_texts)] for k in range(4)]
    longest = max(len(ids) for ids, _, _ in chosen)
    ids = torch.zeros(4, longest, dtype=torch.long)
    mask = torch.zeros(4, longest)
    f = torch.zeros(4, longest, WIDTH)
    for b, (i, m, s) in enumerate(chosen):
        ids[b, :len(i)] = torch.from_numpy(i)
        mask[b, :len(i)] = torch.tensor(m, dtype=torch.float32)
        f[b, :len(i)] = torch.from_numpy(s)
    return ids, mask, f, [len(i) for i, _, _ in chosen]


def norm(x, w):
    return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotate(x):
    length, dim = x.shape[-2], x.shape[-1]
    inverse = 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim))
    angle = torch.arange(length).float()[:, None] * inverse[None]
    angle = torch.cat([angle, angle], -1)
    half = torch.cat([-x[..., dim // 2:], x[..., :dim // 2]], -1)
    return x * angle.cos() + half * angle.sin()


def attention(w, prefix, x):
    b, t, _ = x.shape
    dim = WIDTH // HEADS
    q = (x @ w[prefix + 'q_proj.weight'].T).view(b, t, HEADS, dim).transpose(1, 2)
    k = (x @ w[prefix + 'k_proj.weight'].T).view(b, t, KV, dim).transpose(1, 2).repeat_interleave(HEADS // KV, 1)
    v = (x @ w[prefix + 'v_proj.weight'].T).view(b, t, KV, dim).transpose(1, 2).repeat_interleave(HEADS // KV, 1)
    score = rotate(q) @ rotate(k).transpose(2, 3) / math.sqrt(dim)
    score = score.masked_fill(torch.ones(t, t).triu(1).bool(), float('-inf'))
    out = (score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, WIDTH)
    return out @ w[prefix + 'o_proj.weight'].T


def left(x):
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)


def jakiro_star_loss(w, data, embed, head):
    ids, mask, f, lengths = data
    mask = mask.clone()
    for b, length in enumerate(lengths):
        mask[b, length - 1] = 0
    x = torch.cat([embed[left(ids)], f], -1) @ w['fc.weight'].T + w['fc.bias']
    u = x + attention(w, 'layers.0.self_attn.', x)
    y = norm(u, w['layers.0.post_attention_layernorm.weight'])
    share = (y @ w['layers.0.mlp_moe.gate.weight'].T).softmax(-1)
    out = u
    for e in range(2):
        name = 'layers.0.mlp_moe.experts.%d.' % e
        out = out + share[..., e:e + 1] * (F.gelu(y @ w[name + 'fc.weight'].T) @ w[name + 'proj.weight'].T)
    target = left(f)
    feature = (F.smooth_l1_loss(out, target, reduction='none').mean(-1) * mask).sum() / (mask.sum() + 1e-5)
    said = -((target @ head.T).softmax(-1) * (out @ head.T).log_softmax(-1)).sum(-1)
    token = (said * mask).sum() / (mask.sum() + 1e-5)
    return feature + 0.1 * token, {'feature': feature, 'token': token}


def jakiro_loss(experts, used, second, ahead):
    """Equations 2, 3, 5 to 7, and 9 to 14 with the program's weights: 0.5 of the second branch's parts."""
    def loss(w, data, embed, head):
        ids, mask, f, lengths = data
        mask = mask.clone()
        for b, length in enumerate(lengths):
            mask[b, length - 1] = 0
        x = torch.cat([embed[left(ids)], f], -1) @ w['fc.weight'].T + w['fc.bias']
        u = x + attention(w, 'layers.0.self_attn.', x)
        y = norm(u, w['layers.0.post_attention_layernorm.weight'])
        router = y @ w['layers.0.mlp_moe.gate.weight'].T
        made = []
        for e in range(experts):
            name = 'layers.0.mlp_moe.experts.%d.' % e
            inner = F.silu(y @ w[name + 'gate_proj.weight'].T) * (y @ w[name + 'up_proj.weight'].T)
            made.append(inner @ w[name + 'down_proj.weight'].T)
        made = torch.stack(made, -2)
        share = router[..., :experts].softmax(-1)
        order = torch.sort(share, dim=-1, descending=True, stable=True).indices
        kept = torch.zeros_like(share).scatter(-1, order[..., :used], 1)
        outs = [u + ((share * kept)[..., None] * made).sum(-2)]
        if second != 'none':
            two = order[..., :2]
            c = router[..., experts:].gather(-1, two).softmax(-1)
            if second == 'contrast':
                larger = (c[..., :1] > c[..., 1:]).float() * 2 - 1
                c = c * torch.cat([larger, -larger], -1)
            outs.append(u + (c[..., None] * made.gather(-2, two[..., None].expand(*two.shape, WIDTH))).sum(-2))
        parts, total = {}, 0
        for i, out in enumerate(outs):
            target, m = left(f), mask
            if i and ahead == 2:
                target, m = left(target), left(mask)
            feature = (F.smooth_l1_loss(out, target, reduction='none').mean(-1) * m).sum() / (m.sum() + 1e-5)
            said = -((target @ head.T).softmax(-1) * (out @ head.T).log_softmax(-1)).sum(-1)
            token = (said * m).sum() / (m.sum() + 1e-5)
            parts['feature_const' if i else 'feature'], parts['token_const' if i else 'token'] = feature, token
            total = total + (0.5 if i else 1) * (feature + 0.1 * token)
        return total, parts
    return loss


def hydra_loss(w, data, embed, head):
    ids, mask, f, lengths = data
    name = 'prefix_embeding_layer.layers.0.'
    u = f + attention(w, name + 'self_attn.', norm(f, w[name + 'input_layernorm.weight']))
    y = norm(u, w[name + 'post_attention_layernorm.weight'])
    inner = F.silu(y @ w[name + 'mlp.gate_proj.weight'].T) * (y @ w[name + 'mlp.up_proj.weight'].T)
    state = norm(u + inner @ w[name + 'mlp.down_proj.weight'].T, w['prefix_embeding_layer.norm.weight'])
    parts, total = {}, 0
    for i in range(2):
        rows, labels = [], []
        for b, length in enumerate(lengths):
            for j in range(length - 2 - i):
                if mask[b, j + 2 + i]:
                    rows.append(torch.cat([state[b, j]] + [embed[ids[b, j + 1 + e]] for e in range(i + 1)]))
                    labels.append(ids[b, j + 2 + i])
        v = torch.stack(rows)
        for block in range(2):
            key = 'hydra_mlp.%d.%d.' % (i, 1 + 2 * block)
            z = F.silu(v @ w[key + 'linear.weight'].T + w[key + 'linear.bias'])
            v = z + (v @ w[key + 'res_connection.weight'].T + w[key + 'res_connection.bias'] if block == 0 else v)
        key = 'hydra_lm_head.%d.1.' % i
        part = F.cross_entropy(v @ w[key + 'weight'].T + w[key + 'bias'], torch.stack(labels))
        parts['head%d' % i] = part
        total = total + part
    return total, parts


def layer(prefix, norms, dense):
    kv = KV * WIDTH // HEADS
    out = {prefix + 'self_attn.q_proj.weight': (WIDTH, WIDTH), prefix + 'self_attn.k_proj.weight': (kv, WIDTH),
           prefix + 'self_attn.v_proj.weight': (kv, WIDTH), prefix + 'self_attn.o_proj.weight': (WIDTH, WIDTH)}
    out.update({prefix + n + '.weight': (WIDTH,) for n in norms})
    if dense:
        out.update({prefix + 'mlp.gate_proj.weight': (INNER, WIDTH), prefix + 'mlp.up_proj.weight': (INNER, WIDTH),
                    prefix + 'mlp.down_proj.weight': (WIDTH, INNER)})
    return out


def jakiro_star_shapes():
    out = {'fc.weight': (WIDTH, 2 * WIDTH), 'fc.bias': (WIDTH,)}
    out.update(layer('layers.0.', ['post_attention_layernorm'], False))
    out['layers.0.mlp_moe.gate.weight'] = (2, WIDTH)
    for e in range(2):
        out['layers.0.mlp_moe.experts.%d.fc.weight' % e] = (INNER, WIDTH)
        out['layers.0.mlp_moe.experts.%d.proj.weight' % e] = (WIDTH, INNER)
    return out


def jakiro_shapes(experts, second):
    out = {'fc.weight': (WIDTH, 2 * WIDTH), 'fc.bias': (WIDTH,)}
    out.update(layer('layers.0.', ['post_attention_layernorm'], False))
    out['layers.0.mlp_moe.gate.weight'] = (experts if second == 'none' else 2 * experts, WIDTH)
    for e in range(experts):
        for part in ('gate', 'up', 'down'):
            out['layers.0.mlp_moe.experts.%d.%s_proj.weight' % (e, part)] = (WIDTH, WIDTH)
    return out


def hydra_shapes():
    out = layer('prefix_embeding_layer.layers.0.', ['input_layernorm', 'post_attention_layernorm'], True)
    out['prefix_embeding_layer.norm.weight'] = (WIDTH,)
    for i in range(2):
        for block in range(2):
            key = 'hydra_mlp.%d.%d.' % (i, 1 + 2 * block)
            out[key + 'linear.weight'] = (WIDTH, WIDTH if block else (i + 2) * WIDTH)
            out[key + 'linear.bias'] = (WIDTH,)
            if not block:
                out[key + 'res_connection.weight'] = (WIDTH, (i + 2) * WIDTH)
                out[key + 'res_connection.bias'] = (WIDTH,)
        out['hydra_lm_head.%d.1.weight' % i] = (VOCAB, WIDTH)
        out['hydra_lm_head.%d.1.bias' % i] = (VOCAB,)
    return out


def run(name, shapes, loss_of, betas, decay, clip, cosine, steps=STEPS, about=None):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    embed, head = (torch.from_numpy(pocket(name).copy()) for name in ('model.embed_tokens.weight', 'lm_head.weight'))
    weights, made = {}, {}
    for number, (key, shape) in enumerate(shapes.items()):
        is_norm = 'norm.' in key
        bound = 0.3 if is_norm else 1 / math.sqrt(shape[-1])
        made[key] = {'number': number, 'bound': bound, 'center': 1.0 if is_norm else 0.0}
        weights[key] = torch.from_numpy(drawn(number, int(np.prod(shape)), bound, made[key]['center']).reshape(shape)).requires_grad_()
    before = {key: w.detach().clone() for key, w in weights.items()}
    optimiser = torch.optim.AdamW(weights.values(), lr=RATE, betas=betas, eps=1e-8, weight_decay=decay)
    log, all_texts = [], texts()
    out = {'architecture': name, 'steps': steps, 'batch': 4, 'warmup': WARMUP, 'lr': RATE, 'betas': betas, 'wd': decay,
           'clip': clip, 'schedule': 'cosine' if cosine else 'linear', 'lengths': LENGTHS, **(about or {}), 'made': made}
    for step in range(steps):
        x = (step - WARMUP) / (steps - WARMUP)
        rate = RATE * (step / WARMUP if step < WARMUP else (1 + math.cos(math.pi * x)) / 2 if cosine else 1 - x)
        optimiser.param_groups[0]['lr'] = rate
        optimiser.zero_grad()
        loss, parts = loss_of(weights, batch(step, all_texts), embed, head)
        loss.backward()
        squares = sum(float(w.grad.double().pow(2).sum()) for w in weights.values())
        if step == 0:
            out['gradient_norms_step0'] = {key: float(w.grad.double().norm()) for key, w in weights.items()}
            out['gradients_step0'] = {key: w.grad.flatten()[:16].tolist() for key, w in weights.items()}
        if clip[0] == 'value':
            torch.nn.utils.clip_grad_value_(weights.values(), clip[1])
        else:
            torch.nn.utils.clip_grad_norm_(weights.values(), clip[1])
        optimiser.step()
        log.append({'step': step, 'lr': rate, 'loss': float(loss.detach()), 'grad_norm': math.sqrt(squares),
                    **{key: float(part.detach()) for key, part in parts.items()}})
    out['weights_after'] = {}
    for key, w in weights.items():
        flat, size = w.detach().flatten(), w.numel()
        out['weights_after'][key] = {'norm': float(flat.double().norm()), 'samples': [float(flat[k * (size // 8)]) for k in range(8)],
                                     'moved': float((w.detach() - before[key]).double().norm())}
    out['steps_log'] = log
    with open(os.path.join(here, name + '.json'), 'w') as file:
        json.dump(out, file, indent=0)
        file.write('\n')
    print(name, log[0]['loss'], log[-1]['loss'])


run('jakiro_star', jakiro_star_shapes(), jakiro_star_loss, [0.9, 0.95], 0.001, ['value', 0.5], False)
run('hydra_prefix', hydra_shapes(), hydra_loss, [0.9, 0.999], 0, ['norm', 1.0], True)
for name, experts, used, second, ahead in [('jakiro_4_2', 4, 2, 'contrast', 2), ('jakiro_2_1', 2, 1, 'contrast', 2),
                                           ('jakiro_sum', 3, 3, 'sum', 2), ('jakiro_next', 2, 2, 'contrast', 1),
                                           ('jakiro_none', 3, 1, 'none', 2)]:
    run(name, jakiro_shapes(experts, second), jakiro_loss(experts, used, second, ahead), [0.9, 0.95], 0.001, ['value', 0.5], True,
        20, {'experts': experts, 'used': used, 'second': second, 'ahead': ahead})
