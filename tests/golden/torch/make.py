#!/usr/bin/env python3
"""Writes the files of this folder anew: one dictionary of tensors by torch.save in both of its forms, and what must be refused.

Element i of a tensor in row-major order is i / 8, but for those that tests/unit/test_torch.c says."""
import collections
import os

import torch

here = os.path.dirname(os.path.abspath(__file__))


class Call:
    def __reduce__(self):
        return os.system, ('echo this must not be run',)


def steps(*shape):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count) / 8).reshape(shape)


def save(name, value, old=False):
    torch.save(value, os.path.join(here, name), _use_new_zipfile_serialization=not old)


whole = steps(4, 6)
tensors = collections.OrderedDict(
    whole=whole, tied=whole, rows=whole[1:3], half=steps(2, 5).half(), brain=steps(3).bfloat16(),
    parameter=torch.nn.Parameter(steps(2, 2)), scalar=torch.tensor(2.5), empty=torch.zeros(0, 3), words=torch.arange(3),
    bytes=torch.arange(4, dtype=torch.uint8), transposed=steps(4, 3).t().contiguous().t(),
    apart=torch.cat([steps(4, 3), -steps(4, 2)], 1)[:, :3],
    transposed_half=steps(5, 3).half().t().contiguous().t())
tensors._metadata = collections.OrderedDict(version=1)
for form in 'zip', 'old':
    save(form + '.bin', tensors, form == 'old')
    save('call-%s.bin' % form, {'a': Call()}, form == 'old')
save('permuted.bin', {'a': steps(2, 3, 4).permute(2, 0, 1)})
save('integers-apart.bin', {'a': torch.arange(6).reshape(2, 3).t()})
save('list.bin', [steps(2)])
save('number.bin', {'a': 1})
