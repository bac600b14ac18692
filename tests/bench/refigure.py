#!/usr/bin/python3
"""Computes every point of `moe-bench report --figure KIND --json` once more from the saved bench stream, knowing nothing of the C
code.

usage: refigure.py WINDOW STREAM.moes KIND:COST:REPORT.jsonl..., COST being time or bytes; exit 1 if any value differs."""
import collections
import functools
import json
import math
import sys

import numpy as np

sys.dont_write_bytecode = True
import recompute


def ratio_alone(pairs):
    """Replaces recompute.interval: no figure has an interval, and intervals take long."""
    sums = pairs.sum(0)
    return (sums[0] / sums[1] / (sums[2] / sums[3]) if len(pairs) else math.nan), math.nan, math.nan


recompute.interval = ratio_alone


def us(i):
    return i["draft_us"] + i["verify_us"] + i["accept_us"] + i["other_us"]


def size(i):
    return i["bytes"] + i.get("draft_bytes", 0)


def number_in_run(samples):
    """Numbers samples in the order in which they ran, which is that of their sequences."""
    for number, sample in enumerate(samples):
        sample.sequence = number
        sample.key = sample.begin["task"], sample.begin["id"]


def tasks_of(samples):
    return list(dict.fromkeys(s.begin["task"] for s in samples))


def utility(settings, samples, cost, window, _):
    rows = []
    for number, setting in enumerate(settings):
        reference = setting.get("reference")
        if reference is None or reference == number:
            continue
        mine, ran = [], 0
        for s in (s for s in samples if s.setting == number):
            base = [cost(i) for b in samples if b.setting == reference and b.key == s.key for i in b.iters]
            for end in range(window, len(s.iters) + 1) if base else ():
                part = s.iters[end - window:end]
                tokens, price = np.mean([i["emitted"] for i in part]), np.mean([cost(i) for i in part]) / np.mean(base)
                mine.append({"type": "window", "task": s.key[0], "setting": setting["name"], "id": s.key[1], "sequence": s.sequence,
                             "repeat": s.repeat, "iteration": end, "run_iteration": ran + end, "tokens": tokens, "cost": price,
                             "utility": tokens / price})
            ran += len(s.iters)
        rows += mine
        tasks = [t for t in tasks_of(samples) if any(w["task"] == t for w in mine)]
        for task in tasks + ["all"] * (len(tasks) > 1):
            own = [w for w in mine if task in ("all", w["task"])]
            at = collections.defaultdict(list)
            for w in own:
                at[w["iteration"]].append(w["utility"])
            rows += [{"type": "mean", "task": task, "setting": setting["name"], "iteration": i, "texts": len(u),
                      "utility": len(u) / sum(1 / x for x in u)} for i, u in at.items()]
            u = np.array([w["utility"] for w in own])
            rows.append({"type": "variation", "task": task, "setting": setting["name"], "texts": len({w["sequence"] for w in own}),
                         "windows": len(own), "tokens": np.mean([w["tokens"] for w in own]),
                         "cost": np.mean([w["cost"] for w in own]), "utility": 1 / np.mean(1 / u), "least": u.min(),
                         "p10": np.quantile(u, .1), "median": np.median(u), "p90": np.quantile(u, .9), "greatest": u.max(),
                         "below_1": np.mean(u < 1)})
    return rows


def prediction(settings, samples, cost, _, figures):
    rows = []
    paid = cost if cost is size else lambda i: i["draft_us"] + i["verify_us"] + i["accept_us"]
    for task in tasks_of(samples):
        for number, setting in enumerate(settings):
            reference = setting.get("reference")
            if reference is None or reference == number or not recompute.static(setting):
                continue
            keys = [{s.key for s in samples if s.setting == n and s.key[0] == task} for n in (number, reference)]
            both = keys[0] & keys[1]
            iters = [[i for s in samples if s.setting == n and s.key in both for i in s.iters] for n in (number, reference)]
            tokens = np.mean([i["emitted"] for i in iters[0]])
            price = np.mean([paid(i) for i in iters[0]]) / np.mean([paid(i) for i in iters[1]])
            rows.append({"type": "point", "task": task, "setting": setting["name"], "prompts": len(both), "tokens": tokens,
                         "cost": price, "utility": tokens / price, "ratio": figures(number, task)["ratio"]})
    x, y = (np.array([r[k] for r in rows]) for k in ("utility", "ratio"))
    slope, intercept = np.polyfit(x, y, 1) if len(rows) > 2 else (math.nan, math.nan)
    spread = ((y - y.mean()) ** 2).sum()
    rows.append({"type": "fit", "points": len(x), "r2": 1 - ((y - x) ** 2).sum() / spread if len(x) > 2 else None,
                 "r2_fit": 1 - ((y - slope * x - intercept) ** 2).sum() / spread if len(x) > 2 else None,
                 "slope": slope, "intercept": intercept, "greatest_error": abs(y / x - 1).max()})
    return rows


