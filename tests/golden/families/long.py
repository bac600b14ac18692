#!/usr/bin/env python3
"""Compares a long prompt with transformers: the logits at its last position, on a tiny checkpoint of this folder.

    PATH=build/normal/bin:$PATH python tests/golden/families/long.py FAMILY [TOKENS]

The tokens (20,000) are random; max_position_embeddings grows to them in a copy of the model, in /tmp. transformers computes in
float32, with sdpa: eager attention would need TOKENS^2 floats a head. Too slow for `make check`; docs/families.md has the result.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    family, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        shutil.copytree(os.path.join(HERE, family, "model"), model)
        path = os.path.join(model, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        key = "model_max_length" if "model_max_length" in config else "max_position_embeddings"
        config[key] = count
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        chance = random.Random(1)
        tokens = [chance.randrange(config["vocab_size"]) for _ in range(count)]
        with open(os.path.join(folder, "prompt.jsonl"), "w", encoding="utf-8") as file:
            json.dump({"id": "one", "tokens": tokens}, file)
            file.write("\n")
        reference = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").eval()
        with torch.no_grad():
            wanted = reference(torch.tensor([tokens]), logits_to_keep=1).logits[0, -1].tolist()
        subprocess.run(["moe-convert", "-q", model, "-o", folder + "/m.moe"], check=True)
        profile = subprocess.Popen(["moe-profile", "-q", "-m", folder + "/m.moe", "--record", "logits", folder + "/prompt.jsonl"],
                                   stdout=subprocess.PIPE)
        view = subprocess.Popen(["moe-view", "--json"], stdin=profile.stdout, stdout=subprocess.PIPE, text=True)
        got, seen = None, 0
        for line in view.stdout:
            if '"logits"' in line and json.loads(line).get("type") == "route":
                rows = json.loads(line)["logits"]
                got, seen = rows[-1], seen + len(rows)
        assert seen == count and len(got) == len(wanted), (seen, len(got))
        far = max(abs(a - b) for a, b in zip(got, wanted))
        print(f"{family}: {count} tokens, largest difference of a logit at the last position {far:.2g}, "
              f"logits from {min(wanted):.3g} to {max(wanted):.3g}")


main()
