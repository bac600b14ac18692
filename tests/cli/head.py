#!/usr/bin/env python3
"""Draft heads, made and read without moekit's code: as moe-model(5) and the published layouts have them.

    head.py make KIND FOLDER [dtype=BF16] [form=bin|safetensors|pt] [seed=1] [KEY=JSON ...] [drop=NAME] [add=NAME] [nan=NAME]
            [-- KIND FOLDER ...]
        a head for the pocket model (hidden 192, vocabulary 2048, 6 layers), in its authors' layout; KEY sets one of
        config.json, and null counts as absent
    head.py make all FOLDER
        one of each kind and layout in a folder of its name, in all dtypes and forms by turns
    head.py compare SOURCE H.moe [SOURCE H.moe ...]
        every value of the head file is that of the source, every tensor of the source is in it, and the description follows
        from the source's texts; with weights in q8 the values are near enough
    head.py exported SOURCE FOLDER RENAMED [SOURCE FOLDER RENAMED ...]
        FOLDER has the tensors of SOURCE under the same names, in the same dtypes and shapes, bit for bit; where RENAMED is not
        empty but of the form old=new, names that begin with the one begin with the other"""
import collections, glob, itertools, json, os, pickle, pickletools, struct, sys, types, zipfile

import msgpack
import numpy as np

HIDDEN, VOCAB, LAYERS, INNER = 192, 2048, 6, 96

# ---- what others wrote ----