def each_task(samples):
    tasks = tasks_of(samples)
    return [(t, t) for t in tasks] + [(None, "all")] * (len(tasks) > 1)


def times(settings, samples, *_):
    rows = []
    parts = {"draft": "draft_us", "verify": "verify_us", "accept": "accept_us", "other": "other_us"}
    for task, name in each_task(samples):
        iters = [[i for s in samples if s.setting == n and task in (None, s.key[0]) for i in s.iters] for n in range(len(settings))]
        for number, setting in enumerate(settings):
            base = np.mean([us(i) for i in iters[setting.get("reference", number)]])
            row = {"type": "parts", "task": name, "setting": setting["name"], "iterations": len(iters[number]),
                   "total_ms": np.mean([us(i) for i in iters[number]]) / 1e3}
            row["relative"] = row["total_ms"] * 1e3 / base
            for key, field in parts.items():
                mean = np.mean([i[field] for i in iters[number]])
                row[key + "_ms"], row[key] = mean / 1e3, mean / base
            rows.append(row)
    return rows


def without(setting, *keys):
    options = {k: v for k, v in json.loads(setting["options"]).items() if k not in keys}
    return setting["model"], json.dumps(options, sort_keys=True)


def plain_name(setting, *keys):
    parts = setting["name"].split(", ")
    return ", ".join([parts[0]] + [p for p in parts[1:] if p.split(" ")[0] not in keys])


def speed(row, number, setting, cost):
    return 1 if setting.get("reference") == number else row["ceiling" if cost is size else "ratio"]


def quality(settings, samples, cost, _, figures):
    rows, family = [], ("budget", "budget-mode", "rank", "reconstruction")
    budgets = [json.loads(s["options"]).get("budget") for s in settings]
    for task in tasks_of(samples):
        of = [figures(n, task) for n in range(len(settings))]
        own = []
        for number, setting in enumerate(settings):
            rule = "correct_share" if "correct_share" in of[number] else "score"
            scatter = rule.split("_")[0] + "_deviation"
            if rule not in of[number]:
                continue
            share, spread = of[number][rule], of[number].get(scatter, math.nan)
            base = of[setting["reference"]][rule]
            plain = [of[n] for n, s in enumerate(settings) if budgets[n] is None and without(s, *family) == without(setting, *family)]
            row = {"type": "quality", "task": task, "setting": setting["name"], "budget": budgets[number],
                   "series": plain_name(setting, "budget") if budgets[number] else setting["name"], "quality": share,
                   "deviation": spread, "normalised": share / base if base else None,
                   "normalised_deviation": spread / base if base else None, "speed": speed(of[number], number, setting, cost),
                   "experts": of[number]["experts_per_layer"], "within": None, "best": None}
            if budgets[number] and plain and scatter in plain[0]:
                row["within"] = float(share >= plain[0][rule] - plain[0][scatter] - 1e-12)
            own.append(row)
        for row in own:
            rivals = [r for r in own if r["series"] == row["series"] and r["within"]]
            if row["within"] is not None:
                row["best"] = float(bool(rivals) and row is max(rivals, key=lambda r: r["speed"]))
        rows += own
    for setting in settings:
        own = [r for r in rows if r["type"] == "quality" and r["setting"] == setting["name"] and r["normalised"] is not None]
        if own:
            seeds = [0 if math.isnan(r["normalised_deviation"]) else r["normalised_deviation"] ** 2 for r in own]
            between = np.var([r["normalised"] for r in own], ddof=1) if len(own) > 1 else 0
            rows.append({"type": "mean", "task": "all", "setting": setting["name"], "series": own[0]["series"],
                         "budget": own[0]["budget"], "tasks": len(own), "normalised": np.mean([r["normalised"] for r in own]),
                         "deviation": math.sqrt(between + np.mean(seeds)), "speed": np.mean([r["speed"] for r in own])})
    return rows


