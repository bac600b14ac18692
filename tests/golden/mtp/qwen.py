#!/usr/bin/env python3
"""The predictor of Qwen3-Next and Qwen3.5 as published, for tests/unit/test_predictor.c and tests/cli/guesses.bats: writes
qwen3_next/model-00002-of-00002.safetensors and FAMILY/golden.json.

    make goldens            or, with NumPy 2.4.6 at hand:  python tests/golden/mtp/qwen.py

The model is the tiny checkpoint of tests/golden/families; the second shard has the tensors mtp.*, which both families name alike.
As in make.py everything is computed here in float64 from the bf16 weights, and the model's own part is right where its logits are
those of transformers for the same prompt. transformers leaves mtp.* out; the order of operations is that of vLLM
(qwen3_next_mtp.py, qwen3_5_mtp.py):

    x_i = mtp.fc [pre_fc_norm_embedding E(t_{i+1}); pre_fc_norm_hidden h_i], h_i after the model's final norm
    the state is mtp.norm of what mtp.layers.0 makes of x_0 .. x_i: a layer with gated attention and experts
    the model's own head guesses t_{i+2} from it

Norms are stored as weight - 1, but for the norm within layers with a state. Gated DeltaNet (arXiv 2412.06464, equation 10) runs
token by token.

Random predictors guess nothing. So mtp.fc is the ridge regression of h_{i+1} on the two normed inputs over random texts, and the
layer's outputs are small beside it.

golden.json: prompt (ids); answer: greedy tokens of the model; module: [{state, logits}] of the predictor for the rows of the
prompt; one: [{length, tokens, logp, gap}] chains as in make.py; accepted: for drafts of so many tokens, and for trees, the tokens
that each iteration accepts while the answer is written; wrong: what a mistake changes of logits at most.
"""
import math
import os

import numpy

import make
from make import HERE, Model, Rows, frequencies, narrowed, off_published, rms, silu, softmax, turned_halves, widened, \
    write_weights

ANSWER, CHAIN, TREE = 60, 4, {"total": 10, "depth": 3, "topk": 3}
SHARD = os.path.join(HERE, "qwen3_next", "model-00002-of-00002.safetensors")
NAMES = {"mtp.fc": "eh_proj", "mtp.norm": "shared_head.norm", "mtp.pre_fc_norm_embedding": "enorm",
         "mtp.pre_fc_norm_hidden": "hnorm"}


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


