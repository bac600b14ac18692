"""moekit beside llama.cpp and transformers: the same weights, the same machine, turn by turn in one run.

usage: bench.py WORK [--layers N] [--pairs N] [--threads N] [--formats bf16,q8,q4] [--peers llama,transformers] [--tiny]

Writes random weights of OLMoE-1B-7B's shape, cut to some layers, into WORK as a Hugging Face folder; moe-convert and the gguf
package make the other files of it. Every pair is one burst of moekit (moe-bench sweep) and one of each peer, for forwards of
1, 2, 4, 8, 16 and 64 tokens after 64 others with logits of all, and for a prompt of 512 with logits of the last: medians of
a burst, and the median of the pairs' ratios (peer's time over moekit's) with its 95 % interval; also what moekit's sweep says
of itself, share of the read bandwidth and excess over the ratio of bytes. Tokens are random, and embeddings so large that they
outweigh what layers add: so routing is nearly independent. Prints a Markdown table a format and peer. 30 pairs of 4 layers take about 15 minutes a format and peer on two
cores, and 12 GB of disk. Needs moe-convert and moe-bench in PATH, and numpy, gguf and llama_cpp or transformers."""
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

ROWS = [1, 2, 4, 8, 16, 64]
PREFIX, PROMPT, BURST = 64, 512, 5
PAUSE = 0.5                             # seconds in which threads of a peer that spin for work that may come go to sleep


def shape_of(args):
    shape = dict(architectures=['OlmoeForCausalLM'], model_type='olmoe', hidden_size=2048, intermediate_size=1024,
                 num_hidden_layers=args.layers, num_attention_heads=16, num_key_value_heads=16, num_experts=64,
                 num_experts_per_tok=8, vocab_size=50304 * args.layers // 16 // 32 * 32, max_position_embeddings=4096,
                 rms_norm_eps=1e-5, rope_theta=10000.0, norm_topk_prob=False, tie_word_embeddings=False, hidden_act='silu',
                 torch_dtype='bfloat16', eos_token_id=1, pad_token_id=1)
    if args.tiny:
        shape.update(hidden_size=256, intermediate_size=128, num_attention_heads=4, num_key_value_heads=4, num_experts=16,
                     num_experts_per_tok=4, vocab_size=512)
    return shape


def tensors_of(c):
    """(Hugging Face name, GGUF name, shape), experts apart: theirs are (format string, GGUF name, shape)."""
    h, f = c['hidden_size'], c['intermediate_size']
    plain = [('model.embed_tokens.weight', 'token_embd.weight', (c['vocab_size'], h)),
             ('model.norm.weight', 'output_norm.weight', (h,)), ('lm_head.weight', 'output.weight', (c['vocab_size'], h))]
    experts = []
    for n in range(c['num_hidden_layers']):
        at, to = f'model.layers.{n}.', f'blk.{n}.'
        plain += [(at + 'input_layernorm.weight', to + 'attn_norm.weight', (h,)),
                  (at + 'post_attention_layernorm.weight', to + 'ffn_norm.weight', (h,)),
                  (at + 'self_attn.q_norm.weight', to + 'attn_q_norm.weight', (h,)),
                  (at + 'self_attn.k_norm.weight', to + 'attn_k_norm.weight', (h,)),
                  (at + 'mlp.gate.weight', to + 'ffn_gate_inp.weight', (c['num_experts'], h))]
        plain += [(f'{at}self_attn.{x}_proj.weight', f'{to}attn_{y}.weight', (h, h))
                  for x, y in (('q', 'q'), ('k', 'k'), ('v', 'v'), ('o', 'output'))]
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
    out = begin_gguf(path, config, config['intermediate_size'], config['num_key_value_heads'])

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

    def sweep(self, rows, prefix, logits, seed):
        done = subprocess.run(['moe-bench', 'sweep', '-q', '-m', self.path, '-j', str(self.threads), '--seconds', '0', '--json',
                               '--rows', ','.join(map(str, rows)), '--prefix', str(prefix), '--logits', logits,
                               '--seed', str(seed)], capture_output=True, text=True, check=True)
        return {at['m']: at for at in json.loads(done.stdout)['cost']}

    def burst(self, seed):
        """Times, and the sweep's own figures beside them."""
        self.cost = self.sweep(ROWS, PREFIX, 'all', seed)
        self.cost[PROMPT] = self.sweep([PROMPT], 0, 'last', seed)[PROMPT]
        return {m: at['seconds'] for m, at in self.cost.items()}


class Llama:
    """llama.cpp through the C interface of llama-cpp-python."""

    def __init__(self, path, threads, vocab):
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
        params.n_ctx, params.n_batch, params.n_ubatch = 1024, PROMPT, PROMPT
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

    def burst(self, seed):
        rng, times = np.random.default_rng(seed), {m: [] for m in ROWS + [PROMPT]}
        self.forget(0)
        self.forward(rng, 0, PREFIX, 'last')
        for turn in range(BURST + 1):                               # the first warms up
            for m in ROWS:
                took = self.forward(rng, PREFIX, m, 'all')
                self.forget(PREFIX)
                if turn:
                    times[m].append(took)
        for turn in range(BURST):
            self.forget(0)
            times[PROMPT].append(self.forward(rng, 0, PROMPT, 'last'))
        return {m: statistics.median(t) for m, t in times.items()}


