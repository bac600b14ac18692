#!/usr/bin/env python3
"""ROUGE-L F1 as rouge-score 0.1.2 (Google's, which the evaluate package and most papers use) computes it, without stemming: pairs
of texts that are easy to get wrong, and drawn ones. Run with that package installed; writes cases.jsonl beside this file, one
object a line: text, expected and score."""
import json
import os
import random

from rouge_score import rouge_scorer

HERE = os.path.dirname(os.path.abspath(__file__))

PAIRS = [
    ("police kill the gunman", "police killed the gunman"),
    ("the gunman kill police", "police killed the gunman"),
    ("The harbour master counts the boats.", "the harbour-master counted THE BOATS!"),
    ("\u201cWe don\u2019t know,\u201d she said\u2014twice.", "\"We don't know,\" she said - twice."),
    ("caf\u00e9 society", "caf society"),
    ("na\u00efve resum\u00e9s", "na ve resum s"),
    ("300 \u212a is \u0130stanbul in summer", "300 k is i stanbul in summer"),
    ("\u4e2d\u6587", "\u4e2d\u6587"),
    ("under_score snake_case", "under score snake case"),
    ("1,234.5 kg", "1 234 5 kg"),
    ("one\ntwo\tthree\u00a0four", "one two three four"),
    ("a a a b", "a b a a"),
    ("to be or not to be", "to be to be or not"),
    ("a b c d e f g", "g f e d c b a"),
    ("", "nothing"), ("nothing", ""), ("...", "?!"), ("x", "x"),
    ("The cat sat on the mat. It was happy.", "It was a happy cat that sat on the mat."),
    ("Mia visited the theater 85 times, and then went home.", "Mia went home after she had visited the theatre 85 times."),
]
WORDS = ["The", "harbour", "boats", "It's", "85", "Mia", "theatre\u2019s", "na\u00efve", "of", "of", "\u2014", "End."]


def main():
    scorer, chance = rouge_scorer.RougeScorer(["rougeL"]), random.Random(7)
    pairs = list(PAIRS)
    for _ in range(20):
        pairs.append(tuple(" ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 40))) for _ in range(2)))
    with open(os.path.join(HERE, "cases.jsonl"), "w") as out:
        for text, expected in pairs:
            score = scorer.score(expected, text)["rougeL"].fmeasure
            out.write(json.dumps({"text": text, "expected": expected, "score": score}) + "\n")


main()
