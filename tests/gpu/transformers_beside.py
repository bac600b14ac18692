"""transformers on the same weights: transformers_beside.py FOLDER DEVICE BENCH_DEVICE OUT.moes tiny|full

Makes random weights of OLMoE-1B-7B's shape, cut to 8 layers, in bf16, with transformers; times forwards of 1 and 8 tokens after
64 others and a prompt of 2,048 on them (medians; the grouped experts of transformers where it has them); writes them into FOLDER,
converts that, and times the same with moekit, whose prompt is the best of all ways. Prints Markdown as it goes."""
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import torch
import transformers

folder, device, bench_device, out, size = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5]
torch_device = 'cuda' if device.startswith('cuda') else 'cpu'
shape = dict(hidden_size=2048, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16,
             num_experts=64, num_experts_per_tok=8, vocab_size=50304, max_position_embeddings=4096)
prompt, repeats = 2048, 20
if size == 'tiny':
    shape = dict(hidden_size=128, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                 num_experts=8, num_experts_per_tok=2, vocab_size=256, max_position_embeddings=512)
    prompt, repeats = 64, 2


def wait():
    if torch_device == 'cuda':
        torch.cuda.synchronize()


def seconds(model, tokens, cache):
    ids = torch.randint(0, shape['vocab_size'], (1, tokens), device=torch_device)
    wait()
    begin = time.perf_counter()
    with torch.inference_mode():
        model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    wait()
    return time.perf_counter() - begin


def measure(model):
    times, cache = {1: [], 8: [], prompt: []}, transformers.DynamicCache()
    seconds(model, 64, cache)
    for turn in range(repeats + 1):                 # the first warms up
        for tokens in (1, 8):
            took = seconds(model, tokens, cache)
            cache.crop(-tokens)
            if turn:
                times[tokens].append(took)
    for turn in range(max(2, repeats // 4)):
        took = seconds(model, prompt, transformers.DynamicCache())
        if turn:
            times[prompt].append(took)
    return {tokens: statistics.median(t) for tokens, t in times.items()}


config = transformers.OlmoeConfig(**shape, eos_token_id=1, pad_token_id=1, torch_dtype='bfloat16')
torch.manual_seed(1)
with torch.device(torch_device):
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.OlmoeForCausalLM(config).eval()
print(f'\ntransformers {transformers.__version__}, torch {torch.__version__}, OLMoE of {shape["num_hidden_layers"]} layers, bf16, '
      f'the same weights\n\n| | 1 token | 8 tokens | prompt of {prompt} |\n|---|---|---|---|', flush=True)
best = {}
for kind in ('grouped_mm', 'batched_mm', 'eager'):
    try:
        model.set_experts_implementation(kind)
        times = measure(model)
    except Exception as fault:                      # not in this version, or not on this device
        print(f'| transformers, {kind} | {type(fault).__name__} | | |', flush=True)
        continue
    best = {m: min(t, best.get(m, t)) for m, t in times.items()}
    print(f'| transformers, {kind}, ms | ' + ' | '.join(f'{1e3 * t:.3f}' for t in times.values()) + ' |', flush=True)
model.save_pretrained(folder)
del model
if torch_device == 'cuda':
    torch.cuda.empty_cache()
path = str(folder) + '.moe'
subprocess.run(['moe-convert', '-q', str(folder), '-o', path], check=True)
shutil.rmtree(folder)
def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


swept = output('moe-bench', 'sweep', '-q', '-m', path, '--device', device, '--seconds', '1', '--json', '--rows', '8', '--prefix', '64',
               '--logits', 'last')
ours = {at['m']: at['seconds'] for at in json.loads(swept)['cost']}
ways = output(bench_device, 'prompt', device, out + '.prompt.moes', str(prompt), path)
cells = [cell for cell in ways.strip().splitlines()[-1].split('|')[2:] if cell.strip()]
ours[prompt] = min(float(cell) for cell in cells) / 1e3
print('| moekit, ms | ' + ' | '.join(f'{1e3 * ours[m]:.3f}' for m in (1, 8, prompt)) + ' |')
if best:
    print('| ratio to the best | ' + ' | '.join(f'{best[m] / ours[m]:.2f}' for m in (1, 8, prompt)) + ' |', flush=True)
print(ways, flush=True)
subprocess.run([bench_device, 'forwards', device, out, '0', path], check=True)
pathlib.Path(path).unlink()
