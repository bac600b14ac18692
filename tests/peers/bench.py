"""moekit beside llama.cpp, ik_llama.cpp and transformers: the same weights, the same machine, in turns within one run.

usage: bench.py WORK [--shape olmoe|qwen3-30b|qwen3.6-35b-a3b|gemma-4-26b-a4b|gpt-oss-20b|nemotron-3-nano] [--layers N]
                     [--formats bf16,q8,q4,q4_k,q5_k,q6_k,...] [--prefixes 64,4096,...]
                     [--peers llama,ik,transformers|none] [--pairs N] [--threads N] [--tiny] [--ik FOLDER]

Writes random weights of a published shape, cut to some layers, into WORK as a GGUF file of the architecture qwen3moe, which
every peer reads (ik_llama.cpp has no olmoe); moe-convert makes moekit's file from the same file. q8 and q4 are Q8_0 and Q4_0;
other formats are made by ik_llama.cpp's llama-quantize --pure. Every pair is one burst of moekit (moe-bench sweep) and one of
the peer, for forwards of 1, 2, 4, 8, 16 and 64 tokens after each prefix with logits of all, and for a prompt of 512 with logits
of the last; moekit for a binary tree of 16 tokens, too. The table has medians of a burst, the median of the pairs' ratios
(peer's time over moekit's) with its 95 % interval, and from moekit's sweep its share of the read bandwidth and its excess over
the ratio of bytes. Tokens are random, and embeddings so large that they outweigh the layers' outputs, so routing is nearly
independent. Prints a Markdown table per format, prefix and peer. 30 pairs of 4 layers take about 15 minutes per
table on two cores, and 12 GB of disk.

Shapes of hybrid and other recent models (hybrids.py) have one period of layers unless --layers is given, and take 8 GB of
disk in q8. Where moekit reads the peer's GGUF file, formats of llama-quantize are possible; otherwise moekit has random weights
of its own, in bf16, q8 or q4. Without a peer that knows the architecture, moekit is measured alone, and with `--peers none`,
too. Peers do not restore the states of layers with a state before a forward, which would take them more time.

Needs moe-convert and moe-bench in PATH, numpy, gguf, and the peers: llama_cpp, transformers, or a folder with ik_llama.cpp's
llama-quantize and forward (forward.cc)."""
import argparse
import ctypes
import json
import pathlib
import platform
import statistics
import struct
import subprocess
import time

import numpy as np

from gguf_file import begin_gguf, end_gguf
from hybrids import HYBRIDS, hybrid_config, write_hybrid

ROWS, TREE = [1, 2, 4, 8, 16, 64], 'a tree of 16'
PREFIX_OF_PROMPTS, PROMPT, BURST = 64, 512, 5     # prompts are timed once, beside the forwards after 64 tokens
PAUSE = 0.5                             # seconds in which threads of a peer that spin for work that may come go to sleep


SHAPES = {'olmoe': dict(hidden_size=2048, intermediate_size=1024, num_attention_heads=16, num_key_value_heads=16,
                        head_dim=128, num_experts=64, num_experts_per_tok=8, vocab_size=50304, whole_layers=16),
          'qwen3-30b': dict(hidden_size=2048, intermediate_size=768, num_attention_heads=32, num_key_value_heads=4,
                            head_dim=128, num_experts=128, num_experts_per_tok=8, vocab_size=151936, whole_layers=48)}


def shape_of(args):
    """Returns the config of the shape. The vocabulary is cut like the layers, so the output head keeps its share of bytes."""
    shape = dict(SHAPES[args.shape], architectures=['Qwen3MoeForCausalLM'], model_type='qwen3_moe',
                 num_hidden_layers=args.layers, max_position_embeddings=max(args.prefixes) + 1024, rms_norm_eps=1e-6,
                 rope_theta=10000.0, norm_topk_prob=True,
                 tie_word_embeddings=False, hidden_act='silu', torch_dtype='bfloat16', eos_token_id=1, pad_token_id=1,
                 decoder_sparse_step=1, mlp_only_layers=[])
    shape['vocab_size'] = shape['vocab_size'] * args.layers // shape.pop('whole_layers') // 32 * 32
    if args.tiny:
        shape.update(hidden_size=256, intermediate_size=256, num_attention_heads=4, num_key_value_heads=4, num_experts=16,
                     num_experts_per_tok=4, vocab_size=512, head_dim=64)
    shape['moe_intermediate_size'] = shape['intermediate_size']
    return shape


