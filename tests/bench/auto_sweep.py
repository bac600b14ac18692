#!/usr/bin/env python3
"""Compares `-d auto` with every fixed draft in replay, at the costs of a described machine.

usage: auto_sweep.py RECORDING MACHINE [POLICY]

RECORDING is of moe-decode --record drafts with chains of up to 64 tokens by several drafters; MACHINE is a name below. Times and
bytes of the recording are replaced: a forward over M rows that load E experts reads dense + E expert bytes at the machine's
bandwidth and takes at least that, times the slow-down for M rows; a drafter takes so much a call and a token. moe-bench replay then
decodes with POLICY (dytc-verify); the fixed drafts are computed here. Prints for each task, and for all, the best fixed draft, its
speed and auto's relative to no drafts, and auto over the best fixed draft. Slow-downs are those of a quiet AMD EPYC (Zen 4) with 2
threads, up to 33 rows measured with the pocket model of 2 GB and with 8 layers of mistral-7b's shape. Needs msgpack, numpy and
libxxhash."""
import io
import json
import os
import subprocess
import sys
import tempfile

import msgpack
import numpy as np

from reroute import array, digest, like
from streams import records

LENGTHS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
# bandwidth in bytes/us; dense and expert bytes; slow-down by rows; us a call and a token of drafters, by their kind
MACHINES = {
    "bf16": dict(bandwidth=34500, dense=2.0e6, expert=10.62e6, slow={1: 1, 20: 1, 33: 1.2, 65: 1.6},
                 drafters={"model": (30, 420), "head": (40, 110), "self": (100, 4500), "suffix": (15, .2), "ngram": (5, .1)}),
    "q4": dict(bandwidth=32000, dense=2.0e6, expert=10.62e6, slow={1: 1, 8: 1, 17: 1.1, 33: 1.3, 65: 1.9},
               drafters={"model": (30, 450), "head": (40, 110), "self": (100, 4700), "suffix": (15, .2), "ngram": (5, .1)}),
    "dense": dict(bandwidth=34500, dense=1059e6, expert=0,
                  slow={1: 1, 4: 1.1, 6: 1.16, 7: 1.35, 8: 1.51, 9: 1.7, 11: 2.04, 13: 2.46, 17: 3.1, 33: 5.93, 65: 11.6},
                  drafters={"model": (100, 1700), "head": (40, 500), "self": (100, 19000), "suffix": (15, .2), "ngram": (5, .1),
                            "pld": (5, .1)})}


class Machine:
    def __init__(self, name):
        self.__dict__.update(MACHINES[name])

    def bytes(self, experts):
        return self.dense + experts * self.expert

    def forward_us(self, rows, experts):
        return self.bytes(experts) / self.bandwidth * np.interp(rows, list(self.slow), list(self.slow.values()))

    def draft_us(self, drafter, tokens):
        call, token = self.drafters[drafter.partition(":")[0]]
        return np.where(np.asarray(tokens) > 0, call + token * np.asarray(tokens), 0)


