#!/usr/bin/env python3
"""Recomputes every figure of `moe-bench ab --json` from the streams that --keep left, by other means.

    interleaved.py ANSWER.jsonl FOLDER        FOLDER/base-1.moes, FOLDER/now-1.moes, ...

Bounds are found by inverting the test: how many of the 2^n sign patterns, counted exactly, are as extreme as a shift is.
Prints one line and exits with 1 if a figure differs."""
import collections
import json
import math
import subprocess
import sys

ERROR, RUNS, LOOK = 0.05, 4, 8


def records(path):
    lines = subprocess.run(["moe-view", "--json", path], check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def runs(path):
    """Returns, by setting and prompt, lists of iterations (seconds, tokens), a list per repetition."""
    names, at, found = {}, {}, collections.defaultdict(list)
    for record in records(path):
        kind = record["type"]
        if kind == "setting":
            names[record["setting"]] = record["name"]
        elif kind == "sample":
            at[record["sequence"]] = [record["setting"], None, []]
        elif kind == "begin":
            at[record["sequence"]][1] = (record.get("task"), record["id"])
        elif kind == "iter":
            us = sum(record[key] for key in ("draft_us", "verify_us", "accept_us", "other_us"))
            at[record["sequence"]][2].append((us * 1e-6, record["emitted"]))
    for setting, prompt, iterations in at.values():
        found[names[setting], prompt].append(iterations)
    return found


def total(found, setting):
    mine = [i for key, texts in found.items() if key[0] == setting for text in texts for i in text]
    return sum(tokens for _, tokens in mine), sum(seconds for seconds, _ in mine)


def least(texts, like, alike):
    if alike:
        return sum(min(text[i][0] for text in texts) for i in range(len(like)))
    return min(sum(s for s, _ in text) / sum(t for _, t in text) for text in texts) * sum(t for _, t in like)


def rejected_below(values, shift, error):
    """Returns whether the middle is larger than this shift: the rank sum of the differences below it is too small for
    chance."""
    count = len(values)
    ranked = sorted(values, key=lambda value: abs(value - shift))
    rank_sum = sum(rank + 1 for rank, value in enumerate(ranked) if value - shift < 0)
    ways = [1] + [0] * (count * (count + 1) // 2)
    for rank in range(1, count + 1):
        ways = [n + (ways[s - rank] if s >= rank else 0) for s, n in enumerate(ways)]
    return sum(ways[:rank_sum + 1]) <= error * 2 ** count


def lower(values, error):
    """Returns the smallest shift that is not rejected: one of the means; the test rejects all shifts below it."""
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    middles = [means[0] - 1] + [(a + b) / 2 for a, b in zip(means, means[1:])] + [means[-1] + 1]
    low, high = 0, len(middles)
    while low < high:
        middle = (low + high) // 2
        if rejected_below(values, middles[middle], error):
            low = middle + 1
        else:
            high = middle
    return means[low - 1] if low else -math.inf


def bounds(values, error_low, error_high):
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    middle = (means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2
    return middle, lower(values, error_low), -lower([-value for value in values], error_high)


def near(a, b):
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9))


def main():
    answer = [json.loads(line) for line in open(sys.argv[1])]
    verdict, rows = answer[-1], [line for line in answer if line["type"] == "row"]
    count, each, limit = verdict["rounds"], verdict["rounds_per_block"], verdict["limit"]
    rounds = [[runs(f"{sys.argv[2]}/{side}-{r + 1}.moes") for side in ("base", "now")] for r in range(count)]
    faults, looks, at = [], 0, LOOK
    judged = {}
    for r in range(1, count + 1):
        if not (r % each == 0 and r // each >= at) and r != count:
            continue
        at, looks = (3 * (r // each) + 1) // 2, looks + 1
        error = ERROR / (looks * (looks + 1))
        for row in rows:
            name = row["setting"]
            if name in judged:
                continue
            like = {key: texts[0] for key, texts in rounds[0][0].items() if key[0] == name}
            measured = []
            for before, now in rounds[:r]:
                (a, s), (b, t) = total(before, name), total(now, name)
                measured.append(math.log(b / t / (a / s)))
            blocks = []
            for b in range(r // each):
                block = [collections.defaultdict(list), collections.defaultdict(list)]
                for pair in rounds[b * each:(b + 1) * each]:
                    for side in (0, 1):
                        for key in like:
                            block[side][key] += pair[side][key]
                alike = {key: all([t for _, t in text] == [t for _, t in like[key]] for i in range((b + 1) * each)
                                  for side in (0, 1) for text in rounds[i][side][key]) for key in like}
                sums = [sum(least(block[side][key], like[key], alike[key]) for key in like) for side in (0, 1)]
                blocks.append(sums)
            high = error / (2 * len(rows))
            ratio = bounds([math.log(before / now) for before, now in blocks], error, high)
            plain = bounds(measured, error, high)
            floor = math.log(1 - limit)
            word = "slower" if min(ratio[2], plain[2]) < floor else "holds" if ratio[1] >= floor else None
            found = {"ratio": ratio, "measured": plain}
            for key, (middle, low, up) in found.items():
                for suffix, value in (("", middle), ("_low", low), ("_high", up)):
                    value = math.exp(value) if math.isfinite(value) else 0.0 if value < 0 else None
                    if (word or r == count) and not near(row[key + suffix], value):
                        faults.append(f"{name}: {key}{suffix} is {row[key + suffix]}, from the streams {value}")
            if word:
                judged[name] = word
    for row in rows:
        if row["verdict"] != judged.get(row["setting"], "undecided"):
            faults.append(f"{row['setting']}: {row['verdict']}, from the streams {judged.get(row['setting'])}")
    if looks != verdict["looks"]:
        faults.append(f"{verdict['looks']} looks, from the streams {looks}")
    print(faults[0] if faults else f"{count} rounds, {looks} looks: all figures as from the streams")
    sys.exit(bool(faults))


main()
