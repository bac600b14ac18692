#!/usr/bin/env python3
"""Writes a GGUF file of a small mixture of experts with random blocks: mixed-gguf.py MIX OUT.

MIX is a mixture of types as llama.cpp makes them for a model with experts; types are spread over tensors as in its files.
Standard library only.
"""
import random
import struct
import sys

# type: number, values and bytes of a block, offsets of f16 scales
TYPES = {'Q4_0': (2, 32, 18, [0]), 'Q8_0': (8, 32, 34, [0]), 'Q2_K': (10, 256, 84, [80, 82]), 'Q3_K': (11, 256, 110, [108]),
         'Q4_K': (12, 256, 144, [0, 2]), 'Q5_K': (13, 256, 176, [0, 2]), 'Q6_K': (14, 256, 210, [208]),
         'IQ2_XXS': (16, 256, 66, [0]), 'IQ2_XS': (17, 256, 74, [0]), 'IQ3_XXS': (18, 256, 98, [0]), 'IQ4_NL': (20, 32, 18, [0]),
         'IQ3_S': (21, 256, 110, [0]), 'IQ2_S': (22, 256, 82, [0]), 'IQ4_XS': (23, 256, 136, [0]), 'MXFP4': (39, 32, 17, []),
         'NVFP4': (40, 64, 36, [])}
# The magnitude of a weight if its scale is 1.
LARGEST = {'Q4_0': 8, 'Q8_0': 127, 'Q2_K': 45, 'Q3_K': 128, 'Q4_K': 945, 'Q5_K': 1953, 'Q6_K': 4096, 'IQ2_XXS': 160, 'IQ2_XS': 160,
           'IQ2_S': 160, 'IQ3_XXS': 480, 'IQ3_S': 480, 'IQ4_NL': 127, 'IQ4_XS': 4064}
# mixture: most matrices, v, down of layers, embedding, head
MIXES = {'Q4_K_M': ('Q4_K', 'Q6_K', ['Q6_K', 'Q4_K'], 'Q4_K', 'Q6_K'), 'Q5_K_M': ('Q5_K', 'Q6_K', ['Q6_K', 'Q5_K'], 'Q5_K', 'Q6_K'),
         'IQ4_XS': ('IQ4_XS', 'Q5_K', ['Q5_K', 'IQ4_XS'], 'IQ4_XS', 'Q6_K'), 'IQ4_NL': ('IQ4_NL', 'Q5_K', ['IQ4_NL'], 'IQ4_NL', 'Q6_K'),
         'Q3_K_M': ('Q3_K', 'Q5_K', ['Q5_K', 'Q4_K'], 'Q3_K', 'Q6_K'), 'Q2_K': ('Q2_K', 'Q4_K', ['Q3_K'], 'Q2_K', 'Q6_K'),
         'IQ3_XXS': ('IQ3_XXS', 'IQ3_S', ['IQ3_S', 'IQ3_XXS'], 'IQ3_S', 'Q5_K'),
         'IQ2_XS': ('IQ2_XS', 'Q4_K', ['Q2_K', 'IQ2_XS'], 'Q2_K', 'Q5_K'), 'IQ2_M': ('IQ2_S', 'IQ3_S', ['IQ2_XXS'], 'IQ3_S', 'Q5_K'),
         'NVFP4': ('NVFP4', 'NVFP4', ['NVFP4'], 'Q8_0', 'Q8_0')}
HIDDEN, INNER, LAYERS, EXPERTS, HEADS, KV_HEADS, WIDTH, VOCAB = 256, 256, 2, 4, 4, 2, 64, 64

mix, out = sys.argv[1:]
most, value, downs, embedding, head = MIXES[mix]
rng = random.Random(mix)
infos, data, entries, count = b'', b'', b'', [0, 0]


def text(string):
    return struct.pack('<Q', len(string)) + string.encode()


def put(name, sizes, kind, content):
    global infos, data
    data += bytes(-len(data) % 32)
    infos += text(name) + struct.pack(f'<I{len(sizes)}QIQ', len(sizes), *sizes, kind, len(data))
    data += content
    count[0] += 1