TORCH = {'F32': 'FloatStorage', 'F16': 'HalfStorage', 'BF16': 'BFloat16Storage', 'I64': 'LongStorage', 'BOOL': 'BoolStorage'}
BYTES = {'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'BOOL': 1}


def values_of(dtype, data):
    if dtype == 'BF16':
        return (np.frombuffer(data, '<u2').astype('<u4') << 16).view('<f4')
    return np.frombuffer(data, {'F32': '<f4', 'F16': '<f2', 'I64': '<i8', 'BOOL': '?'}[dtype])


def bytes_of(dtype, values):
    if dtype == 'BF16':
        return (np.ascontiguousarray(values, '<f4').view('<u4') >> 16).astype('<u2').tobytes()
    return np.ascontiguousarray(values).astype({'F32': '<f4', 'F16': '<f2', 'I64': '<i8', 'BOOL': '?'}[dtype]).tobytes()


def read_safetensors(path):
    with open(path, 'rb') as file:
        head = json.loads(file.read(struct.unpack('<Q', file.read(8))[0]))
        data = file.read()
    head.pop('__metadata__', None)
    return {name: values_of(t['dtype'], data[slice(*t['data_offsets'])]).reshape(t['shape']) for name, t in head.items()}


def read_torch(path):
    archive = zipfile.ZipFile(path)
    root = next(name for name in archive.namelist() if name.endswith('/data.pkl'))[:-len('data.pkl')]
    dtypes = {name: dtype for dtype, name in TORCH.items()}

    def rebuild(storage, offset, shape, stride, *_):
        assert stride == tuple(int(np.prod(shape[i + 1:])) for i in range(len(shape))), (shape, stride)
        return storage[offset:offset + int(np.prod(shape))].reshape(shape)

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            if name == '_rebuild_tensor_v2':
                return rebuild
            return collections.OrderedDict if name == 'OrderedDict' else name

        def persistent_load(self, key):
            return values_of(dtypes[key[1]], archive.read(root + 'data/' + key[2]))
    return dict(Reader(archive.open(root + 'data.pkl')).load())


def read_source(path):
    if os.path.isfile(path):
        return {}, (read_safetensors if path.endswith('.safetensors') else read_torch)(path)
    config = os.path.join(path, 'config.json')
    usual = ['model.safetensors', 'pytorch_model.bin', 'medusa_lm_head.pt', 'hydra_lm_head.pt']
    weights = next(os.path.join(path, name) for name in usual if os.path.exists(os.path.join(path, name)))
    return json.load(open(config)) if os.path.exists(config) else {}, read_source(weights)[1]


# ---- a head file, as moe-model(5) has it ----

class HeadFile:
    def __init__(self, path):
        self.data = open(path, 'rb').read()
        offset, length = struct.unpack_from('<QQ', self.data, 16)
        self.index = msgpack.unpackb(self.data[offset:offset + length], strict_map_key=False)
        self.tensors = {t[0]: t for t in self.index['tensors']}

    def matrix(self, format, at, outputs, inputs):
        units, pairs, blocks = -(-outputs // 32), -(-inputs // 2), -(-inputs // 32)
        if format == 'f32':
            raw = np.frombuffer(self.data, '<f4', units * inputs * 32, at).reshape(units, inputs, 32)
            whole, end = raw.transpose(0, 2, 1), at + raw.nbytes
        elif format == 'f16':
            raw = np.frombuffer(self.data, '<f2', units * pairs * 64, at).reshape(units, pairs, 2, 32)
            whole, end = raw.transpose(0, 3, 1, 2), at + raw.nbytes
        elif format == 'bf16':
            raw = np.frombuffer(self.data, '<u2', units * pairs * 64, at)
            values = (raw.astype('<u4') << 16).view('<f4').reshape(units, pairs, 32, 2)
            whole, end = values.transpose(0, 2, 1, 3), at + raw.nbytes
        else:
            raw = np.frombuffer(self.data, 'u1', units * blocks * 1088, at).reshape(units, blocks, 1088)
            integers = raw[:, :, :1024].reshape(units, blocks, 8, 32, 4).astype(int) - 128
            scales = raw[:, :, 1024:].copy().view('<f2').astype('<f4')
            whole = integers.transpose(0, 3, 1, 2, 4).reshape(units, 32, blocks, 32) * scales.transpose(0, 2, 1)[:, :, :, None]
            end = at + raw.nbytes
        return whole.reshape(units * 32, -1)[:outputs, :inputs].astype('<f4'), end

    def take(self, name):
        """The values of a tensor: one array, or (gate, up, down) of each block of an expert tensor."""
        _, kind, format, outputs, inputs, count, offset, stride = self.tensors.pop(name)[:8]
        if kind == 0:
            return np.frombuffer(self.data, '<f4', outputs, offset)
        if kind == 1:
            return self.matrix(format, offset, outputs, inputs)[0]
        blocks = []
        for block in range(count):
            both, end = self.matrix(format, offset + block * stride, -(-inputs // 16) * 32, outputs)
            both = both.reshape(-1, 2, 16, outputs)
            down, _ = self.matrix(format, end, outputs, inputs)
            blocks.append((both[:, 0].reshape(-1, outputs)[:inputs], both[:, 1].reshape(-1, outputs)[:inputs], down))
        return blocks


# ---- what belongs together ----

class Comparison:
    def __init__(self, source, head):
        self.config, self.tensors = read_source(source)
        self.file, self.compared = HeadFile(head), 0
        self.head, self.shape = self.file.index['head'], self.file.index['hparams']
        self.layer = self.config.get('transformer_layer_config', self.config)
        self.eagle = dict(self.config, **self.config.get('eagle_config', {}))

    def same(self, what, is_value, should):
        if is_value != should:
            raise SystemExit(f'{what} is {is_value}, not {should}')

    def near(self, name, values, source):
        if values.shape != source.shape:
            raise SystemExit(f'{name}: shape {values.shape}, not {source.shape}')
        self.compared += values.size
        if not np.array_equal(values, source.astype('<f4')):
            padded = np.pad(np.atleast_2d(source), ((0, 0), (0, -source.shape[-1] % 32)))
            largest = np.abs(padded.reshape(len(padded), -1, 32)).max(2).repeat(32, 1)[:, :source.shape[-1]]
            if not self.quantised(name) or (np.abs(values - source) > largest / 127 * 0.51 + largest * 5e-4).any():
                raise SystemExit(f'{name}: values differ, by up to {np.abs(values - source).max()}')

    def quantised(self, name):
        return self.format == 'q8' and not name.endswith(('norm', 'bias', 'router', 'embed'))

    def pair(self, name, *sources):
        self.format = self.file.tensors[name][2]
        self.near(name, self.file.take(name), np.concatenate([self.tensors.pop(source) for source in sources]))

    def experts(self, name, patterns):
        self.format = self.file.tensors[name][2]
        for block, pattern in zip(self.file.take(name), patterns, strict=True):
            for values, part in zip(block, ('gate', 'up', 'down')):
                self.near(name, values, self.tensors.pop(f'{pattern}.{part}_proj.weight'))

    def attention(self, layer):
        self.pair('layers.0.attention.qkv', *(f'{layer}.self_attn.{part}_proj.weight' for part in 'qkv'))
        if f'{layer}.self_attn.q_proj.bias' in self.tensors:
            self.pair('layers.0.attention.qkv_bias', *(f'{layer}.self_attn.{part}_proj.bias' for part in 'qkv'))
        self.pair('layers.0.attention.out', f'{layer}.self_attn.o_proj.weight')
        heads = self.layer['num_attention_heads']
        self.same('heads', self.shape['heads'], heads)
        self.same('kv_heads', self.shape['kv_heads'], self.layer.get('num_key_value_heads', heads))
        width = self.layer.get('hidden_size', HIDDEN)
        self.same('head_dim', self.shape['head_dim'], self.layer.get('head_dim', width // heads))
        self.same('rope_theta', self.shape['rope_theta'], self.layer.get('rope_theta', 10000.0))
        self.same('norm_epsilon', np.float32(self.shape['norm_epsilon']), np.float32(self.layer.get('rms_norm_eps', 1e-6)))

    def dense(self, layer):
        self.pair('layers.0.ffn.norm', f'{layer}.post_attention_layernorm.weight')
        self.experts('layers.0.dense', [f'{layer}.mlp'])

    def joint(self):
        self.pair('joint', 'fc.weight')
        self.same('joint_bias', self.head['joint_bias'], 'fc.bias' in self.tensors)
        if self.head['joint_bias']:
            self.pair('joint_bias', 'fc.bias')
        self.embed()

    def embed(self):
        self.same('embed', self.head['embed'], 'embed_tokens.weight' in self.tensors)
        if self.head['embed']:
            self.pair('embed', 'embed_tokens.weight')

    def eagle1(self):
        self.joint()
        self.attention('layers.0')
        self.dense('layers.0')
        return [LAYERS]

    def jakiro(self):
        self.joint()
        self.attention('layers.0')
        self.pair('layers.0.ffn.norm', 'layers.0.post_attention_layernorm.weight')
        self.pair('layers.0.router', 'layers.0.mlp_moe.gate.weight')
        if self.head['kind'] == 'jakiro':
            self.experts('layers.0.experts', [f'layers.0.mlp_moe.experts.{i}' for i in range(2)])
        else:
            for i in range(2):
                self.pair(f'layers.0.branches.{i}.up', f'layers.0.mlp_moe.experts.{i}.fc.weight')
                self.pair(f'layers.0.branches.{i}.down', f'layers.0.mlp_moe.experts.{i}.proj.weight')
        return [LAYERS]

    jakiro_star = jakiro

    def kangaroo(self):
        self.pair('layers.0.attention.norm', 'layers.0.input_layernorm.weight')
        self.attention('layers.0')
        self.pair('final_norm', 'norm.weight')
        return [self.config['exit_layer'] - 1]

    def eagle3(self):
        layer = 'midlayer' if 'midlayer.hidden_norm.weight' in self.tensors else 'layers.0'
        self.pair('head', 'lm_head.weight')
        self.pair('final_norm', 'norm.weight')
        self.same('states_norm', self.head['states_norm'], 'input_norm.weight' in self.tensors)
        self.same('state_norms', self.head['state_norms'], 'fc_norm.0.weight' in self.tensors)
        if self.head['states_norm']:
            self.pair('states_norm', 'input_norm.weight')
        for i in range(3 if self.head['state_norms'] else 0):
            self.pair(f'state_norms.{i}', f'fc_norm.{i}.weight')
        self.pair('joint', 'fc.weight')
        self.embed()
        self.pair('embed_norm', f'{layer}.input_layernorm.weight')
        self.pair('hidden_norm', f'{layer}.hidden_norm.weight')
        self.attention(layer)
        self.dense(layer)
        ids = np.frombuffer(self.head['target_ids'], '<i4')
        if 'd2t' in self.tensors:
            offsets = self.tensors.pop('d2t')
            same = not offsets.any() and len(offsets) == VOCAB
            self.same('target_ids', ids.tolist(), [] if same else (np.arange(len(offsets)) + offsets).tolist())
        self.tensors.pop('t2d', None)
        vllm = 'speculators_model_type' in self.config
        self.same('normed_residual', self.head['normed_residual'], self.eagle.get('norm_before_residual', vllm))
        self.same('normed_output', self.head['normed_output'], self.eagle.get('norm_output', False))
        layers = self.eagle.get('eagle_aux_hidden_state_layer_ids')
        return [1, LAYERS // 2 - 1, LAYERS - 4] if layers is None else [i - vllm for i in layers]

    def medusa(self):
        for i in range(self.head['heads']):
            for block in range(self.head['blocks']):
                self.pair(f'heads.{i}.blocks.{block}.linear', f'{i}.{block}.linear.weight')
                self.pair(f'heads.{i}.blocks.{block}.bias', f'{i}.{block}.linear.bias')
            self.pair(f'heads.{i}.output', f'{i}.{self.head["blocks"]}.weight')
        return [LAYERS]

    def hydra(self):
        self.same('prefix', self.head['prefix'], self.config.get('hydra_head_arch') == 'prefix-mlp')
        if self.head['prefix']:
            prefix = 'prefix_embeding_layer'
            self.pair('layers.0.attention.norm', f'{prefix}.layers.0.input_layernorm.weight')
            self.attention(f'{prefix}.layers.0')
            self.dense(f'{prefix}.layers.0')
            self.pair('final_norm', f'{prefix}.norm.weight')
        first, step = (0, 1) if 'hydra_mlp.0.0.linear.weight' in self.tensors else (1, 2)
        last = '.1' if 'hydra_lm_head.0.1.weight' in self.tensors else ''
        for i in range(self.head['heads']):
            for block in range(self.head['blocks']):
                self.pair(f'heads.{i}.blocks.{block}.linear', f'hydra_mlp.{i}.{first + step * block}.linear.weight')
                self.pair(f'heads.{i}.blocks.{block}.bias', f'hydra_mlp.{i}.{first + step * block}.linear.bias')
            self.pair(f'heads.{i}.residual', f'hydra_mlp.{i}.{first}.res_connection.weight')
            self.pair(f'heads.{i}.residual_bias', f'hydra_mlp.{i}.{first}.res_connection.bias')
            self.pair(f'heads.{i}.output', f'hydra_lm_head.{i}{last}.weight')
            self.pair(f'heads.{i}.output_bias', f'hydra_lm_head.{i}{last}.bias')
        return [LAYERS]

    def run(self):
        states = getattr(self, self.head['kind'])()
        self.same('states', self.head['states'], states)
        self.same('tensors of the source left over', sorted(self.tensors), [])
        self.same('tensors of the head left over', sorted(self.file.tensors), [])
        print(self.head['kind'], self.compared)


# ---- what was published, and what is exported ----

def tensors_with_dtypes(path):
    """Returns {name: (dtype, values)}, with values in a NumPy dtype that represents them exactly."""
    weights = next(p for p in sorted(glob.glob(os.path.join(path, '*'))) if p.endswith(('.safetensors', '.bin', '.pt'))
                   and not p.endswith('golden.safetensors'))
    if weights.endswith('.safetensors'):
        with open(weights, 'rb') as file:
            head = json.loads(file.read(struct.unpack('<Q', file.read(8))[0]))
        return {name: (head[name]['dtype'], values) for name, values in read_safetensors(weights).items()}
    archive = zipfile.ZipFile(weights)
    root = next(name for name in archive.namelist() if name.endswith('/data.pkl'))[:-len('data.pkl')]
    dtypes = {name: dtype for dtype, name in TORCH.items()}

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            return (lambda storage, *_: storage) if name == '_rebuild_tensor_v2' else \
                collections.OrderedDict if name == 'OrderedDict' else name

        def persistent_load(self, key):
            return dtypes[key[1]]
    found = dict(Reader(archive.open(root + 'data.pkl')).load())
    return {name: (found[name], values) for name, values in read_torch(weights).items()}


def check_torch(path):
    """What torch.save's zip form has and torch.load(weights_only=True) asks for, by zipfile and pickletools."""
    archive, name = zipfile.ZipFile(path), os.path.basename(path).rsplit('.', 1)[0]
    members = archive.infolist()
    assert archive.testzip() is None, 'a checksum is wrong'
    assert [m.filename for m in members[:2]] == [name + '/data.pkl', name + '/byteorder'], [m.filename for m in members[:2]]
    assert members[-1].filename == name + '/version' and archive.read(name + '/version') == b'3\n'
    assert archive.read(name + '/byteorder') == b'little' and not any(m.compress_type or m.flag_bits for m in members)
    with open(path, 'rb') as file:
        for m in members:                       # each header has what the directory has, and data are where pages can begin
            file.seek(m.header_offset)
            header = struct.unpack('<4s5H3L2H', file.read(30))
            assert header[:3] == (b'PK\3\4', 20, 0) and header[6:9] == (m.CRC, m.file_size, m.file_size), header
            assert (m.header_offset + 30 + header[9] + header[10]) % 64 == 0, m.filename
    calls = collections.Counter(str(value) for code, value, _ in pickletools.genops(archive.read(name + '/data.pkl'))
                                if code.name == 'GLOBAL')
    known = {'collections OrderedDict', 'torch._utils _rebuild_tensor_v2', *('torch ' + kind for kind in TORCH.values())}
    tensors = len(members) - 3
    assert set(calls) <= known and calls['torch._utils _rebuild_tensor_v2'] == tensors, calls
    assert calls['collections OrderedDict'] == 1 + tensors, calls           # the dictionary, and each one's hooks


def exported(source, folder, renamed):
    for path in glob.glob(os.path.join(folder, '*.bin')) + glob.glob(os.path.join(folder, '*.pt')):
        check_torch(path)
    old, new = renamed.split('=') if renamed else ('', '')
    published, written = tensors_with_dtypes(source), tensors_with_dtypes(folder)
    published = {new + name[len(old):] if name.startswith(old) else name: value for name, value in published.items()}
    if sorted(published) != sorted(written):
        raise SystemExit(f'{folder}: tensors {sorted(set(published) ^ set(written))} are in one of the two alone')
    for name, (dtype, values) in published.items():
        is_dtype, is_values = written[name]
        if is_dtype != dtype or is_values.shape != values.shape or is_values.tobytes() != values.tobytes():
            raise SystemExit(f'{folder}: {name} is {is_dtype} {is_values.shape}, of {dtype} {values.shape}, or other numbers')
    print(folder, len(published))


# ---- heads made by hand ----

def attention_shapes(layer, inputs=HIDDEN, kv=HIDDEN // 3):
    for part, rows in (('q', HIDDEN), ('k', kv), ('v', kv)):
        yield f'{layer}.self_attn.{part}_proj.weight', (rows, inputs)
    yield f'{layer}.self_attn.o_proj.weight', (HIDDEN, HIDDEN)


def mlp_shapes(pattern, inner):
    for part in ('gate', 'up'):
        yield f'{pattern}.{part}_proj.weight', (inner, HIDDEN)
    yield f'{pattern}.down_proj.weight', (HIDDEN, inner)


def layer_shapes(layer, inputs=HIDDEN):
    yield from attention_shapes(layer, inputs)
    yield from mlp_shapes(f'{layer}.mlp', INNER)
    yield f'{layer}.post_attention_layernorm.weight', (HIDDEN,)


def eagle3_shapes(layer, extra=()):
    yield from layer_shapes(layer, 2 * HIDDEN)
    for name in (f'{layer}.hidden_norm', f'{layer}.input_layernorm', 'norm'):
        yield f'{name}.weight', (HIDDEN,)
    yield from (('fc.weight', (HIDDEN, 3 * HIDDEN)), ('lm_head.weight', (128, HIDDEN)), ('d2t', (128,)), ('t2d', (VOCAB,)))
    yield from extra


def jakiro_shapes(star):
    yield from (('fc.weight', (HIDDEN, 2 * HIDDEN)), ('layers.0.mlp_moe.gate.weight', (2 if star else 4, HIDDEN)),
                ('layers.0.post_attention_layernorm.weight', (HIDDEN,)))
    yield from attention_shapes('layers.0')
    for i in range(2):
        expert = f'layers.0.mlp_moe.experts.{i}'
        yield from (((f'{expert}.fc.weight', (INNER, HIDDEN)), (f'{expert}.proj.weight', (HIDDEN, INNER))) if star
                    else mlp_shapes(expert, HIDDEN))


def hydra_shapes(spaced, blocks, prefix):
    if prefix:
        yield from layer_shapes('prefix_embeding_layer.layers.0')
        yield from ((f'prefix_embeding_layer.{name}.weight', (HIDDEN,)) for name in ('layers.0.input_layernorm', 'norm'))
    for i in range(2):
        for block in range(blocks):
            name, inputs = f'hydra_mlp.{i}.{2 * block + 1 if spaced else block}', HIDDEN if block else (i + 2) * HIDDEN
            for part in ('linear',) if block else ('linear', 'res_connection'):
                yield from ((f'{name}.{part}.weight', (HIDDEN, inputs)), (f'{name}.{part}.bias', (HIDDEN,)))
        output = f'hydra_lm_head.{i}' + ('.1' if spaced else '')
        yield from ((f'{output}.weight', (VOCAB, HIDDEN)), (f'{output}.bias', (VOCAB,)))


def medusa_shapes(blocks):
    for i in range(2):
        for block in range(blocks):
            yield from ((f'{i}.{block}.linear.weight', (HIDDEN, HIDDEN)), (f'{i}.{block}.linear.bias', (HIDDEN,)))
        yield f'{i}.{blocks}.weight', (VOCAB, HIDDEN)


LLAMA = {'model_type': 'llama', 'hidden_act': 'silu', 'hidden_size': HIDDEN, 'intermediate_size': INNER, 'vocab_size': VOCAB,
         'num_attention_heads': 6, 'num_key_value_heads': 2, 'num_hidden_layers': 1, 'rms_norm_eps': 1e-5, 'rope_theta': 300.0,
         'max_position_embeddings': 2048, 'tie_word_embeddings': False, 'pad_token_id': 0}
IDS = 'eagle_aux_hidden_state_layer_ids'
NORMS = tuple((f'fc_norm.{i}.weight', (HIDDEN,)) for i in range(3))
KINDS = {
    'eagle1': (dict(LLAMA, bias=False), lambda: [*layer_shapes('layers.0'), ('fc.weight', (HIDDEN, 2 * HIDDEN))]),
    'eagle1_bias': (dict(LLAMA), lambda: [*layer_shapes('layers.0'), ('fc.weight', (HIDDEN, 2 * HIDDEN)),
                                          ('fc.bias', (HIDDEN,)), ('embed_tokens.weight', (VOCAB, HIDDEN)),
                                          *((f'layers.0.self_attn.{p}_proj.bias', (n,)) for p, n in
                                            (('q', HIDDEN), ('k', 64), ('v', 64)))]),
    'eagle3': (dict(LLAMA, draft_vocab_size=128), lambda: eagle3_shapes('midlayer')),
    'nvidia': (dict(LLAMA, draft_vocab_size=128, eagle_config={IDS: [1, 3, 4], 'use_aux_hidden_state': True,
                                                              'norm_before_fc': True}),
               lambda: eagle3_shapes('layers.0', [('input_norm.weight', (3 * HIDDEN,))])),
    'specforge': (dict(LLAMA, draft_vocab_size=128, architectures=['LlamaForCausalLMEagle3'], fc_norm=True, norm_output=True,
                       eagle_config={IDS: [0, 2, 5]}), lambda: eagle3_shapes('layers.0', NORMS)),
    'speculators': ({'architectures': ['Eagle3Speculator'], 'speculators_model_type': 'eagle3', 'draft_vocab_size': 128,
                     'transformer_layer_config': dict(LLAMA), IDS: [1, 3, 6]},
                    lambda: eagle3_shapes('layers.0', [('embed_tokens.weight', (VOCAB, HIDDEN))])),
    'kangaroo': (dict(LLAMA, exit_layer=2), lambda: [*attention_shapes('layers.0'), ('norm.weight', (HIDDEN,)),
                                                     ('layers.0.input_layernorm.weight', (HIDDEN,))]),
    'jakiro': (dict(LLAMA, bias=False, num_local_experts=2, num_experts_per_tok=2), lambda: jakiro_shapes(False)),
    'jakiro_star': (dict(LLAMA, bias=False, num_local_experts=2, num_experts_per_tok=2), lambda: jakiro_shapes(True)),
    'medusa': ({'medusa_num_heads': 2, 'medusa_num_layers': 1}, lambda: medusa_shapes(1)),
    'medusa_deep': ({'medusa_num_heads': 2, 'medusa_num_layers': 2}, lambda: medusa_shapes(2)),
    'hydra': ({'hydra_num_heads': 2, 'hydra_num_layers': 1, 'hydra_head_arch': 'mlp', 'grounded_heads': True},
              lambda: hydra_shapes(False, 1, False)),
    'hydra_prefix': (dict(LLAMA, hydra_num_heads=2, hydra_num_layers=2, hydra_head_arch='prefix-mlp', grounded_heads=True),
                     lambda: hydra_shapes(True, 2, True)),
}


def write_safetensors(path, tensors):
    header, data = {}, b''
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + data)


def write_torch(path, tensors):
    torch, utils = types.ModuleType('torch'), types.ModuleType('torch._utils')
    for name in TORCH.values():
        setattr(torch, name, type(name, (), {'__module__': 'torch'}))

    def _rebuild_tensor_v2():
        pass
    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = 'torch._utils', '_rebuild_tensor_v2'
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    sys.modules.update({'torch': torch, 'torch._utils': utils})

    class Storage:
        def __init__(self, *key):
            self.key = key

    class Tensor:
        def __init__(self, storage, shape):
            self.storage, self.shape = storage, shape

        def __reduce__(self):
            stride = tuple(int(np.prod(self.shape[i + 1:])) for i in range(len(self.shape)))
            return _rebuild_tensor_v2, (self.storage, 0, self.shape, stride, False, collections.OrderedDict())

    class Writer(pickle.Pickler):
        def persistent_id(self, value):
            return value.key if isinstance(value, Storage) else None
    state = collections.OrderedDict()
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
        for i, (name, (dtype, shape, raw)) in enumerate(tensors.items()):
            storage = Storage('storage', getattr(torch, TORCH[dtype]), str(i), 'cpu', len(raw) // BYTES[dtype])
            state[name] = Tensor(storage, shape)
        with archive.open('archive/data.pkl', 'w') as file:
            Writer(file, 2).dump(state)
        archive.writestr('archive/byteorder', 'little')
        for i, (_, _, raw) in enumerate(tensors.values()):
            archive.writestr(f'archive/data/{i}', raw)


def make(kind, folder, options):
    config, shapes = dict(KINDS[kind][0]), dict(KINDS[kind][1]())
    own = {key: options.pop(key, None) for key in ('dtype', 'form', 'seed', 'drop', 'add', 'nan', 'map')}
    for key, value in options.items():
        config[key] = json.loads(value)
    shapes.pop(own['drop'], None)
    if own['add']:
        shapes[own['add']] = (4, 4)
    random, dtype = np.random.default_rng(int(own['seed'] or 1)), own['dtype'] or 'BF16'
    words = np.sort(random.choice(VOCAB, 128, replace=False))
    offsets, marks = words - np.arange(128), np.isin(np.arange(VOCAB), words)
    if own['map'] == 'far':
        offsets[127] = VOCAB
    if own['map'] == 'twice':
        offsets[5] = offsets[4] - 1
    if own['map'] == 'other':
        marks[words[7]] = False
        marks[next(i for i in range(VOCAB) if i not in words)] = True
    tensors = {}
    for name, shape in shapes.items():
        if name in ('d2t', 't2d'):
            kind, values = ('I64', offsets) if name == 'd2t' else ('BOOL', marks)
            tensors[name] = kind, shape, bytes_of(kind, values)
            continue
        values = random.normal(0, 0.1, shape).astype('<f4')
        if name == own['nan']:
            values.flat[values.size // 2] = np.nan
        tensors[name] = dtype, shape, bytes_of(dtype, values)
    os.makedirs(folder, exist_ok=True)
    json.dump(config, open(os.path.join(folder, 'config.json'), 'w'))
    form = own['form'] or {'medusa': 'pt', 'hydra': 'pt'}.get(kind.split('_')[0], 'safetensors')
    name = {'safetensors': 'model.safetensors', 'bin': 'pytorch_model.bin', 'pt': kind.split('_')[0] + '_lm_head.pt'}[form]
    (write_safetensors if form == 'safetensors' else write_torch)(os.path.join(folder, name), tensors)


def make_all(folder):
    for i, kind in enumerate(KINDS):
        many = kind.startswith(('medusa', 'hydra'))
        form = 'pt' if many else ('safetensors', 'bin')[i % 2]
        make(kind, os.path.join(folder, kind), {'dtype': ('BF16', 'F32', 'F16')[i % 3], 'form': form})


if __name__ == '__main__':
    if sys.argv[1] == 'compare':
        for source, head in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
            Comparison(source, head).run()
    elif sys.argv[1] == 'exported':
        for one in zip(sys.argv[2::3], sys.argv[3::3], sys.argv[4::3], strict=True):
            exported(*one)
    elif sys.argv[2] == 'all':
        make_all(sys.argv[3])
    else:
        for between, words in itertools.groupby(sys.argv[2:], lambda word: word == '--'):
            if not between:
                kind, folder, *options = words
                make(kind, folder, dict(word.split('=', 1) for word in options))
