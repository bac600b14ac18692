#!/usr/bin/env python3
"""Reproduces the decisions of `--draft auto` (policy dytc-verify) from a saved stream, independently of the C code.

usage: auto_steps.py STREAM.moes LIMIT [SETTING=VALUE ...]

STREAM is of moe-decode -d auto --record route, one text after another; LIMIT is the number of tokens of an answer (-n), SETTINGS are
those of the policy (max, explore, optimism, warmup, decay). Everything that the policy knows is learned again, from the first
record on: acceptance probabilities, times of drafters and of verification, and unions of experts. Each step (drafter, leaf, number of
tokens, nodes that are dropped) must be the recorded one, and the values that the records state must agree. Prints what was
compared; exits 1 with the first difference. Decisions whose alternatives differ by less than CLOSE are followed as recorded.

The rules are those of moe-drafting(7), "Acceptance probabilities" and "Several drafters"; the constants those of common/predict and
common/policy. One text per forward, no cost table, no calibration file. Needs msgpack and numpy."""
import itertools
import json
import math
import sys

import numpy as np

from streams import records

LOOK_UP = ("ngram", "pld", "suffix", "lookahead")
SETTINGS = {"max": 64, "explore": 0.01, "optimism": 1.5, "warmup": 8.0, "decay": 0.999}
FIRST_GUESS = 0.6
UNMEASURED, GROWTH = 16, 2      # a draft has at most so many tokens, or so many times the rows of the largest forward so far
LOOK_EACH = 8                   # tokens after each of which others are looked up
ENDS = 8                        # tokens that may end a text
CLOSE = 2e-4
COUNTS = dict.fromkeys(("iterations", "steps", "drafted", "dropped", "trials", "siblings", "estimates", "close", "ends"), 0)


def fail(where, message):
    sys.exit(f"auto_steps.py: {where}: {message}")


def agree(where, what, recorded, own, tolerance=1e-6):
    if abs(recorded - own) > tolerance * max(1, abs(own)):
        fail(where, f"{what} is {recorded}, here {own}")


# Acceptance probabilities

def clipped(p):
    return min(1 - 1e-3, max(1e-3, p))


def logit(p):
    p = clipped(p)
    return math.log(p / (1 - p))


def logistic(x):
    return clipped(1 / (1 + math.exp(-x)))


class Regression:
    def __init__(self, weight, prior, decay):
        self.weight, self.prior, self.decay = np.array(weight, float), np.diag(prior).astype(float), decay
        self.information, self.loss = self.prior.copy(), 0.0

    def logit(self, x):
        return float(self.weight @ x)

    def fade(self, weight):
        self.information = weight * self.information + (1 - weight) * self.prior

    def observe(self, x, kept):
        p = logistic(self.logit(x))
        self.loss = 0.99 * self.loss - math.log(p if kept else 1 - p)
        self.fade(self.decay)
        self.information = self.information + max(0.02, p * (1 - p)) * np.outer(x, x)
        self.weight = self.weight + np.linalg.solve(self.information, x) * (kept - p)


class Correction:
    """Corrections of the probability of tokens that continue a match: by the length of the match, then by the probability."""
    LENGTHS, KNOTS, OFFSET_PRIOR, ERROR_PRIOR = 8, 11, 4, 20

    def __init__(self, decay):
        self.decay = decay ** 0.25
        self.offset, self.information = np.zeros(self.LENGTHS), np.zeros(self.LENGTHS)
        self.error, self.seen = np.zeros(self.KNOTS), np.zeros(self.KNOTS)

    def by_length(self, p, match):
        return logistic(logit(p) + self.offset[min(match, self.LENGTHS) - 1])

    def near(self, p):
        """Returns the weights of the knots at a probability."""
        return np.maximum(0, 1 - abs(p * (self.KNOTS - 1) - np.arange(self.KNOTS)))

    def of(self, p, match):
        p = self.by_length(p, match)
        return clipped(p + float(self.near(p) @ self.error))

    def fade(self, weight):
        self.information, self.seen = self.information * weight, self.seen * weight

    def observe(self, p, match, kept):
        p, at = self.by_length(p, match), min(match, self.LENGTHS) - 1
        near = self.near(p)
        left = kept - p - float(near @ self.error)
        self.fade(self.decay)
        self.seen = self.seen + near
        self.error = self.error + left * near / (self.seen + self.ERROR_PRIOR)
        self.information[at] += max(0.02, p * (1 - p))
        self.offset[at] += (kept - p) / (self.information[at] + self.OFFSET_PRIOR)


