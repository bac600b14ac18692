#!/usr/bin/env python3
"""Writes what the Python package `tokenizers` makes of hard texts, for tests/unit/test_tokenizer.c.

    python3 -m venv V && V/bin/pip install tokenizers sentencepiece protobuf && V/bin/python tests/golden/tokenizer/make.py

NAME.json is a small tokenizer (the pocket model's own is used in place); NAME.jsonl has one text a line: `ids` with special
tokens honoured, `plain` with them as text, `framed` with what the post-processor adds (the last two where they differ from
`ids`), and what the ids are as text: `back`, and `shown` with special tokens (where they differ from `text`, and from `back`).
Some lines have `random` ids instead of a text, or those of bytes that are no UTF-8. Random texts keep to characters of
Unicode 3.2: the libraries involved are of different, later versions of it.
Also checks, without writing anything, that the pocket model's prompts give the ids in golden.jsonl.
"""
import io
import json
import os
import random
import re
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
POCKET = os.path.join(HERE, "../../models/pocket")

CORPUS = [
    "", "a", " ", "\n", "\0", "Hello, world!", "  two  spaces  ", "trailing   ", "   leading", "tab\tand\t\ttabs",
    "a\nb\r\nc\rd\n\n\ne \n f\r\n\r\n", " \n \n ", "x" * 70, " " * 70, "\n" * 40, " \t" * 20 + "x",
    "1234567890 12 3.14 1,000 x2y",
    "I'm you're we've he'll she'd it's DON'T I'LL 'S 's' ''s '", "def f(x):\n    return x  # no\n\n\n    y = [1, 2]\n",
    "!!! ... ??? --- *** (a) [b] {c} <d> a_b a-b a/b a\\b \"q\" 'q' `q` @# $%^&*~+=|", "http://a.b/c?d=e&f=%20#g",
    "CamelCaseWORDS",
    "caf\u00e9 cafe\u0301 \u212b A\u030a \u2126 \u1e9b\u0323 \u0344 \u0958 \ufb1d \u2adc",
    "q\u0307\u0323 q\u0323\u0307 a\u0315\u0300\u05ae\u0300",
    "\u1100\u1161\u11a8 \uac00\u11a8 \uac01 \ud55c\uad6d\uc5b4",
    "\u304b\u3099 \u30cf\u309a \u3053\u3093\u306b\u3061\u306f\u4e16\u754c \u30ab\u30bf\u30ab\u30ca",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u3002\u300c\u5f15\u300d 123\u5e74",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0439 \u0438\u0306",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03b1\u0301", "\u05e9\u05dc\u05d5\u05dd \u05e9\u05c1\u05bc",
    "\u0645\u0631\u062d\u0628\u0627 \u0661\u0662\u0663",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0967\u0968", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "Ti\u1ebfng Vi\u1ec7t Tie\u0302\u0301ng Vie\u0323\u0302t",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f"
    " \U0001f44d\U0001f3fd #\ufe0f\u20e3", "\u200b\u200c\u200d\ufeff\u00ad\u2060",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u180eh\u1680i\u202fj\u205fk",
    "\u0001\u0002\u001b[0m\u007f\u0080\u009f", "\ue000\uf8ff\U000f0000\U0010ffff\ufffd",
    "\u00bd \u2167 \u2460 \u00b2 \u24d0 \U0001d7d8",
    "\u01c5 \u02b0 \u00aa \u00df \u1e9e \ufb01 \u017f \u212a '\u017f '\u212a",
    "\ud7a3\u11a8 \u0f73 \u0f71\u0f72 \u1f82 \u0390",
    "<|end|>", "x<|end|>y", "a <|user|> b", "<|user|>\nHi<|end|>\n<|assistant|>\n", "<|end|><|end|> <|end|>", "<|en",
    "<|end|", "<|<|end|>|>",
    "<|endoftext|><|pad|>", "<|END|>", "\u00e9<|end|>\u0301", "foo<s>bar</s> <s> x",
    "MASK MASK, a MASK b MASKx xMASK \u00e9MASK MASK\u00e9 MASK_ -MASK-",
    "a  LEFT  b\n LEFT\tLEFT  c", "a  RIGHT  b\n RIGHT\t RIGHT  c RIGHT", "LEFT RIGHT LEFT  RIGHT", "  BOTH  BOTH  ",
    "one\u00c9two oneE\u0301two \u00c9",
    "    four        eight   three", "abcabcd abcd abc ab",
    "mixed \u6f22\u5b57kana\u304b\u306aHangul\ud55c\uae00 123abc456", "\t\n\x0b\x0c\r x \x1c\x1d\x1e\x1f y",
    "The quick brown fox jumps over the lazy dog. " * 4, "if __name__ == '__main__':\n\tmain()\n", "the\n the\nthe\r\nthe",
    "a,b;c:d!e?f.g",
    "3,14 $5.00 50% #1 @me x=y+z",
]

