#!/usr/bin/env python3
"""Writes a recording of drafts (moe-decode --record drafts) with the routes of another model: texts, drafts and acceptance stay,
experts are synthetic.

usage: reroute.py IN.moes OUT.moes local | local-olmoe [SEED]

The experts are those of local.py, whose rankings of experts by text are fitted to published traces of Qwen3-30B-A3B (local) and
OLMoE (local-olmoe); see common/route/synthesis.h. Each position of a text has one row of experts. A drafted token that is the
text's own has the row of its position; any other one has a row of its own, the same in all drafts with this token at this
position. Distinct experts and bytes of forwards follow; times stay as recorded. Iterations become those of a run without drafts.
`moe-bench replay --cost bytes OUT.moes`, its policies with file=OUT.moes, and moe-decode --force-routes read the result. Prints
which share of its experts a token has in common with the one before, in IN and in OUT.
Needs msgpack, numpy and libxxhash."""
import ctypes
import ctypes.util
import io
import json
import sys

import msgpack
import numpy as np

from local import EXPONENTS, Texts


def array(ext):
    dtype, rank = np.dtype(ext.data[:3].decode()), ext.data[3]
    return np.frombuffer(ext.data, dtype, -1, 8 + 8 * rank).reshape(np.frombuffer(ext.data, "<u8", rank, 8).astype(int))


def like(ext, values):
    """Encodes values as an array in the dtype of `ext`."""
    values = np.ascontiguousarray(values, np.dtype(ext.data[:3].decode()))
    shape = np.array(values.shape, "<u8").tobytes()
    return msgpack.ExtType(ext.code, ext.data[:3] + bytes([values.ndim]) + ext.data[4:8] + shape + values.tobytes())


def digest(data):
    class Hash(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype, library.XXH3_128bits.argtypes = Hash, [ctypes.c_char_p, ctypes.c_size_t]
    found = library.XXH3_128bits(data, len(data))
    return found.high.to_bytes(8, "big") + found.low.to_bytes(8, "big")


class Text:
    def __init__(self, source, start, tokens):
        source.begin()
        self.source, self.start, self.tokens = source, start, tokens
        self.own, self.others = [source.token() for _ in tokens], {}

    def experts(self, draft):
        """Returns the experts of a draft's tokens, [n][layers][top_k]."""
        tokens, at = [int(t) for t in array(draft["tokens"])], draft["pos"] - self.start
        parents = [int(p) for p in array(draft["parents"])] if "parents" in draft else [i - 1 for i in range(len(tokens))]
        depth, right, rows = [], [], []
        for i, token in enumerate(tokens):
            depth.append(depth[parents[i]] + 1 if i else 0)
            place = at + depth[i]
            right.append((not i or right[parents[i]]) and place < len(self.tokens) and self.tokens[place] == token)
            if not right[i] and (place, token) not in self.others:
                self.others[place, token] = self.source.token()
            rows.append(self.own[place] if right[i] else self.others[place, token])
        assert right[0], "a draft that does not begin at the text"
        return rows


def reroute(draft, text):
    rows, seen, loaded = text.experts(draft), set(), []
    for row in rows:
        seen |= {(layer, e) for layer, chosen in enumerate(row) for e in chosen}
        loaded.append(len(seen))
    before = array(draft["experts_loaded"])
    draft["bytes"] = like(draft["bytes"], array(draft["bytes"]) + (np.array(loaded) - before).astype(np.int64) * draft["expert_bytes"])
    draft["experts_loaded"], draft["experts"] = like(draft["experts_loaded"], loaded), like(draft["experts"], rows)


def iteration(draft):
    """Returns the record of an iteration at this position without a draft."""
    loaded = int(array(draft["experts_loaded"])[0])
    return {"sequence": draft["sequence"], "t_us": 0.0, "K": 0, "nodes": 1, "drafted": 0, "accepted": 0, "emitted": 1, "draft_us": 0.0,
            "verify_us": float(array(draft["verify_us"])[0]), "accept_us": 0.0, "other_us": 0.0, "experts_wanted": loaded,
            "experts_loaded": loaded, "bytes": int(array(draft["bytes"])[0])}


def shared(rows):
    """Returns the share of a token's experts that the previous token requested, too."""
    pairs = [len(set(a) & set(b)) / len(a) for old, new in zip(rows, rows[1:]) for a, b in zip(old, new)]
    return sum(pairs) / len(pairs)


def main(source_file, out_file, skew, seed="1"):
    objects = list(msgpack.Unpacker(open(source_file, "rb"), raw=False, max_buffer_size=1 << 30))
    model = objects[1]["model"]
    source = Texts(model["moe_layers"], model["experts"], model["top_k"], EXPONENTS[skew], 0.5, int(seed))
    done = {o[2]["sequence"]: [int(t) for t in array(o[2]["tokens"])] for o in objects if isinstance(o, list) and o[0] == "done"}
    counts, written, before, after = {}, io.BytesIO(), {}, {}

    def write(kind, record):
        written.write(msgpack.packb([kind, sum(counts.values()), record]))
        counts[kind] = counts.get(kind, 0) + 1

    written.write(msgpack.packb(objects[0]) + msgpack.packb(objects[1]))
    for kind, _, record in objects[2:-1]:
        if kind == "begin":
            text, drafts = Text(source, record["prompt_tokens"], done[record["sequence"]]), []
        if kind == "draft":
            if not record.get("drafter", 0):
                before.setdefault(record["sequence"], []).append(array(record["experts"])[0].tolist())
            reroute(record, text)
            if not record.get("drafter", 0):
                after.setdefault(record["sequence"], []).append(array(record["experts"])[0].tolist())
            drafts.append(record)
        if kind == "done":
            for draft in drafts:
                if not draft.get("drafter", 0):
                    write("iter", iteration(draft))
            for draft in drafts:
                write("draft", draft)
        if kind not in ("iter", "draft"):
            write(kind, record)
    size = written.tell()
    last = msgpack.packb(["end", sum(counts.values()), {"records": counts, "bytes": size, "digest": bytes(16)}])
    written.write(last[:-16])
    with open(out_file, "wb") as out:
        out.write(written.getvalue() + digest(written.getvalue()))
    mean = lambda of: sum(map(shared, (rows for rows in of.values() if len(rows) > 1))) / sum(len(rows) > 1 for rows in of.values())
    print(json.dumps({"shared_before": round(mean(before), 3), "shared_after": round(mean(after), 3)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