def recost(source, out_file, machine):
    objects = list(msgpack.Unpacker(open(source, "rb"), raw=False, max_buffer_size=1 << 30))
    names, written, counts = [], io.BytesIO(), {}
    if not machine.expert:                              # a dense model
        objects[1]["model"] |= {"moe_layers": 0, "experts": 0, "top_k": 0}

    def write(kind, record):
        written.write(msgpack.packb([kind, sum(counts.values()), record]))
        counts[kind] = counts.get(kind, 0) + 1

    written.write(msgpack.packb(objects[0]) + msgpack.packb(objects[1]))
    held, iters = [], []
    for kind, _, record in objects[2:-1]:
        if kind == "machine":
            names = json.loads(record["drafters"])
        if kind == "iter":                              # those of a run without drafts are written in their place
            continue
        if kind == "draft":
            n, experts = record["n"], array(record["experts_loaded"]).astype(float)
            record["verify_us"] = like(record["verify_us"], machine.forward_us(1 + np.arange(n), experts))
            record["bytes"] = like(record["bytes"], machine.bytes(experts))
            record["expert_bytes"] = int(machine.expert)
            if not machine.expert:
                del record["experts"], record["expert_bytes"]
                record["experts_loaded"] = like(record["experts_loaded"], 0 * experts)
            record["draft_us"] = like(record["draft_us"], machine.draft_us(names[record.get("drafter", 0)], np.arange(n)))
            held.append(record)
            if not record.get("drafter", 0):
                loaded = int(experts[0])
                iters.append({"sequence": record["sequence"], "t_us": 0.0, "K": 0, "nodes": 1, "drafted": 0, "accepted": 0,
                              "emitted": 1, "draft_us": 0.0, "verify_us": float(machine.forward_us(1, loaded)), "accept_us": 0.0,
                              "other_us": 0.0, "experts_wanted": loaded, "experts_loaded": loaded,
                              "bytes": int(machine.bytes(loaded))})
            continue
        if kind == "done":
            for it in iters:
                write("iter", it)
            for draft in held:
                write("draft", draft)
            held, iters = [], []
        write(kind, record)
    size = written.tell()
    last = msgpack.packb(["end", sum(counts.values()), {"records": counts, "bytes": size, "digest": bytes(16)}])
    written.write(last[:-16])
    with open(out_file, "wb") as out:
        out.write(written.getvalue() + digest(written.getvalue()))
    return names


class Text:
    def __init__(self, task):
        self.task, self.drafts = task, {}

    def fixed(self, machine, names, drafter, length):
        """Seconds of the text with drafts of this length by one drafter."""
        at, us, positions = 0, 0.0, len(self.drafts[0])
        while at < positions:
            loaded, accepted, left, room = self.drafts[drafter][at]
            drafted = min(length, len(loaded) - 1)
            asked = min(length, room)
            us += float(machine.forward_us(1 + drafted, loaded[drafted]))
            us += float(machine.draft_us(names[drafter], asked if drafted else 1)) if length and asked > 0 else 0
            at += min(1 + min(accepted, drafted), left)
        return us / 1e6


def read(path):
    texts, names = {}, []
    for kind, r in records(path):
        if kind == "machine":
            names = json.loads(r["drafters"])
        if kind == "begin":
            texts[r["sequence"]] = Text(r.get("task"))
        if kind == "draft":
            texts[r["sequence"]].drafts.setdefault(r.get("drafter", 0), []).append(
                (np.asarray(r["experts_loaded"], float), r["accepted"], r["left"], r["room"]))
    return texts, names


def main(recording, name, policy="dytc-verify", *options):
    machine = Machine(name)
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "costs.moes")
        recost(recording, made, machine)
        run = subprocess.run(["moe-bench", "replay", made, "--iterations", "--policy", policy, *options], capture_output=True,
                             text=True)
        if run.returncode:
            sys.exit(run.stderr)
    texts, names = read(recording)
    texts = {k: t for k, t in texts.items() if t.drafts}
    auto = dict.fromkeys(texts, 0.0)
    for line in map(json.loads, run.stdout.splitlines()):
        auto[line["sequence"]] += line["seconds"]
    sweep = {"none": {k: t.fixed(machine, names, 0, 0) for k, t in texts.items()}}
    for i, drafter in enumerate(names):
        for length in LENGTHS:
            sweep[f"{drafter.partition(':')[0]}, K={length}"] = {k: t.fixed(machine, names, i, length) for k, t in texts.items()}
    for task in [None] + sorted({t.task for t in texts.values()}):
        mine = [k for k, t in texts.items() if task in (None, t.task)]
        total = {key: sum(of[k] for k in mine) for key, of in sweep.items()}
        own, best = sum(auto[k] for k in mine), min(total, key=total.get)
        print(f"| {task or 'all, mixed'} | {best} | {total['none'] / total[best]:.3f} | {total['none'] / own:.3f} | "
              f"{total[best] / own:.3f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