def tensors_of(c):
    """(Hugging Face name, GGUF name, shape), experts separately: theirs are (format string, GGUF name, shape)."""
    h, f, d = c['hidden_size'], c['intermediate_size'], c['head_dim']
    heads, kv_heads = c['num_attention_heads'] * d, c['num_key_value_heads'] * d
    plain = [('model.embed_tokens.weight', 'token_embd.weight', (c['vocab_size'], h)),
             ('model.norm.weight', 'output_norm.weight', (h,)), ('lm_head.weight', 'output.weight', (c['vocab_size'], h))]
    experts = []
    for n in range(c['num_hidden_layers']):
        at, to = f'model.layers.{n}.', f'blk.{n}.'
        plain += [(at + 'input_layernorm.weight', to + 'attn_norm.weight', (h,)),
                  (at + 'post_attention_layernorm.weight', to + 'ffn_norm.weight', (h,)),
                  (at + 'self_attn.q_norm.weight', to + 'attn_q_norm.weight', (d,)),
                  (at + 'self_attn.k_norm.weight', to + 'attn_k_norm.weight', (d,)),
                  (at + 'mlp.gate.weight', to + 'ffn_gate_inp.weight', (c['num_experts'], h))]
        plain += [(f'{at}self_attn.{x}_proj.weight', f'{to}attn_{y}.weight', s)
                  for x, y, s in (('q', 'q', (heads, h)), ('k', 'k', (kv_heads, h)), ('v', 'v', (kv_heads, h)),
                                  ('o', 'output', (h, heads)))]
        experts += [(f'{at}mlp.experts.%d.{x}_proj.weight', f'{to}ffn_{x}_exps.weight', s)
                    for x, s in (('gate', (f, h)), ('up', (f, h)), ('down', (h, f)))]
    return plain, experts


def draw(rng, shape, spread=0):
    """Norms of one, matrices with a standard deviation of 1/sqrt(inputs) or the one given, rounded to bf16: the bits."""
    values = np.ones(shape, np.float32)
    if len(shape) == 2:
        values = rng.random(shape, np.float32) * np.float32(2 * 3 ** 0.5) - np.float32(3 ** 0.5)
        values *= np.float32(spread or shape[1] ** -0.5)
    bits = values.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def write_folder(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'config.json').write_text(json.dumps(config))
    head, at = {}, 0
    for name, bits in tensors.items():
        head[name] = {'dtype': 'BF16', 'shape': list(bits.shape), 'data_offsets': [at, at + bits.nbytes]}
        at += bits.nbytes
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    with open(folder / 'model.safetensors', 'wb') as out:
        out.write(struct.pack('<Q', len(text)) + text)
        for bits in tensors.values():
            out.write(bits.tobytes())


def write_gguf(path, config, tensors, form):
    import gguf
    kinds = {'bf16': gguf.GGMLQuantizationType.BF16, 'q8': gguf.GGMLQuantizationType.Q8_0,
             'q4': gguf.GGMLQuantizationType.Q4_0}
    plain, experts = tensors_of(config)
    out = begin_gguf(path, config, config['intermediate_size'], config['num_key_value_heads'], 'qwen3moe')

    def add(name, values):
        kept = values.ndim == 1 or 'ffn_gate_inp' in name
        kind = gguf.GGMLQuantizationType.F32 if kept else kinds[form]
        data = gguf.quants.quantize(values, kind)
        out.add_tensor(name, data, raw_dtype=kind)

    for theirs, name, shape in plain:
        add(name, floats(tensors[theirs]))
    for theirs, name, shape in experts:
        add(name, np.stack([floats(tensors[theirs % e]) for e in range(config['num_experts'])]))
    end_gguf(out)