class Signal:
    """Inputs of the regression for a drafted token."""

    def __init__(self, node, siblings):
        self.stated, self.depth, self.match = node.stated, node.depth, node.match
        above = node.parent
        while above is not None and math.isnan(above.stated):
            above = above.parent
        self.sure = math.nan if above is None else above.stated
        mine = siblings.index(node)
        self.before, self.margin = mine, 0.0
        if mine + 1 < len(siblings):
            margin = float(np.float32(node.stated) - np.float32(siblings[mine + 1].stated))
            self.margin = 0.0 if math.isnan(margin) else margin


def signals(tree):
    return [Signal(node, [other for other in tree if other.parent is node.parent]) for node in tree]


class Estimator:
    """Acceptance probability of one drafter: three regressions, each with a long and a short memory, and two corrections."""

    def __init__(self, decay):
        decays = (decay, decay ** 16)
        self.ahead = [Regression([logit(FIRST_GUESS), 0, 0, 0], [0.4, 10, 10, 10], d) for d in decays]
        self.stated = [Regression([1, 0, 0, 0, 0, 0], [8, 0.5, 4, 4, 4, 2], d) for d in decays]
        self.silent = [Regression([1, 0, 0, 0, 0, 0], [8, 1, 2, 2, 2, 1], d) for d in decays]
        self.correction = [Correction(decay), Correction(decay)]

    @staticmethod
    def at_depth(depth):
        return np.array([1, depth >= 2, depth >= 3, math.log2(depth / 3) if depth >= 3 else 0], float)

    @staticmethod
    def short(pair):
        return 1 / (1 + math.exp(min(50, max(-50, pair[1].loss - pair[0].loss + 1))))

    def mixed(self, pair, xs):
        share = self.short(pair)
        return (1 - share) * logistic(pair[0].logit(xs[0])) + share * logistic(pair[1].logit(xs[1]))

    def features(self, s):
        before = min(s.before, 3)
        if not math.isnan(s.stated):
            base = logit(math.exp(s.stated))
            margin = min(4, max(0, s.margin)) / 4
            x = np.array([base, 1, math.log2(s.depth), max(0, base - 2), margin, before])
            return self.stated, [x, x]
        sure = 0 if math.isnan(s.sure) else logit(math.exp(s.sure)) / 2
        rest = [1, math.log2(max(1, s.match)), s.match > 0, sure, before]
        return self.silent, [np.array([fit.logit(self.at_depth(s.depth))] + rest, float) for fit in self.ahead]

    def corrects(self, signal):
        return self.correction[math.isnan(signal.stated)]

    def of(self, signal):
        p = self.mixed(*self.features(signal))
        return self.corrects(signal).of(p, signal.match) if signal.match > 0 else p

    def expected(self, depth):
        return self.mixed(self.ahead, [self.at_depth(depth)] * 2)

    def doubt(self):
        p, x, share = min(0.95, max(0.05, self.expected(1))), self.at_depth(1), self.short(self.ahead)
        of = [float(x @ np.linalg.solve(fit.information, x)) for fit in self.ahead]
        return p * (1 - p) * math.sqrt((1 - share) * of[0] + share * of[1])

    def observe(self, signal, kept):
        pair, xs = self.features(signal)
        if signal.match > 0:
            self.corrects(signal).observe(self.mixed(pair, xs), signal.match, kept)
        for fit, x in zip(pair, xs):
            fit.observe(x, kept)
        if not signal.before:
            for fit in self.ahead:
                fit.observe(self.at_depth(signal.depth), kept)

    def fade(self, weight):
        for part in self.ahead + self.stated + self.silent + self.correction:
            part.fade(weight)


# Costs

class Drafting:
    """Seconds of a drafter by robust regression over recent calls: a per call, b per level, c per node."""
    WINDOW, MEMORY, PRIOR = 24, 0.98, np.diag([0.5, 1e-6, 4])

    def __init__(self):
        self.recent, self.precision, self.moment = [], np.zeros((3, 3)), np.zeros(3)
        self.mean, self.idle = np.zeros(3), 0

    @property
    def begun(self):
        return bool(self.recent)

    def add(self, precision, moment, x, seconds, weight):
        return self.MEMORY * precision + weight * np.outer(x, x), self.MEMORY * moment + weight * seconds * x

    def solved(self, precision, moment):
        used = [0, 1, 2]
        while True:
            mean = np.zeros(3)
            mean[used] = np.linalg.solve((precision + self.PRIOR)[np.ix_(used, used)], moment[used])
            if mean.min() >= 0:
                return mean
            used.remove(int(mean.argmin()))

    def observe(self, steps, levels, nodes, seconds):
        self.idle += 1
        if not steps or not levels or not seconds >= 0:
            return
        self.idle = 0
        if len(self.recent) == self.WINDOW:
            self.precision, self.moment = self.add(self.precision, self.moment, *self.recent.pop(0))
        self.recent.append([np.array([steps, levels, nodes], float), seconds, 1.0])
        typical = float(np.median([seconds / x[1] for x, seconds, _ in self.recent]))
        mean = np.array([0, typical, 0])
        for _ in range(4):
            apart = [abs(seconds - mean @ x) / x[1] for x, seconds, _ in self.recent]
            limit = 1.345 * max(float(np.median(apart)) / 0.6745, 0.01 * typical)
            precision, moment = self.precision, self.moment
            for sample, far in zip(self.recent, apart):
                sample[2] = min(1.0, limit / far) if far > 0 else 1.0
                precision, moment = self.add(precision, moment, *sample)
            mean = self.solved(precision, moment)
        self.mean = mean