# Texts unlike any training data.
HARD = [
    "\r\r\n\n\r\u2028\n\u2029\r\u0085 \r\n\t\r", "\n\u2028x\u2029 \u2028\u2028 y\x0b\x0c\n",
    "MASK", "1MASK 22MASK", "MASKMASK (MASK)", "RIGHT\t\t \tx\tRIGHT \t", "\t RIGHT \n\t", "<0x41><0xE9> <0x0A>",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f \U0001f468\U0001f3fd\u200d\U0001f680 1\ufe0f\u20e3",
    "5 \u00b5m\u00b5", "Z\u0351\u036b\u0343a\u0321\u034al\u0353g\u0301\u0302\u0303o",
    "\u0915\u094d\u0937\u093f \u0bb8\u0bcd\u0bb0\u0bc0 \u1780\u17d2\u1798",
    "one\u0386two one\u0391\u0301two \u0386", "\u202eabc\u202c \u2066x\u2069 \u061c\u200f",
    "\u2581a \u2581\u2581 b\u2581", "\x00\x00a\x00",
]

# Byte sequences that are invalid in UTF-8: surrogates, pairs of them, overlong characters, code points beyond the last one,
# truncated ones; and some valid ones at these limits.
BROKEN = [
    b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf",
    b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xff", b"\x80", b"\xc3",
    b"\xe2\x82", b"\xe2", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xf0", b"\xe2\x82\xe2\x82\xac", b"\xc3\xf0\x9f\x98\x80\x80",
    b"\xed\x9f\xbf\xee\x80\x80",
    b" \xe2\x82\xac", b" \xe2\x82", b"\xf4\x8f\xbf\xbf\xef\xbf\xbd",
]


def random_texts(count, seed):
    """Mixtures of all scripts, marks, controls and pieces of the texts above."""
    rng = random.Random(seed)
    ranges = [(0, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0x11FF),
              (0x1E00, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x4EFF), (0xAC00, 0xD7A3), (0xFB00, 0xFFEF), (0x1D400,
                  0x1D7FF),
              (0x1F300, 0x1F64F), (0x20000, 0x200FF)]
    out = []
    while len(out) < count:
        parts = []
        for _ in range(rng.randint(1, 14)):
            if rng.random() < 0.3:
                text = rng.choice(CORPUS)
                at = rng.randint(0, len(text))
                parts.append(text[at:at + rng.randint(1, 8)])
            else:
                parts.append("".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 3))))
        text = "".join(parts)
        old = unicodedata.ucd_3_2_0
        if not any(old.category(c) in ("Cn", "Cs") for c in text):
            out.append(text)
    return out


def added(id, content, special=False, **flags):
    token = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": special}
    token.update(flags)
    return token


def small(merges_as_strings=False, merge_count=120, words=(), **parts):
    """The byte alphabet and the pocket tokenizer's first merges, with other elements around them."""
    pocket = json.load(open(os.path.join(POCKET, "model/tokenizer.json"), encoding="utf-8"))
    by_id = sorted(pocket["model"]["vocab"].items(), key=lambda item: item[1])
    merges = pocket["model"]["merges"][:merge_count]
    merges = [m.split(" ") if isinstance(m, str) else m for m in merges]
    wanted = [t for t, _ in by_id if len(t) == 1]
    wanted += [t for t in dict.fromkeys(a + b for a, b in merges) if t not in wanted]
    wanted += words
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None,
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {t: i for i, t in enumerate(wanted)},
                      "merges": [" ".join(m) for m in merges] if merges_as_strings else merges}}
    n = len(wanted)
    for key, value in parts.items():
        value = value(n) if callable(value) else value
        if key == "model":
            base["model"].update(value)
        else:
            base[key] = value
    return base


