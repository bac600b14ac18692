#!/usr/bin/env python3
"""The predictor of K-EXAONE as published, for tests/unit/test_predictor.c: writes exaone_moe/model-00002-of-00002.safetensors and
exaone_moe/golden.json.

    make goldens            or, with NumPy 2.4.6 at hand:  python tests/golden/mtp/exaone.py

As in qwen.py the model is the checkpoint of tests/golden/families, and the second shard has the tensors mtp.*. Their names and the
order of operations are those of Qwen, with ordinary norms; the layer of the predictor has attention without a window, and so
without positions, as mtp_layer_types of the published config.json says, and a dense network (vLLM, exaone_moe_mtp.py). The weights
are random: little of what they draft is right.

golden.json: as in qwen.py, without `answer` and `accepted`.
"""
import math

import numpy

import make
from make import Model, Rows, frequencies, narrowed, rms, softmax, turned_halves, widened
from qwen import NAMES


class Exaone(Model):
    def __init__(self, config, raw):
        weights, layers = {}, config["num_hidden_layers"]
        for name, values in widened(raw).items():
            stem = name.rsplit(".", 1)[0]
            if name.startswith("mtp."):
                name = f"model.layers.{layers}." + (NAMES[stem] + ".weight" if stem in NAMES else name[len("mtp.layers.0."):])
            weights[name.replace("mlp.e_score", "mlp.gate.e_score")] = values
        super().__init__({**config, "n_routed_experts": config["num_experts"]}, weights, 1)
        self.slides = [kind == "sliding_attention" for kind in config["layer_types"]] + [False]

    def attend(self, q, k, v, rows, scale):
        first = rows.count()
        rows.add(k, v)
        group, out = q.shape[1] // k.shape[1], numpy.zeros(q.shape)
        for row in range(len(q)):
            end = first + row + 1
            begin = max(0, end - self.config["sliding_window"]) if self.sliding else 0
            for head in range(q.shape[1]):
                keys, values = rows.keys[begin:end, head // group], rows.values[begin:end, head // group]
                out[row, head] = softmax(keys @ q[row, head] * scale) @ values
        return out.reshape(len(q), -1)

    def ordinary(self, at, x, rows):
        c = self.config
        dim, heads, kv_heads = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        positions = numpy.arange(rows.count(), rows.count() + len(x))
        q = rms(self.linear(at + "q_proj", x).reshape(len(x), heads, dim), self.weights[at + "q_norm.weight"], self.eps)
        k = rms(self.linear(at + "k_proj", x).reshape(len(x), kv_heads, dim), self.weights[at + "k_norm.weight"], self.eps)
        v = self.linear(at + "v_proj", x).reshape(len(x), kv_heads, dim)
        frequency, _ = frequencies(c, dim)
        if self.turned:
            q, k = turned_halves(q, positions, frequency), turned_halves(k, positions, frequency)
        return self.linear(at + "o_proj", self.attend(q, k, v, rows, dim ** -0.5))

    def layer(self, n, x, rows, turned=None):
        at = f"model.layers.{n}."
        self.sliding = self.slides[n]
        self.turned = self.sliding if turned is None else turned
        x = x + self.ordinary(at + "self_attn.", rms(x, self.weights[at + "input_layernorm.weight"], self.eps), rows)
        ffn = self.experts if at + "mlp.gate.weight" in self.weights else self.block
        return x + ffn(at + "mlp.", rms(x, self.weights[at + "post_attention_layernorm.weight"], self.eps))


class Turning(Exaone):
    """The mistake that positions turn the predictor's queries and keys."""

    def layer(self, n, x, rows):
        return super().layer(n, x, rows, True if n == self.layers else None)


def draw_predictor(config, raw, seed):
    chance = numpy.random.Generator(numpy.random.PCG64(seed))
    hidden, out, like = config["hidden_size"], {}, "model.layers.0."
    shapes = {"mtp.layers.0." + name[len(like):]: shape for name, (shape, _) in raw.items() if name.startswith(like)}
    shapes["mtp.fc.weight"] = [hidden, 2 * hidden]
    shapes.update({f"mtp.{name}.weight": [hidden] for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")})
    for name, shape in shapes.items():
        scale = 2.5 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.4
        out[name] = (shape, narrowed(chance.uniform(0.5, 1.6, shape) if len(shape) == 1 else
                                     chance.normal(0, scale / math.sqrt(shape[1]), shape)))
    return out


def main():
    config, raw, published = make.read_family("exaone_moe")
    mtp = draw_predictor(config, raw, 20260101)
    weights = {**raw, **mtp}
    make.write_predictor("exaone_moe", mtp, Exaone(config, weights), published, lambda states, prompt: {
        "positions turn queries and keys": Turning(config, weights).module(1, states[:-1], prompt[1:], Rows())})


if __name__ == "__main__":
    main()