class Transformers:
    def __init__(self, folder, threads, vocab):
        import torch
        import transformers
        torch.set_num_threads(threads)
        self.torch, self.vocab = torch, vocab
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        self.cache = transformers.DynamicCache

    def forward(self, rng, count, cache, logits):
        ids = self.torch.from_numpy(rng.integers(0, self.vocab, (1, count)))
        begin = time.perf_counter()
        with self.torch.inference_mode():
            self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=0 if logits == 'all' else 1)
        return time.perf_counter() - begin

    def burst(self, seed):
        rng, times, cache = np.random.default_rng(seed), {m: [] for m in ROWS + [PROMPT]}, self.cache()
        self.forward(rng, PREFIX, cache, 'last')
        for turn in range(3):
            for m in ROWS:
                took = self.forward(rng, m, cache, 'all')
                cache.crop(-m)
                if turn:
                    times[m].append(took)
        times[PROMPT].append(self.forward(rng, PROMPT, self.cache(), 'last'))
        return {m: statistics.median(t) for m, t in times.items()}


def prepare(work, args, config):
    """Writes the models, unless an earlier run has left the same ones."""
    made = work / 'made.json'
    what = json.dumps([config, args.formats, 'llama' in args.peers])
    if made.exists() and made.read_text() == what:
        return
    made.unlink(missing_ok=True)
    plain, experts = tensors_of(config)
    rng, tensors = np.random.default_rng(1), {}
    for name, _, shape in plain:
        tensors[name] = draw(rng, shape, 1 if 'embed' in name else 0)
    for name, _, shape in experts:
        for e in range(config['num_experts']):
            tensors[name % e] = draw(rng, shape)
    write_folder(work / 'hf', config, tensors)
    for form in args.formats:
        subprocess.run(['moe-convert', '-q', str(work / 'hf'), '--dtype', form, '-o', str(work / f'{form}.moe')], check=True)
        if 'llama' in args.peers:
            write_gguf(work / f'{form}.gguf', config, tensors, form)
    made.write_text(what)


def interval(values):
    """Of their median, by order statistics: holds it in 95 of 100 cases, whatever the distribution."""
    values, reach = sorted(values), 0.98 * len(values) ** 0.5
    return values[max(0, int(len(values) / 2 - reach))], values[min(len(values) - 1, int(len(values) / 2 + reach))]


def compare(form, peer, ours, theirs, args):
    """The pairs, and what they say, one line a number of tokens."""
    pairs, costs = [], []
    for seed in range(args.pairs):
        time.sleep(PAUSE)
        mine = ours.burst(seed)
        time.sleep(PAUSE)
        pairs.append((mine, theirs.burst(seed)))
        costs.append(ours.cost)
    print(f'\n| {form}, tokens | moekit ms | share | excess | {peer} ms | ratio | 95 % |\n|---|---|---|---|---|---|---|')
    for m in ROWS + [PROMPT]:
        ratio = [b[m] / a[m] for a, b in pairs]
        low, high = interval(ratio)
        ms, share, excess = (statistics.median(cost[m][key] for cost in costs) for key in ('seconds', 'share', 'excess'))
        print(f'| {m} | {1e3 * ms:.2f} | {share:.2f} | {excess:.2f} '
              f'| {1e3 * statistics.median(b[m] for _, b in pairs):.2f} | {statistics.median(ratio):.2f} | {low:.2f}-{high:.2f} |',
              flush=True)
    print()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('work', type=pathlib.Path)
    parser.add_argument('--layers', type=int, default=4)
    parser.add_argument('--pairs', type=int, default=30)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--formats', type=lambda s: s.split(','), default=['bf16', 'q8', 'q4'])
    parser.add_argument('--peers', type=lambda s: s.split(','), default=['llama', 'transformers'])
    parser.add_argument('--tiny', action='store_true', help='a small shape, to try the script')
    args = parser.parse_args()
    config = shape_of(args)
    prepare(args.work, args, config)
    cpu = next((line.split(':')[1].strip() for line in open('/proc/cpuinfo') if line.startswith('model name')), '')
    print(f'{time.strftime("%Y-%m-%d")} {platform.node()} {cpu}, {args.threads} threads, {args.layers} layers of '
          f'{config["num_experts"]} experts; time of the peer over that of moekit')
    print(subprocess.run(['moe-bench', '--version'], capture_output=True, text=True).stdout.strip())
    for form in args.formats:
        ours = Moekit(args.work / f'{form}.moe', args.threads)
        if 'llama' in args.peers:
            import llama_cpp
            print(f'llama-cpp-python {llama_cpp.__version__}')
            compare(form, 'llama.cpp', ours, Llama(args.work / f'{form}.gguf', args.threads, config['vocab_size']), args)
        if 'transformers' in args.peers and form == 'bf16':
            import transformers
            print(f'transformers {transformers.__version__}')
            compare(form, 'transformers', ours, Transformers(args.work / 'hf', args.threads, config['vocab_size']), args)


main()