def split(pattern, behavior="Isolated", invert=False, literal=False):
    return {"type": "Split", "pattern": {"String" if literal else "Regex": pattern}, "behavior": behavior,
        "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
R2 = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
R3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
      r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|"
      r"\s+(?!\S)|\s+")

R1 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
R4 = R1.replace("{1,3}", "").replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[" + UPPER + r"&&[^\p{Han}]]*[" + LOWER + r"&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[" + UPPER + r"&&[^\p{Han}]]+[" + LOWER + r"&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

VARIANTS = {
    # GPT-2's own pattern, a space in front, merges in the old spelling, bos and eos
    "prefix": small(
        merges_as_strings=True, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
            "use_regex": True},
        added_tokens=lambda n: [added(n, "<s>", True), added(n + 1, "</s>", True)],
        post_processor=lambda n: {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
             "pair": [],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [n], "tokens": ["<s>"]},
                                "</s>": {"id": "</s>", "ids": [n + 1], "tokens": ["</s>"]}}}]}),
    # all flags of added tokens, and content that normalisation changes
    "flags": small(
        normalizer={"type": "NFC"}, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False,
            "trim_offsets": True, "use_regex": True},
        added_tokens=lambda n: [
            added(n, "<|end|>", True), added(n + 1, "MASK", True, single_word=True), added(n + 2, "LEFT", lstrip=True),
            added(n + 3, "RIGHT", True, rstrip=True), added(n + 4, "BOTH", lstrip=True, rstrip=True),
            added(n + 5, "  ", normalized=True), added(n + 6, "    ", normalized=True), added(n + 7, "\u0391\u0301",
                normalized=True),
            added(n + 8, "abc", normalized=True), added(n + 9, "abcd"), added(n + 10, "<|user|>", True,
                normalized=True), added(n + 11, "\t")]),
    # several splits one after the other, single digits, an anchor
    "chain": small(
        pre_tokenizer=sequence(
            split(r"[\r\n]"),
            split("\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0370-\u03ff\u0400-\u04ff]+"),
            split(r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"),
            split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
            {"type": "Digits", "individual_digits": True}, LEVEL)),
    # words in the vocabulary that no merge makes; groups of three digits
    "whole": small(words=["Hello", "\u0120world", "123"], model={"ignore_merges": True},
                   added_tokens=lambda n: [added(n, "MASK", True, single_word=True)],
                   pre_tokenizer=sequence(split(R2), LEVEL)),
    "three": small(pre_tokenizer=sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
    split(R3), LEVEL)),
    # anchors are those of lines
    "lines": small(pre_tokenizer=sequence(split(r"e$|^t"), LEVEL)),
    # the behaviours of Split that are not Isolated
    "previous": small(pre_tokenizer=sequence(split(" ", "MergedWithPrevious", literal=True), split("[aeiou]",
    "MergedWithNext"), LEVEL)),
    "contiguous": small(pre_tokenizer=sequence(split(r"\d", "Contiguous"), split(r"[\w]+", "Removed", invert=True),
                                               {"type": "Digits", "individual_digits": False}, LEVEL)),
    "removed": small(pre_tokenizer=sequence(split(r"(?i:x|the)", "Removed"), split(r"\W|^b|o$", "Contiguous",
    invert=True), LEVEL)),
}

# patterns of families, and nested classes
PATTERNS = {
    "llama3": small(model={"ignore_merges": True}, pre_tokenizer=sequence(split(R1), LEVEL)),
    "qwen2": small(normalizer={"type": "NFC"}, pre_tokenizer=sequence(split(R1.replace("{1,3}", "")), LEVEL)),
    "nested": small(added_tokens=lambda n: [added(n, "\n", lstrip=True, rstrip=True), added(n + 1, "\t", rstrip=True)],
                    pre_tokenizer=sequence(split(r"[^a-e[\p{N}&&[^3-5]]\s]+|[[aeiou]&&[a-i&&[^e]]]"), LEVEL)),
    "kimi": small(pre_tokenizer=sequence(split(KIMI), LEVEL)),
    "qwen35": small(normalizer={"type": "NFC"}, pre_tokenizer=sequence(split(R4), LEVEL)),
}


