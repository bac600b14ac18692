#!/usr/bin/env python3
"""Writes a small checkpoint of BF16 tensors as a GGUF file: to-gguf.py FOLDER OUT [whole] [q8] [grouped] [untold] [KEY=N].

Matrices stay BF16, vectors and routers become F32, as in published files; q8: matrices become Q8_0. whole: kv_b stays in one
tensor, as older files of DeepSeek have it. grouped: so does in_proj_qkvz of Qwen3-Next. untold: no key tells which layers
have a state. KEY=N: an integer key of the architecture more. A predictor of Qwen becomes a layer after the last one. A tokenizer of five tokens is put in. Standard library only.
"""
import array
import glob
import json
import math
import struct
import sys

folder, out, options = sys.argv[1], sys.argv[2], sys.argv[3:]
config = json.load(open(folder + '/config.json'))
config = config.get('text_config', config)
family = config['model_type']
ARCH = {'llama': 'llama', 'mistral': 'llama', 'mixtral': 'llama', 'qwen2': 'qwen2', 'qwen3': 'qwen3', 'qwen2_moe': 'qwen2moe',
        'qwen3_moe': 'qwen3moe', 'olmoe': 'olmoe', 'deepseek': 'deepseek', 'deepseek_v2': 'deepseek2', 'deepseek_v3': 'deepseek2',
        'gpt_oss': 'gpt-oss', 'glm4_moe': 'glm4moe', 'granitemoe': 'granitemoe',
        'minimax_m2': 'minimax-m2', 'dots1': 'dots1', 'ernie4_5_moe': 'ernie4_5-moe', 'glm4_moe_lite': 'deepseek2', 'hunyuan_v1_moe': 'hunyuan-moe',
        'llama4_text': 'llama4', 'deepseek_v32': 'deepseek32', 'glm_moe_dsa': 'glm-dsa',
        'granitemoehybrid': 'granitehybrid', 'lfm2_moe': 'lfm2moe', 'nemotron_h': 'nemotron_h_moe',
        'kimi_linear': 'kimi-linear', 'jamba': 'jamba',
        'qwen3_next': 'qwen3next', 'qwen3_5_moe': 'qwen35moe', 'qwen3_5_moe_text': 'qwen35moe'}
arch = ARCH[family]
paired = arch in ('llama', 'deepseek', 'granitemoe', 'granitehybrid')
hybrid = arch in ('granitehybrid', 'lfm2moe')
states = arch in ('qwen3next', 'qwen35moe')
norm_after = states or family in ('gpt_oss', 'glm4_moe')
latent = arch in ('deepseek2', 'deepseek32', 'glm-dsa', 'kimi-linear')
halves = config.get('layers_block_type')
layers, heads = config.get('num_hidden_layers') or len(halves), config['num_attention_heads']
kv_heads = config.get('num_key_value_heads') or heads


