#!/usr/bin/env python3
"""Writes tests/emu/golden/mma.bin: what tensor cores give for sums of 16 bf16 products and an f32.

By mmasim 2.1.1 (PyPI; needs torch), whose models were verified bit for bit on hardware (arXiv 2511.10909). A case is 76 bytes,
little-endian: 16 bf16 a, 16 bf16 b, f32 c, then the f32 that Ampere gives and the f32 that Hopper gives. Run in a virtual
environment with `pip install mmasim==2.1.1 torch numpy`; the cases depend on the seed alone.
"""
import os

import numpy
import torch
from mmasim.nv_ptx import MMA

PER_KIND = 270
random = numpy.random.default_rng(20261121)


def bf16(x):
    """The bits of x rounded to bf16."""
    return torch.from_numpy(numpy.asarray(x, numpy.float32)).bfloat16().view(torch.int16).numpy().astype(numpy.uint16)


def wide(shape, low, high):
    return random.choice([-1.0, 1.0], shape) * random.uniform(1, 2, shape) * 2.0 ** random.integers(low, high, shape)


def kinds():
    n = (PER_KIND, 16)
    normal = random.standard_normal
    yield normal(n), normal(n), normal(PER_KIND)                              # what a model has
    yield normal(n) * 0.02, normal(n) * 3, normal(PER_KIND) * 10
    yield wide(n, -20, 20), wide(n, -20, 20), wide(PER_KIND, -30, 30)         # most terms fall off the end
    yield wide(n, -6, 6), wide(n, -6, 6), wide(PER_KIND, -8, 8)
    a, b = wide(n, -3, 3), wide(n, -3, 3)                                     # cancelled but for the last bits
    a[:, 8:], b[:, 8:] = a[:, :8], -b[:, :8]
    b[:, 15] *= 1 + 2.0 ** -6
    yield a, b, wide(PER_KIND, -30, -10)
    a, b, c = wide(n, -4, 4), wide(n, -4, 4), normal(PER_KIND)                # zeros
    a[random.random(n) < 0.6], b[random.random(n) < 0.3], c[::3] = 0, -0.0, 0
    yield a, b, c
    yield wide(n, -132, -120), wide(n, -8, 2), wide(PER_KIND, -140, -126)     # subnormal factors and sums
    yield wide(n, -80, -60), wide(n, -80, -60), wide(PER_KIND, -150, -126)
    a, b, c = wide(n, 55, 64), wide(n, 55, 64), wide(PER_KIND, 110, 128)      # too large, infinite, not a number
    a[random.random(n) < 0.01], b[random.random(n) < 0.01], c[::50] = numpy.inf, 0, numpy.nan
    yield a, b, c


with numpy.errstate(all="ignore"):
    rows = [(bf16(a), bf16(b), numpy.asarray(c, numpy.float32)) for a, b, c in kinds()]
a, b, c = (numpy.concatenate(part) for part in zip(*rows))
as_bf16 = lambda bits: torch.from_numpy(bits.view(numpy.int16)).view(torch.bfloat16)
out = [MMA(arch, "m16n8k16.f32.bf16.bf16.f32").dpa(as_bf16(a), as_bf16(b), torch.from_numpy(c)).numpy()
       for arch in ("Ampere", "Hopper")]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mma.bin"), "wb") as file:
    for i in range(len(c)):
        file.write(a[i].tobytes() + b[i].tobytes() + c[i].tobytes() + out[0][i].tobytes() + out[1][i].tobytes())
print(len(c), "cases,", int((out[0] != out[1]).sum()), "of them differ between the two")
