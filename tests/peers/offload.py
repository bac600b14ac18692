"""moekit's disk tier beside llama.cpp's mmap under one limit of memory, turn by turn in one run.

usage: offload.py WORK MODEL.moe FOLDER FFN [--limit SHARE] [--cached SHARE] [--rounds N] [--tokens N] [--threads N]

MODEL.moe is the model of FOLDER with experts of FFN neurons (moe-convert inflate: those that it does not have are zeros, so that
texts stay); the same weights are written as GGUF. Each run is in a control group of its own whose memory, page cache included, is limited to SHARE of
the model's bytes, and begins with an empty page cache. moekit keeps 17 % of the experts in memory and reads the others when they
are wanted, and once more maps the whole model: the control without which a ratio to llama.cpp is not the tier's. llama.cpp maps the
file, joins the group before it does, and leaves the rest to the kernel. Both go through the same tokens, one a forward; moekit once more with drafts of its own. Tokens a second, and how many of llama.cpp's likeliest tokens are
moekit's. Wants root, /sys/fs/cgroup/memory (version 1), moe-decode, moe-profile and moe-view in PATH, numpy, gguf, llama_cpp."""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from gguf_file import begin_gguf, end_gguf

PROMPT = 'def add(a, b):'
GROUP = pathlib.Path('/sys/fs/cgroup/memory') / f'moekit-offload-{os.getpid()}'


def read_bits(folder):
    """Tensors of the checkpoint as they are: name: bf16 bits."""
    import numpy as np
    with open(folder / 'model.safetensors', 'rb') as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
        data = np.frombuffer(file.read(), np.uint8)
    head.pop('__metadata__', None)
    assert all(entry['dtype'] == 'BF16' for entry in head.values())
    return {name: data[entry['data_offsets'][0]:entry['data_offsets'][1]].view(np.uint16).reshape(entry['shape'])
            for name, entry in head.items()}


def write_gguf(path, folder, ffn):
    """The checkpoint with experts of `ffn` neurons, those that it does not have being zeros. Heads of keys and values are
    repeated until there is one for each head of queries, which changes nothing: llama.cpp wants it so of this family."""
    import gguf
    import numpy as np
    c, tensors = json.loads((folder / 'config.json').read_text()), read_bits(folder)
    kind = gguf.GGMLQuantizationType
    group = c['num_attention_heads'] // c['num_key_value_heads']
    out = begin_gguf(path, c, ffn, c['num_attention_heads'], use_temp_file=True)

    def put(name, bits, wide=False):
        if wide or bits.ndim == 1:
            out.add_tensor(name, (bits.astype(np.uint32) << 16).view(np.float32), raw_dtype=kind.F32)
        else:
            out.add_tensor(name, np.ascontiguousarray(bits).view(np.uint8), raw_dtype=kind.BF16)

    put('token_embd.weight', tensors['model.embed_tokens.weight'])
    put('output_norm.weight', tensors['model.norm.weight'])
    put('output.weight', tensors['lm_head.weight'])
    names = {'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm', 'self_attn.q_norm': 'attn_q_norm',
             'self_attn.k_norm': 'attn_k_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k',
             'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output', 'mlp.gate': 'ffn_gate_inp'}
    for n in range(c['num_hidden_layers']):
        for theirs, name in names.items():
            bits = tensors[f'model.layers.{n}.{theirs}.weight']
            if theirs in ('self_attn.k_norm', 'self_attn.k_proj', 'self_attn.v_proj'):
                bits = np.concatenate([np.repeat(head[None], group, 0).reshape(-1, *bits.shape[1:])
                                       for head in np.split(bits, c['num_key_value_heads'])])
            put(f'blk.{n}.{name}.weight', bits, 'gate' in theirs)
        for part in 'gate', 'up', 'down':
            experts = []
            for e in range(c['num_experts']):
                bits = tensors[f'model.layers.{n}.mlp.experts.{e}.{part}_proj.weight']
                more = (0, ffn - c['intermediate_size'])
                experts.append(np.pad(bits, ((0, 0), more) if part == 'down' else (more, (0, 0))))
            put(f'blk.{n}.ffn_{part}_exps.weight', np.stack(experts))
    end_gguf(out)


def llama(path, tokens, threads, group):
    """In a process of its own: seconds of the forwards after the prompt, and the likeliest token after each."""
    prompt, answer = tokens
    import llama_cpp
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    (pathlib.Path(group) / 'cgroup.procs').write_text(str(os.getpid()))
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    if hasattr(params, 'load_mode'):                # llama-cpp-python from 0.3.3x on has it in place of use_mmap
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
    else:
        params.use_mmap = True
    model = llama_cpp.llama_model_load_from_file(path.encode(), params)
    context = llama_cpp.llama_context_default_params()
    context.n_ctx, context.n_batch, context.n_ubatch = 512, 64, 64
    context.n_threads = context.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, context)
    if not model or not context:
        raise RuntimeError(f'llama.cpp cannot open {path}')
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(64, 0, 1)

    def forward(first, ids):
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, first + i, 1, 0
            batch.logits[i] = i == len(ids) - 1
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError('llama_decode failed')
        logits = llama_cpp.llama_get_logits(context)
        return max(range(vocab), key=lambda token: logits[token])

    likeliest = [forward(0, prompt)]
    begin = time.perf_counter()
    for i, token in enumerate(answer[:-1]):
        likeliest.append(forward(len(prompt) + i, [token]))
    print(json.dumps([time.perf_counter() - begin, likeliest]))