def trained(count, start, words):
    """Learns merges by byte pair encoding from the corpus; ties go to the pair that sorts first. No merge has a character
    with which added tokens end."""
    counts = {}
    for text in CORPUS:
        for word in words(text):
            counts[tuple(word)] = counts.get(tuple(word), 0) + 1
    merges, tokens = [], list(start) + sorted({c for word in counts for c in word if "\0" < c < "\x7f" or c == "\u2581"})
    while len(merges) < count:
        pairs = {}
        for word, n in counts.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + n
        pairs = {pair: n for pair, n in pairs.items() if pair[0] in tokens and pair[1] in tokens and not set("".join(pair)) & set(">K")}
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        if best[0] + best[1] not in tokens:
            tokens.append(best[0] + best[1])
        joined = {}
        for word, n in counts.items():
            made, i = [], 0
            while i < len(word):
                step = 2 if word[i:i + 2] == best else 1
                made.append("".join(word[i:i + step]))
                i += step
            joined[tuple(made)] = joined.get(tuple(made), 0) + n
        counts = joined
    return tokens, merges


def marked(text):
    """Returns words in SentencePiece's form, each preceded by the mark for a space."""
    return re.findall("\u2581+[^\u2581]*|[^\u2581]+", "\u2581" + text.replace(" ", "\u2581"))


BYTES = ["<0x%02X>" % b for b in range(256)]
MARK = "\u2581"
SPACED = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
UNSPACED = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
DECODER = {"type": "Sequence", "decoders": [SPACED, {"type": "ByteFallback"}, {"type": "Fuse"},
                                            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def metaspace(**settings):
    return dict({"type": "Metaspace", "replacement": MARK}, **settings)


def marking(with_bytes=True, as_strings=False, tokens=(), model=None, **parts):
    """A tokenizer in SentencePiece's form, with byte tokens or only the unknown token."""
    vocab, merges = trained(150, ["<unk>", "<s>", "</s>"] + (BYTES if with_bytes else []), marked)
    vocab += [t for t in tokens if t not in vocab]
    base = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(i, t, True) for i, t in enumerate(["<unk>", "<s>", "</s>"])],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": DECODER,
            "model": dict({"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": with_bytes,
                           "vocab": {t: i for i, t in enumerate(vocab)},
                           "merges": [" ".join(m) for m in merges] if as_strings else merges}, **(model or {}))}
    for key, value in parts.items():
        base[key] = value(len(vocab)) if callable(value) else value
    return base


def specials(*more):
    """The three tokens of every vocabulary, with other flags for the last, and tokens after it."""
    return lambda n: [added(0, "<unk>", True), added(1, "<s>", True),
                      added(2, "</s>", True, rstrip=True)] + [added(n + i, *token[:2], **token[2]) for i, token in
                                                              enumerate(more)]


