#!/usr/bin/env python3
"""Writes what `tokenizers` and `tiktoken` make of hard texts with the patterns of published families, for
tests/unit/test_tokenizer.c.

    python3 -m venv V && V/bin/pip install tokenizers tiktoken && V/bin/python tests/golden/tokenizer/families.py

families.json is a tokenizer of single bytes whose merges join a character and a space after it, so that ids show where pieces end;
families.jsonl has lines with a pre-tokenizer (`name`, `pre_tokenizer`) and after each the texts and their ids. tiktoken.model is a
small vocabulary in tiktoken's form, with tokens that byte pair encoding does not reach; tiktoken.jsonl has texts, their ids for Kimi,
and for Hunyuan-A13B with its special tokens.
"""
import base64
import json
import os
import unicodedata

import tiktoken
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = [
    "Hello world, this is one  two   three", "I'm you're WE'VE he'LL she'd it's 'twas ''s O'Neill'S don\u2019t", "a b c d e f g h",
    "0 12 123 1234 12345 123456 1234567 12345678901 1.234,56 x1234y 007 3.14159 2024-11-28T12:30:05",
    "\u0661\u0662\u0663\u0664 \u0967\u0968 \u00bd \u00b2\u00b3\u2074 \u2167\u2168 \u2460\u2461\u2462\u2463 \uff11\uff12\uff13\uff14 1_000_000 4e5",
    "line\nline\n\n\nline \n \n\t\tx\r\n\r\ny\r z  \n", "   \t  \n   ", " \u00a0\u3000 x\u2028y\u0085z\u200bw",
    "if (x != y) { return a->b[i] / 2; } // no\n/* */\n\tmain();\n\n", "https://a.b/c?d=e&f=%20#g /usr/bin//x\\y ...!?!? \"q\" (a) [b] <c>",
    "CamelCaseWORDS and HTTPServer iPhone McDonald \u00c9t\u00e9 \u00c0B \u01c5x \u02b0\u00aa \u00dfA",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u3002\u300c\u5f15\u300d123\u5e74abc\u6f22\u5b57kana\u304b\u306a\u30ab\u30ca \u4e2dA\u4e2da",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5 \uc785\ub2c8\ub2e4. \u1112\u1161\u11ab abc\ud55c\uae00def",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0e04\u0e23\u0e31\u0e1a \u1780\u17d2\u1798 \u1019\u103c\u1014\u103a \u0eaa\u0eb0",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e cafe\u0301 o\u0308x \u0645\u0631\u062d\u0628\u0627 \u05e9\u05c1\u05bc",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f x\U0001f44d\U0001f3fd #\ufe0f\u20e3 $\u20ac5 +=~^`|", "\u0001\u001b[0m\u007f \ue000 \U00020000",
    "x'\u017f \u212a's 'S'T\u0130'RE", "snake_case_name __init__ a_1 _b", "\u00b57 \u24d0\u24b6 \U0001f130 7\u00b5 12\u0301\u03025 1\u20e322",
]
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cases(end, but=""):
    return (r"[^\r\n\p{L}\p{N}]?[" + UPPER + but + "]*[" + LOWER + but + "]+" + end +
            r"|[^\r\n\p{L}\p{N}]?[" + UPPER + but + "]+[" + LOWER + but + "]*" + end)


WORDS = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + REST
KIMI = r"[\p{Han}]+|" + cases(CONTRACTION + "?", r"&&[^\p{Han}]") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + REST
PUNCTUATED = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + REST)
ASIAN = ("[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff"
         "\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+")