def nodes(settings, samples, cost, _, figures):
    rows = []
    for task, name in each_task(samples):
        for number, setting in enumerate(settings):
            row, options = figures(number, task), json.loads(setting["options"])
            alone = options.get("draft-length") == "auto" or not str(options.get("policy", "static")).startswith("static")
            keys = ("tree", "draft-length") if "tree" in options else ("draft-length",)
            rows.append({"type": "nodes", "task": name, "setting": setting["name"],
                         "series": setting["name"] if alone or not row["drafts"] else plain_name(setting, *keys),
                         "nodes": 1 + row["draft_tokens"] / row["steps"], "experts": row["experts_per_layer"],
                         "tokens": row["tokens_per_step"], "speed": speed(row, number, setting, cost)})
    return rows


LENGTHS = [(length, below) for length in range(1, 9) for below in range(1, 9)]
FORWARDS = np.array([length for length, _ in LENGTHS])
BELOW = {"vertical": np.array([k * l for l, k in LENGTHS]), "horizontal": np.array([k for _, k in LENGTHS])}


@functools.cache
def reviewed(below, length, bottom_length):
    """Computes the distribution of the result of `length` reviews, each 1 to bottom_length + 1 tokens."""
    review = np.zeros(bottom_length + 2)
    review[1:] = below ** np.arange(bottom_length + 1)
    review[1:-1] *= 1 - below
    drafted = np.ones(1)
    for _ in range(length):
        drafted = np.convolve(drafted, review)
    return drafted


def tokens_vertical(chance, below, length, bottom_length):
    """Computes expected tokens."""
    drafted = reviewed(below, length, bottom_length)
    return drafted @ np.cumsum(chance ** np.arange(len(drafted)))


def tokens_horizontal(chance, below, length, bottom_length):
    """Adds a token for each position that is reached and correct."""
    return 1 + np.cumprod([chance] * length + [below] * bottom_length).sum()


def cascade_factors(kind, chance, bottom, cost):
    """Returns the best over all lengths, at this cost of the upper drafter."""
    if (kind, chance, bottom) not in made_tokens:
        tokens = tokens_vertical if kind == "vertical" else tokens_horizontal
        made_tokens[kind, chance, bottom] = np.array([tokens(chance, bottom[0], *l) for l in LENGTHS])
    return made_tokens[kind, chance, bottom] / (1 + FORWARDS * cost + BELOW[kind] * bottom[1])


made_tokens = {}


def alone(chance, cost):
    return max(sum(chance ** i for i in range(k + 1)) / (1 + k * cost) for k in range(9))


def boundary_cost(kind, chance, bottom):
    """Finds the root by bisection."""
    low, high, level = 0, 80, alone(*bottom)      # 73 tokens are the most there are
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if cascade_factors(kind, chance, bottom, middle).max() > level else (low, middle)
    return low


def tries(i):
    """Returns (drafter, whether it was right) for each reached position: the first token drafted there."""
    at = 0
    for reached, token in enumerate(i["tokens"]):
        children = [n for n, parent in enumerate(i["node_parents"]) if parent == at]
        if not children:
            return
        first, reviewer = children[0], i["node_reviewers"][children[0]]
        right = [n for n in children if i["node_tokens"][n] == token] if reached < i["accepted"] else []
        yield reviewer if reviewer >= 0 else i["node_drafters"][first], bool(right) and right[0] == first
        if not right:
            return
        at = right[0]


def boundary(settings, samples, cost, *_):
    rows = []
    bytes_count = cost is size
    for task, name in each_task(samples):
        iters = [[i for s in samples if s.setting == n and task in (None, s.key[0]) for i in s.iters] for n in range(len(settings))]
        for number, setting in enumerate(settings):
            count = max((i.get("drafters", 1) for i in iters[number]), default=1)
            if count < 2:
                continue
            single = lambda n: [i["bytes"] if bytes_count else i["verify_us"] for i in iters[n] if i["nodes"] == 1 and "riders" not in i]
            forwards = single(setting.get("reference", number)) or single(number)
            if not forwards:
                continue
            mine = [i for i in iters[number] if "drafters" in i]
            tried = [t for i in mine for t in tries(i)]
            points, names = [], setting.get("drafters") or json.loads(setting["options"])["draft"]
            for d in range(count):
                own = [right for drafter, right in tried if drafter == d]
                runs = sum(min(i["drafter_levels"][d], max(i["drafter_proposed"][d], i["drafter_steps"][d])) for i in mine)
                spent = sum(i["drafter_bytes" if bytes_count else "drafter_us"][d] for i in mine)
                chance = np.mean(own) if own else math.nan
                price = spent / runs / np.mean(forwards) if runs else math.nan
                points.append((chance, price))
                rows.append({"type": "drafter", "task": name, "setting": setting["name"], "drafter": names[d], "tried": len(own),
                             "acceptance": chance, "runs": runs, "cost": price, "forwards": len(forwards),
                             "alone": alone(chance, price) if own and runs else None})
            known = [p for p in points if not math.isnan(p[1])]
            bottom = min(known, key=lambda p: (p[1], -p[0] if not math.isnan(p[0]) else 1)) if known else (math.nan, math.nan)
            for point, row in zip(points, rows[-count:]):
                row.update(dict.fromkeys(("vertical", "horizontal", "vertical_cost", "horizontal_cost")), lies="unknown")
                if point is bottom:
                    row["lies"] = "bottom"
                elif not math.isnan(sum(point) + bottom[0]):
                    inside = []
                    for kind in "vertical", "horizontal":
                        row[kind] = cascade_factors(kind, point[0], bottom, point[1]).max()
                        row[kind + "_cost"] = boundary_cost(kind, point[0], bottom)
                        inside += [kind] if point[1] < row[kind + "_cost"] else []
                    row["lies"] = "outside" if not inside else "inside both" if len(inside) == 2 else "inside " + inside[0]
            for kind in ("vertical", "horizontal") if not math.isnan(bottom[0]) else ():
                for percent in range(2, 101, 2):
                    price = boundary_cost(kind, percent / 100, bottom)
                    if price > 1e-12:
                        rows.append({"type": "boundary", "task": name, "setting": setting["name"], "cascade": kind,
                                     "acceptance": percent / 100, "cost": price})
    return rows