def vector(name, width):
    put(name, [width], 0, struct.pack(f'<{width}f', *(1 + rng.random() / 8 for _ in range(width))))


def matrix(name, kind, *sizes):
    number, block, size, halves = TYPES[kind]
    total = 1
    for each in sizes:
        total *= each
    content = bytearray(rng.randbytes(total // block * size))
    scale = struct.pack('<e', 2 / 16 / LARGEST.get(kind, 1))
    for at in range(0, len(content), size):
        for half in halves:
            content[at + half:at + half + 2] = scale
        if kind == 'MXFP4':
            content[at] = 122
        if kind == 'NVFP4':
            content[at:at + 4] = bytes([14, 15, 16, 17])
    put(name, sizes, number, bytes(content))


def add(key, kind, value):
    global entries
    entries += text(key) + struct.pack('<I', kind) + value
    count[1] += 1


add('general.architecture', 8, text('qwen3moe'))
for key, number in (('block_count', LAYERS), ('context_length', 512), ('embedding_length', HIDDEN), ('feed_forward_length', INNER),
                    ('attention.head_count', HEADS), ('attention.head_count_kv', KV_HEADS), ('attention.key_length', WIDTH),
                    ('attention.value_length', WIDTH), ('expert_count', EXPERTS), ('expert_used_count', 2),
                    ('expert_feed_forward_length', INNER)):
    add('qwen3moe.' + key, 4, struct.pack('<I', number))
add('qwen3moe.attention.layer_norm_rms_epsilon', 6, struct.pack('<f', 1e-6))
add('qwen3moe.rope.freq_base', 6, struct.pack('<f', 1e6))
add('tokenizer.ggml.model', 8, text('gpt2'))
add('tokenizer.ggml.pre', 8, text('gpt-2'))
add('tokenizer.ggml.tokens', 9, struct.pack('<IQ', 8, VOCAB) + b''.join(text(chr(33 + i)) for i in range(VOCAB - 1)) + text('AB'))
add('tokenizer.ggml.token_type', 9, struct.pack(f'<IQ{VOCAB}i', 5, VOCAB, *[1] * VOCAB))
add('tokenizer.ggml.merges', 9, struct.pack('<IQ', 8, 1) + text('A B'))
matrix('token_embd.weight', embedding, HIDDEN, VOCAB)
matrix('output.weight', head, HIDDEN, VOCAB)
vector('output_norm.weight', HIDDEN)
for layer in range(LAYERS):
    here, down = f'blk.{layer}.', downs[layer % len(downs)]
    vector(here + 'attn_norm.weight', HIDDEN)
    vector(here + 'ffn_norm.weight', HIDDEN)
    vector(here + 'attn_q_norm.weight', WIDTH)
    vector(here + 'attn_k_norm.weight', WIDTH)
    matrix(here + 'attn_q.weight', most, HIDDEN, HEADS * WIDTH)
    matrix(here + 'attn_k.weight', most, HIDDEN, KV_HEADS * WIDTH)
    matrix(here + 'attn_v.weight', value, HIDDEN, KV_HEADS * WIDTH)
    matrix(here + 'attn_output.weight', most, HEADS * WIDTH, HIDDEN)
    put(here + 'ffn_gate_inp.weight', [HIDDEN, EXPERTS], 0,
        struct.pack(f'<{HIDDEN * EXPERTS}f', *(rng.uniform(-0.1, 0.1) for _ in range(HIDDEN * EXPERTS))))
    matrix(here + 'ffn_gate_exps.weight', most, HIDDEN, INNER, EXPERTS)
    matrix(here + 'ffn_up_exps.weight', most, HIDDEN, INNER, EXPERTS)
    matrix(here + 'ffn_down_exps.weight', down, INNER, HIDDEN, EXPERTS)
header = b'GGUF' + struct.pack('<IQQ', 3, *count) + entries + infos
with open(out, 'wb') as file:
    file.write(header + bytes(-len(header) % 32) + data)
