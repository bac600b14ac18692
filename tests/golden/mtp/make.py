#!/usr/bin/env python3
"""Multi-token prediction as published, for tests/unit/test_predictor.c: writes FAMILY/model and FAMILY/golden.json.

    make goldens            or, with NumPy 2.4.6 at hand:  python tests/golden/mtp/make.py

FAMILY/model is the tiny checkpoint of tests/golden/families with two predictor layers after its own, as DeepSeek-V3 and
GLM-4.5 publish them (layers num_hidden_layers, num_hidden_layers + 1; the second shares embedding and head with the model).
Everything is computed here, in float64 from the bf16 weights; that the model's own part is right is seen from the logits that
transformers gave for the same prompt (families/FAMILY/golden.json).

Module k (1, 2) of arXiv 2412.19437, section 2.2, over tokens t_0 .. t_{N-1}, with h^0_i the model's state at position i after
its final norm:

    x_i   = eh_proj [enorm E(t_{i+k}); hnorm h^{k-1}_i]        (the published weights take the embedding first)
    h^k_i = shared_head.norm of what layer num_hidden_layers + k - 1 makes of x_0 .. x_i, x_i being at position i
    head h^k_i guesses t_{i+k+1}

The report leaves open whether states are taken before or after norms. They are those after, of the model and of modules alike, as
SGLang (deepseek_nextn.py) has it, and vLLM since 2026. vLLM also puts zeros in place of the embedding of row 0; this does not.

A draft of n tokens (t_{n-1} is not yet read, so h^0_0 .. h^0_{n-2} are known): module 1 has read rows up to n - 2, module 2 up
to n - 3; row n - 2 of module 1 guesses d_1, then row n - 2 of module 2, of h^1_{n-2} and d_1, guesses d_2. Then the modules are
applied again in turn, as in vLLM: module 1 goes on after its own last row with the state that module 2 has made and d_2, and so
on. `one` is the same with the first module alone, which is what most checkpoints have: it goes on after its own row each time.

golden.json: prompt (ids); state (h^0), module: [{state, logits}] for all rows; chain, one: [{length, tokens, logp}], `gap` the
least distance of a best logit to the next; wrong: what a mistake changes of the modules' logits at most (of all tokens known).
"""
import json
import math
import os
import struct

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = os.path.join(HERE, "..", "families")
MODULES, DRAFTED, LEAST_GAP = 2, 5, 2e-3


def read_weights(path):
    data = open(path, "rb").read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    raw = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        assert about["dtype"] == "BF16"
        raw[name] = (about["shape"], data[8 + size + begin:8 + size + end])
    return raw


def write_weights(path, raw):
    header, at = {}, 0
    for name, (shape, data) in raw.items():
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in raw.values()))