SENTENCE = {
    # files from before Metaspace knew the start of a text
    "prepend": marking(
        as_strings=True, added_tokens=specials(("<|user|>", True, {"rstrip": True}), ("xyz", False, {"normalized": True})),
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, UNSPACED]},
        post_processor={"type": "TemplateProcessing",
                        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}),
    "first": marking(pre_tokenizer=metaspace(prepend_scheme="first", split=False), tokens=["\u00e9", "\u6f22", "\U0001f600"],
                     added_tokens=specials(("<|end|>", True, {"rstrip": True}), ("MASK", True, {"lstrip": True}), ("\u00b5", True, {}))),
    "always": marking(False, pre_tokenizer=metaspace(add_prefix_space=True), decoder=metaspace(prepend_scheme="always")),
    "never": marking(False, tokens=["\u00e9", "e", "\u0301"], model={"fuse_unk": False},
                     normalizer={"type": "Sequence", "normalizers": [
                         {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}|\\t"}, "content": " "}]},
                     pre_tokenizer=metaspace(prepend_scheme="never", split=True),
                     decoder={"type": "Sequence", "decoders": [
                         {"type": "Strip", "content": "e", "start": 0, "stop": 1},
                         metaspace(prepend_scheme="never", split=False)]}),
    # no mark to strip, as in Gemma; a decoder that strips tokens
    "bare": marking(normalizer={"type": "Sequence", "normalizers": [UNSPACED, {"type": "NFKD"}]}, tokens=["\u0301", "\u0308"],
                    decoder={"type": "Sequence", "decoders": [
                        {"type": "Strip", "content": "e", "start": 2, "stop": 0},
                        SPACED, {"type": "ByteFallback"}, {"type": "Fuse"}]}),
    "pieces": small(normalizer={"type": "NFD"},
                    pre_tokenizer=sequence({"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "Whitespace"},
                                           {"type": "Digits", "individual_digits": True}, LEVEL)),
    "spaces": small(pre_tokenizer=sequence({"type": "WhitespaceSplit"}, {"type": "Punctuation"},
                                           {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False,
                                            "trim_offsets": True})),
}


def write_decoded(out, tokenizer, case):
    ids = case.get("ids", case.get("random"))
    back, shown = (tokenizer.decode(ids, skip_special_tokens=skip) for skip in (True, False))
    if back != case.get("text"):
        case["back"] = back
    if shown != back:
        case["shown"] = shown
    out.write(json.dumps(case, separators=(",", ":")) + "\n")


def byte_ids(tokenizer):
    """The id of each byte's own token."""
    letters, more = {b: chr(b) for b in (*range(33, 127), *range(161, 173), *range(174, 256))}, iter(range(256, 512))
    for byte in range(256):
        letters.setdefault(byte, chr(next(more)) if byte not in letters else "")
    fallback = tokenizer.token_to_id("<0x00>") is not None
    return [tokenizer.token_to_id("<0x%02X>" % byte if fallback else letters[byte]) for byte in range(256)]


def write_broken(out, tokenizer):
    ids = byte_ids(tokenizer)
    if None not in ids:
        for broken in BROKEN:
            for spelled in (broken, b"a" + broken + b"b"):
                write_decoded(out, tokenizer, {"random": [ids[byte] for byte in spelled]})


def write_sentence_cases(name, tokenizer, texts, seed):
    rng = random.Random(seed)
    with open(os.path.join(HERE, name + ".jsonl"), "w", encoding="ascii", newline="\n") as out:
        for text in texts:
            write_decoded(out, tokenizer, encoded(tokenizer, text))
        write_broken(out, tokenizer)
        for _ in range(24):
            most = rng.choice([60, 259, tokenizer.get_vocab_size()])
            write_decoded(out, tokenizer, {"random": [rng.randrange(most) for _ in range(rng.randint(1, 12))]})
        if tokenizer.get_added_tokens_decoder():
            write_decoded(out, tokenizer, {"random": 2 * sorted(tokenizer.get_added_tokens_decoder())})


def encoded(tokenizer, text):
    tokenizer.encode_special_tokens = False
    case = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
    framed = tokenizer.encode(text).ids
    if framed != case["ids"]:
        case["framed"] = framed
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    if plain != case["ids"]:
        case["plain"] = plain
    return case


def write_cases(name, tokenizer, texts):
    with open(os.path.join(HERE, name + ".jsonl"), "w", encoding="ascii", newline="\n") as out:
        for text in texts:
            write_decoded(out, tokenizer, encoded(tokenizer, text))
        write_broken(out, tokenizer)


# Rules of normalisation: input, a tab, output.
RULES = ("\uff21\tA\n\ufb01\tfi\n\u2126\t\u03a9\n\u00a0\t \n\u3000\t  \nA\u030a\t\u00c5\ne\u0301\t\u00e9\n"
         "\u200b\t\n\u00ad\t\n\t\t \nLEFT\tright  \n")

# Models that sentencepiece learns from the corpus.
MODELS = {
    "sp-bpe": dict(model_type="bpe", vocab_size=520, character_coverage=0.98, byte_fallback=True, normalization_rule_name="identity",
                   remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
                   user_defined_symbols=["<|user|>", "MASK", "  ", "\n"]),
    "sp-unigram": dict(model_type="unigram", vocab_size=190, character_coverage=0.98, rules=RULES,
                       user_defined_symbols=["<|user|>", "ab", "abc"], control_symbols=["<|end|>"]),
    "sp-bytes": dict(model_type="unigram", vocab_size=480, byte_fallback=True, normalization_rule_name="identity",
                     add_dummy_prefix=False, character_coverage=0.98, bos_id=-1, unused=7),
    "sp-unused": dict(model_type="bpe", vocab_size=240, character_coverage=0.98, rules=RULES, unk_surface="?",
                      user_defined_symbols=["dog"], unused=5),
}


def model(rules=None, unused=0, **settings):
    """Returns the bytes of a model; one of its longer pieces in `unused` is marked so."""
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".tsv") as file:
        for line in (rules or "").strip("\n").split("\n") if rules else []:
            file.write("\t".join(" ".join("%X" % ord(c) for c in side) for side in line.rsplit("\t", 1)) + "\n")
        file.flush()
        if rules:
            settings["normalization_rule_tsv"] = file.name
        texts = [line for text in CORPUS for line in text.replace("\0", "").split("\n")
                 if line.strip() and sum(not c.isascii() for c in line) < 10]
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=out, num_threads=1,
                                                 hard_vocab_limit=False, minloglevel=2, **settings)
    made = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    if rules:
        made.normalizer_spec.normalization_rule_tsv = "rules"
    for i, piece in enumerate(p for p in made.pieces if p.type == 1 and len(p.piece) > 1):
        if unused and i % unused == 0:
            piece.type = 5
    return made.SerializeToString()


