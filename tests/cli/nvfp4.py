#!/usr/bin/env python3
"""Gives a checkpoint random NVFP4 weights as ModelOpt publishes them: nvfp4.py FOLDER OUT. Matrices of layers get codes, scales of
16 inputs and a scale of the matrix; other tensors stay. Standard library only."""
import json
import random
import shutil
import struct
import sys

folder, out = sys.argv[1:]
draw = random.Random(5)
SCALES = bytes(0x20 + byte % 32 for byte in range(256))                # .125 to 1.875
shutil.copytree(folder, out)
with open(folder + '/model.safetensors', 'rb') as file:
    header = json.loads(file.read(struct.unpack('<Q', file.read(8))[0]))
    data = file.read()
header.pop('__metadata__', None)
tensors, body = {}, bytearray()


def put(name, dtype, shape, values):
    tensors[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(body), len(body) + len(values)]}
    body.extend(values)


for name, entry in header.items():
    shape = entry['shape']
    if name.endswith('_proj.weight') and shape[1] % 64 == 0:
        put(name, 'U8', [shape[0], shape[1] // 2], draw.randbytes(shape[0] * shape[1] // 2))
        put(name + '_scale', 'F8_E4M3', [shape[0], shape[1] // 16], draw.randbytes(shape[0] * shape[1] // 16).translate(SCALES))
        put(name + '_scale_2', 'F32', [], struct.pack('<f', draw.uniform(.02, .06)))
    else:
        put(name, entry['dtype'], shape, data[entry['data_offsets'][0]:entry['data_offsets'][1]])
text = json.dumps(tensors).encode()
with open(out + '/model.safetensors', 'wb') as file:
    file.write(struct.pack('<Q', len(text)) + text + body)
with open(folder + '/config.json', encoding='utf-8') as file:
    config = json.load(file)
config['quantization_config'] = {'quant_method': 'modelopt', 'quant_algo': 'NVFP4', 'group_size': 16}
with open(out + '/config.json', 'w', encoding='utf-8') as file:
    json.dump(config, file)
