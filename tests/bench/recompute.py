#!/usr/bin/python3
"""Computes every figure of `moe-bench report --json` once more from the saved stream, knowing nothing of the C code.

usage: recompute.py STREAM.moes REPORT.jsonl [REPORT.md], a bench or a decode stream and what --json and --markdown print of
it; exit 1 if any figure differs. Needs msgpack and numpy."""
import collections
import json
import math
import os
import sys
import warnings

import numpy as np

sys.dont_write_bytecode = True
from streams import records


def philox(counter, key):
    """Philox4x32-10: returns an array for each word of the counter."""
    low, shift = np.uint64(0xffffffff), np.uint64(32)
    c, k0, k1 = [np.asarray(word, np.uint64) for word in counter], key & 0xffffffff, key >> 32
    for _ in range(10):
        a, b = np.uint64(0xd2511f53) * c[0], np.uint64(0xcd9e8d57) * c[2]
        c = [(b >> shift) ^ c[1] ^ np.uint64(k0), b & low, (a >> shift) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9e3779b9) & 0xffffffff, (k1 + 0xbb67ae85) & 0xffffffff
    return c


def resamples(count, draws=10000, made={}):
    """Returns [draws][count]: the pairs that each resample takes."""
    if count not in made:
        four, draw = np.meshgrid(np.arange((count + 3) // 4), np.arange(draws))
        words = np.stack(philox((four, draw, 0 * four, 0 * four), 0), -1).reshape(draws, -1)[:, :count]
        made[count] = (words * np.uint64(count) >> np.uint64(32)).astype(int)
    return made[count]


def student_above(t, freedom):
    """Returns P(T > t), by Simpson's rule over the density from 0 to t in terms of the angle: x = sqrt(freedom) tan(angle)."""
    angles = np.linspace(0, math.atan(t / math.sqrt(freedom)), 20001)
    weights = np.ones_like(angles)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    area = (weights * np.cos(angles) ** (freedom - 1)).sum() * (angles[1] - angles[0]) / 3
    return 0.5 - area * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)


def tail(pairs, made={}):
    """Returns the quantiles of the expanded interval of 95 %; columns 1 and 3 are the weights of a pair."""
    equal = [math.floor(w.sum() ** 2 / (w * w).sum() * (1 + 1e-12)) for w in (pairs[:, 1], pairs[:, 3])]
    n = max(2, min(equal))
    if n not in made:
        low, high = 0.0, 1e6
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if student_above(middle, n - 1) > 0.025 else (low, middle)
        made[n] = math.erfc(low * math.sqrt(n / (n - 1) / 2)) / 2
    return made[n]


def interval(pairs):
    """Returns the ratio of pairs (tokens, seconds, base tokens, base seconds), and the ends of its interval: NaN for one
    pair."""
    ratio = lambda sums: sums[..., 0] / sums[..., 1] / (sums[..., 2] / sums[..., 3])
    if len(pairs) < 2:
        return (ratio(pairs.sum(0)) if len(pairs) else math.nan), math.nan, math.nan
    at = tail(pairs)
    return ratio(pairs.sum(0)), *np.quantile(ratio(pairs[resamples(len(pairs))].sum(1)), [at, 1 - at])


def depths(parents):
    depth = []
    for parent in parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    return depth


def levels(parents):
    return max(depths(parents))


def trials(iters):
    """Returns (position, bound, kept) of each drafted token with a recorded bound."""
    for i in iters:
        for depth, bound in zip(depths(i["node_parents"]), i.get("overlap", ())):
            if not math.isnan(bound):
                yield depth, float(bound), depth <= i["accepted"]


def judged(iters, key):
    """Returns (probability, kept) of each drafted token whose parent is in the text."""
    for i in iters:
        said = i.get(key, ())
        path, token, parent = [0], i["node_tokens"], i["node_parents"]
        for word in i["tokens"] if len(said) else ():
            children = [n for n in range(len(parent)) if parent[n] == path[-1]]
            for n in children:
                if not math.isnan(said[n]):
                    p = float(said[n])
                    yield p if key == "node_acceptance" else min(1.0, math.exp(p)), bool(token[n] == word)
            right = [n for n in children if token[n] == word]
            if not right:
                break
            path += right


def calibration(row, iters):
    """Returns Brier score, expected calibration error and reliability diagram of acceptance probabilities."""
    for name, key in ("stated", "node_log_probability"), ("estimated", "node_acceptance"):
        pairs = list(judged(iters, key))
        row[name] = len(pairs)
        if not pairs:
            continue
        bins = [[(p, k) for p, k in pairs if min(9, int(10 * p)) == b] for b in range(10)]
        row[name + "_brier"] = sum((p - k) ** 2 for p, k in pairs) / len(pairs)
        row[name + "_error"] = sum(abs(sum(p for p, _ in b) - sum(k for _, k in b)) for b in bins) / len(pairs)
        row[name + "_noise"] = sum(math.sqrt(2 / math.pi * sum(p * (1 - p) for p, _ in b)) for b in bins) / len(pairs)
        row["reliability_tokens"] = [len(b) for b in bins]
        row["reliability_predicted"] = [ratio_of(sum(p for p, _ in b), len(b)) for b in bins]
        row["reliability_kept"] = [ratio_of(sum(k for _, k in b), len(b)) for b in bins]


class Sample:
    def __init__(self, setting, repeat):
        self.setting, self.repeat, self.iters, self.grade, self.score, self.rule = setting, repeat, [], None, None, None

    def us(self):
        return [i["draft_us"] + i["verify_us"] + i["accept_us"] + i["other_us"] for i in self.iters]

    def wall(self):
        """Returns the time of each iteration: for a shared forward, all time since the previous iteration."""
        ends = [self.begin["prefill_us"]] + [i["t_us"] for i in self.iters]
        return [end - start if "shared_texts" in i else us for i, us, start, end in zip(self.iters, self.us(), ends, ends[1:])]

    def emitted(self):
        return sum(i["emitted"] for i in self.iters)


def gather(path):
    settings, samples, bandwidth, bench = [], {}, [], True
    for kind, body in records(path):
        if kind == "header":
            bench = body["kind"] == "bench"
            if not bench:                       # one setting, with the options of the command line
                settings.append({"name": os.path.splitext(os.path.basename(path))[0], "model": body["model"]["name"],
                                 "options": json.dumps(typed(body["producer"]["argv"][1:])),
                                 "moe_layers": body["model"]["moe_layers"]})
        elif kind == "setting":
            settings.append(body)
        elif kind == "machine":
            bandwidth.append(body.get("read_bandwidth", math.nan))
            if not bench:
                settings[0]["drafters"] = json.loads(body.get("drafters", "[]"))
        elif kind == "sample":
            samples[body["sequence"]] = Sample(body["setting"], body["repeat"])
        elif kind == "begin":
            if not bench:
                samples[body["sequence"]] = Sample(0, 0)
            samples[body["sequence"]].begin = {"task": "", "id": "", **body}
        elif kind == "iter":
            samples[body["sequence"]].iters.append(body)
        elif kind == "done":
            samples[body["sequence"]].done = body
        elif kind == "grade":
            samples[body["sequence"]].rule = body["rule"]
            if body["rule"] == "rouge":             # a score alone
                samples[body["sequence"]].score = body["score"]
            else:
                samples[body["sequence"]].grade = body["correct"]
    return settings, list(samples.values()), max((b for b in bandwidth if not math.isnan(b)), default=math.nan)


def typed(argv):
    """Returns the options of a command line that determine whether a draft is fixed."""
    names, options, key = {"-K": "draft-length", "-B": "budget"}, {}, None
    for word in argv:
        if key:
            options[key], key = word, None
        elif word[:2] in names:
            key, value = names[word[:2]], word[2:]
            if value:
                options[key], key = value, None
        elif word.startswith("--") and word[2:].split("=")[0] in ("policy", "draft-length", "accept", "tree", "budget"):
            key, _, value = word[2:].partition("=")
            if value:
                options[key], key = value, None
    return options


def ratio_of(part, whole):
    return part / whole if whole else math.nan


def speed(runs):
    """Returns the tokens of the first repetition, and their seconds at the median time per token of all repetitions."""
    runs = sorted(runs, key=lambda s: s.repeat)
    per_token = [1e-6 * sum(s.us()) / s.emitted() for s in runs if s.emitted()]
    tokens = runs[0].emitted() if runs else 0
    return tokens, tokens * float(np.median(per_token)) if per_token else 0.0


def output(sample):
    return bytes(sample.done["tokens"]), sample.done.get("text")


def spread(row, name, values):
    for key, value in ("mean", np.mean), ("median", np.median), ("p99", lambda v: np.quantile(v, 0.99)):
        row[f"{name}_{key}"] = value(values) if values else math.nan


def load(row, mine, iters, setting):
    """Returns figures of texts that share forwards; a forward of n texts has n iterations."""
    forwards = sum(1 / i.get("shared_texts", 1) for i in iters)
    experts = sum(i.get("shared_experts", i["experts_loaded"]) / i.get("shared_texts", 1) for i in iters)
    row["texts_per_forward"] = ratio_of(len(iters), forwards)
    row["experts_per_forward"] = ratio_of(ratio_of(experts, forwards), setting["moe_layers"])
    row["texts_per_s"] = ratio_of(len(mine), 1e-6 * sum(s.begin["prefill_us"] + sum(s.us()) for s in mine))


def changes(row, prompts):
    """Returns the recorded effects of a budget; one list of samples per prompt."""
    iters = [[i for s in samples for i in s.iters] for samples in prompts]
    compared = [[i for i in each if "divergence" in i and "flips" in i] for each in iters]
    compared = [each for each in compared if each]
    for key, value in ("divergence", lambda i: float(np.sum(i["divergence"], dtype="f8"))), ("flips", lambda i: i["flips"]):
        if compared:
            pairs = [[sum(map(value, each)), sum(i["emitted"] for i in each), 1, 1] for each in compared]
            row[key], row[key + "_low"], row[key + "_high"] = interval(np.array(pairs, float))
    errors = [float(e) for each in iters for i in each for e in i.get("reconstruction", ()) if not math.isnan(e)]
    if errors:
        row["reconstruction"] = np.mean(errors)


def cache(row, iters):
    """Returns the recorded facts of a cache of experts."""
    sums = {key: sum(i.get("cache_" + key, 0) for i in iters)
            for key in ("hits", "misses", "read_bytes", "stall_us", "prefetched_bytes", "wasted_bytes", "named",
                        "right", "scored", "host_hits", "copied_bytes", "copied_early_bytes", "copied_wasted_bytes",
                        "stall_copies_us")}
    if sums["hits"] + sums["misses"] == 0:
        return
    time = sum(i["draft_us"] + i["verify_us"] + i["accept_us"] + i["other_us"] for i in iters)
    row["cache_hits"] = sums["hits"] / (sums["hits"] + sums["misses"])
    row["cache_read_per_token"] = ratio_of(sums["read_bytes"], sum(i["emitted"] for i in iters))
    row["cache_stall"] = ratio_of(sums["stall_us"], time)
    row["cache_prefetched"] = ratio_of(sums["prefetched_bytes"], sums["read_bytes"])
    row["cache_wasted"] = ratio_of(sums["wasted_bytes"], sums["prefetched_bytes"])
    if sums["copied_bytes"] > 0:
        row["cache_host_hits"] = sums["host_hits"] / (sums["hits"] + sums["misses"])
        row["cache_copied_per_token"] = ratio_of(sums["copied_bytes"], sum(i["emitted"] for i in iters))
        row["cache_copied_early"] = ratio_of(sums["copied_early_bytes"], sums["copied_bytes"])
        row["cache_copied_wasted"] = ratio_of(sums["copied_wasted_bytes"], sums["copied_early_bytes"])
        row["cache_stall_copies"] = ratio_of(sums["stall_copies_us"], time)
    row["cache_recall"] = ratio_of(sums["right"], sums["scored"])
    row["cache_right"] = ratio_of(sums["right"], sums["named"])


def split(row, iters):
    """Returns the recorded facts of two processors."""
    host, device = (sum(int(np.sum(i.get("split_%s_pairs" % whose, 0))) for i in iters) for whose in ("host", "device"))
    if host + device:
        row["split_host"] = host / (host + device)
        row["split_wait"] = ratio_of(sum(i.get("split_wait_us", 0) for i in iters),
                                     sum(i["draft_us"] + i["verify_us"] + i["accept_us"] + i["other_us"] for i in iters))


def static(setting):
    """Returns whether the draft is fixed in advance, and whether the text cannot differ."""
    options = json.loads(setting["options"])
    return (str(options.get("policy", "static")).startswith("static") and options.get("draft-length") != "auto" and
            "budget" not in options and "force-accept" not in options and
            not str(options.get("accept", "")).startswith("typical") and
            not str(options.get("tree", "")).startswith("dynamic"))


def best_static(settings, samples, task):
    """Returns the number of the fastest static setting by the model's name."""
    best = {}
    for number, setting in enumerate(settings):
        runs = collections.defaultdict(list)
        for s in samples:
            if s.setting == number and (task is None or s.begin["task"] == task):
                runs[s.begin["task"], s.begin["id"]].append(s)
        speeds = [speed(r) for r in runs.values()]
        seconds = sum(s for _, s in speeds)
        if static(setting) and seconds and sum(t for t, _ in speeds) / seconds > best.get(setting["model"], (0, 0))[0]:
            best[setting["model"]] = sum(t for t, _ in speeds) / seconds, number
    return {model: number for model, (_, number) in best.items()}


def drafters(row, iters):
    """Returns figures by drafter, counted from the nodes' drafters if records have them."""
    several = max((i.get("drafters", 0) for i in iters), default=0)
    if several < 2:
        return
    kept, tried = [0] * several, [0] * several
    for i in iters:
        assert list(i["drafter_verified"]) == [sum(d == n for d in i["node_drafters"][1:]) for n in range(i["drafters"])]
        assert sum(i["drafter_accepted"]) == i["accepted"]
        for number in range(i["drafters"]):
            kept[number] += int(i["drafter_accepted"][number])
            tried[number] += sum(int(d) == number for d in i["node_drafters"])
    asked = [sum(int(i["drafter_steps"][n]) for i in iters) for n in range(several)]
    row["drafter_steps"] = asked
    row["drafter_share"] = [ratio_of(k, sum(kept)) for k in kept]
    row["drafter_acceptance"] = [ratio_of(k, t) for k, t in zip(kept, tried)]
    row["drafter_us_per_step"] = [ratio_of(sum(float(i["drafter_us"][n]) for i in iters), asked[n]) for n in range(several)]


def figures(settings, samples, bandwidth, number, task):
    setting, reference = settings[number], settings[number].get("reference")
    runs, base = collections.defaultdict(list), collections.defaultdict(list)
    for s in samples:
        if task is None or s.begin["task"] == task:
            key = s.begin["task"], s.begin["id"]
            if s.setting == number:
                runs[key].append(s)
            if s.setting == reference:
                base[key].append(s)
    mine = [s for r in runs.values() for s in r]
    iters = [i for s in mine for i in s.iters]
    row = {"prompts": len(runs), "samples": len(mine), "tokens": sum(i["emitted"] for i in iters), "steps": len(iters)}
    speeds = {k: speed(r) for k, r in runs.items()}
    row["tokens_per_s"] = ratio_of(sum(t for t, _ in speeds.values()), sum(s for _, s in speeds.values()))
    tasks = list(dict.fromkeys(s.begin["task"] for s in samples))          # pairs: by task in order of appearance, then by id
    order = sorted(speeds, key=lambda k: (tasks.index(k[0]), k[1].encode()))
    timed = lambda others: [speeds[k] + speed(others.get(k, ())) for k in order if speeds[k][1] and speed(others.get(k, ()))[1]]
    pairs = np.array(timed(base)).reshape(-1, 4)
    row["ratio"], row["ratio_low"], row["ratio_high"] = interval(pairs)
    if len(pairs):
        row["ratio_median"] = np.median(pairs[:, 0] / pairs[:, 1] / (pairs[:, 2] / pairs[:, 3]))
    best = best_static(settings, samples, task).get(setting["model"])
    row["best_static"] = None if best is None else settings[best]["name"]
    if best is not None:
        fastest = collections.defaultdict(list)
        for s in samples:
            if s.setting == best and (task is None or s.begin["task"] == task):
                fastest[s.begin["task"], s.begin["id"]].append(s)
        row["best_ratio"], row["best_ratio_low"], row["best_ratio_high"] = interval(np.array(timed(fastest)).reshape(-1, 4))
    row["drafts"] = sum(i["nodes"] > 1 for i in iters)
    row["draft_tokens"] = sum(i["nodes"] - 1 for i in iters)
    for i in iters:                             # tokens accepted after the end of an answer are in no text
        i["kept"] = min(i["accepted"], i["emitted"])
    row["accepted_tokens"] = sum(i["kept"] for i in iters)
    assert row["drafts"] == sum(s.done["num_drafts"] for s in mine)
    assert sum(i["accepted"] for i in iters) == sum(s.done["num_accepted_tokens"] for s in mine)
    if row["drafts"]:
        row["acceptance_length"] = 1 + row["accepted_tokens"] / row["drafts"]
        row["acceptance_rate"] = row["accepted_tokens"] / row["draft_tokens"]
    deepest = max((levels(i["node_parents"]) for i in iters), default=0)
    row["accepted_per_pos"] = [ratio_of(sum(i["kept"] > p for i in iters), row["drafts"]) for p in range(deepest)]
    tried = list(trials(iters))
    row["trials"] = len(tried)
    if tried:
        row["trials_kept"] = np.mean([k for _, _, k in tried])
        row["bound"] = np.mean([b for _, b, _ in tried])
        row["bound_common_noise"] = np.mean([b / (2 - b) for _, b, _ in tried])
        for key, which in ("kept_per_pos", 2), ("bound_per_pos", 1):
            at = [[t[which] for t in tried if t[0] == p + 1] for p in range(deepest)]
            row[key] = [float(np.mean(values)) if values else None for values in at]
    calibration(row, iters)
    drafters(row, iters)
    row["tokens_per_step"] = ratio_of(row["tokens"], row["steps"])
    changes(row, [runs[k] for k in order])
    cache(row, iters)
    split(row, iters)
    spread(row, "ttft_ms", [1e-3 * s.begin["prefill_us"] for s in mine])
    spread(row, "tpot_ms", [1e-3 * sum(s.wall()) / s.emitted() for s in mine if s.emitted()])
    spread(row, "itl_ms", [1e-3 * u for s in mine for u in s.wall()])
    load(row, mine, iters, setting)
    for key in ("experts_wanted", "experts_loaded"):
        row[key + "_per_step"] = ratio_of(sum(i[key] for i in iters), len(iters))
    row["experts_per_layer"] = ratio_of(row["experts_loaded_per_step"], setting["moe_layers"])
    total = sum(i["bytes"] + i.get("draft_bytes", 0) for i in iters)
    row["bytes_per_step"], row["bytes_per_token"] = ratio_of(total, len(iters)), ratio_of(total, row["tokens"])
    row["bandwidth"] = ratio_of(total, 1e-6 * sum(u for s in mine for u in s.us()))
    row["bandwidth_share"] = row["bandwidth"] / bandwidth
    theirs = [i for r in base.values() for s in r for i in s.iters]
    per_token = ratio_of(sum(i["bytes"] for i in theirs), sum(i["emitted"] for i in theirs))
    row["ceiling"] = per_token / row["bytes_per_token"] if theirs else math.nan
    compared = [(s, next(b for b in base[s.begin["task"], s.begin["id"]] if b.repeat == s.repeat)) for s in mine if base]
    row["compared"], row["identical"] = len(compared), sum(output(s) == output(b) for s, b in compared)
    first = [min(r, key=lambda s: s.repeat) for r in runs.values()]
    row["graded"] = sum(s.grade is not None for s in first)
    row["correct"] = sum(s.grade is True for s in first)
    row["scored"] = sum(s.score is not None for s in first)
    rules = {s.rule for s in first} - {None}
    if rules:
        row["rules"] = [r for r in ("command", "number", "exact", "json", "code", "rouge", "boxed", "letter") if r in rules]
    for mean, deviation, of in (("correct_share", "correct_deviation", lambda s: s.grade),
                                ("score", "score_deviation", lambda s: s.score)):
        each = [[of(s) for s in mine if s.repeat == repeat and of(s) is not None] for repeat in sorted({s.repeat for s in mine})]
        means = [np.mean(values) for values in each if values]
        if means:
            row[mean] = np.mean(means)
        if len(means) > 1:
            row[deviation] = np.std(means, ddof=1)
    return row


def same(a, b):
    if isinstance(a, str):
        return a == b
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if a is None or (isinstance(a, float) and math.isnan(a)):
        return b is None
    return b is not None and abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def fixed(value, decimals):
    return "" if value is None or math.isnan(value) else f"{value:.{decimals}f}"


def fixed_range(row, key, decimals, scale=1):
    low, high = row.get(key + "_low"), row.get(key + "_high")
    return "" if low is None or math.isnan(low) else f"{scale * low:.{decimals}f}-{scale * high:.{decimals}f}"


def share(part, whole):
    return f"{part:.0f}/{whole:.0f}" if whole else ""


def percent(row, key, decimals):
    return fixed(100 * row.get(key, math.nan), decimals)


def at_place(row, key, place):
    values = row[key]
    return values[place] if place < len(values) and values[place] is not None else math.nan


def main_table(row, is_reference):
    get = lambda key: row.get(key, math.nan)
    return [fixed(get("tokens_per_s"), 1), fixed(get("ratio"), 2), "" if is_reference else fixed_range(row, "ratio", 2),
            fixed(get("ceiling"), 2), fixed(get("best_ratio"), 2), fixed(get("acceptance_length"), 2),
            fixed(get("tokens_per_step"), 2), fixed(get("experts_per_layer"), 1), fixed(1e-6 * get("bytes_per_step"), 1),
            percent(row, "bandwidth_share", 0) and percent(row, "bandwidth_share", 0) + " %",
            share(row["identical"], row["compared"]),
            fixed(get("score"), 3) if row["scored"] and not row["graded"] else share(row["correct"], row["graded"]),
            " ".join(row.get("rules", []))]


def time_table(row, _):
    times = [row[f"{name}_ms_{key}"] for name in ("ttft", "tpot", "itl") for key in ("mean", "median", "p99")]
    return [fixed(t, 3 if t < 10 else 1) for t in times]


def load_table(row, _):
    if row["texts_per_forward"] > 1:
        return [fixed(row["texts_per_forward"], 2), fixed(row["experts_per_forward"], 1), fixed(row["tokens_per_s"], 1),
                fixed(row["texts_per_s"], 3), ""]


def position_table(row, _):
    if row["drafts"]:
        return [fixed(row["drafts"], 0), fixed(row["draft_tokens"] / row["drafts"], 1),
                *(fixed(at_place(row, "accepted_per_pos", p), 3) for p in range(8))]


def drafter_table(row, _):
    if "drafter_share" in row:
        cells = ["/".join(fixed(row[key][n], decimals) or "-" for key, decimals in
                          (("drafter_share", 2), ("drafter_acceptance", 2), ("drafter_us_per_step", 1)))
                 for n in range(len(row["drafter_share"]))]
        return cells + [""] * (8 - len(cells))


def trial_table(row, _):
    if row["trials"]:
        pairs = [(at_place(row, "kept_per_pos", p), at_place(row, "bound_per_pos", p)) for p in range(4)]
        return [fixed(row["trials"], 0), *(fixed(row[k], 3) for k in ("trials_kept", "bound", "bound_common_noise")),
                *("" if math.isnan(kept) else f"{kept:.2f}/{bound:.2f}" for kept, bound in pairs)]


def estimate_table(row, _):
    if row["stated"] or row["estimated"]:
        get = lambda key: row.get(key) or math.nan
        cells = [fixed(get(name + key), places) for name in ("stated", "estimated")
                 for key, places in (("", 0), ("_brier", 3), ("_error", 3), ("_noise", 3))]
        return cells + [fixed(share, 2) for share in row["reliability_kept"]]


def change_table(row, _):
    if "divergence" in row or "reconstruction" in row:
        mean, deviation = ("correct_share", "correct_deviation") if "correct_share" in row else ("score", "score_deviation")
        correct = percent(row, mean, 1)
        if deviation in row:
            correct += "+-" + percent(row, deviation, 1)
        return [fixed(row.get("divergence", math.nan), 4), fixed_range(row, "divergence", 4), percent(row, "flips", 2),
                fixed_range(row, "flips", 2, 100), percent(row, "reconstruction", 2), correct]


def printed(lines):
    """Returns the rows of each table, a list of cells each, without task and setting."""
    tables, inside = [], False
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| task "):
            tables.append([])
        elif line.startswith("|") and not set(line) <= set("|-: \n"):
            tables[-1].append(cells[2:])
    return tables


def wrong_tables(rows, references, lines):
    """Returns how many of the printed tables differ from the rows."""
    wanted = [[cells for row, own in zip(rows, references) if (cells := table(row, own)) is not None]
              for table in (main_table, time_table, load_table, position_table, drafter_table, trial_table, estimate_table,
                            change_table)]
    # A column without values is omitted, a cell without a value is a dash.
    wanted = [[[cell or "-" for cell, column in zip(row, zip(*table)) if any(column)] for row in table] for table in wanted if table]
    found, wrong = printed(lines), 0
    for number, (table, own) in enumerate(zip(found, wanted)):
        for is_row, must in zip(table, own):
            if is_row != must:
                print(f"table {number + 1} has {is_row}, but {must} from the stream")
                wrong += 1
        wrong += len(table) != len(own)
    return wrong + (len(found) != len(wanted))


def main():
    warnings.simplefilter("error", RuntimeWarning)
    settings, samples, bandwidth = gather(sys.argv[1])
    names = [s["name"] for s in settings]
    with open(sys.argv[2]) as lines:
        rows = [r for r in map(json.loads, lines) if r["type"] == "row"]
    wrong, computed, references = 0, [], []
    for row in rows:
        number = names.index(row["setting"])
        again = figures(settings, samples, bandwidth, number, row["task"])
        computed.append(again)
        references.append(settings[number].get("reference") == number)
        for key in set(row) - {"type", "setting", "task"} | set(again):
            if not same(again.get(key), row.get(key)):
                print(f"{row['task']}, {row['setting']}: {key} is {row.get(key)}, but {again.get(key)} from the stream")
                wrong += 1
    if len(sys.argv) > 3:
        with open(sys.argv[3]) as lines:
            wrong += wrong_tables(computed, references, lines)
    print(f"{len(rows)} rows, {wrong} wrong figures")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