class Moekit:
    def __init__(self, path, threads):
        self.path, self.threads = path, threads

    def sweep(self, rows, prefix, logits, seed, nodes='chain'):
        done = subprocess.run(['moe-bench', 'sweep', '-q', '-m', self.path, '-j', str(self.threads), '--seconds', '0', '--json',
                               '--rows', ','.join(map(str, rows)), '--prefix', str(prefix), '--logits', logits,
                               '--nodes', nodes, '--seed', str(seed)], capture_output=True, text=True, check=True)
        return {at['m']: at for at in json.loads(done.stdout)['cost']}

    def burst(self, seed, prefix):
        """Times, and the sweep's own figures beside them."""
        self.cost = self.sweep(ROWS, prefix, 'all', seed)
        if prefix == PREFIX_OF_PROMPTS:
            self.cost[PROMPT] = self.sweep([PROMPT], 0, 'last', seed)[PROMPT]
        times = {m: at['seconds'] for m, at in self.cost.items()}
        self.cost[TREE] = self.sweep([16], prefix, 'all', seed, 'tree')[16]      # no peer has such forwards
        return times


class Peer:
    """A peer with a method forward(rng, first, count, logits): removes positions from `first` on, then runs `count` random
    tokens as one forward and returns its seconds."""

    def burst(self, seed, prefix):
        rng, times = np.random.default_rng(seed), {m: [] for m in ROWS}
        for first in range(0, prefix, PROMPT):
            self.forward(rng, first, min(PROMPT, prefix - first), 'last')
        for turn in range(BURST + 1):                               # the first warms up
            for m in ROWS:
                took = self.forward(rng, prefix, m, 'all')
                if turn:
                    times[m].append(took)
        if prefix == PREFIX_OF_PROMPTS:
            times[PROMPT] = [self.forward(rng, 0, PROMPT, 'last') for turn in range(BURST)]
        return {m: statistics.median(t) for m, t in times.items()}


class Ik(Peer):
    """ik_llama.cpp in a process of its own (forward.cc)."""

    def __init__(self, folder, path, threads, context):
        words = [str(folder / 'forward'), str(path), str(threads), str(context), str(PROMPT)]
        self.process = subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def forward(self, rng, first, count, logits):
        self.process.stdin.write(f'{first} {count} {int(logits == "all")} {rng.integers(1 << 31)}\n')
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Llama(Peer):
    """llama.cpp through the C interface of llama-cpp-python."""

    def __init__(self, path, threads, vocab, context):
        import llama_cpp
        self.lib, self.vocab = llama_cpp, vocab
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_default_params()
        model.n_gpu_layers = 0
        load = getattr(llama_cpp, 'llama_model_load_from_file', None) or llama_cpp.llama_load_model_from_file
        self.model = load(str(path).encode(), model)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, PROMPT, PROMPT
        params.n_threads = params.n_threads_batch = threads
        make = getattr(llama_cpp, 'llama_init_from_model', None) or llama_cpp.llama_new_context_with_model
        self.context = make(self.model, params)
        if not self.model or not self.context:
            raise RuntimeError(f'llama.cpp cannot open {path}')
        self.batch = llama_cpp.llama_batch_init(PROMPT, 0, 1)

    def forget(self, first):
        lib = self.lib
        if hasattr(lib, 'llama_get_memory'):
            lib.llama_memory_seq_rm(lib.llama_get_memory(self.context), 0, first, -1)
        else:
            lib.llama_kv_cache_seq_rm(self.context, 0, first, -1)

    def forward(self, rng, first, count, logits):
        self.forget(first)
        batch = self.batch
        batch.n_tokens = count
        for i, token in enumerate(rng.integers(0, self.vocab, count)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = int(token), first + i, 1, 0
            batch.logits[i] = logits == 'all' or i == count - 1
        begin = time.perf_counter()
        if self.lib.llama_decode(self.context, batch):
            raise RuntimeError('llama_decode failed')
        self.lib.llama_get_logits(self.context)[0]
        return time.perf_counter() - begin

    def close(self):
        self.lib.llama_free(self.context)
        (getattr(self.lib, 'llama_model_free', None) or self.lib.llama_free_model)(self.model)


class Transformers(Peer):
    def __init__(self, folder, threads, vocab):
        import torch
        import transformers
        torch.set_num_threads(threads)
        self.torch, self.vocab = torch, vocab
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        self.cache = transformers.DynamicCache()

    def forward(self, rng, first, count, logits):
        self.cache.crop(first)
        ids = self.torch.from_numpy(rng.integers(0, self.vocab, (1, count)))
        begin = time.perf_counter()
        with self.torch.inference_mode():
            self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=0 if logits == 'all' else 1)
        return time.perf_counter() - begin

    def close(self):
        del self.model


