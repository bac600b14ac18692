"""Shapes of hybrid and other recent models for bench.py: their config.json, and GGUF files of random weights for the peers that
read them. Weights are drawn as blocks of the format, which takes seconds; speed depends on their values by routing only."""
import math

import numpy as np

from gguf_file import end_gguf

QWEN = dict(model_type='qwen3_5_moe_text', hidden_size=2048, num_attention_heads=16, num_key_value_heads=2, head_dim=256,
            num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512, shared_expert_intermediate_size=512,
            linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128,
            linear_conv_kernel_dim=4, full_attention_interval=4, vocab_size=248320, rms_norm_eps=1e-6,
            tie_word_embeddings=False,
            rope_parameters={'rope_type': 'default', 'rope_theta': 10000000.0, 'partial_rotary_factor': 0.25})
GEMMA = dict(model_type='gemma4_text', hidden_size=2816, num_attention_heads=16, num_key_value_heads=8, head_dim=256,
             global_head_dim=512, num_global_key_value_heads=2, attention_k_eq_v=True, enable_moe_block=True, num_experts=128,
             top_k_experts=8, moe_intermediate_size=704, intermediate_size=2112, sliding_window=1024, vocab_size=262144,
             final_logit_softcapping=30.0, hidden_activation='gelu_pytorch_tanh', rms_norm_eps=1e-6, tie_word_embeddings=True,
             rope_parameters={'sliding_attention': {'rope_type': 'default', 'rope_theta': 10000.0},
                              'full_attention': {'rope_type': 'proportional', 'partial_rotary_factor': 0.25,
                                                 'rope_theta': 1000000.0}})
GPT_OSS = dict(model_type='gpt_oss', hidden_size=2880, intermediate_size=2880, num_attention_heads=64, num_key_value_heads=8,
               head_dim=64, num_local_experts=32, num_experts_per_tok=4, sliding_window=128, attention_bias=True,
               swiglu_limit=7.0, vocab_size=201088, rms_norm_eps=1e-5, tie_word_embeddings=False,
               rope_parameters={'rope_type': 'yarn', 'factor': 32.0, 'beta_fast': 32.0, 'beta_slow': 1.0, 'truncate': False,
                                'rope_theta': 150000.0, 'original_max_position_embeddings': 4096})
NEMOTRON = dict(model_type='nemotron_h', hidden_size=2688, num_attention_heads=32, num_key_value_heads=2, head_dim=128,
                mamba_num_heads=64, mamba_head_dim=64, n_groups=8, ssm_state_size=128, conv_kernel=4, use_conv_bias=True,
                n_routed_experts=128, num_experts_per_tok=6, moe_intermediate_size=1856, intermediate_size=1856,
                n_shared_experts=1, moe_shared_expert_intermediate_size=3712, n_group=1, topk_group=1, norm_topk_prob=True,
                routed_scaling_factor=2.5, mlp_hidden_act='relu2', vocab_size=131072, layer_norm_epsilon=1e-5,
                tie_word_embeddings=False)
PATTERN = 'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME'        # of Nemotron's layers

# Config, layers of the published model, layers when cut (one period), the architecture in GGUF files (None: no peer reads it),
# whether moekit reads it, too
HYBRIDS = {'qwen3.6-35b-a3b': (QWEN, 40, 4, 'qwen35moe', True), 'gemma-4-26b-a4b': (GEMMA, 30, 6, 'gemma4', False),
           'gpt-oss-20b': (GPT_OSS, 24, 4, 'gpt-oss', True), 'nemotron-3-nano': (NEMOTRON, 52, 7, None, False)}
TINY = {'qwen35moe': dict(hidden_size=256, head_dim=64, num_attention_heads=4, num_experts=16, moe_intermediate_size=64,
                          shared_expert_intermediate_size=64, linear_num_key_heads=2, linear_num_value_heads=4,
                          linear_key_head_dim=64, linear_value_head_dim=64),
        'gemma4': dict(hidden_size=256, head_dim=64, global_head_dim=128, num_attention_heads=4, num_key_value_heads=2,
                       num_global_key_value_heads=1, num_experts=16, moe_intermediate_size=64, intermediate_size=128),
        'gpt-oss': dict(hidden_size=256, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
                        num_local_experts=8),
        None: dict(hidden_size=256, num_attention_heads=4, head_dim=64, mamba_num_heads=8, mamba_head_dim=32, n_groups=2,
                   ssm_state_size=32, n_routed_experts=16, moe_intermediate_size=64, intermediate_size=64,
                   moe_shared_expert_intermediate_size=64)}


