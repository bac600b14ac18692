#!/usr/bin/env python3
"""SWIFT's search as its own libraries compute it. gaussian.jsonl: scikit-learn's GaussianProcessRegressor with the kernel and
settings of bayes_opt (Matern nu 5/2, normalize_y, the length of largest marginal likelihood of many restarts): points, scores,
and what it expects at others. search.jsonl: candidates with their scores: the random ones drawn by Philox written down here,
those of the process where bayes_opt's own acquisition function is largest, found by scipy's L-BFGS-B from many points.
Writes both beside this file."""
import json
import os
import random
import warnings

import numpy
from bayes_opt import UtilityFunction
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

HERE = os.path.dirname(os.path.abspath(__file__))
ALPHA, KAPPA = 1e-2, 2.5


def fitted(points, scores, restarts):
    process = GaussianProcessRegressor(kernel=Matern(nu=2.5), alpha=ALPHA, normalize_y=True, n_restarts_optimizer=restarts,
                                       random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return process.fit(numpy.array(points, float), numpy.array(scores, float))


def philox(counter, key):
    c, k = list(counter), [key & 0xffffffff, key >> 32]
    for _ in range(10):
        a, b = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xffffffff, (a >> 32) ^ c[3] ^ k[1], a & 0xffffffff]
        k = [(k[0] + 0x9e3779b9) & 0xffffffff, (k[1] + 0xbb67ae85) & 0xffffffff]
    return c


def drawn(parts, count, number, seed):
    order = list(range(parts))
    for i in range(count):
        word = philox((i - i % 4, 0, number, 0), seed)[i % 4]
        other = i + (word * (parts - i) >> 32)
        order[i], order[other] = order[other], order[i]
    return sorted(order[:count])


def hoped(points, scores, count):
    process = fitted(points, scores, 20)
    width = len(points[0])
    def acquire(x):
        return -float(UtilityFunction(kind="ucb", kappa=KAPPA, xi=0).utility(x.reshape(1, -1), process, 0)[0])
    chance = numpy.random.RandomState(1)
    starts = list(chance.uniform(size=(40, width))) + [numpy.array(p, float) for p in points]
    best = min((minimize(acquire, x, bounds=[(0, 1)] * width, method="L-BFGS-B") for x in starts), key=lambda found: found.fun)
    ordered = sorted(range(width), key=lambda part: -best.x[part])
    gap = best.x[ordered[count - 1]] - best.x[ordered[count]]
    return sorted(ordered[:count]), gap


def cases():
    chance = random.Random(3)
    for kind, width, count in (("corners", 12, 30), ("corners", 40, 60), ("box", 3, 25), ("equal", 4, 5), ("one", 5, 1)):
        points, scores = [], []
        for _ in range(count):
            if kind == "corners":
                chosen = set(chance.sample(range(width), width // 2))
                points.append([int(part in chosen) for part in range(width)])
                scores.append(0.9 - sum(0.4 / (1 + part) * points[-1][part] for part in range(width)) + chance.gauss(0, 0.01))
            else:
                points.append([round(chance.random(), 6) for _ in range(width)])
                scores.append(0.5 if kind == "equal" else sum(points[-1]) ** 2 + chance.gauss(0, 0.1))
        probes = [[round(chance.random(), 6) for _ in range(width)] for _ in range(6)] + [points[0]]
        process = fitted(points, scores, 20)
        mean, deviation = process.predict(numpy.array(probes), return_std=True)
        hope = UtilityFunction(kind="ucb", kappa=KAPPA, xi=0).utility(numpy.array(probes), process, 0)
        yield {"noise": ALPHA, "points": points, "scores": scores, "likelihood": process.log_marginal_likelihood_value_,
               "length": float(process.kernel_.length_scale), "probes": probes, "mean": mean.tolist(),
               "deviation": deviation.tolist(), "hope": hope.tolist()}


def search(layers, count, seed, interval, total):
    parts, chance = 2 * (layers - 2), random.Random(seed)
    cost = [chance.uniform(0, 0.5) for _ in range(parts)]
    candidates, points, scores = [], [], []
    for number in range(total):
        gap = None
        if number == 0:
            half = [layer - 1 for layer in range(1, layers - 1, 2)]
            chosen = sorted((half + [part + parts // 2 for part in half])[:count]) if count == 2 * len(half) else None
            assert chosen is not None
        elif number % interval:
            chosen = drawn(parts, count, number, seed)
        else:
            chosen, gap = hoped(points, scores, count)
        points.append([float(part in chosen) for part in range(parts)])
        scores.append(round(0.95 - sum(cost[part] for part in chosen) / count - 0.05 * (chosen[0] + 1 in chosen), 6))
        candidates.append({"parts": chosen, "score": scores[-1], "gap": gap})
    return {"layers": layers, "seed": seed, "interval": interval, "candidates": candidates}


def main():
    with open(os.path.join(HERE, "gaussian.jsonl"), "w") as out:
        for case in cases():
            out.write(json.dumps(case) + "\n")
    with open(os.path.join(HERE, "search.jsonl"), "w") as out:
        for settings in ((8, 6, 1, 25, 76), (16, 14, 5 + (9 << 32), 30, 61)):
            out.write(json.dumps(search(*settings)) + "\n")


main()
