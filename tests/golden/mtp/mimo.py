#!/usr/bin/env python3
"""The predictor of MiMo-V2-Flash as published, for tests/unit/test_predictor.c: writes
mimo_v2_flash/model-00002-of-00002.safetensors and mimo_v2_flash/golden.json.

    make goldens            or, with NumPy 2.4.6 at hand:  python tests/golden/mtp/mimo.py

As in exaone.py the model is the checkpoint of tests/golden/families, and the second shard has the tensors model.mtp.*, random ones.
The order of operations is that of SGLang (mimo_v2_flash_nextn.py): what DeepSeek-V3 does, with a layer of the sliding kind (its
window, heads, sinks and rope) and a dense network, whose norm is called pre_mlp_layernorm, and final_layernorm before the model's
own head.

golden.json: as in exaone.py.
"""
import math

import numpy

import make
from make import Model, Rows, narrowed, rms, turned_halves, widened

NAMES = {"final_layernorm": "shared_head.norm", "pre_mlp_layernorm": "post_attention_layernorm"}


class Mimo(Model):
    def __init__(self, config, raw):
        weights = {}
        for name, values in widened(raw).items():
            if name.startswith("model.mtp.layers.0."):
                stem = name[len("model.mtp.layers.0."):]
                for published, other in NAMES.items():
                    stem = stem.replace(published, other)
                name = f"model.layers.{config['num_hidden_layers']}.{stem}"
            weights[name] = values
        super().__init__(config, weights, 1)
        self.slides = [kind == "sliding_attention" for kind in config["layer_types"]] + [True]
        self.sinks, self.scaled = True, True

    def ordinary(self, at, x, rows):
        c, kind = self.config, "sliding_attention" if self.sliding else "full_attention"
        heads, rope = c["num_attention_heads"], c["rope_parameters"][kind]
        dim, width = c["head_dim"], c["v_head_dim"]
        kv_heads = self.weights[at + "k_proj.weight"].shape[0] // dim
        positions = numpy.arange(rows.count(), rows.count() + len(x))
        turning = int(dim * rope["partial_rotary_factor"])
        frequency = rope["rope_theta"] ** (-numpy.arange(0, turning, 2) / turning)
        turn = lambda x: numpy.concatenate([turned_halves(x[..., :turning], positions, frequency), x[..., turning:]], -1)
        q = turn(self.linear(at + "q_proj", x).reshape(len(x), heads, dim))
        k = turn(self.linear(at + "k_proj", x).reshape(len(x), kv_heads, dim))
        v = self.linear(at + "v_proj", x).reshape(len(x), kv_heads, width) * (c["attention_value_scale"] if self.scaled else 1)
        first, sink = rows.count(), self.weights.get(at + "attention_sink_bias") if self.sinks else None
        rows.add(k, v)
        out = numpy.zeros((len(x), heads, width))
        for row in range(len(x)):
            end = first + row + 1
            begin = max(0, end - c["sliding_window"]) if self.sliding else 0
            for head in range(heads):
                group = head * kv_heads // heads
                score = rows.keys[begin:end, group] @ q[row, head] * dim ** -0.5
                share = numpy.exp(score - score.max())
                total = share.sum() + (numpy.exp(sink[head] - score.max()) if sink is not None else 0)
                out[row, head] = share / total @ rows.values[begin:end, group]
        return self.linear(at + "o_proj", out.reshape(len(x), -1))

    def layer(self, n, x, rows):
        at = f"model.layers.{n}."
        self.sliding = self.slides[n]
        x = x + self.ordinary(at + "self_attn.", rms(x, self.weights[at + "input_layernorm.weight"], self.eps), rows)
        ffn = self.experts if at + "mlp.gate.weight" in self.weights else self.block
        return x + ffn(at + "mlp.", rms(x, self.weights[at + "post_attention_layernorm.weight"], self.eps))

    def experts(self, at, x):
        nothing = {at + "shared_experts." + part + "_proj.weight": numpy.zeros(shape) for part, shape in (
            ("gate", (1, x.shape[1])), ("up", (1, x.shape[1])), ("down", (x.shape[1], 1)))}
        self.weights.update(nothing)
        return super().experts(at, x)


def mistaken(model, states, prompt, **changes):
    for name, value in changes.items():
        setattr(model, name, value)
    return model.module(1, states[:-1], prompt[1:], Rows())


def draw_predictor(config, raw, seed):
    """Attention as in the sliding layer 1, a dense network as in layer 0."""
    chance = numpy.random.Generator(numpy.random.PCG64(seed))
    hidden, shapes, at = config["hidden_size"], {}, "model.mtp.layers.0."
    for name, (shape, _) in raw.items():
        layer = "model.layers.0." if ".mlp." in name else "model.layers.1."
        if name.startswith(layer):
            shapes[at + name[len(layer):].replace("post_attention_layernorm", "pre_mlp_layernorm")] = shape
    shapes[at + "eh_proj.weight"] = [hidden, 2 * hidden]
    shapes.update({at + f"{name}.weight": [hidden] for name in ("enorm", "hnorm", "final_layernorm")})
    out = {}
    for name, shape in shapes.items():
        scale = 2.5 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.4
        out[name] = (shape, narrowed(chance.normal(0, 1, shape) if "sink" in name else
                                     chance.uniform(0.5, 1.6, shape) if len(shape) == 1 else
                                     chance.normal(0, scale / math.sqrt(shape[1]), shape)))
    return out


def main():
    config, raw, published = make.read_family("mimo_v2_flash")
    mtp = draw_predictor(config, raw, 20260102)
    weights = {**raw, **mtp}
    model = Mimo(config, weights)
    make.write_predictor("mimo_v2_flash", mtp, model, published, lambda states, prompt: {
        "no sinks": mistaken(Mimo(config, weights), states, prompt, sinks=False),
        "values not scaled": mistaken(Mimo(config, weights), states, prompt, scaled=False),
        "full attention": mistaken(Mimo(config, weights), states, prompt, slides=[False] * len(model.slides))})


if __name__ == "__main__":
    main()