def forecasts(settings, samples, *_):
    rows = []
    for task, name in each_task(samples):
        for number, setting in enumerate(settings):
            iters = [i for s in samples if s.setting == number and task in (None, s.key[0]) for i in s.iters if "forecasts" in i]
            if not iters:
                continue
            wanted = np.array([i["forecast_wanted"] for i in iters])
            layers = wanted.shape[1]
            for at, source in enumerate(iters[0]["forecast_sources"].split()):
                shaped = lambda key: np.array([np.reshape(i[key], (i["forecasts"], layers))[at] for i in iters])
                named, right = shaped("forecast_named"), shaped("forecast_right")
                bytes_each = np.array([i["forecast_expert_bytes"] for i in iters])[:, None]
                for layer in [None, *range(layers)]:
                    part = slice(None) if layer is None else slice(layer, layer + 1)
                    row = {"type": "forecast", "task": name, "setting": setting["name"], "source": source, "iterations": len(iters),
                           "wanted": wanted[:, part].sum(), "named": named[:, part].sum(),
                           "wasted_mb": ((named - right)[:, part] * bytes_each).sum() / 1e6 / len(iters)}
                    row["recall"] = right[:, part].sum() / row["wanted"]
                    row["precision"] = right[:, part].sum() / row["named"] if row["named"] else math.nan
                    rows.append(row if layer is None else row | {"type": "forecast_layer", "layer": layer})
    return rows


def same(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    missing = lambda x: x is None or math.isnan(x)
    if missing(a) or missing(b):
        return missing(a) and missing(b)
    return abs(a - b) <= 1e-7 * max(abs(a), abs(b), 1e-3)


def check(kind, wanted, path):
    with open(path) as lines:
        found = [json.loads(line) for line in lines]
    word = lambda value: value if isinstance(value, str) else "" if value is None else f"{value:.0f}"
    keys = "type", "task", "setting", "id", "sequence", "iteration", "drafter", "cascade", "source", "layer"
    name = lambda r: (*(word(r.get(k)) for k in keys), word(r["type"] == "boundary" and 100 * r["acceptance"]))
    wanted, wrong = {name(r): r for r in wanted}, 0
    for row in found:
        again = wanted.pop(name(row), {})
        for key in set(row) | set(again):
            if not same(again.get(key), row.get(key)):
                print(f"{name(row)}: {key} is {row.get(key)}, but {again.get(key)} from the stream")
                wrong += 1
    for missing in wanted:
        print(f"{missing} is missing")
    print(f"{kind}: {len(found)} points, {wrong} wrong values, {len(wanted)} missing")
    return found and not wrong and not wanted


def main():
    settings, samples, bandwidth = recompute.gather(sys.argv[2])
    number_in_run(samples)
    made = {}

    def figures(number, task):
        if (number, task) not in made:
            made[number, task] = recompute.figures(settings, samples, bandwidth, number, task)
        return made[number, task]

    right = True
    for kind, cost, path in (word.split(":", 2) for word in sys.argv[3:]):
        wanted = globals()[kind](settings, samples, size if cost == "bytes" else us, int(sys.argv[1]), figures)
        right = check(kind, wanted, path) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