def prepare(work, args, config):
    """Writes the models, unless an earlier run left the same ones."""
    made = work / 'made.json'
    what = json.dumps([config, args.formats, args.peers])
    if made.exists() and made.read_text() == what:
        return
    work.mkdir(parents=True, exist_ok=True)
    made.unlink(missing_ok=True)
    plain, experts = tensors_of(config)
    rng, tensors = np.random.default_rng(1), {}
    for name, _, shape in plain:
        tensors[name] = draw(rng, shape, 1 if 'embed' in name else 0)
    for name, _, shape in experts:
        for e in range(config['num_experts']):
            tensors[name % e] = draw(rng, shape)
    if 'transformers' in args.peers:
        write_folder(work / 'hf', config, tensors)
    for form in ['bf16'] + [form for form in args.formats if form != 'bf16']:
        path = work / f'{form}.gguf'
        if form in ('bf16', 'q8', 'q4'):
            write_gguf(path, config, tensors, form)
        else:
            subprocess.run([str(args.ik / 'llama-quantize'), '--pure', str(work / 'bf16.gguf'), str(path), form.upper()],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        if form in args.formats:
            subprocess.run(['moe-convert', '-q', str(path), '-o', str(work / f'{form}.moe')], check=True)
    made.write_text(what)


def prepare_hybrid(work, args, config):
    """Writes the models of a shape of hybrids.py, unless an earlier run left the same ones."""
    made = work / 'made.json'
    arch, read = HYBRIDS[args.shape][3:]
    peers = [peer for peer in args.peers if arch]
    what = json.dumps([config, args.formats, peers])
    if made.exists() and made.read_text() == what:
        return
    work.mkdir(parents=True, exist_ok=True)
    made.unlink(missing_ok=True)
    (work / 'config.json').write_text(json.dumps(config))
    direct = ('bf16', 'q8', 'q4')
    if set(args.formats) - set(direct):
        write_hybrid(work / 'bf16.gguf', args.shape, config, 'bf16')
    for form in args.formats:
        path = work / f'{form}.gguf'
        if form not in direct:
            subprocess.run([str(args.ik / 'llama-quantize'), '--pure', str(work / 'bf16.gguf'), str(path), form.upper()],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        elif arch and (peers or read):
            write_hybrid(path, args.shape, config, form)
        source = [str(path)] if read else ['synthetic', '--like', str(work / 'config.json'), '--dtype', form]
        subprocess.run(['moe-convert', *source, '-q', '-o', str(work / f'{form}.moe')], check=True)
    made.write_text(what)


def interval(values):
    """Returns bounds of the median by order statistics, which hold in 95 of 100 cases for any distribution."""
    values, reach = sorted(values), 0.98 * len(values) ** 0.5
    return values[max(0, int(len(values) / 2 - reach))], values[min(len(values) - 1, int(len(values) / 2 + reach))]


def compare(form, peer, ours, theirs, prefix, args):
    """Runs the pairs and prints one line for each number of tokens."""
    pairs, costs = [], []
    for seed in range(args.pairs):
        time.sleep(PAUSE)
        mine = ours.burst(seed, prefix)
        time.sleep(PAUSE)
        pairs.append((mine, theirs.burst(seed, prefix)))
        costs.append(ours.cost)
    print(f'\n| {form} after {prefix}, tokens | moekit ms | share | excess | {peer} ms | ratio | 95 % |\n'
          '|---|---|---|---|---|---|---|')
    for m in pairs[0][0]:
        ratio = [b[m] / a[m] for a, b in pairs]
        low, high = interval(ratio)
        ms, share, excess = medians(costs, m)
        print(f'| {m} | {1e3 * ms:.2f} | {share:.2f} | {excess:.2f} '
              f'| {1e3 * statistics.median(b[m] for _, b in pairs):.2f} | {statistics.median(ratio):.2f} | {low:.2f}-{high:.2f} |',
              flush=True)
    ms, share, excess = medians(costs, TREE)
    print(f'| {TREE} | {1e3 * ms:.2f} | {share:.2f} | {excess:.2f} | | | |\n')


def medians(costs, m):
    return (statistics.median(cost[m][key] for cost in costs) for key in ('seconds', 'share', 'excess'))


def alone(form, ours, prefix, args):
    """Runs bursts of moekit alone and prints one line for each number of tokens."""
    costs = []
    for seed in range(args.pairs):
        time.sleep(PAUSE)
        ours.burst(seed, prefix)
        costs.append(ours.cost)
    print(f'\n| {form} after {prefix}, tokens | moekit ms | share | excess |\n|---|---|---|---|')
    for m in costs[0]:
        ms, share, excess = medians(costs, m)
        print(f'| {m} | {1e3 * ms:.2f} | {share:.2f} | {excess:.2f} |', flush=True)
    print()


def open_peer(peer, form, args, config):
    """Returns its name with its version, and the peer."""
    path, context = args.work / f'{form}.gguf', max(args.prefixes) + 1024
    if peer == 'ik':
        return 'ik_llama.cpp', Ik(args.ik, path, args.threads, context)
    if peer == 'llama':
        import llama_cpp
        return f'llama.cpp ({llama_cpp.__version__})', Llama(path, args.threads, config['vocab_size'], context)
    import transformers
    return f'transformers {transformers.__version__}', Transformers(args.work / 'hf', args.threads, config['vocab_size'])


def main():
    def words(s):
        return s.split(',')
    parser = argparse.ArgumentParser()
    parser.add_argument('work', type=pathlib.Path)
    parser.add_argument('--shape', choices=[*SHAPES, *HYBRIDS], default='olmoe')
    parser.add_argument('--layers', type=int)
    parser.add_argument('--pairs', type=int, default=30)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--formats', type=words, default=['bf16', 'q8', 'q4'])
    parser.add_argument('--prefixes', type=lambda s: [int(n) for n in s.split(',')], default=[PREFIX_OF_PROMPTS])
    parser.add_argument('--peers', type=words, default=['llama', 'transformers'])
    parser.add_argument('--ik', type=pathlib.Path, help='folder with llama-quantize and forward')
    parser.add_argument('--tiny', action='store_true', help='a small shape, to try the script')
    args = parser.parse_args()
    if not args.ik and ('ik' in args.peers or set(args.formats) - {'bf16', 'q8', 'q4'}):
        parser.error('ik_llama.cpp is needed; name its source tree with IK_LLAMA, or its programs with --ik')
    args.peers = [peer for peer in args.peers if peer != 'none']
    if args.shape in HYBRIDS:
        args.peers = [peer for peer in args.peers if peer != 'transformers' and HYBRIDS[args.shape][3]]
        if set(args.formats) - {'bf16', 'q8', 'q4'} and not HYBRIDS[args.shape][4]:
            parser.error(f'{args.shape}: only bf16, q8 and q4 are possible')
        config = hybrid_config(args.shape, args.layers, max(args.prefixes) + 1024, args.tiny)
        args.layers = config['num_hidden_layers']
        prepare_hybrid(args.work, args, config)
    else:
        args.layers = args.layers or 4
        config = shape_of(args)
        prepare(args.work, args, config)
    cpu = next((line.split(':')[1].strip() for line in open('/proc/cpuinfo') if line.startswith('model name')), '')
    print(f'{time.strftime("%Y-%m-%d")} {platform.node()} {cpu}, {args.threads} threads, {args.layers} layers of {args.shape}; '
          'time of the peer over that of moekit')
    print(subprocess.run(['moe-bench', '--version'], capture_output=True, text=True).stdout.strip())
    for form in args.formats:
        ours = Moekit(args.work / f'{form}.moe', args.threads)
        for prefix in args.prefixes if not args.peers else []:
            alone(form, ours, prefix, args)
        for peer in args.peers:
            if peer == 'transformers' and form != 'bf16':
                continue
            name, theirs = open_peer(peer, form, args, config)
            for prefix in args.prefixes:
                compare(form, name, ours, theirs, prefix, args)
            theirs.close()


main()
