"""Cuts states.f32 and texts.jsonl out of what transformers computed of the pocket model on four texts.

    make.py FOLDER      the folder of the draft heads' fixtures: target.safetensors, texts.json

texts.jsonl: a text a line, as moe-profile features reads it, and `rows`: the positions that are kept. states.f32: of each text
the rows of h1, h2, h3, h5 (residual stream before these layers) and f (after the final norm), each [rows][192], little-endian.
"""
import json
import pathlib
import struct
import sys

import numpy as np

source, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
raw = (source / 'target.safetensors').read_bytes()
size, = struct.unpack('<Q', raw[:8])
head = json.loads(raw[8:8 + size])


def tensor(name):
    begin, end = head[name]['data_offsets']
    return np.frombuffer(raw[8 + size + begin:8 + size + end], '<f4').reshape(head[name]['shape'])


lines, parts = [], []
for text in json.loads((source / 'texts.json').read_text()):
    asked, said = text['prompt_tokens'], text['tokens']
    length = len(asked) + len(said)
    rows = sorted({*range(0, length, 24), len(asked) - 1, length - 1})
    parts += [tensor(f"{text['id']}.{name}")[rows] for name in ('h1', 'h2', 'h3', 'h5', 'f')]
    lines.append(json.dumps({'id': text['id'], 'task': text['task'], 'tokens': asked, 'answer_tokens': said, 'rows': rows}))
(here / 'texts.jsonl').write_text('\n'.join(lines) + '\n')
(here / 'states.f32').write_bytes(np.concatenate(parts).tobytes())