def widened(raw):
    return {name: (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(numpy.float64).reshape(shape)
            for name, (shape, data) in raw.items()}


def narrowed(values):
    bits = numpy.asarray(values, "<f4").view("<u4")
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def rms(x, weight, eps):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + numpy.exp(-x))


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def frequencies(config, width):
    rope = config["rope_parameters"]
    theta = rope["rope_theta"]
    plain = theta ** (-numpy.arange(0, width, 2) / width)
    if rope["rope_type"] == "default":
        return plain, 1.0
    assert rope["rope_type"] == "yarn"                   # arXiv 2309.00071, section 3.2
    bound = lambda turns: width * math.log(rope["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (
        2 * math.log(theta))
    low, high = max(math.floor(bound(rope["beta_fast"])), 0), min(math.ceil(bound(rope["beta_slow"])), width - 1)
    ramp = numpy.clip((numpy.arange(width // 2) - low) / max(high - low, 0.001), 0, 1)
    # mscale and mscale_all_dim are alike here, so cos and sin keep their size, and scores are scaled in `attend`
    return plain / rope["factor"] * ramp + plain * (1 - ramp), 1.0


def turned_pairs(x, positions, frequency):
    """Neighbouring numbers are a pair: DeepSeek."""
    angle = positions[:, None, None] * frequency
    a, b = x[..., 0::2], x[..., 1::2]
    return numpy.stack([a * numpy.cos(angle) - b * numpy.sin(angle), b * numpy.cos(angle) + a * numpy.sin(angle)],
                       -1).reshape(x.shape)


def turned_halves(x, positions, frequency):
    angle = positions[:, None, None] * frequency
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return numpy.concatenate([a * numpy.cos(angle) - b * numpy.sin(angle), b * numpy.cos(angle) + a * numpy.sin(angle)], -1)


class Rows:
    """Keys and values of one layer, row after row."""

    def __init__(self):
        self.keys, self.values = None, None

    def add(self, k, v):
        self.keys = k if self.keys is None else numpy.concatenate([self.keys, k])
        self.values = v if self.values is None else numpy.concatenate([self.values, v])

    def copy(self):
        other = Rows()
        other.keys, other.values = self.keys, self.values
        return other

    def count(self):
        return 0 if self.keys is None else len(self.keys)


def off_published(logits, published):
    """The largest difference to the published logits, which are of every fourth position or of more."""
    theirs = numpy.array(published["logits"])
    step = len(logits) // len(theirs)
    return numpy.abs(logits[step - 1::step] - theirs).max()


class Model:
    def __init__(self, config, weights, modules=MODULES):
        self.config, self.weights, self.eps, self.modules = config, weights, config["rms_norm_eps"], modules
        self.layers = config["num_hidden_layers"]

    def linear(self, name, x):
        out = x @ self.weights[name + ".weight"].T
        return out + self.weights[name + ".bias"] if name + ".bias" in self.weights else out

    def attend(self, q, k, v, rows, scale):
        first = rows.count()
        rows.add(k, v)
        group = q.shape[1] // k.shape[1]
        out = numpy.zeros((len(q), q.shape[1], v.shape[-1]))
        for row in range(len(q)):
            for head in range(q.shape[1]):
                keys, values = rows.keys[:first + row + 1, head // group], rows.values[:first + row + 1, head // group]
                out[row, head] = softmax(keys @ q[row, head] * scale) @ values
        return out.reshape(len(q), -1)

    def latent(self, at, x, rows):
        c, heads = self.config, self.config["num_attention_heads"]
        own, turning, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["kv_lora_rank"]
        positions = numpy.arange(rows.count(), rows.count() + len(x))
        q = rms(self.linear(at + "q_a_proj", x), self.weights[at + "q_a_layernorm.weight"], 1e-6)
        q = self.linear(at + "q_b_proj", q).reshape(len(x), heads, own + turning)
        both = self.linear(at + "kv_a_proj_with_mqa", x)
        kv = rms(both[:, :rank], self.weights[at + "kv_a_layernorm.weight"], 1e-6)
        kv = self.linear(at + "kv_b_proj", kv).reshape(len(x), heads, own + c["v_head_dim"])
        frequency, _ = frequencies(c, turning)
        key = numpy.repeat(turned_pairs(both[:, None, rank:], positions, frequency), heads, 1)
        q = numpy.concatenate([q[..., :own], turned_pairs(q[..., own:], positions, frequency)], -1)
        scale = (own + turning) ** -0.5
        rope = c["rope_parameters"]
        if rope.get("mscale_all_dim"):
            scale *= (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2
        return self.linear(at + "o_proj", self.attend(q, numpy.concatenate([kv[..., :own], key], -1), kv[..., own:], rows, scale))

    def ordinary(self, at, x, rows):
        c = self.config
        dim, heads, kv_heads = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        positions = numpy.arange(rows.count(), rows.count() + len(x))
        q = rms(self.linear(at + "q_proj", x).reshape(len(x), heads, dim), self.weights[at + "q_norm.weight"], self.eps)
        k = rms(self.linear(at + "k_proj", x).reshape(len(x), kv_heads, dim), self.weights[at + "k_norm.weight"], self.eps)
        v = self.linear(at + "v_proj", x).reshape(len(x), kv_heads, dim)
        turning = int(dim * c["rope_parameters"]["partial_rotary_factor"])
        frequency, _ = frequencies(c, turning)
        turn = lambda x: numpy.concatenate([turned_halves(x[..., :turning], positions, frequency), x[..., turning:]], -1)
        return self.linear(at + "o_proj", self.attend(turn(q), turn(k), v, rows, dim ** -0.5))

    def block(self, at, x):
        return self.linear(at + "down_proj", silu(self.linear(at + "gate_proj", x)) * self.linear(at + "up_proj", x))

    def experts(self, at, x):
        c = self.config
        count, groups = c["n_routed_experts"], c["n_group"]
        out = self.block(at + "shared_experts.", x)
        for row in range(len(x)):
            score = 1 / (1 + numpy.exp(-(self.weights[at + "gate.weight"] @ x[row])))
            choice = score + self.weights[at + "gate.e_score_correction_bias"]
            of_group = numpy.sort(choice.reshape(groups, -1), -1)[:, -2:].sum(-1)
            kept = numpy.argsort(-of_group)[:c["topk_group"]]
            allowed = [e for e in range(count) if e // (count // groups) in kept]
            chosen = sorted(allowed, key=lambda e: -choice[e])[:c["num_experts_per_tok"]]
            total = sum(score[e] for e in chosen) if c["norm_topk_prob"] else 1.0
            for e in chosen:
                out[row] += score[e] / total * c["routed_scaling_factor"] * self.block(at + f"experts.{e}.", x[row])
        return out

    def layer(self, n, x, rows):
        at = f"model.layers.{n}."
        attention = self.latent if "kv_lora_rank" in self.config else self.ordinary
        x = x + attention(at + "self_attn.", rms(x, self.weights[at + "input_layernorm.weight"], self.eps), rows)
        ffn = self.block if n < self.config["first_k_dense_replace"] else self.experts
        return x + ffn(at + "mlp.", rms(x, self.weights[at + "post_attention_layernorm.weight"], self.eps))

    def states(self, tokens, final_norm=True):
        x = self.weights["model.embed_tokens.weight"][tokens]
        for n in range(self.layers):
            x = self.layer(n, x, Rows())
        return rms(x, self.weights["model.norm.weight"], self.eps) if final_norm else x

    def own(self, k, name, otherwise):
        return self.weights.get(f"model.layers.{self.layers + k - 1}.{name}.weight", self.weights[otherwise + ".weight"])

    def module(self, k, states, tokens, rows, wrong=None):
        """h^k of rows after those that there are: of states h^{k-1} and the tokens that go with them."""
        at = f"model.layers.{self.layers + k - 1}."
        e = rms(self.own(k, "embed_tokens", "model.embed_tokens")[tokens], self.weights[at + "enorm.weight"], self.eps)
        h = states if wrong == "state not normed" else rms(states, self.weights[at + "hnorm.weight"], self.eps)
        x = self.linear(at + "eh_proj", numpy.concatenate([h, e] if wrong == "state first" else [e, h], -1))
        x = self.layer(self.layers + k - 1, x, rows)
        norm = "model.norm" if wrong == "the model's final norm" else at + "shared_head.norm"
        return x if wrong == "no norm of its own" else rms(x, self.weights[norm + ".weight"], self.eps)

    def logits(self, k, states):
        return states @ self.own(k, "shared_head.head", "lm_head").T


def with_predictors(config, raw, seed):
    """Two more layers, shaped as the last one."""
    chance = numpy.random.Generator(numpy.random.PCG64(seed))
    hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    last, out = f"model.layers.{layers - 1}.", dict(raw)
    draw = lambda shape: chance.uniform(0.5, 1.6, shape) if len(shape) == 1 else (
        chance.normal(0, 1.4 / math.sqrt(shape[1]), shape))
    for module in range(MODULES):
        at = f"model.layers.{layers + module}."
        for name, (shape, _) in raw.items():
            if name.startswith(last):
                small = name.endswith(".bias") or name.endswith("correction_bias")
                out[at + name[len(last):]] = (shape, narrowed(chance.normal(0, 0.3, shape) if small else draw(shape)))
        parts = {"enorm": [hidden], "hnorm": [hidden], "eh_proj": [hidden, 2 * hidden], "shared_head.norm": [hidden]}
        if module == 0:
            parts.update({"embed_tokens": [vocab, hidden], "shared_head.head": [vocab, hidden]})
        for name, shape in parts.items():
            out[at + name + ".weight"] = (shape, narrowed(draw(shape)))
    return out


def modules(model, tokens, wrong=None):
    """The states of a whole text: the model's, h^1, h^2 and so on, and the rows that they leave."""
    states, shift = model.states(tokens, wrong != "before the final norm"), 0 if wrong == "the token of the state" else 1
    out, rows = [], [Rows() for _ in range(model.modules)]
    for k in range(1, model.modules + 1):
        count = len(tokens) - k
        after = [tokens[i + k - 1 + shift] for i in range(count)]
        before = states[:count] if k == 1 else out[-1][:count]
        if wrong == "the second reads the model" and k == 2:
            before = states[:count]
        out.append(model.module(k, before, after, rows[k - 1], wrong))
    return states, out, rows


def chain(model, tokens, used):
    """What `used` modules draft after a text."""
    _, made, rows = modules(model, tokens)
    state, drafted, logp, gap = made[0][-1:], [], [], math.inf
    for depth in range(DRAFTED):
        k = depth % used + 1
        if depth:
            state = model.module(k, state, [drafted[-1]], rows[k - 1])
        logits = model.logits(k, state)[0]
        order = numpy.argsort(-logits)
        gap = min(gap, logits[order[0]] - logits[order[1]])
        drafted.append(int(order[0]))
        logp.append(float(logits[order[0]] - logits.max() - math.log(numpy.exp(logits - logits.max()).sum())))
    return {"length": len(tokens), "tokens": drafted, "logp": [round(p, 6) for p in logp], "gap": round(float(gap), 5)}


WRONG = ["state first", "before the final norm", "the token of the state", "no norm of its own", "state not normed",
         "the model's final norm", "the second reads the model"]


def rounded(values):
    return [[round(float(v), 6) for v in row] for row in values]


def read_family(family):
    """Returns config, weights and golden of a checkpoint of tests/golden/families."""
    base = os.path.join(FAMILIES, family)
    return json.load(open(os.path.join(base, "model", "config.json"))), \
        read_weights(os.path.join(base, "model", "model.safetensors")), json.load(open(os.path.join(base, "golden.json")))


def write_golden(family, golden):
    os.makedirs(os.path.join(HERE, family), exist_ok=True)
    with open(os.path.join(HERE, family, "golden.json"), "w") as out:
        out.write("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
                                     for key, value in golden.items()) + "\n}\n")


def clear_chains(model, prompt, used):
    """Returns chains of `used` modules after prefixes of the prompt, except chains with a close choice."""
    chains = [chain(model, prompt[:length], used) for length in range(4, len(prompt) + 1, 3)]
    return [one for one in chains if one["gap"] >= LEAST_GAP]


def only_module(made, logits):
    """Returns the golden entry `module` of a model with one predictor."""
    return [{"state": [[round(v, 4) for v in row] for row in rounded(made)],
             "logits": [[round(v, 4) for v in row] for row in rounded(logits)]}]


def write_predictor(family, mtp, model, published, mistakes):
    """Writes golden and second shard of a model with one predictor. mistakes: the rows that mistakes of this family
    leave, of states and prompt."""
    prompt = published["prompt"]
    states, made, _ = modules(model, prompt)
    off = off_published(states @ model.weights["lm_head.weight"].T, published)
    assert off < 1e-4, f"{off} off transformers"
    logits = model.logits(1, made[0])
    wrong = {mistake: modules(model, prompt, mistake)[1][0] for mistake in WRONG[:-1]}
    wrong.update(mistakes(states, prompt))
    wrong = {mistake: round(float(numpy.abs(model.logits(1, other) - logits).max()), 4) for mistake, other in wrong.items()}
    assert min(wrong.values()) > 0.1, wrong
    chains = clear_chains(model, prompt, 1)
    assert len(chains) >= 8
    write_golden(family, {"prompt": prompt, "one": chains, "wrong": wrong, "module": only_module(made[0], logits)})
    write_weights(os.path.join(HERE, family, "model-00002-of-00002.safetensors"), mtp)
    print(f"mtp {family}: model {off:.1e} off transformers, {len(chains)} chains, wrong: {wrong}")


def make(family):
    config, weights, published = read_family(family)
    config["num_nextn_predict_layers"] = MODULES
    raw = with_predictors(config, weights, 20241227)
    model, prompt = Model(config, widened(raw)), published["prompt"]
    states, made, _ = modules(model, prompt)
    off = off_published(states @ model.weights["lm_head.weight"].T, published)
    assert off < 1e-4, f"{family}: {off} off transformers"
    logits = [model.logits(k + 1, made[k]) for k in range(MODULES)]
    golden = {"prompt": prompt, "state": rounded(states),
              "module": [{"state": rounded(made[k]), "logits": rounded(logits[k])} for k in range(MODULES)], "wrong": {}}
    for wrong in WRONG:
        _, other, _ = modules(model, prompt, wrong)
        golden["wrong"][wrong] = [round(float(numpy.abs(model.logits(k + 1, other[k]) - logits[k]).max()), 4)
                                  for k in range(MODULES)]
        assert max(golden["wrong"][wrong]) > 0.1
    for name, used in (("chain", MODULES), ("one", 1)):
        golden[name] = clear_chains(model, prompt, used)
        assert len(golden[name]) >= 8
    os.makedirs(os.path.join(HERE, family, "model"), exist_ok=True)
    with open(os.path.join(HERE, family, "model", "config.json"), "w") as out:
        json.dump(config, out, indent=2)
        out.write("\n")
    write_weights(os.path.join(HERE, family, "model", "model.safetensors"), raw)
    write_golden(family, golden)
    print(f"mtp {family}: model {off:.1e} off transformers, logits' deviation {logits[0].std():.2f}, "
          f"{len(golden['chain'])} and {len(golden['one'])} chains, wrong: {golden['wrong']}")


if __name__ == "__main__":
    for each in ("deepseek_v3", "glm4_moe"):
        make(each)
