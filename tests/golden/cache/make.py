#!/usr/bin/env python3
"""Algorithm 1 of MoE-SpAc (arXiv 2603.09983), stepped from its printed lines in exact fractions: one line a case, with the
frequencies of one expert and its level and boundaries after each step. Cases of the printed floor, of boundaries without it,
and of those that stay. Writes utility.jsonl beside this file; needs Python alone."""
import json
import math
import os
import random
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))


def stepped(frequencies, K, lam, gamma, floor, calibrates=True, start=None):
    """Lines 2 to 27, for one i."""
    s, theta_up, theta_down = 0, Fraction(gamma // 2), Fraction(gamma // 2)
    if start:
        theta_up, theta_down = map(Fraction, start)
    f_before, states = 0, []
    for f in frequencies:
        delta = f - f_before                                            # 7
        at_least_up = math.floor(theta_up) if not floor else theta_up   # the same with a floored predecessor
        at_least_down = math.floor(theta_down) if not floor else theta_down
        if delta >= at_least_up:                                        # 9
            s = min(K, s + 1)                                           # 10
        elif -delta >= at_least_down:                                   # 11
            s = max(0, s - 1)                                           # 12
        if calibrates:
            whole = math.floor if floor else (lambda x: x)
            if delta > 0:                                               # 17
                theta_up = Fraction(whole((1 - lam) * theta_up + lam * delta))              # 18
            elif delta < 0:                                             # 20
                theta_down = Fraction(whole((1 - lam) * theta_down + lam * abs(delta)))     # 22
        f_before = f
        states.append([s, float(theta_up), float(theta_down)])
    return states


def main():
    chance = random.Random(20260310)
    with open(os.path.join(HERE, "utility.jsonl"), "w") as out:
        for case in range(60):
            gamma = chance.choice([1, 2, 4, 8, 8, 8, 16, 63])
            K = chance.choice([1, 2, 4, 4, 5, 8])
            lam = chance.choice(["0.1", "0.1", "0.25", "0.5", "0", "1", "0.037"])
            kind = ["floor", "floor", "real", "fixed"][case % 4]
            steady = chance.random()
            f, frequencies = 0, []
            for _ in range(60):
                if chance.random() > steady:
                    f = chance.randint(0, gamma + 1)
                else:
                    f = min(gamma + 1, max(0, f + chance.randint(-1, 1)))
                frequencies.append(f)
            states = stepped(frequencies, K, Fraction(lam), gamma, kind == "floor", kind != "fixed", (3, 1) if kind == "fixed" else None)
            json.dump({"policy": f"boundaries={kind},K={K},lambda={lam}", "gamma": gamma, "frequencies": frequencies,
                       "states": states}, out, separators=(",", ":"))
            out.write("\n")


if __name__ == "__main__":
    main()