class Hybrid(Model):
    def __init__(self, config, raw, centred=True):
        weights = {}
        for name, values in widened(raw).items():
            name = name.replace("model.language_model.", "model.")
            added = name.endswith(("norm.weight", "norm_embedding.weight", "norm_hidden.weight")) and "linear_attn" not in name
            stem = name.rsplit(".", 1)[0]
            if name.startswith("mtp."):
                added = added and centred
                name = f"model.layers.{config['num_hidden_layers']}." + (
                    NAMES[stem] + ".weight" if stem in NAMES else name[len("mtp.layers.0."):])
            weights[name] = values + 1 if added else values
        super().__init__(config, weights, 1)
        self.gated, self.shared = True, True

    def ordinary(self, at, x, rows):
        c = self.config
        dim, heads, kv_heads = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        positions = numpy.arange(rows.count(), rows.count() + len(x))
        both = self.linear(at + "q_proj", x).reshape(len(x), heads, 2 * dim)
        q = rms(both[..., :dim], self.weights[at + "q_norm.weight"], self.eps)
        k = rms(self.linear(at + "k_proj", x).reshape(len(x), kv_heads, dim), self.weights[at + "k_norm.weight"], self.eps)
        v = self.linear(at + "v_proj", x).reshape(len(x), kv_heads, dim)
        turning = int(dim * c["rope_parameters"]["partial_rotary_factor"])
        frequency, _ = frequencies(c, turning)
        turn = lambda x: numpy.concatenate([turned_halves(x[..., :turning], positions, frequency), x[..., turning:]], -1)
        out = self.attend(turn(q), turn(k), v, rows, dim ** -0.5)
        return self.linear(at + "o_proj", out * sigmoid(both[..., dim:].reshape(len(x), -1)) if self.gated else out)

    def projected(self, at, x):
        """q, k, v as one row of channels, and z, b, a; all by head."""
        c = self.config
        groups, heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
        key, width, each = c["linear_key_head_dim"], c["linear_value_head_dim"], heads // groups
        if at + "in_proj_qkv.weight" in self.weights:
            return (self.linear(at + "in_proj_qkv", x), self.linear(at + "in_proj_z", x).reshape(len(x), heads, width),
                    self.linear(at + "in_proj_b", x), self.linear(at + "in_proj_a", x))
        group = self.linear(at + "in_proj_qkvz", x).reshape(len(x), groups, -1)
        q, k, v, z = numpy.split(group, numpy.cumsum([key, key, each * width]), -1)
        b, a = numpy.split(self.linear(at + "in_proj_ba", x).reshape(len(x), groups, 2 * each), 2, -1)
        flat = lambda part: part.reshape(len(x), -1)
        return numpy.concatenate([flat(q), flat(k), flat(v)], -1), z.reshape(len(x), heads, width), flat(b), flat(a)

    def delta(self, at, x):
        c = self.config
        groups, heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
        key, width, taps = c["linear_key_head_dim"], c["linear_value_head_dim"], c["linear_conv_kernel_dim"]
        channels, z, b, a = self.projected(at, x)
        kernel = self.weights[at + "conv1d.weight"][:, 0]
        padded = numpy.concatenate([numpy.zeros((taps - 1, channels.shape[1])), channels])
        mixed = silu(sum(padded[i:i + len(x)] * kernel[:, i] for i in range(taps)))
        q, k, v = numpy.split(mixed, [groups * key, 2 * groups * key], -1)
        unit = lambda part: part / numpy.sqrt((part * part).sum(-1, keepdims=True) + 1e-6)
        spread = lambda part: numpy.repeat(unit(part.reshape(len(x), groups, key)), heads // groups, 1)
        q, k, v = spread(q) * key ** -0.5, spread(k), v.reshape(len(x), heads, width)
        decay = numpy.exp(-numpy.exp(self.weights[at + "A_log"]) * numpy.log1p(numpy.exp(a + self.weights[at + "dt_bias"])))
        state, out = numpy.zeros((heads, key, width)), numpy.zeros((len(x), heads, width))
        for row in range(len(x)):
            state *= decay[row][:, None, None]
            change = (v[row] - numpy.einsum("hkv,hk->hv", state, k[row])) * sigmoid(b[row])[:, None]
            state += k[row][:, :, None] * change[:, None]
            out[row] = numpy.einsum("hkv,hk->hv", state, q[row])
        return self.linear(at + "out_proj", (rms(out, self.weights[at + "norm.weight"], self.eps) * silu(z)).reshape(len(x), -1))

    def experts(self, at, x):
        c = self.config
        out = self.block(at + "shared_expert.", x)
        if self.shared:
            out = out * sigmoid(self.linear(at + "shared_expert_gate", x))
        for row in range(len(x)):
            score = softmax(self.weights[at + "gate.weight"] @ x[row])
            chosen = numpy.argsort(-score)[:c["num_experts_per_tok"]]
            for e in chosen:
                out[row] += score[e] / score[chosen].sum() * self.block(at + f"experts.{e}.", x[row])
        return out

    def layer(self, n, x, rows):
        at = f"model.layers.{n}."
        normed = rms(x, self.weights[at + "input_layernorm.weight"], self.eps)
        has_state = at + "linear_attn.norm.weight" in self.weights
        x = x + (self.delta(at + "linear_attn.", normed) if has_state else self.ordinary(at + "self_attn.", normed, rows))
        ffn = self.experts if at + "mlp.gate.weight" in self.weights else self.block
        return x + ffn(at + "mlp.", rms(x, self.weights[at + "post_attention_layernorm.weight"], self.eps))


def read(family):
    config, raw, published = make.read_family(family)
    return config.get("text_config", config), {name: kept for name, kept in raw.items() if "visual" not in name}, \
        published


def draw_predictor(seed):
    """mtp.*: drawn, but for mtp.fc, which both models' texts teach."""
    config, raw, _ = read("qwen3_next")
    chance = numpy.random.Generator(numpy.random.PCG64(seed))
    hidden, out = config["hidden_size"], {}

    def put(name, shape, scale):
        values = chance.normal(0, scale / math.sqrt(shape[-1]), shape) if len(shape) > 1 else chance.uniform(-0.4, 0.6, shape)
        out[name] = (shape, narrowed(values))

    for name, (shape, _) in raw.items():
        layer = "model.layers.0." if ".mlp." in name else "model.layers.1."
        if name.startswith(layer) and "linear_attn" not in name:
            loud = 0.2 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.4
            put("mtp.layers.0." + name[len(layer):], shape, loud)
    for name in ("mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"):
        put(name + ".weight", [hidden], 1)
    inputs, wanted = [], []
    for family in ("qwen3_next", "qwen3_5_moe"):
        config, raw, _ = read(family)
        model = Hybrid(config, {**raw, **out, "mtp.fc.weight": ([hidden, 2 * hidden], bytes(4 * hidden * hidden))})
        at = f"model.layers.{model.layers}."
        for _ in range(20):
            text = list(chance.integers(0, config["vocab_size"], 8))
            for _ in range(24):
                text.append(int(numpy.argmax(model.weights["lm_head.weight"] @ model.states(text)[-1])))
            states = model.states(text)
            e = rms(model.weights["model.embed_tokens.weight"][text[1:]], model.weights[at + "enorm.weight"], model.eps)
            h = rms(states[:-1], model.weights[at + "hnorm.weight"], model.eps)
            inputs.append(numpy.concatenate([e, h], -1))
            wanted.append(states[1:] / model.weights[at + "shared_head.norm.weight"])
    a, b = numpy.concatenate(inputs), numpy.concatenate(wanted)
    fc = numpy.linalg.solve(a.T @ a + 3 * numpy.eye(2 * hidden), a.T @ b).T
    out["mtp.fc.weight"] = ([hidden, 2 * hidden], narrowed(fc))
    return out


def log_softmax(logits):
    return logits - logits.max() - math.log(numpy.exp(logits - logits.max()).sum())


class Draft:
    """A tree after a text: of each node the token, its parent (-1: the root), the log-probability of its path, rows and state."""

    def __init__(self, model, tokens):
        _, made, rows = make.modules(model, tokens)
        self.model, self.nodes, self.root = model, [], (made[0][-1:], rows[0])

    def guesses(self, parent):
        """Log-probabilities of the tokens after a node. The node's row is read first, after those of its ancestors alone."""
        if parent < 0:
            return log_softmax(self.model.logits(1, self.root[0])[0])
        token, above, _, read = self.nodes[parent]
        if read is None:
            state, rows = self.root if above < 0 else self.nodes[above][3]
            rows = rows.copy()
            read = self.nodes[parent][3] = (self.model.module(1, state, [token], rows), rows)
        return log_softmax(self.model.logits(1, read[0])[0])

    def add(self, parent, count):
        """The `count` best children of a node; the least distance between them and the next is returned."""
        logp = self.guesses(parent)
        order = numpy.argsort(-logp)
        above = 0.0 if parent < 0 else self.nodes[parent][2]
        for token in order[:count]:
            self.nodes.append([int(token), parent, above + logp[token], None])
        return float(min(-numpy.diff(logp[order[:count + 1]])))


def drafted_chain(model, tokens):
    draft = Draft(model, tokens)
    gap = min(draft.add(len(draft.nodes) - 1, 1) for _ in range(CHAIN))
    return draft.nodes, gap


def drafted_tree(model, tokens):
    """EAGLE-2's (arXiv 2406.16858, sections 4.1 and 4.2)."""
    draft = Draft(model, tokens)
    gaps, level = [draft.add(-1, TREE["topk"])], range(TREE["topk"])
    for _ in range(TREE["depth"] - 1):
        ranked = sorted(level, key=lambda node: -draft.nodes[node][2])
        values = [draft.nodes[node][2] for node in ranked[:TREE["topk"] + 1]]
        gaps += [float(a - b) for a, b in zip(values, values[1:])]
        first = len(draft.nodes)
        gaps += [draft.add(node, TREE["topk"]) for node in ranked[:TREE["topk"]]]
        level = range(first, len(draft.nodes))
    order = sorted(range(len(draft.nodes)), key=lambda node: -draft.nodes[node][2])
    kept = sorted(order[:TREE["total"] - 1])
    gaps.append(float(draft.nodes[order[TREE["total"] - 2]][2] - draft.nodes[order[TREE["total"] - 1]][2]))
    place = {node: i for i, node in enumerate(kept)} | {-1: -1}
    return [[draft.nodes[node][0], place[draft.nodes[node][1]]] for node in kept], min(gaps)


def accepted(model, prompt, answer, drafter):
    """Of each iteration the drafted tokens that are those of the answer. The first token of an answer is the prompt's; an
    iteration drafts after the tokens that there are and then knows one more."""
    known, counts, gap = 1, [], math.inf
    while known + 1 < len(answer):
        nodes, distance = drafter(model, prompt + answer[:known])
        gap, at, count = min(gap, distance), -1, 0
        while known + count < len(answer) - 1:
            below = [i for i, node in enumerate(nodes) if node[1] == at and node[0] == answer[known + count]]
            if not below:
                break
            at, count = below[0], count + 1
        counts.append(count)
        known += count + 1
    return counts, gap


def greedy(model, prompt, count):
    out, gap = [], math.inf
    for _ in range(count):
        logits = model.weights["lm_head.weight"] @ model.states(prompt + out)[-1]
        second, best = numpy.argsort(logits)[-2:]
        gap = min(gap, logits[best] - logits[second])
        out.append(int(best))
    return out, gap


def compute(family, mtp):
    config, raw, published = read(family)
    model, prompt = Hybrid(config, {**raw, **mtp}), published["prompt"]
    _, made, _ = make.modules(model, prompt)
    off = off_published(model.states(prompt) @ model.weights["lm_head.weight"].T, published)
    assert off < 1e-4, f"{family}: {off} off transformers"
    answer, gap = greedy(model, prompt[:12], ANSWER)
    logits = model.logits(1, made[0])
    golden = {"prompt": prompt, "answer": answer,
              "module": make.only_module(made[0], logits)}
    golden["one"] = make.clear_chains(model, prompt, 1)
    chains, chain_gap = accepted(model, prompt[:12], answer, drafted_chain)
    trees, tree_gap = accepted(model, prompt[:12], answer, drafted_tree)
    golden["accepted"] = {"chain": chains, "tree": trees}
    golden["wrong"] = wrong_ones(config, raw, mtp, model, prompt, logits)
    print(f"mtp {family}: model {off:.1e} off transformers, {len(golden['one'])} chains, accepted {sum(chains)} of "
          f"{len(chains)} drafts, {sum(trees)} of {len(trees)} trees; gaps {gap:.4f} {chain_gap:.4f} {tree_gap:.5f}; "
          f"wrong: {golden['wrong']}")
    clear = len(golden["one"]) >= 8 and min(gap, chain_gap) >= 5e-4 and tree_gap >= 2e-4
    return golden if clear and min(sum(chains), sum(trees) - sum(chains)) > 4 else None


def wrong_ones(config, raw, mtp, model, prompt, logits):
    out = {}
    for wrong in make.WRONG[:-1]:
        _, other, _ = make.modules(model, prompt, wrong)
        out[wrong] = other[0]
    for wrong in ("norms as stored", "no gate of attention", "no gate of shared experts"):
        other = Hybrid(config, {**raw, **mtp}, wrong != "norms as stored")
        other.weights.update({name: values for name, values in model.weights.items() if "layers.3." not in name})
        states = model.states(prompt)
        other.gated, other.shared = wrong != "no gate of attention", wrong != "no gate of shared experts"
        out[wrong] = other.module(1, states[:-1], prompt[1:], Rows())
    out = {wrong: round(float(numpy.abs(model.logits(1, states) - logits).max()), 4) for wrong, states in out.items()}
    assert min(out.values()) > 0.1
    return out


def main():
    for seed in range(20):
        mtp = draw_predictor(seed)
        goldens = {family: compute(family, mtp) for family in ("qwen3_next", "qwen3_5_moe")}
        if all(goldens.values()):
            break
    else:
        raise SystemExit("no draw is clear enough")
    for family, golden in goldens.items():
        make.write_golden(family, golden)
    write_weights(SHARD, mtp)


if __name__ == "__main__":
    main()
