#!/usr/bin/python3
"""Computes every row of `moe-bench report --json` on train streams once more from the streams, knowing nothing of the C code.

usage: retraining.py REPORT.jsonl STREAM.moes...; exit 1 if any value differs, is missing or is there besides."""
import json
import math
import sys

import numpy as np

sys.dont_write_bytecode = True
import streams


def mean(values):
    values = [v for v in values if v is not None and not math.isnan(v)]
    return float(np.mean(values)) if values else None


def rows_of(path):
    records = list(streams.records(path))
    run = next(payload for kind, payload in records if kind == "run")
    steps = [payload for kind, payload in records if kind == "step"]
    evals = [payload for kind, payload in records if kind == "eval"]
    name = {"run": path, "head": run["arch"]}
    window = min(100, -(-len(steps) // 2))
    ends = lambda of: {"loss_first": mean([of(s) for s in steps[:window]]),
                       "loss_last": mean([of(s) for s in steps[-window:]])}
    tokens = sum(s["tokens"] for s in steps)
    yield {"type": "run", **name, "parameters": run["parameters"], "steps": len(steps), "planned": run["steps"],
           "epochs": steps[-1]["epoch"], "tokens": tokens, "seconds": steps[-1]["seconds"],
           "tokens_per_s": tokens / steps[-1]["seconds"], **ends(lambda s: s["loss"]),
           "gradient_norm": mean([s.get("gradient_norm") for s in steps]), "clipped": mean([s.get("clipped") for s in steps])}
    parts = list(dict.fromkeys(part for s in steps for part in s.get("parts", {})))
    for part in parts:
        yield {"type": "part", **name, "part": part, **ends(lambda s: s.get("parts", {}).get(part))}
    for e in evals:
        row = {"type": "eval", **name, "step": e["step"], "best": float(e["best"]), "texts": e["texts"], "loss": e.get("loss"),
               "tokens_per_iteration": e.get("tokens_per_iteration"),
               "tree_tokens_per_iteration": e.get("tree_tokens_per_iteration")}
        row |= {f"accepted_{n}": None for n in range(1, 9)}
        yield row | {f"accepted_{n}": float(a) for n, a in zip(e["position"], e["acceptance"])}
    block = -(-len(steps) // 200)
    members = {"loss": lambda s: s["loss"], **{p: lambda s, p=p: s.get("parts", {}).get(p) for p in parts},
               "lr": lambda s: s["lr"], "gradient_norm": lambda s: s.get("gradient_norm")}
    for curve, of in members.items():
        for at in range(0, len(steps), block):
            value = mean([of(s) for s in steps[at:at + block]])
            if value is not None:
                yield {"type": "curve", **name, "curve": curve, "step": steps[at:at + block][-1]["step"], "value": value}


def spread(rows):
    runs, judged = [r for r in rows if r["type"] == "run"], {}
    for run in runs:
        evals = [r for r in rows if r["type"] == "eval" and r["run"] == run["run"]]
        best = ([e for e in evals if e["best"]] or evals or [{}])[-1]
        figures = {k: v for k, v in best.items() if k.startswith("accepted_") or k.endswith("tokens_per_iteration")}
        judged.setdefault(run["head"], []).append(figures | {"loss_last": run["loss_last"]})
    for head, found in judged.items():
        for figure in dict.fromkeys(f for one in found for f in one):
            values = [one[figure] for one in found if one.get(figure) is not None]
            if len(values) > 1:
                yield {"type": "spread", "head": head, "figure": figure, "runs": len(values), "mean": mean(values),
                       "least": min(values), "greatest": max(values)}


def same(a, b):
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return a == b
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1e-3)


def main():
    rows = [row for path in sys.argv[2:] for row in rows_of(path)]
    rows += list(spread(rows))
    key = lambda r: tuple(r.get(k) for k in ("type", "run", "head", "part", "figure", "curve")) + (
        r.get("step") if r["type"] in ("eval", "curve") else None, r.get("best"))
    again, wrong, count = {key(row): row for row in rows}, 0, 0
    with open(sys.argv[1]) as lines:
        for row in map(json.loads, lines):
            made, count = again.pop(key(row), {}), count + 1
            for name in set(row) | set(made):
                if not same(row.get(name), made.get(name)):
                    print(f"{key(row)}: {name} is {row.get(name)}, but {made.get(name)} from the stream")
                    wrong += 1
    for missing in again:
        print(f"{missing} is missing")
    print(f"{count} rows, {wrong} wrong values, {len(again)} missing")
    return 0 if count and not wrong and not again else 1


if __name__ == "__main__":
    sys.exit(main())