def load(path):
    """name: shape, values as bf16 bits."""
    with open(path, 'rb') as file:
        header = json.loads(file.read(struct.unpack('<Q', file.read(8))[0]))
        data = file.read()
    header.pop('__metadata__', None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        if entry['dtype'] == 'F32':
            bits = array.array('I', data[begin:end])
            values = array.array('f', data[begin:end])
            tensors[name] = entry['shape'], list(values)
        else:
            assert entry['dtype'] == 'BF16', entry
            halves = array.array('H', data[begin:end])
            tensors[name] = entry['shape'], list(struct.unpack(f'<{len(halves)}f', struct.pack(
                f'<{len(halves)}I', *(half << 16 for half in halves))))
    return tensors


tensors = {}
for path in sorted(glob.glob(folder + '/*.safetensors')):
    tensors.update(load(path))
ahead = int('mtp.layers.0.input_layernorm.weight' in tensors)
written = []        # name, type, sizes with the fastest first, bytes


def q8(values):
    data = b''
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        scale = struct.unpack('<e', struct.pack('<e', max(map(abs, block)) / 127))[0]
        data += struct.pack('<e32b', scale, *(max(-127, min(127, round(v / scale))) if scale else 0 for v in block))
    return data


def put(name, shape, values, wide=False):
    if len(shape) == 1 or wide:
        kind, data = 0, struct.pack(f'<{len(values)}f', *values)
    elif 'q8' in options and shape[-1] % 32 == 0:
        kind, data = 8, q8(values)
    else:
        kind = 30
        data = struct.pack(f'<{len(values)}H', *(bits >> 16 for bits in struct.unpack(
            f'<{len(values)}I', struct.pack(f'<{len(values)}f', *values))))
    written.append((name, kind, list(reversed(shape)), data))


def rows(values, width):
    return [values[i:i + width] for i in range(0, len(values), width)]


def flat(lists):
    return [value for part in lists for value in part]


def pair_halves(shape, values, count):
    width = shape[0] // count
    lines = rows(values, len(values) // shape[0])
    order = [head * width + half * (width // 2) + i for head in range(count) for i in range(width // 2) for half in range(2)]
    return flat(lines[i] for i in order)


def move(published, name, wide=False):
    if published in tensors:
        shape, values = tensors.pop(published)
        put(name, shape, values, wide)


def attention(there, here):
    for part, count in (('q', heads), ('k', kv_heads), ('v', 0)):
        for kind in ('weight', 'bias'):
            name = f'{there}self_attn.{part}_proj.{kind}'
            if paired and count and name in tensors:
                shape, values = tensors.pop(name)
                put(f'{here}attn_{part}.{kind}', shape, pair_halves(shape, values, count))
            else:
                move(name, f'{here}attn_{part}.{kind}')
        for norm in (f'{part}_norm', f'{part}_layernorm', {'q': 'query', 'k': 'key', 'v': ''}[part] + '_layernorm'):
            move(f'{there}self_attn.{norm}.weight', f'{here}attn_{part}_norm.weight')
    for old, new in (('q_a_proj', 'attn_q_a'), ('q_b_proj', 'attn_q_b'), ('kv_a_proj_with_mqa', 'attn_kv_a_mqa')):
        for kind in ('weight', 'bias'):
            move(f'{there}self_attn.{old}.{kind}', f'{here}{new}.{kind}')
    move(there + 'self_attn.q_a_layernorm.weight', here + 'attn_q_a_norm.weight')
    move(there + 'self_attn.kv_a_layernorm.weight', here + 'attn_kv_a_norm.weight')
    for kind in ('weight', 'bias'):
        move(f'{there}self_attn.o_proj.{kind}', f'{here}attn_output.{kind}')
        move(f'{there}self_attn.out_proj.{kind}', f'{here}attn_output.{kind}')
    for old, new in (('wq_b', 'attn_q_b'), ('wk', 'attn_k'), ('weights_proj', 'proj'), ('k_norm', 'k_norm')):
        for kind in ('weight', 'bias'):
            move(f'{there}self_attn.indexer.{old}.{kind}', f'{here}indexer.{new}.{kind}')
    move(there + 'self_attn.sinks', here + 'attn_sinks.weight')
    if latent and 'whole' in options:
        move(there + 'self_attn.kv_b_proj.weight', here + 'attn_kv_b.weight')
    elif there + 'self_attn.kv_b_proj.weight' in tensors:
        rank, own, width = config['kv_lora_rank'], config['qk_nope_head_dim'], config['v_head_dim']
        parts = rows(rows(tensors.pop(there + 'self_attn.kv_b_proj.weight')[1], rank), own + width)
        put(here + 'attn_k_b.weight', [heads, rank, own], [part[i][r] for part in parts for r in range(rank) for i in range(own)])
        put(here + 'attn_v_b.weight', [heads, width, rank], flat(flat(part[own:]) for part in parts))


def tiled(lines, width):
    """Lines of value heads, `width` each: from the heads of one key head next to each other to one head of each key head in turn."""
    keys, values = config['linear_num_key_heads'], config['linear_num_value_heads']
    heads = [lines[h * width:(h + 1) * width] for h in range(values)]
    return flat(heads[k * (values // keys) + j] for j in range(values // keys) for k in range(keys))


def with_state(there, here):
    """A layer with a state, as llama.cpp's converter writes it: -exp(A_log), and heads in the order that its graphs want."""
    if there + 'A_log' not in tensors:
        return
    keys, values = config['linear_num_key_heads'], config['linear_num_value_heads']
    key, value, each = config['linear_key_head_dim'], config['linear_value_head_dim'], values // keys
    hidden = config['hidden_size']
    order = tiled if arch == 'qwen35moe' else lambda lines, width: lines
    convolution = rows(tensors.pop(there + 'conv1d.weight')[1], config['linear_conv_kernel_dim'])
    taps = convolution[:2 * keys * key] + order(convolution[2 * keys * key:], value)
    put(here + 'ssm_conv1d.weight', [len(taps), len(taps[0])], flat(taps), wide=True)
    put(here + 'ssm_a', [values], [-math.exp(a) for a in order(tensors.pop(there + 'A_log')[1], 1)])
    put(here + 'ssm_dt.bias', [values], order(tensors.pop(there + 'dt_bias')[1], 1))
    move(there + 'norm.weight', here + 'ssm_norm.weight')
    shape, output = tensors.pop(there + 'out_proj.weight')
    put(here + 'ssm_out.weight', shape, flat(order(line, value) for line in rows(output, shape[1])))
    if 'grouped' in options:
        move(there + 'in_proj_qkvz.weight', here + 'ssm_in.weight')
        move(there + 'in_proj_ba.weight', here + 'ssm_ba.weight')
        return
    if there + 'in_proj_qkvz.weight' in tensors:
        lines = rows(tensors.pop(there + 'in_proj_qkvz.weight')[1], hidden)
        groups = rows(lines, 2 * key + 2 * each * value)
        ends = [0, key, 2 * key, 2 * key + each * value, 2 * key + 2 * each * value]
        parts = [flat(group[begin:end] for group in groups) for begin, end in zip(ends, ends[1:])]
        qkv, z = parts[0] + parts[1] + parts[2], parts[3]
        move(there + 'in_proj_ba.weight', here + 'ssm_ba.weight')
    else:
        qkv = rows(tensors.pop(there + 'in_proj_qkv.weight')[1], hidden)
        qkv = qkv[:2 * keys * key] + order(qkv[2 * keys * key:], value)
        z = order(rows(tensors.pop(there + 'in_proj_z.weight')[1], hidden), value)
        for old, new in (('in_proj_b', 'ssm_beta'), ('in_proj_a', 'ssm_alpha')):
            put(here + new + '.weight', [values, hidden], flat(order(rows(tensors.pop(f'{there}{old}.weight')[1], hidden), 1)))
    put(here + 'attn_qkv.weight', [len(qkv), hidden], flat(qkv))
    put(here + 'attn_gate.weight', [len(z), hidden], flat(z))


def with_mamba(there, here):
    """A layer with Mamba-2 or a short convolution alone, as llama.cpp's converter writes it; ssm_norm as its quantiser does."""
    if there + 'conv.in_proj.weight' in tensors:
        move(there + 'conv.in_proj.weight', here + 'shortconv.in_proj.weight')
        (width, _, taps), values = tensors.pop(there + 'conv.conv.weight')
        put(here + 'shortconv.conv.weight', [width, taps], values, wide=True)
        move(there + 'conv.out_proj.weight', here + 'shortconv.out_proj.weight')
    if there + 'mamba.A_log' not in tensors:
        return
    move(there + 'mamba.in_proj.weight', here + 'ssm_in.weight')
    (width, _, taps), values = tensors.pop(there + 'mamba.conv1d.weight')
    put(here + 'ssm_conv1d.weight', [width, taps], values, wide=True)
    move(there + 'mamba.conv1d.bias', here + 'ssm_conv1d.bias')
    move(there + 'mamba.dt_bias', here + 'ssm_dt.bias')
    values = tensors.pop(there + 'mamba.A_log')[1]
    put(here + 'ssm_a', [len(values), 1], [-math.exp(a) for a in values], wide=True)
    put(here + 'ssm_d', [len(values), 1], tensors.pop(there + 'mamba.D')[1], wide=True)
    groups, values = config['n_groups' if halves else 'mamba_n_groups'], tensors.pop(there + 'mamba.norm.weight')[1]
    put(here + 'ssm_norm.weight', [groups, len(values) // groups] if groups > 1 else [len(values)], values, wide=True)
    move(there + 'mamba.out_proj.weight', here + 'ssm_out.weight')


def with_scan(there, here):
    """A layer with Mamba-1, as llama.cpp's converter writes it."""
    if there + 'x_proj.weight' not in tensors:
        return
    (width, _, taps), values = tensors.pop(there + 'conv1d.weight')
    put(here + 'ssm_conv1d.weight', [width, taps], values, wide=True)
    shape, values = tensors.pop(there + 'A_log')
    put(here + 'ssm_a', shape, [-math.exp(a) for a in values], wide=True)
    move(there + 'D', here + 'ssm_d')
    for old, new in (('in_proj.weight', 'ssm_in.weight'), ('conv1d.bias', 'ssm_conv1d.bias'), ('x_proj.weight', 'ssm_x.weight'),
                     ('dt_proj.weight', 'ssm_dt.weight'), ('dt_proj.bias', 'ssm_dt.bias'), ('out_proj.weight', 'ssm_out.weight'),
                     ('dt_layernorm.weight', 'ssm_dt_norm.weight'), ('b_layernorm.weight', 'ssm_b_norm.weight'),
                     ('c_layernorm.weight', 'ssm_c_norm.weight')):
        move(there + old, here + new)


def with_channels(there, here):
    """A layer with Kimi Delta Attention; attention() moves its projections."""
    if there + 'A_log' not in tensors:
        return
    for part in ('q', 'k', 'v'):
        (width, _, taps), values = tensors.pop(f'{there}{part}_conv1d.weight')
        put(f'{here}ssm_conv1d_{part}.weight', [1, width, 1, taps], values, wide=True)
    shape, values = tensors.pop(there + 'A_log')
    put(here + 'ssm_a', shape, [-math.exp(a) for a in values], wide=True)
    move(there + 'dt_bias', here + 'ssm_dt.bias')
    for old, new in (('f_a_proj', 'ssm_f_a'), ('f_b_proj', 'ssm_f_b'), ('g_a_proj', 'ssm_g_a'), ('g_b_proj', 'ssm_g_b'),
                     ('b_proj', 'ssm_beta'), ('o_norm', 'ssm_norm')):
        move(f'{there}{old}.weight', f'{here}{new}.weight')


def with_half(there, here):
    """A layer of Nemotron-H: a mixer after a norm."""
    move(there + 'norm.weight', here + 'attn_norm.weight')
    there += 'mixer.'
    for part in ('q', 'k', 'v'):
        move(f'{there}{part}_proj.weight', f'{here}attn_{part}.weight')
    move(there + 'o_proj.weight', here + 'attn_output.weight')
    for name in ('in_proj.weight', 'conv1d.weight', 'conv1d.bias', 'dt_bias', 'A_log', 'D', 'norm.weight', 'out_proj.weight'):
        if there + name in tensors:
            tensors['mamba.' + name] = tensors.pop(there + name)
    with_mamba('', here)
    for part in ('up', 'down'):
        gather([there + 'experts.{}.' + part + '_proj.weight'], f'{here}ffn_{part}_exps.weight')
        move(f'{there}shared_experts.{part}_proj.weight', f'{here}ffn_{part}_shexp.weight')
        move(f'{there}{part}_proj.weight', f'{here}ffn_{part}.weight')
    move(there + 'gate.weight', here + 'ffn_gate_inp.weight', wide=True)
    move(there + 'gate.e_score_correction_bias', here + 'exp_probs_b.bias')


def gather(patterns, name):
    for pattern in patterns:
        if pattern.format(0) in tensors:
            count = sum(pattern.format(e) in tensors for e in range(1024))
            parts = [tensors.pop(pattern.format(e)) for e in range(count)]
            put(name, [count] + parts[0][0], flat(values for _, values in parts))


def turned(name, here, parts):
    """Experts [experts][inputs][outputs of each part, one after the other]."""
    if name in tensors:
        (count, inputs, outputs), values = tensors.pop(name)
        width = outputs // len(parts)
        for at, part in enumerate(parts):
            put(f'{here}ffn_{part}_exps.weight', [count, width, inputs], [
                values[(e * inputs + i) * outputs + o] for e in range(count) for o in range(at * width, (at + 1) * width)
                for i in range(inputs)])


def experts(there, here):
    for part, old in (('gate', 'w1'), ('up', 'w3'), ('down', 'w2')):
        gather([there + 'mlp.experts.{}.' + part + '_proj.weight', there + 'block_sparse_moe.experts.{}.' + old + '.weight'],
               f'{here}ffn_{part}_exps.weight')
        move(f'{there}mlp.{part}_proj.weight', f'{here}ffn_{part}.weight')
        move(f'{there}block_sparse_moe.shared_experts.{part}_proj.weight', f'{here}ffn_{part}_shexp.weight')
        for shared in ('shared_expert', 'shared_experts', 'shared_mlp'):
            move(f'{there}mlp.{shared}.{part}_proj.weight', f'{here}ffn_{part}_shexp.weight')
    for router in ('mlp.gate', 'mlp.gate.wg', 'mlp.router', 'block_sparse_moe.gate'):
        for kind in ('weight', 'bias'):
            move(f'{there}{router}.{kind}', f'{here}ffn_gate_inp.{kind}', wide=True)
    for part in ('gate', 'up', 'down'):                         # of Llama 4
        move(f'{there}feed_forward.{part}_proj.weight', f'{here}ffn_{part}.weight')
        move(f'{there}feed_forward.shared_expert.{part}_proj.weight', f'{here}ffn_{part}_shexp.weight')
    move(there + 'feed_forward.router.weight', here + 'ffn_gate_inp.weight', wide=True)
    for part in ('gate', 'up', 'down'):                         # of Jamba
        gather([there + 'feed_forward.experts.{}.' + part + '_proj.weight'], f'{here}ffn_{part}_exps.weight')
    turned(there + 'feed_forward.experts.gate_up_proj', here, ('gate', 'up'))
    turned(there + 'feed_forward.experts.down_proj', here, ('down',))
    for part, old in (('gate', 'w1'), ('up', 'w3'), ('down', 'w2')):
        gather([there + 'feed_forward.experts.{}.' + old + '.weight'], f'{here}ffn_{part}_exps.weight')
        move(f'{there}feed_forward.{old}.weight', f'{here}ffn_{part}.weight')
    move(there + 'feed_forward.gate.weight', here + 'ffn_gate_inp.weight', wide=True)
    move(there + 'feed_forward.expert_bias', here + 'exp_probs_b.bias')
    name = there + 'shared_mlp.input_linear.weight'
    if name in tensors:
        (outputs, inputs), values = tensors.pop(name)
        shared = '_shexp' if config['num_local_experts'] else ''
        for part, half in zip(('gate', 'up'), rows(values, outputs // 2 * inputs)):
            put(f'{here}ffn_{part}{shared}.weight', [outputs // 2, inputs], half)
        move(there + 'shared_mlp.output_linear.weight', f'{here}ffn_down{shared}.weight')
    move(there + 'mlp.gate.e_score_correction_bias', here + 'exp_probs_b.bias')
    move(there + 'block_sparse_moe.e_score_correction_bias', here + 'exp_probs_b.bias')
    move(there + 'block_sparse_moe.gate.e_score_correction_bias', here + 'exp_probs_b.bias')
    name = there + 'mlp.moe_statics.e_score_correction_bias'
    if name in tensors:
        put(here + 'exp_probs_b.bias', tensors[name][0][1:], tensors.pop(name)[1])
    move(there + 'block_sparse_moe.router.layer.weight', here + 'ffn_gate_inp.weight', wide=True)
    move(there + 'block_sparse_moe.output_linear.weight', here + 'ffn_down_exps.weight')
    name = there + 'block_sparse_moe.input_linear.weight'
    if name in tensors:
        (count, outputs, inputs), values = tensors.pop(name)
        halves = rows(values, outputs // 2 * inputs)
        put(here + 'ffn_gate_exps.weight', [count, outputs // 2, inputs], flat(halves[::2]))
        put(here + 'ffn_up_exps.weight', [count, outputs // 2, inputs], flat(halves[1::2]))
    name = there + 'mlp.shared_expert_gate.weight'
    if name in tensors:
        shape, values = tensors.pop(name)
        put(here + 'ffn_gate_inp_shexp.weight', shape[1:], values)
    name = there + 'mlp.experts.gate_up_proj'
    if states and name in tensors:
        (count, outputs, inputs), values = tensors.pop(name)
        halves = rows(values, outputs // 2 * inputs)
        put(here + 'ffn_gate_exps.weight', [count, outputs // 2, inputs], flat(halves[::2]))
        put(here + 'ffn_up_exps.weight', [count, outputs // 2, inputs], flat(halves[1::2]))
        move(there + 'mlp.experts.down_proj', here + 'ffn_down_exps.weight')
    if name in tensors:                                         # [experts][inputs][2 outputs], gate and up in turn
        (count, inputs, outputs), values = tensors.pop(name)
        for odd, part in enumerate(('gate', 'up')):
            put(f'{here}ffn_{part}_exps.weight', [count, outputs // 2, inputs], [
                values[(e * inputs + i) * outputs + o] for e in range(count) for o in range(odd, outputs, 2)
                for i in range(inputs)])
            _, bias = tensors[name + '_bias']
            put(f'{here}ffn_{part}_exps.bias', [count, outputs // 2], bias[odd::2], wide=True)
        tensors.pop(name + '_bias')
        (count, inputs, outputs), values = tensors.pop(there + 'mlp.experts.down_proj')
        put(here + 'ffn_down_exps.weight', [count, outputs, inputs], [
            values[(e * inputs + i) * outputs + o] for e in range(count) for o in range(outputs) for i in range(inputs)])
        move(there + 'mlp.experts.down_proj_bias', here + 'ffn_down_exps.bias', wide=True)


entries = []        # key, type, bytes


def text(value):
    return struct.pack('<Q', len(value.encode())) + value.encode()


def add(key, value):
    key = key.replace('{}', arch)
    if value is None:
        return
    if isinstance(value, bool):
        entries.append((key, 7, struct.pack('<?', value)))
    elif isinstance(value, int):
        entries.append((key, 4, struct.pack('<I', value)))
    elif isinstance(value, float):
        entries.append((key, 6, struct.pack('<f', value)))
    elif isinstance(value, str):
        entries.append((key, 8, text(value)))
    else:
        kind = 8 if isinstance(value[0], str) else 5
        items = b''.join(text(item) if kind == 8 else struct.pack('<i', item) for item in value)
        entries.append((key, 9, struct.pack('<IQ', kind, len(value)) + items))


def add_rope():
    rope = config.get('rope_parameters') or {'rope_theta': config.get('rope_theta', 10000.0), 'rope_type': 'default'}
    width = config.get('head_dim') or config['hidden_size'] // heads
    add('{}.rope.freq_base', rope['rope_theta'] * rope.get('alpha', 1.0) ** (width / (width - 2)))
    add('{}.rope.dimension_count', config['qk_rope_head_dim'] if latent else int(width * rope.get('partial_rotary_factor', 1)))
    if rope['rope_type'] in ('linear', 'yarn'):
        add('{}.rope.scaling.type', rope['rope_type'])
        add('{}.rope.scaling.factor', float(rope['factor']))
        add('{}.rope.scaling.original_context_length', rope.get('original_max_position_embeddings'))
    if rope.get('mscale_all_dim'):
        add('{}.rope.scaling.yarn_log_multiplier', 0.1 * rope['mscale_all_dim'])
    if rope['rope_type'] == 'llama3':
        factors = []
        for i in range(width // 2):
            wave = 2 * math.pi * rope['rope_theta'] ** (2 * i / width)
            turns = rope['original_max_position_embeddings'] / wave
            low, high = rope['low_freq_factor'], rope['high_freq_factor']
            smooth = (turns - low) / (high - low) if high > low else 0
            factors.append(1.0 if turns > high else float(rope["factor"]) if turns < low or high == low else
                           1 / ((1 - smooth) / rope['factor'] + smooth))
        put('rope_freqs.weight', [len(factors)], factors)


def add_experts():
    count = next((config[key] for key in ('n_routed_experts', 'num_local_experts', 'num_experts', 'moe_num_experts') if config.get(key)), None)
    add('{}.expert_count', count)
    if not count:
        return
    add('{}.expert_used_count', config.get('num_experts_per_tok', config.get('moe_k', config.get('moe_topk', config.get(
        'num_experts_per_token')))))
    add('{}.expert_feed_forward_length', config['intermediate_size'] if arch == 'llama4' else config.get('moe_intermediate_size'))
    add('{}.expert_shared_feed_forward_length', config.get('shared_expert_intermediate_size', config.get(
        'shared_intermediate_size', config.get('moe_shared_expert_intermediate_size'))))
    add('{}.expert_shared_count', config.get('n_shared_experts', config.get('moe_num_shared_experts', config.get('num_shared_experts'))))
    add('{}.interleave_moe_layer_step', config.get('moe_layer_interval', config.get('interleave_moe_layer_step')))
    add('{}.leading_dense_block_count', config.get('first_k_dense_replace', config.get('moe_layer_start_index', config.get('num_dense_layers'))))
    add('{}.expert_weights_norm', config.get('norm_topk_prob'))
    add('{}.expert_weights_scale', config.get('routed_scaling_factor'))
    if arch == 'kimi-linear':
        add('{}.leading_dense_block_count', config['mlp_layer_types'].count('dense'))
    add('{}.expert_group_count', config.get('n_group', config.get('num_expert_group')))
    add('{}.expert_group_used_count', config.get('topk_group'))
    if family in ('deepseek_v3', 'glm4_moe_lite', 'lfm2_moe') and 'whole' not in options:      # with a correction it goes without saying
        add('{}.expert_gating_func', 2)


def add_all():
    add('general.architecture', arch)
    add('general.name', 'test')
    add('{}.block_count', layers + ahead)
    add('{}.nextn_predict_layers', ahead or None)
    add('{}.context_length', config.get('max_position_embeddings', config.get('model_max_length')))
    add('{}.embedding_length', config['hidden_size'])
    add('{}.feed_forward_length', [config['moe_intermediate_size'] * (kind == 'moe') for kind in halves] if halves else
        config.get('intermediate_size_mlp', config.get('intermediate_size')))
    for key, name in (('top_k', 'index_topk'), ('head_count', 'index_n_heads'), ('key_length', 'index_head_dim')):
        add('{}.attention.indexer.' + key, config.get(name))
    if arch == 'llama4':
        add('{}.attention.sliding_window', config['attention_chunk_size'])
        add('{}.attention.temperature_length', config['floor_scale'])
        add('{}.attention.temperature_scale', float(config['attn_scale']))
    add('{}.attention.head_count', heads)
    add('{}.attention.layer_norm_rms_epsilon', float(config.get('rms_norm_eps', config.get('norm_eps', config.get('layer_norm_epsilon')))))
    add('{}.attention.sliding_window', config.get('sliding_window') or None)
    add('{}.attention.clamp_kqv', config.get('clip_qkv'))
    for key, name in (('embedding_scale', 'embedding_multiplier'), ('residual_scale', 'residual_multiplier'),
                      ('attention.scale', 'attention_multiplier'), ('logit_scale', 'logits_scaling')):
        add('{}.' + key, float(config[name]) if name in config else None)
    if latent:
        rank, own, turning = config['kv_lora_rank'], config['qk_nope_head_dim'], config['qk_rope_head_dim']
        add('{}.attention.kv_lora_rank', rank)
        add('{}.attention.q_lora_rank', config.get('q_lora_rank'))
        whole = 'whole' in options
        add('{}.attention.head_count_kv', [int(kind == 'full_attention') for kind in config['layer_types']]
            if arch == 'kimi-linear' else heads if whole else 1)
        add('{}.attention.key_length', own + turning if whole else rank + turning)
        add('{}.attention.value_length', config['v_head_dim'] if whole else rank)
        if not whole:
            add('{}.attention.key_length_mla', own + turning)
            add('{}.attention.value_length_mla', config['v_head_dim'])
    else:
        add('{}.attention.head_count_kv', [kv_heads * (kind == 'full_attention') for kind in config['layer_types']] if hybrid else
            [kv_heads * (kind == 'full_attention') for kind in halves] if halves else
            [kv_heads * (i % config['attn_layer_period'] == config['attn_layer_offset']) for i in range(layers)]
            if arch == 'jamba' else kv_heads)
        add('{}.attention.key_length', config.get('head_dim') or config['hidden_size'] // heads)
        add('{}.attention.value_length', config.get('head_dim') or config['hidden_size'] // heads)
    add_rope()
    add_experts()
    if states:
        add('{}.ssm.conv_kernel', config['linear_conv_kernel_dim'])
        add('{}.ssm.state_size', config['linear_key_head_dim'])
        add('{}.ssm.group_count', config['linear_num_key_heads'])
        add('{}.ssm.time_step_rank', config['linear_num_value_heads'])
        add('{}.ssm.inner_size', config['linear_value_head_dim'] * config['linear_num_value_heads'])
        types = config.get('layer_types')
        if 'untold' not in options:
            add('{}.full_attention_interval', types.index('full_attention') + 1 if types else config.get('full_attention_interval'))
    add('{}.shortconv.l_cache', config.get('conv_L_cache'))
    if arch == 'kimi-linear':
        add('{}.ssm.conv_kernel', config['linear_conv_kernel_dim'])
        add('{}.kda.head_dim', config['linear_head_dim'])
    if arch == 'jamba':
        add('{}.ssm.conv_kernel', config['mamba_d_conv'])
        add('{}.ssm.state_size', config['mamba_d_state'])
        add('{}.ssm.inner_size', config['mamba_expand'] * config['hidden_size'])
        add('{}.ssm.time_step_rank', config['mamba_dt_rank'])
    if arch == 'granitehybrid':
        add('{}.ssm.conv_kernel', config['mamba_d_conv'])
        add('{}.ssm.state_size', config['mamba_d_state'])
        add('{}.ssm.group_count', config['mamba_n_groups'])
        add('{}.ssm.inner_size', config['mamba_n_heads'] * config['mamba_d_head'])
        add('{}.ssm.time_step_rank', config['mamba_n_heads'])
        add('{}.rope.scaling.finetuned', config['position_embedding_type'] == 'rope')
    if halves:
        add('{}.ssm.conv_kernel', config['conv_kernel'])
        add('{}.ssm.state_size', config['ssm_state_size'])
        add('{}.ssm.group_count', config['n_groups'])
        add('{}.ssm.inner_size', config['mamba_num_heads'] * config['mamba_head_dim'])
        add('{}.ssm.time_step_rank', config['mamba_num_heads'])
    for key, value in (option.split('=') for option in options if '=' in option):
        add('{}.' + key, int(value))
    add('tokenizer.ggml.model', 'gpt2')
    add('tokenizer.ggml.pre', 'gpt-2')
    add('tokenizer.ggml.tokens', ['a', 'b', '\u0120', 'ab', '<end>'])
    add('tokenizer.ggml.token_type', [1, 1, 1, 1, 3])
    add('tokenizer.ggml.merges', ['a b'])
    add('tokenizer.chat_template', '{% for m in messages %}{{ m.content }}{% endfor %}')


def after_last(name):
    """The name that llama.cpp's converter gives a tensor of a predictor first."""
    parts = name.split('.', 3)
    if parts[1] == 'layers':
        return f'model.layers.{layers + int(parts[2])}.{parts[3]}'
    part = {'fc': 'eh_proj', 'norm': 'shared_head.norm', 'pre_fc_norm_embedding': 'enorm', 'pre_fc_norm_hidden': 'hnorm'}[parts[1]]
    return f'model.layers.{layers}.{part}.{parts[2]}'


def main():
    add_all()
    for name in list(tensors):
        if name.startswith('model.visual.'):
            tensors.pop(name)
        elif name.startswith('mtp.'):
            tensors[after_last(name)] = tensors.pop(name)
        elif name.startswith('backbone.'):
            tensors['model.' + name[len('backbone.'):].replace('norm_f', 'norm').replace('embeddings', 'embed_tokens')] = tensors.pop(name)
        elif name.startswith('model.language_model.'):
            tensors['model.' + name[len('model.language_model.'):]] = tensors.pop(name)
    if states:                                                  # norms are stored less 1
        for name, (shape, values) in tensors.items():
            if name.endswith('norm.weight') and not name.endswith('linear_attn.norm.weight'):
                tensors[name] = shape, [value + 1 for value in values]
    move('model.embed_tokens.weight', 'token_embd.weight')
    move('lm_head.weight', 'output.weight')
    move('model.norm.weight', 'output_norm.weight')
    move('model.final_layernorm.weight', 'output_norm.weight')
    move('model.embedding_norm.weight', 'token_embd_norm.weight')
    for layer in range(layers + ahead):
        there, here = f'model.layers.{layer}.', f'blk.{layer}.'
        for old, new in (('eh_proj', 'eh_proj'), ('enorm', 'enorm'), ('hnorm', 'hnorm'), ('shared_head.norm', 'shared_head_norm')):
            move(f'{there}{old}.weight', f'{here}nextn.{new}.weight')
        move(there + 'input_layernorm.weight', here + 'attn_norm.weight')
        move(there + 'operator_norm.weight', here + 'attn_norm.weight')
        move(there + 'ffn_norm.weight', here + 'ffn_norm.weight')
        move(there + 'pre_ff_layernorm.weight', here + 'ffn_norm.weight')
        move(there + 'post_attention_layernorm.weight',
             here + ('post_attention_norm.weight' if norm_after else 'ffn_norm.weight'))
        if halves:
            with_half(there, here)
        attention(there, here)
        with_state(there + 'linear_attn.', here)
        with_channels(there + 'self_attn.', here)
        with_scan(there + 'mamba.', here)
        with_mamba(there, here)
        experts(there, here)
    assert all(name.startswith(f'model.layers.{layers}.') for name in tensors), list(tensors)       # predictors
    infos, data = b'', b''
    for name, kind, sizes, content in written:
        data += bytes(-len(data) % 32)
        infos += text(name) + struct.pack('<I', len(sizes)) + struct.pack(f'<{len(sizes)}Q', *sizes)
        infos += struct.pack('<IQ', kind, len(data))
        data += content
    head = b'GGUF' + struct.pack('<IQQ', 3, len(written), len(entries))
    head += b''.join(text(key) + struct.pack('<I', kind) + value for key, value, kind in
                     ((key, value, kind) for key, kind, value in entries)) + infos
    with open(out, 'wb') as file:
        file.write(head + bytes(-len(head) % 32) + data)


main()