FAMILIES = {
    "tekken": [cases("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + REST],
    "llama4, minimax_m2": [cases(CONTRACTION + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + REST],
    "exaone_moe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "cohere2_moe": [r"\d{1,3}(?=(?:\d{3})*\b)", cases(CONTRACTION + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + REST],
    "afmoe": [r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))", ASIAN, PUNCTUATED],
    "bailing_moe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "not inside words": [r"\Bb\B|\b[ac]\b"],
}


def alphabet():
    """The byte-level letters, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    more = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(more)) for byte in range(256)]


def families():
    letters = alphabet()
    space, vocab, merges = letters[32], {}, []
    for letter in letters:
        vocab[letter] = len(vocab)
    for letter in [letters[b] for b in b"abcdefghilmnorstuvwxyz0123456789'.,!?)]>}\n "]:
        merges.append([letter, space])
        vocab[letter + space] = len(vocab)
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges}}
    with open(os.path.join(HERE, "families.json"), "w", encoding="ascii") as out:
        out.write(json.dumps(base, separators=(",", ":")) + "\n")
    with open(os.path.join(HERE, "families.jsonl"), "w", encoding="ascii") as out:
        for name, patterns in FAMILIES.items():
            steps = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]
            steps.append({"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": False})
            base["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
            tokenizer = Tokenizer.from_str(json.dumps(base))
            out.write(json.dumps({"name": name, "pre_tokenizer": base["pre_tokenizer"]}, separators=(",", ":")) + "\n")
            for text in TEXTS:
                out.write(json.dumps({"text": text, "ids": tokenizer.encode(text).ids}, separators=(",", ":")) + "\n")


def vocabulary():
    """Bytes in another order than their values, tokens of two, three and more bytes, some without a way to them."""
    tokens = [bytes([(b * 7 + 3) % 256]) for b in range(256)]
    for word in ("th", "the", " the", "in", "er", "an", "ing", "or", "wor", "ld", "world", " world", "He", "ll", "Hell", "Hello", "  ", "    ",
                 "\n\n", "12", "123", "34", "'s", "'S", "on", "one", " o", " one", "ee", "thr", "three", "\u4f60", "\u4f60\u597d", "\u597d", "\u4e16\u754c",
                 "re", "tur", "return", "xyzzy", "qj", " .", "..", "...", "ca", "caf\u00e9", "e\u0301", "\u00e9", "zzz", "zz", "aaaa", "aa", "aaa"):
        token = word.encode()
        if len(token) > 2:                      # first what Chinese characters are merged from
            for end in range(2, len(token)) if token[0] > 127 else ():
                if token[:end] not in tokens:
                    tokens.append(token[:end])
        if token not in tokens:
            tokens.append(token)
    return tokens


def write_tiktoken():
    tokens = vocabulary()
    ranks = {token: rank for rank, token in enumerate(tokens)}
    with open(os.path.join(HERE, "tiktoken.model"), "w", encoding="ascii") as out:
        for token, rank in ranks.items():
            out.write("%s %d\n" % (base64.b64encode(token).decode(), rank))
    first = len(tokens)
    kimi = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks,
                             special_tokens={"[BOS]": first, "<|im_end|>": first + 2, "<|reserved_token_%d|>" % (first + 3): first + 3})
    names = ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>", *("<|extra_%d|>" % i for i in range(205))]
    hunyuan = tiktoken.Encoding("hunyuan", pat_str=WORDS, mergeable_ranks=ranks,
                                special_tokens={name: first + i for i, name in enumerate(names)})
    more = ["Hello world the one three", "aaaaaaa zzzzz xyzzy qj", "return returns  RETURN", "caf\u00e9 cafe\u0301 the caf\u00e9", "\u4f60\u597d\u4e16\u754c\u4f60\u597d\u4f60",
            "[BOS]Hello<|im_end|>x<|reserved_token_%d|>" % (first + 3), "<|startoftext|>Hello<|extra_0|>the<|eos|><|extra_204|>", "...... . .. 12345"]
    with open(os.path.join(HERE, "tiktoken.jsonl"), "w", encoding="ascii") as out:
        for text in TEXTS + more:
            out.write(json.dumps({"text": text, "kimi": kimi.encode(text, allowed_special="all"),
                                  "hunyuan": hunyuan.encode(unicodedata.normalize("NFC", text), allowed_special="all")},
                                 separators=(",", ":")) + "\n")


if __name__ == "__main__":
    families()
    write_tiktoken()
