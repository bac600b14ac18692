#!/usr/bin/env python3
"""Blocks of every quantised GGUF type as gguf-py reads them: blocks.jsonl. Usage: make.py, with the package gguf installed.

The bytes of a type's blocks come from a generator that tests/unit/test_gguf.c has, too; scales are made finite. The values are
kept as the SHA-256 of their f32, and the first eight for people."""
import hashlib
import json
import os

import gguf
import numpy as np

BLOCKS = 1024           # enough for every entry of every grid
HALVES = {'Q4_0': [0], 'Q4_1': [0, 2], 'Q5_0': [0], 'Q5_1': [0, 2], 'Q8_0': [0], 'Q2_K': [80, 82], 'Q3_K': [108], 'Q4_K': [0, 2],
          'Q5_K': [0, 2], 'Q6_K': [208], 'IQ2_XXS': [0], 'IQ2_XS': [0], 'IQ3_XXS': [0], 'IQ1_S': [0], 'IQ4_NL': [0], 'IQ3_S': [0],
          'IQ2_S': [0], 'IQ4_XS': [0], 'IQ1_M': [54], 'TQ1_0': [52], 'TQ2_0': [64], 'MXFP4': [], 'NVFP4': []}


def made(count, state):
    out = bytearray(count)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        out[i] = state >> 56
    return np.frombuffer(bytes(out), np.uint8).copy()


def main():
    with open(os.path.join(os.path.dirname(__file__), 'blocks.jsonl'), 'w') as out:
        for name, halves in HALVES.items():
            kind = gguf.GGMLQuantizationType[name]
            block, size = gguf.GGML_QUANT_SIZES[kind]
            blocks = made(BLOCKS * size, kind.value).reshape(BLOCKS, size)
            for at in halves:
                blocks[:, at + 1] &= 0xbb           # an exponent of at most 0x1d
            if name == 'MXFP4':
                blocks[:, 0] &= 0x7f
            values = gguf.quants.dequantize(blocks, kind).astype('<f4') + np.float32(0)         # no -0
            assert np.isfinite(values).all()
            print(json.dumps({'type': name, 'id': kind.value, 'block': block, 'bytes': size, 'halves': halves,
                              'sha256': hashlib.sha256(values.tobytes()).hexdigest(),
                              'first': [float(v) for v in values.reshape(-1)[:8]]}), file=out)


main()