def write_model_cases(name, data, texts, seed):
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    rng = random.Random(seed)
    pieces = range(processor.get_piece_size())
    controls = [processor.id_to_piece(i) for i in pieces if processor.is_control(i)]
    with open(os.path.join(HERE, name + ".jsonl"), "w", encoding="ascii", newline="\n") as out:
        for text in texts:
            case = {"text": text, "ids": [], "plain": processor.encode(text)}
            for part in re.split("(%s)" % "|".join(map(re.escape, controls)), text):
                case["ids"] += [processor.piece_to_id(part)] if part in controls else processor.encode(part)
            if case["ids"] == case["plain"]:
                del case["plain"]
            if processor.bos_id() >= 0:
                case["framed"] = [processor.bos_id()] + case["ids"]
            write_back(out, processor, case)
        for _ in range(24):
            most = min(rng.choice([60, 259, 999]), len(pieces))
            write_back(out, processor, {"random": [rng.randrange(4, most) for _ in range(rng.randint(1, 12))]})


def write_back(out, processor, case):
    back = processor.decode(case.get("ids", case.get("random")))
    if back != case.get("text"):
        case["back"] = back
    out.write(json.dumps(case, separators=(",", ":")) + "\n")


def check_prompts(tokenizer):
    """Renders the pocket model's chat format by hand."""
    golden = {}
    for line in open(os.path.join(POCKET, "golden.jsonl"), encoding="utf-8"):
        item = json.loads(line)
        golden[item["id"]] = item["prompt_tokens"]
    seen = 0
    for line in open(os.path.join(POCKET, "heldout.jsonl"), encoding="utf-8"):
        item = json.loads(line)
        text = "".join("<|%s|>\n%s" % (m["role"], m["content"]) for m in item["messages"]) + "<|assistant|>\n"
        assert tokenizer.encode(text).ids == golden[item["id"]], item["id"]
        seen += 1
    print("pocket prompts that agree with golden.jsonl:", seen)


def main():
    pocket = Tokenizer.from_file(os.path.join(POCKET, "model/tokenizer.json"))
    check_prompts(pocket)
    write_cases("pocket", pocket, CORPUS + HARD + random_texts(60, 1))
    for number, (name, variant) in enumerate([*VARIANTS.items(), *SENTENCE.items(), *PATTERNS.items()]):
        text = json.dumps(variant, ensure_ascii=True, separators=(",", ":"))
        with open(os.path.join(HERE, name + ".json"), "w", encoding="ascii", newline="\n") as out:
            out.write(text + "\n")
        texts = CORPUS + HARD + random_texts(8, 2 + number)
        if name == "qwen35":
            texts += [apart for apart in (unicodedata.normalize("NFD", text) for text in texts) if apart not in texts]
        if name in SENTENCE:
            write_sentence_cases(name, Tokenizer.from_str(text), texts, number)
        else:
            write_cases(name, Tokenizer.from_str(text), texts)
    for number, (name, settings) in enumerate(MODELS.items()):
        data = model(**settings)
        with open(os.path.join(HERE, name + ".model"), "wb") as out:
            out.write(data)
        write_model_cases(name, data, CORPUS + HARD + random_texts(8, 50 + number), number)


if __name__ == "__main__":
    main()
