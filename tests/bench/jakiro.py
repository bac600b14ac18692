#!/usr/bin/env python3
"""Prints the tables of tests/bench-jakiro.sh: tokens per iteration over all prompts, with Student's 95 % interval over
training seeds.

    tests/bench/jakiro.py FOLDER EPOCHS PROMPTS"""
import glob, json, math, os, re, sys

T975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}     # quantiles by the number of seeds
folder, epochs, prompts = sys.argv[1:]

GREEDY = [
    ('EAGLE-2', 'eagle1'), ('Jakiro', 'jakiro'), ('Jakiro\\*', 'jakiro_star'), ('Medusa', 'medusa'), ('Hydra', 'hydra'),
    None,
    ('table 3: N = 2, K = 2', 'jakiro'), ('N = 3, K = 2', 'jakiro-3'), ('N = 4, K = 2', 'jakiro-4'), ('N = 5, K = 2', 'jakiro-5'),
    None,
    ('table 4: without both', 'jakiro-none'), ('without the parallel last step', 'jakiro-next'),
    ('without the contrast', 'jakiro-sum'), ('Jakiro', 'jakiro')]
DRAWN = [('EAGLE-2, dynamic tree', 'eagle1', 'drawn'), ('Jakiro, dynamic tree', 'jakiro', 'drawn'),
         ('Jakiro\\*, its static tree, exact', 'jakiro_star', 'drawn'),
         ('Jakiro\\*, its static tree, as published (not lossless)', 'jakiro_star', 'published')]


def ratio(path):
    tokens = iterations = 0
    with open(path) as file:
        for line in file:
            answer = json.loads(line)
            tokens += len(answer['tokens'])
            iterations += answer['iterations']
    return tokens / iterations


def by_seed(name, case):
    """Returns, for each seed with which all cases of this kind were decoded, the mean over the cases (draws)."""
    found = {}
    for path in glob.glob(os.path.join(folder, 'run-%s-*-%s-%s-%s.jsonl' % (name, epochs, prompts, case))):
        seed = re.match(r'run-%s-(\d+)-%s-%s-' % (re.escape(name), epochs, prompts), os.path.basename(path))
        if seed:
            found.setdefault(int(seed.group(1)), []).append(ratio(path))
    most = max((len(values) for values in found.values()), default=0)
    return [sum(values) / most for _, values in sorted(found.items()) if len(values) == most]


def shown(values):
    if not values:
        return ''
    mean = sum(values) / len(values)
    if len(values) < 2:
        return '%.2f' % mean
    spread = math.sqrt(sum((x - mean) ** 2 for x in values) / (len(values) - 1))
    return '%.2f ± %.2f' % (mean, T975[len(values)] * spread / math.sqrt(len(values)))


def pair(first, second):
    """Returns the differences over the seeds that both have, in order."""
    n = min(len(first), len(second))
    return shown([b - a for a, b in zip(first[:n], second[:n])]) if n > 1 else ''


print('| T = 0 | chain of 5 | tree of 24 | tree, beyond EAGLE-2 |')
print('|---|---|---|---|')
base = by_seed('eagle1', 'tree')
for row in GREEDY:
    if row:
        tree = by_seed(row[1], 'tree')
        print('| %s | %s | %s | %s |' % (row[0], shown(by_seed(row[1], 'chain')), shown(tree),
                                         '' if row[1] == 'eagle1' else pair(base, tree)))
    else:
        print('| | | | |')
print('\n| T = 1 | tokens an iteration | beyond EAGLE-2 |')
print('|---|---|---|')
base = by_seed('eagle1', 'drawn-*')
for label, name, case in DRAWN:
    drawn = by_seed(name, case + '-*')
    print('| %s | %s | %s |' % (label, shown(drawn), '' if name == 'eagle1' else pair(base, drawn)))