def run_llama(args, path, tokens):
    done = subprocess.run([sys.executable, __file__, '--llama', json.dumps([str(path), tokens, args.threads, str(GROUP)])],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    seconds, likeliest = json.loads(done.stdout.splitlines()[-1])
    return (len(tokens[1]) - 1) / seconds, sum(a == b for a, b in zip(likeliest, tokens[1]))


def run_moekit(args, stream, cached, *options):
    """Tokens a second of all iterations but the first, whose time has the first token in it."""
    command = ['moe-decode', '-q', '-m', str(args.model), '-j', str(args.threads), '-n', str(args.tokens), '--ignore-eos', '-p', PROMPT,
               '--cache-experts', cached, '--stream', str(stream), *options]
    join = lambda: (GROUP / 'cgroup.procs').write_text(str(os.getpid()))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, preexec_fn=join)
    shown = subprocess.run(['moe-view', '--json', str(stream)], capture_output=True, text=True, check=True).stdout
    iters = [r for r in map(json.loads, shown.splitlines()) if r['type'] == 'iter']
    us = sum(r['draft_us'] + r['verify_us'] + r['accept_us'] + r['other_us'] for r in iters)
    return 1e6 * sum(r['emitted'] for r in iters) / us


def text_of(args, work):
    """Ids of the prompt and of moekit's answer."""
    subprocess.run(['moe-profile', '-q', '-m', str(args.model), '-n', str(args.tokens), '--ignore-eos', '-p', PROMPT, '-o',
                    str(work / 'text.moes')], check=True)
    shown = subprocess.run(['moe-view', '--json', str(work / 'text.moes')], capture_output=True, text=True, check=True).stdout
    routes = [r for r in map(json.loads, shown.splitlines()) if r['type'] == 'route']
    ids = [token for r in routes for token in r['tokens']]
    prompt = sum(r['n'] for r in routes if r['phase'] == 'prompt')
    return ids[:prompt], ids[prompt:]


def forget():
    subprocess.run(['sync'], check=True)
    pathlib.Path('/proc/sys/vm/drop_caches').write_text('3')


def peak():
    used = int((GROUP / 'memory.max_usage_in_bytes').read_text())
    (GROUP / 'memory.max_usage_in_bytes').write_text('0')
    return used / 2 ** 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('work', type=pathlib.Path)
    parser.add_argument('model', type=pathlib.Path)
    parser.add_argument('pocket', type=pathlib.Path)
    parser.add_argument('ffn', type=int)
    parser.add_argument('--limit', type=float, default=0.25)
    parser.add_argument('--cached', type=float, default=0.17)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--tokens', type=int, default=32)
    parser.add_argument('--threads', type=int, default=2)
    args = parser.parse_args()
    gguf = args.work / f'{args.model.stem}.gguf'
    if not gguf.exists():
        write_gguf(f'{gguf}.part', args.pocket, args.ffn)
        os.rename(f'{gguf}.part', gguf)
    tokens = text_of(args, args.work)
    stream, cached = args.work / 'offload.moes', f'{100 * args.cached:g}%'
    limit = int(args.limit * args.model.stat().st_size)
    GROUP.mkdir()
    try:
        (GROUP / 'memory.limit_in_bytes').write_text(str(limit))
        ways = {'llama.cpp, mmap': lambda: run_llama(args, gguf, tokens),
                'moekit, mapped': lambda: (run_moekit(args, stream, 'none'), 0),
                'moekit': lambda: (run_moekit(args, stream, cached), 0),
                'moekit, -d ngram -K 7': lambda: (run_moekit(args, stream, cached, '-d', 'ngram', '-K', '7'), 0)}
        rates, most = {name: [] for name in ways}, {}
        for _ in range(args.rounds):
            for name, way in ways.items():
                forget()
                rate, agree = way()
                rates[name].append(rate)
                most[name] = max(most.get(name, 0), peak())
                if name.startswith('llama'):
                    same = agree
    finally:
        GROUP.rmdir()
    print(f'{args.model.stat().st_size / 2 ** 20:.0f} MiB, memory limited to {limit / 2 ** 20:.0f} MiB, {args.threads} threads, '
          f'{args.rounds} rounds; {same} of {len(tokens[1])} of llama.cpp\'s likeliest tokens are moekit\'s')
    print('\n| | tokens/s | from | to | over llama.cpp | over mapped | peak MiB |\n|---|---|---|---|---|---|---|')
    for name, of in rates.items():
        over = [statistics.median(a / b for a, b in zip(of, rates[base])) for base in ('llama.cpp, mmap', 'moekit, mapped')]
        rate = f'{statistics.median(of):.2f} | {min(of):.2f} | {max(of):.2f}'
        print(f'| {name} | {rate} | {over[0]:.2f} | {over[1]:.2f} | {most[name]:.0f} |')


if __name__ == '__main__':
    if sys.argv[1:2] == ['--llama']:
        llama(*json.loads(sys.argv[2]))
    else:
        main()