def hybrid_config(name, layers, positions, tiny):
    """Returns the config of the shape. The vocabulary is cut like the layers, so the output head keeps its share of bytes."""
    config, whole, cut, arch, _ = HYBRIDS[name]
    layers = layers or cut
    config = dict(config, num_hidden_layers=layers, max_position_embeddings=positions, eos_token_id=1, pad_token_id=1,
                  vocab_size=config['vocab_size'] * layers // whole // 32 * 32)
    if tiny:
        config.update(TINY[arch], vocab_size=512)
    if arch == 'gemma4':
        config['layer_types'] = ['sliding_attention' if (i + 1) % 6 else 'full_attention' for i in range(layers)]
    if arch is None:
        config['hybrid_override_pattern'] = PATTERN[:layers]
    return config


def blocks(rng, shape, form, spread):
    """Returns random blocks of a matrix or of several, with about this standard deviation, and their type in GGUF."""
    import gguf
    kinds = gguf.GGMLQuantizationType
    if form == 'f32':
        return (rng.random(shape, np.float32) - np.float32(0.5)) * np.float32(12 ** 0.5 * spread), kinds.F32
    if form == 'bf16':                                  # random sign and mantissa
        bits = rng.integers(0, 1 << 16, shape, np.uint16) & 0x807f | (127 + math.floor(math.log2(spread / 1.5))) << 7
        return bits.astype(np.uint16).view(np.uint8), kinds.BF16
    size, deviation, kind = {'q8': (32, 73.0, kinds.Q8_0), 'q4': (16, 4.6, kinds.Q4_0)}[form]
    data = rng.integers(0, 256, (*shape[:-1], shape[-1] // 32, 2 + size), np.uint8)
    if form == 'q8':
        data[data == 128] = 129                         # -128 does not occur in Q8_0
    data[..., :2] = np.array([spread / deviation], np.float16).view(np.uint8)
    return data.reshape(*shape[:-1], -1), kind


class Writer:
    """A GGUF file whose tensors are drawn."""

    def __init__(self, path, arch, form):
        import gguf
        self.out, self.arch, self.form = gguf.GGUFWriter(str(path), arch, use_temp_file=True), arch, form
        self.rng = np.random.default_rng(1)

    def keys(self, **values):
        """Keys of the architecture; __ stands for a dot."""
        for key, value in values.items():
            key = f'{self.arch}.{key.replace("__", ".")}'
            add = {bool: self.out.add_bool, int: self.out.add_uint32, float: self.out.add_float32, str: self.out.add_string,
                   list: self.out.add_array}[type(value)]
            add(key, value)

    def matrix(self, name, *shape, form=None, spread=0):
        data, kind = blocks(self.rng, shape, form or self.form, spread or shape[-1] ** -0.5)
        self.out.add_tensor(name + '.weight', data, raw_dtype=kind)

    def vector(self, name, *shape, value=1.0):
        self.out.add_tensor(name, np.full(shape, value, np.float32))


def write_hybrid(path, name, config, form):
    """Writes the GGUF file of a shape that a peer reads."""
    arch = HYBRIDS[name][3]
    out = Writer(path, arch, form)
    out.keys(block_count=config['num_hidden_layers'], context_length=config['max_position_embeddings'],
             embedding_length=config['hidden_size'], attention__head_count=config['num_attention_heads'],
             attention__layer_norm_rms_epsilon=config['rms_norm_eps'], vocab_size=config['vocab_size'])
    out.out.add_tokenizer_model('no_vocab')
    out.matrix('token_embd', config['vocab_size'], config['hidden_size'], spread=1.0)
    out.vector('output_norm.weight', config['hidden_size'])
    if not config['tie_word_embeddings']:
        out.matrix('output', config['vocab_size'], config['hidden_size'])
    {'qwen35moe': write_qwen, 'gemma4': write_gemma, 'gpt-oss': write_gpt_oss}[arch](out, config)
    end_gguf(out.out)


def write_experts(out, at, experts, inner, hidden):
    out.matrix(at + 'ffn_gate_inp', experts, hidden, form='f32')
    for part in ('gate', 'up'):
        out.matrix(f'{at}ffn_{part}_exps', experts, inner, hidden)
    out.matrix(at + 'ffn_down_exps', experts, hidden, inner)


def write_qwen(out, c):
    hidden, heads, kv, width = c['hidden_size'], c['num_attention_heads'], c['num_key_value_heads'], c['head_dim']
    taps, steps, shared = c['linear_conv_kernel_dim'], c['linear_num_value_heads'], c['shared_expert_intermediate_size']
    keys, values = c['linear_num_key_heads'] * c['linear_key_head_dim'], steps * c['linear_value_head_dim']
    turning = width // 4
    out.keys(attention__head_count_kv=kv, attention__key_length=width, attention__value_length=width,
             rope__freq_base=c['rope_parameters']['rope_theta'], rope__dimension_count=turning,
             rope__dimension_sections=[turning // 2 - 2 * (turning // 6), turning // 6, turning // 6, 0],
             expert_count=c['num_experts'], expert_used_count=c['num_experts_per_tok'],
             expert_feed_forward_length=c['moe_intermediate_size'], expert_shared_feed_forward_length=shared,
             ssm__conv_kernel=taps, ssm__state_size=c['linear_key_head_dim'], ssm__group_count=c['linear_num_key_heads'],
             ssm__time_step_rank=steps, ssm__inner_size=values, full_attention_interval=c['full_attention_interval'])
    for n in range(c['num_hidden_layers']):
        at = f'blk.{n}.'
        out.vector(at + 'attn_norm.weight', hidden)
        out.vector(at + 'post_attention_norm.weight', hidden)
        if (n + 1) % c['full_attention_interval']:
            out.matrix(at + 'attn_qkv', 2 * keys + values, hidden)
            out.matrix(at + 'attn_gate', values, hidden)
            out.matrix(at + 'ssm_conv1d', 2 * keys + values, taps, form='f32')
            out.vector(at + 'ssm_dt.bias', steps, value=0)
            out.vector(at + 'ssm_a', steps, value=-1)
            out.matrix(at + 'ssm_beta', steps, hidden)
            out.matrix(at + 'ssm_alpha', steps, hidden)
            out.vector(at + 'ssm_norm.weight', c['linear_value_head_dim'])
            out.matrix(at + 'ssm_out', hidden, values)
        else:
            out.matrix(at + 'attn_q', 2 * heads * width, hidden)
            out.matrix(at + 'attn_k', kv * width, hidden)
            out.matrix(at + 'attn_v', kv * width, hidden)
            out.matrix(at + 'attn_output', hidden, heads * width)
            out.vector(at + 'attn_q_norm.weight', width)
            out.vector(at + 'attn_k_norm.weight', width)
        write_experts(out, at, c['num_experts'], c['moe_intermediate_size'], hidden)
        out.vector(at + 'ffn_gate_inp_shexp.weight', hidden, value=0)
        out.matrix(at + 'ffn_gate_shexp', shared, hidden)
        out.matrix(at + 'ffn_up_shexp', shared, hidden)
        out.matrix(at + 'ffn_down_shexp', hidden, shared)


def write_gpt_oss(out, c):
    hidden, heads, kv, width = c['hidden_size'], c['num_attention_heads'], c['num_key_value_heads'], c['head_dim']
    experts, inner, rope = c['num_local_experts'], c['intermediate_size'], c['rope_parameters']
    out.keys(attention__head_count_kv=kv, attention__key_length=width, attention__value_length=width,
             attention__sliding_window=c['sliding_window'], rope__freq_base=rope['rope_theta'], rope__dimension_count=width,
             rope__scaling__type='yarn', rope__scaling__factor=rope['factor'],
             rope__scaling__original_context_length=rope['original_max_position_embeddings'],
             expert_count=experts, expert_used_count=c['num_experts_per_tok'], feed_forward_length=inner,
             expert_feed_forward_length=inner)
    for n in range(c['num_hidden_layers']):
        at = f'blk.{n}.'
        out.vector(at + 'attn_norm.weight', hidden)
        out.vector(at + 'post_attention_norm.weight', hidden)
        for part, rows, columns in (('q', heads * width, hidden), ('k', kv * width, hidden), ('v', kv * width, hidden),
                                    ('output', hidden, heads * width)):
            out.matrix(f'{at}attn_{part}', rows, columns)
            out.vector(f'{at}attn_{part}.bias', rows, value=0)
        out.vector(at + 'attn_sinks.weight', heads, value=0)
        write_experts(out, at, experts, inner, hidden)
        out.vector(at + 'ffn_gate_inp.bias', experts, value=0)
        for part, rows in (('gate', inner), ('up', inner), ('down', hidden)):
            out.vector(f'{at}ffn_{part}_exps.bias', experts, rows, value=0)


def write_gemma(out, c):
    hidden, heads, experts = c['hidden_size'], c['num_attention_heads'], c['num_experts']
    full = [kind == 'full_attention' for kind in c['layer_types']]
    kv = [c['num_global_key_value_heads'] if whole else c['num_key_value_heads'] for whole in full]
    inner, shared = c['moe_intermediate_size'], c['intermediate_size']
    rope = c['rope_parameters']
    out.keys(attention__head_count_kv=kv, attention__key_length=c['global_head_dim'],
             attention__value_length=c['global_head_dim'], attention__key_length_swa=c['head_dim'],
             attention__value_length_swa=c['head_dim'], attention__sliding_window=c['sliding_window'],
             attention__sliding_window_pattern=[not whole for whole in full], embedding_length_per_layer_input=0,
             rope__freq_base=rope['full_attention']['rope_theta'], rope__freq_base_swa=rope['sliding_attention']['rope_theta'],
             rope__dimension_count=c['global_head_dim'], rope__dimension_count_swa=c['head_dim'], expert_count=experts,
             expert_used_count=c['top_k_experts'], feed_forward_length=shared, expert_feed_forward_length=inner,
             final_logit_softcapping=c['final_logit_softcapping'])
    factors = np.full(c['global_head_dim'] // 2, 1e30, np.float32)      # pairs that do not turn
    factors[:len(factors) // 4] = 1
    out.out.add_tensor('rope_freqs.weight', factors)
    for n, whole in enumerate(full):
        at, width = f'blk.{n}.', c['global_head_dim' if whole else 'head_dim']
        for norm in ('attn_norm', 'post_attention_norm', 'ffn_norm', 'post_ffw_norm', 'post_ffw_norm_1', 'post_ffw_norm_2',
                     'pre_ffw_norm_2'):
            out.vector(f'{at}{norm}.weight', hidden)
        out.matrix(at + 'attn_q', heads * width, hidden)
        out.matrix(at + 'attn_k', kv[n] * width, hidden)
        if not whole:
            out.matrix(at + 'attn_v', kv[n] * width, hidden)
        out.matrix(at + 'attn_output', hidden, heads * width)
        out.vector(at + 'attn_q_norm.weight', width)
        out.vector(at + 'attn_k_norm.weight', width)
        for part, rows, columns in (('gate', shared, hidden), ('up', shared, hidden), ('down', hidden, shared)):
            out.matrix(f'{at}ffn_{part}', rows, columns)
        out.matrix(at + 'ffn_gate_inp', experts, hidden, form='f32')
        out.vector(at + 'ffn_gate_inp.scale', hidden)
        out.matrix(at + 'ffn_gate_up_exps', experts, 2 * inner, hidden)
        out.matrix(at + 'ffn_down_exps', experts, hidden, inner)
        out.vector(at + 'ffn_down_exps.scale', experts)
        out.vector(at + 'layer_output_scale.weight', 1)