class Forwards:
    """Seconds of a forward: level (1 + steepness growth) exp(bend by rows). A Kalman filter tracks the logarithms of level and
    steepness, and the bend at knots; knots never fall, nor does the bend from one to the next."""
    ROWS = np.array([2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
    BEND = 0.2

    def __init__(self, steepness, uncertainty):
        knots = np.log2(self.ROWS)
        self.state = np.concatenate([[0.0, math.log(steepness)], np.zeros(len(knots))])
        self.covariance = np.diag(np.concatenate([[1.0, uncertainty ** 2], np.zeros(len(knots))]))
        self.covariance[2:, 2:] = self.BEND ** 2 * np.minimum.outer(knots, knots)
        self.most, self.begun, self.rows = max(0.25, uncertainty ** 2), False, 0

    def knots(self, rows):
        """Returns the weights of the knots in the bend at `rows`."""
        return np.array([np.interp(np.log2(rows), np.log2(np.concatenate([[1], self.ROWS])), one)
                         for one in np.eye(len(self.ROWS) + 1)[1:]])

    def bend(self, rows):
        return float(self.knots(rows) @ self.state[2:])

    def observe(self, growth, rows, seconds):
        if not seconds > 0 or growth < 0:
            return
        steep, bend = math.exp(self.state[1]) * growth, self.bend(rows)
        if not self.begun:
            self.begun = True
            self.state[0] = math.log(seconds) - math.log1p(steep)
            self.covariance[0, :] = self.covariance[:, 0] = 0
            self.covariance[0, 0] = 0.02
        self.rows = max(self.rows, rows)
        self.covariance[0, 0] += 2e-4
        self.covariance[1, 1] = min(self.covariance[1, 1] + 1e-4, self.most)
        self.covariance[range(2, len(self.state)), range(2, len(self.state))] += 2e-5
        surprise = math.log(seconds) - self.state[0] - math.log1p(steep) - bend
        slope = np.concatenate([[1, steep / (1 + steep)], self.knots(rows) * (surprise > 0 or bend > 0)])
        toward = self.covariance @ slope
        variance = slope @ toward + 0.02
        limit = max(0.4, math.sqrt(variance))
        self.state = self.state + toward / variance * min(limit, max(-limit, surprise))
        self.covariance = self.covariance - np.outer(toward, toward) / variance
        self.state[2:] = np.maximum.accumulate(np.maximum(0, self.state[2:]))

    level = property(lambda self: math.exp(self.state[0]) if self.begun else 0.0)
    steepness = property(lambda self: math.exp(self.state[1]))
    doubt = property(lambda self: math.sqrt(max(0, self.covariance[1, 1])))


class Unions:
    """Mean number of distinct experts per layer of the text's last 1, 2, ... tokens."""

    def __init__(self, experts, top_k, most):
        self.experts, self.top_k, self.most, self.recent, self.average = experts, top_k, most, [], []

    def learn(self, rows):
        for row in rows:
            self.recent = [row] + self.recent[:self.most - 1]
            seen = [set() for _ in row]
            for back, old in enumerate(self.recent):
                for layer, chosen in enumerate(old):
                    seen[layer].update(chosen)
                now = sum(map(len, seen)) / len(row)
                if back == len(self.average):
                    self.average.append([0.0, 0])
                mean = self.average[back]
                mean[1] += 1
                mean[0] += max(0.03, 1 / mean[1]) * (now - mean[0])

    def of(self, tokens):
        if tokens <= len(self.average):
            return self.average[tokens - 1][0]
        return self.experts * (1 - (1 - self.top_k / self.experts) ** tokens)

    def growth(self, tokens):
        return self.of(tokens) / self.of(1) - 1 + 0.02 * (tokens - 1) if self.experts else 0.1 * (tokens - 1)


# Plans

class Plans:
    """All plans of up to `left` tokens by drafters in a fixed order: tokens of each drafter, and the drafter of each token."""
    made = {}

    def __init__(self, drafters, left):
        self.counts = np.array([c for c in itertools.product(range(left + 1), repeat=drafters) if sum(c) <= left]
                               if drafters else np.zeros((1, 0)), int).reshape(-1, drafters)
        self.length = self.counts.sum(1)
        ends = self.counts.cumsum(1)
        self.by = (np.arange(left)[None, :, None] >= ends[:, None, :]).sum(2) if drafters else np.zeros((1, left), int)
        self.drawn = np.arange(left)[None, :] < self.length[:, None]

    @classmethod
    def of(cls, drafters, left):
        if (drafters, left) not in cls.made:
            cls.made[drafters, left] = cls(drafters, left)
        return cls.made[drafters, left]


class Offer:
    """A drafter as the planner sees it: acceptance probability at depth 1, 2, and from 3 on; cost of a call and of a token."""

    def __init__(self, chance, step, token, out):
        self.chance, self.step, self.token, self.out = chance, step, token, out


def useless(offers, i):
    """Returns whether another drafter is better in all respects, by more than rounding, or equal and earlier in the list."""
    mine = offers[i]
    return any(not o.out and o.step <= mine.step and o.token <= mine.token and
               (all(a > b + 1e-9 for a, b in zip(o.chance, mine.chance)) or
                (at < i and (o.chance, o.step, o.token) == (mine.chance, mine.step, mine.token))) for at, o in enumerate(offers))


def plans(offers, done, most, survival, verify):
    """Tokens, costs and counts of every plan that continues a chain of `done` tokens, but for those with useless drafters; the
    first adds nothing."""
    offers = [Offer(o.chance, o.step, o.token, o.out or useless(offers, i)) for i, o in enumerate(offers)]
    order = sorted((i for i, offer in enumerate(offers) if not offer.out), key=lambda i: (-offers[i].chance[2], offers[i].token, i))
    left = most - done
    every = Plans.of(len(order), left)
    table = np.array([[offers[i].chance[min(done + at, 2)] for at in range(left)] for i in order] + [[0.0] * left])
    chance = np.where(every.drawn, table[np.minimum(every.by, len(order)), np.arange(left)[None, :]], 0)
    tokens = survival * np.cumprod(chance, 1).sum(1) if left else np.zeros(len(every.length))
    cost = every.counts @ np.array([offers[i].token for i in order]) + \
        (every.counts > 0) @ np.array([offers[i].step for i in order]) if order else np.zeros(len(every.length))
    counts = np.zeros((len(every.length), len(offers)), int)
    counts[:, order] = every.counts
    return tokens, cost + np.array(verify)[done + every.length], counts, order


def best_plan(offers, done, most, survival, rate, verify):
    """Returns (value, counts, first drafter or None) of the best plan; values that differ in the last bits count as equal."""
    tokens, cost, counts, order = plans(offers, done, most, survival, verify)
    value = tokens - rate * cost
    empty = int((counts.sum(1) == 0).argmax())
    at = int(value.argmax())
    if value[at] <= value[empty] + 1e-12:
        at = empty
    first = next((i for i in order if counts[at][i]), None)
    return float(value[at]), counts[at], first, (value, counts, order)


def near(plan, first, tokens):
    """Returns whether a plan that begins with drafter `first` (None: an empty plan) is as good as the best one."""
    value, counts, order = plan[3]
    for at in np.flatnonzero(value >= plan[0] - CLOSE):
        begins = next((i for i in order if counts[at][i]), None)
        if begins == first and (first is None or tokens is None or counts[at][first] == tokens):
            return True
    return False


# The policy

class Node:
    def __init__(self, parent, token, drafter, stated, match):
        self.parent, self.token, self.drafter, self.stated, self.match = parent, token, drafter, stated, match
        self.depth = 1 if parent is None else parent.depth + 1


class Task:
    def __init__(self, drafters, decay):
        self.estimator = [Estimator(decay) for _ in range(drafters)]
        self.second, self.offers = [[0.0, 0.0] for _ in range(drafters)], [1.0] * drafters
        self.tokens = self.cost = 0.0

    def copy(self):
        import copy
        return copy.deepcopy(self)

    def forget(self, weight):
        self.tokens *= weight
        self.cost *= weight
        for estimator in self.estimator:
            estimator.fade(weight)
        self.second = [[a * weight, b * weight] for a, b in self.second]


class Auto:
    def __init__(self, names, model, settings, chains, sampled):
        self.names, self.s, self.chains = names, settings, chains
        self.looks_up = [name.split(":")[0] in LOOK_UP for name in names]
        self.most = int(settings["max"])
        experts = model.get("experts", 0)
        self.unions = Unions(experts, model.get("top_k", 0), self.nodes_for(self.most) + 1)
        self.forwards = Forwards(0.8, 0.3) if experts else Forwards(0.5, 1)
        self.drafting = [Drafting() for _ in names]
        self.now = Task(len(names), settings["decay"])
        self.tasks = {"": self.now}
        self.allowance, self.speaks, self.pending = settings["warmup"], [False] * len(names), []
        self.ends, self.last, self.open, self.sampled = [], None, False, sampled

    @staticmethod
    def nodes_for(chain):
        return min(2 * chain, 64)

    def begin(self, task):
        name = task or ""
        if name not in self.tasks:
            self.tasks[name] = self.now.copy()
            self.tasks[name].forget(0.25)
        self.now = self.tasks[name]
        if task is None:
            self.now.forget(0.8)
        self.unions.recent, self.pending = [], []
        if self.last is not None and self.open:
            self.ends = ([end for end in self.ends if end != self.last] + [self.last])[-ENDS:]
        self.last = None

    def part(self, rows, steepness=None):
        steepness = self.forwards.steepness if steepness is None else steepness
        return (1 + steepness * self.unions.growth(rows)) * math.exp(self.forwards.bend(rows))

    def verify(self, steepness=None):
        return [self.part(k + 1, steepness) for k in range(self.nodes_for(self.room) + 1)]

    def offers(self, hoped=None):
        level, out = self.forwards.level, []
        for i, drafting in enumerate(self.drafting):
            known = drafting.begun and level > 0
            estimator = self.now.estimator[i]
            more = (self.s["optimism"] + 0.4 * self.allowance) * estimator.doubt() if i == hoped else 0
            share = self.now.offers[i] if self.looks_up[i] else 1
            late = self.looks_up[i] and len(self.estimate) < self.look_from
            out.append(Offer([min(0.98, estimator.expected(depth) + more) * share for depth in (1, 2, 3)],
                             drafting.mean[0] / level if known else 0,
                             (drafting.mean[1] + drafting.mean[2]) / level if known else 0.05, self.dry[i] or late))
        return out

    def plan(self, nodes, offers):
        return best_plan(offers, nodes, self.room, float(np.prod(self.estimate[:nodes])), self.rate, self.costs)

    def start(self, room, stated_rate, where):
        self.room = min(self.most, room, max(UNMEASURED, GROWTH * self.forwards.rows))
        self.dry, self.estimate, self.trial, self.tried = [False] * len(self.names), [], None, False
        self.drops, self.closed, self.look_from, self.left = False, None, 0, room
        self.costs = self.verify()
        planned = 1.0
        if self.room > 0:
            tokens, cost, *_ = plans(self.offers(), 0, self.room, 1, self.costs)
            planned = max(1.0, float(((1 + tokens) / cost).max()))
        reached = self.now.tokens / self.now.cost if self.now.cost > 0 else 1
        self.rate = max(1, planned, min(reached, 1.3 * planned))
        if self.room > 0 and self.rate > planned:
            value, counts, _ = best_plan(self.offers(), 0, self.room, 1, self.rate, self.costs)[3]
            drafts = counts.sum(1) > 0
            margin = float(value[drafts].max() - value[~drafts].max()) if drafts.any() else -1
            if margin < -CLOSE or (margin < CLOSE and abs(stated_rate - planned) < abs(stated_rate - self.rate)):
                self.rate = planned
        agree(where, "rate", stated_rate, self.rate, 1e-5)
        self.rate = stated_rate                         # the recorded maximum is precise to 1e-6: continue with it

    @staticmethod
    def trial_tokens(offer):
        return 3 if offer.token < 0.1 else 1

    def loss(self, offers, which, plan):
        """Returns the least expected loss of a trial, and where that is: "first" or "last" in the chain, or "dropped"."""
        tried = offers[which]
        chance, asked = tried.chance[0], tried.step + tried.token
        rest = best_plan(offers, 1, self.room, chance, self.rate, self.costs)
        found = [((plan[0] - (chance - self.rate * asked + rest[0])) / self.rate, "first")]
        if not self.sampled:
            found.append((tried.step + self.trial_tokens(tried) * tried.token, "dropped"))
        reach, length = 1.0, 0
        for i, count in enumerate(plan[1]):
            for _ in range(count):
                reach *= offers[i].chance[min(length, 2)]
                length += 1
        if length and length < self.room:
            found.append(((asked + self.costs[length + 1] - self.costs[length]) / reach - chance / self.rate, "last"))
        return min(found, key=lambda one: one[0])

    def find_trial(self, plan):
        """Returns the drafter to try, or None, and where."""
        gain, found = 1e-3, None
        hoped = self.verify(self.forwards.steepness * math.exp(-self.s["optimism"] * self.forwards.doubt))
        for i in range(len(self.names)):
            if self.dry[i] or plan[2] == i:
                continue
            best = best_plan(self.offers(i), 0, self.room, 1, self.rate, hoped)
            if best[1][i] and best[0] - plan[0] > gain + 1e-9:
                gain, found = best[0] - plan[0], i
        for i, drafting in enumerate(self.drafting):
            if found is None and not self.dry[i] and not self.looks_up[i] and plan[2] != i and drafting.idle >= 200:
                found = i
        if found is None:
            return None, None
        loss, place = self.loss(self.offers(), found, plan)
        loss = max(0, loss)
        if loss > self.allowance:
            return None, None
        self.allowance -= loss
        return found, place

    def cut(self, before, tree):
        """How many of the looked-up nodes pay, as values of keeping so many."""
        offers, gain, values = self.offers(), 0.0, []
        chance = float(np.prod(self.estimate[:before]))
        last = len(tree) if self.closed is None else self.closed + 1
        for nodes in range(before, last + 1):
            if nodes > before:
                chance *= self.estimate[nodes - 1]
                gain += chance
            goes_on = self.closed is None or nodes <= self.closed
            values.append(gain + (self.plan(nodes, offers)[0] if goes_on else -self.rate * self.costs[nodes]))
        return values

    def branches(self, tree):
        """Returns {drafter: (worth, nodes beside which it drafts)}."""
        found = {}
        for i, drafting in enumerate(self.drafting):
            right, total = self.now.second[i]
            gain, chance, chosen, worth = [], 1.0, [], 0.0
            for node, estimate in zip(tree, self.estimate):
                gain.append(chance * (1 - estimate) * (right + 2.4) / (total + 8) if node.drafter == i else 0)
                chance *= estimate
            while len(chosen) < self.nodes_for(len(tree)) - len(tree):
                at = len(tree) + len(chosen)
                best = max(range(len(tree)), key=lambda k: (gain[k], -k))
                more = gain[best] - self.rate * (self.costs[at + 1] - self.costs[at])
                if more <= 0:
                    break
                worth += more
                chosen.append(best)
                gain[best] = 0
            if chosen:
                mean, level = drafting.mean, self.forwards.level
                worth -= self.rate * (float(mean @ np.array([1, 1, len(chosen)])) / level if drafting.begun else 0.05)
                found[i] = worth, chosen
        return found

    def iteration(self, where, it, room):
        """Reproduces the steps of an iteration from the proposals of drafters at the recorded steps."""
        steps, trees = history(it)
        state = it["policy"]
        self.start(room, state["rate"], where)
        tree, asked, branched = [], None, 0
        for at in range(len(steps) + 1):
            step = steps[at] if at < len(steps) else None
            tree = trees[at]
            if branched:
                wanted = None                           # second choices end a draft
            else:
                wanted, branched = self.next(where, tree, asked, step, steps[at - 1] if at else None)
            if (step is None) != (wanted is None) or (step and wanted != step["as"]):
                fail(f"{where}, step {at}", f"{step and step['as']} is recorded; here {wanted}")
            asked = step["drafter"] if step and step["kind"] == 1 and not branched else None
            COUNTS["steps"] += 1
        if state["siblings"] != branched or state["K"] != len(tree):
            fail(where, f"K is {state['K']} with {state['siblings']} siblings, here {len(tree)} with {branched}")
        agree(where, "allowance", state["allowance"], self.allowance, 1e-5)
        for node, own in enumerate(self.estimate, 1):
            agree(where, f"acceptance probability of node {node}", float(it["node_acceptance"][node]), own, 1e-5)
            COUNTS["estimates"] += 1
        COUNTS["drafted"] += bool(tree)
        COUNTS["siblings"] += branched
        return tree

    def take(self, tree, asked, step, added):
        """Processes the proposals of a step. Returns the step that drops nodes, or None."""
        new = signals(tree)[len(self.estimate):]
        for at in range(len(tree) - len(new), len(tree)):
            if self.closed is None and tree[at].token in self.ends:
                self.closed = at
                COUNTS["ends"] += 1
        self.estimate += [self.now.estimator[node.drafter].of(s) for node, s in zip(tree[len(tree) - len(new):], new)]
        if not self.looks_up[asked]:
            if added:
                self.speaks[asked] = not math.isnan(tree[-1].stated)
            if self.drops:
                self.drops = False
                self.dry[asked] = self.dry[asked] or not added
                if not added:
                    return None
                self.pending.append(Pending(tree))
                self.estimate, self.closed = [], None
                COUNTS["dropped"] += added
                return ("drop", added)
            self.dry = [dry and not added for dry in self.dry]
            self.dry[asked] = self.dry[asked] or not added
            return None
        self.now.offers[asked] += 0.05 * ((added > 0) - self.now.offers[asked])
        self.dry[asked] = True
        if not added:
            return None
        values = self.cut(len(tree) - added, tree)
        keeps = int(np.argmax(values))
        recorded = added - step["dropped"] if step and step["kind"] == 2 else added
        if keeps != recorded and values[recorded] >= values[keeps] - CLOSE:
            COUNTS["close"] += 1
            keeps = recorded
        if keeps == added:
            return None
        if len(tree) == added and not keeps:
            self.pending.append(Pending(tree))
        self.estimate = self.estimate[:len(tree) - added + keeps]
        self.closed = self.closed if self.closed is not None and self.closed < len(self.estimate) else None
        COUNTS["dropped"] += added - keeps
        return ("drop", added - keeps)

    def next(self, where, tree, asked, step, previous):
        """Returns (the step in the form of step["as"], None where the draft ends; the number of second choices requested)."""
        if asked is not None:
            dropped = self.take(tree, asked, step, previous["added"])
            if dropped:
                return dropped, 0
        if len(tree) >= self.room or self.closed is not None or not self.forwards.begun:
            return self.end(tree, step)
        leaf = len(tree)
        for i in range(len(self.names)):
            if leaf >= self.look_from and self.looks_up[i] and not self.dry[i]:
                return ("extend", i, leaf, 1, self.room - leaf), 0
        if leaf >= self.look_from:
            self.look_from = leaf + 1 if leaf < LOOK_EACH else 2 * leaf
        plan = self.plan(leaf, self.offers())
        if not tree and not self.tried:
            self.trial, place = self.find_trial(plan)
            self.tried, self.drops = self.trial is not None, place == "dropped"
            COUNTS["trials"] += self.tried
            if self.tried and place != "last":
                trial, self.trial = self.trial, None
                tokens = self.trial_tokens(self.offers()[trial]) if self.drops else 1
                return ("extend", trial, leaf, 1, tokens), 0
        first, tokens = plan[2], None
        if first is not None:
            tokens = None if self.speaks[first] else int(plan[1][first])
        recorded = step["drafter"] if step and step["kind"] == 1 and step["leaves"] == 1 and step["leaf"] == leaf else None
        if recorded != first and self.trial is None and near(plan, recorded, None):
            COUNTS["close"] += 1
            first = recorded
        if first is None:
            if self.trial is None:
                return self.end(tree, step)
            trial, self.trial = self.trial, None
            return ("extend", trial, leaf, 1, 1), 0
        if self.speaks[first]:
            return ("extend", first, leaf, 1, 1), 0
        if step and step["tokens"] != tokens and near(plan, first, step["tokens"]):
            COUNTS["close"] += 1
            tokens = step["tokens"]
        return ("extend", first, leaf, 1, tokens), 0

    def end(self, tree, step):
        if self.chains or not tree or not self.forwards.begun:
            return None, 0
        found = {i: choice for i, choice in self.branches(tree).items() if choice[0] > 0}
        if not found:
            return None, 0
        best = max(found, key=lambda i: (found[i][0], -i))
        chosen = found[best][1]
        return ("extend", best, chosen[0], len(chosen), 1), len(chosen)

    def observe(self, it, tree):
        for i, drafting in enumerate(self.drafting):
            us = float(it["drafter_us"][i]) / 1e6 - float(it["drafter_catch_up_us"][i]) / 1e6
            drafting.observe(int(it["drafter_steps"][i]), int(it["drafter_levels"][i]), int(it["drafter_proposed"][i]), us)
        us = it["verify_us"] + it["accept_us"] + it["other_us"]
        self.forwards.observe(self.unions.growth(it["nodes"]), it["nodes"], us / 1e6)
        for estimator in self.now.estimator:
            estimator.fade(0.9995)
        if tree:
            self.pending.append(Pending(tree))
        for token in map(int, it["tokens"]):
            self.pending = [draft for draft in self.pending if draft.follow(token, self.now.estimator)]
            self.ends = [end for end in self.ends if end != self.last]
            self.last = token
        self.open = it["emitted"] <= self.left
        self.learn_second(it, tree)
        cost = self.part(it["nodes"]) + it["draft_us"] / 1e6 / self.forwards.level
        self.allowance = min(12, self.allowance + self.s["explore"] * cost)
        self.now.tokens = 0.98 * self.now.tokens + it["emitted"]
        self.now.cost = 0.98 * self.now.cost + cost
        if "emitted_experts" in it:
            self.unions.learn(it["emitted_experts"].tolist())

    def learn_second(self, it, tree):
        """Counts second choices where the first choice was wrong. Those after the end of the text are not recorded."""
        path, at = [None], None
        for token in list(map(int, it["tokens"]))[:it["accepted"]]:
            at = next((node for node in tree if node.parent is at and node.token == token), None)
            path.append(at)
        for node in tree[len(self.estimate):]:
            siblings = [other for other in tree if other.parent is node.parent]
            if node.parent in path and siblings[0] not in path:
                known = self.now.second[node.drafter]
                known[0] = 0.98 * known[0] + (node in path)
                known[1] = 0.98 * known[1] + 1


class Pending:
    """A draft whose tokens the text has not reached yet."""

    def __init__(self, tree):
        self.tree, self.signal, self.at = list(tree), signals(tree), None

    def follow(self, token, estimators):
        here = [(node, signal) for node, signal in zip(self.tree, self.signal) if node.parent is self.at]
        for node, signal in here:
            estimators[node.drafter].observe(signal, node.token == token)
        on = [node for node, _ in here if node.token == token]
        self.at = on[0] if on else self.at
        return bool(on) and any(node.parent is self.at for node in self.tree)


def history(it):
    """Returns the steps of an iteration, and the trees before each step and after the last one."""
    by = it["node_drafters"]
    tree, nodes = [], [None]
    for i in range(1, it["nodes"]):
        nodes.append(Node(nodes[int(it["node_parents"][i])], int(it["node_tokens"][i]), int(by[i]),
                          float(it["node_log_probability"][i]), int(it["node_match"][i])))
        tree.append(nodes[-1])
    steps = [{name: int(it[f"step_{name}"][at]) for name in ("kind", "drafter", "leaf", "leaves", "tokens", "added", "dropped")}
             for at in range(it["steps"])]
    trees, dropped = [tree], it["dropped"]
    for step in reversed(steps):
        step["as"] = ("drop", step["dropped"]) if step["kind"] == 2 else \
            ("extend", step["drafter"], step["leaf"], step["leaves"], step["tokens"])
        dropped -= step["dropped"]
        gone = {int(it["dropped_nodes"][at]): at for at in range(dropped, dropped + step["dropped"])}
        kept, before = iter(trees[0]), [None]
        for number in range(1, len(trees[0]) + len(gone) + 1):
            if number in gone:
                at = gone[number]
                before.append(Node(before[int(it["dropped_parents"][at])], int(it["dropped_tokens"][at]),
                                   int(it["dropped_drafters"][at]), float(it["dropped_log_probability"][at]),
                                   int(it["dropped_match"][at])))
            else:
                before.append(next(kept))
        trees.insert(0, before[1:len(before) - step["added"]])
    if trees[0]:
        fail("a record", "the steps do not make the draft")
    return steps, trees


def main():
    settings = dict(SETTINGS)
    for word in sys.argv[3:]:
        name, value = word.split("=")
        settings[name] = type(SETTINGS[name])(value)
    limit, auto, model, at, number = int(sys.argv[2]), None, {}, 0, 0
    for kind, record in records(sys.argv[1]):
        if kind == "header" and "model" in record:
            model = record["model"]
        if kind == "machine":
            options = json.loads(record["options"])
            auto = Auto(json.loads(record["drafters"]), model, settings, options.get("record") == "drafts",
                        options.get("temperature", 0) > 0)
        if kind == "begin":
            auto.begin(record.get("task"))
            at = 1
        if kind != "iter":
            continue
        where = f"iteration {number} (text {record['sequence']})"
        state = record["policy"]
        auto_state = {"level_us": 1e6 * auto.forwards.level, "steepness": auto.forwards.steepness, "doubt": auto.forwards.doubt}
        for i in range(len(auto.names)):
            auto_state[f"chance_{i}"] = auto.now.estimator[i].expected(1)
            auto_state[f"chance_doubt_{i}"] = auto.now.estimator[i].doubt()
            auto_state[f"draft_us_{i}"] = 1e6 * auto.drafting[i].mean.sum()
        for name, value in auto_state.items():
            agree(where, name, state[name], value)
        tree = auto.iteration(where, record, limit - at - 1)  # the last token is the bonus token
        auto.observe(record, tree)
        at += record["emitted"]
        number += 1
        COUNTS["iterations"] += 1
    print(json.dumps(COUNTS))


if __name__ == "__main__":
    main()
