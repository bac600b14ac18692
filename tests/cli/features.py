"""Reads feature streams with msgpack and numpy only, and checks them.

    features.py golden STREAM FOLDER    states equal those of tests/golden/features within 1e-4 of the largest, for all texts or
                                        the first ones
    features.py rounded BF16 F32        the first stream has the second one's values, rounded to nearest, ties to even
    features.py same A B                the same texts with the same states, bit by bit, whatever their order and ids
    features.py marked STREAM VOCAB     prints the texts, a JSON line each, with brackets around the learnt parts"""
import json
import pathlib
import sys

import msgpack
import numpy as np


def array(code, data):
    name, rank = bytes(data[:3]).decode(), data[3]
    shape = np.frombuffer(data, '<u8', rank, 8)
    kind = '<u2' if name == '<V2' else name
    return name, np.frombuffer(data, kind, offset=8 + 8 * rank).reshape([int(n) for n in shape])


def texts(path):
    """Returns texts with tokens, mask, points and states [points][tokens][hidden], in the order of the stream."""
    unpacker = msgpack.Unpacker(open(path, 'rb'), ext_hook=lambda code, data: (code, data), max_ext_len=1 << 30)
    next(unpacker), next(unpacker)
    found, open_, ended = [], {}, False
    for kind, _, payload in unpacker:
        if kind == 'begin':
            open_[payload['sequence']] = dict(payload, parts=[])
        elif kind == 'feature':
            piece = {key: array(*value) if isinstance(value, tuple) else value for key, value in payload.items()}
            text = open_[payload['sequence']]
            assert piece['pos'] == sum(len(part['tokens'][1]) for part in text['parts'])
            text['parts'].append(piece)
        elif kind == 'end_sequence':
            text = open_.pop(payload['sequence'])
            parts = text.pop('parts')
            text['tokens'] = np.concatenate([part['tokens'][1] for part in parts])
            text['mask'] = np.concatenate([part['mask'][1] for part in parts])
            text['point'] = parts[0]['point'][1].tolist()
            text['type'] = parts[0]['values'][0]
            text['states'] = np.concatenate([part['values'][1] for part in parts], axis=1)
            assert len(text['tokens']) == text['text_tokens']
            assert all(len(part['tokens'][1]) <= 64 for part in parts)
            found.append(text)
        elif kind == 'end':
            ended = True
    assert ended
    return found


def golden(stream, folder):
    lines = [json.loads(line) for line in (pathlib.Path(folder) / 'texts.jsonl').read_text().splitlines()]
    want = np.fromfile(pathlib.Path(folder) / 'states.f32', '<f4').reshape(-1, 192)
    seen, at = texts(stream), 0
    assert seen and [text['id'] for text in seen] == [line['id'] for line in lines[:len(seen)]]
    for text, line in zip(seen, lines):
        assert text['tokens'].tolist() == line['tokens'] + line['answer_tokens']
        assert text['mask'].tolist() == [0] * len(line['tokens']) + [1] * len(line['answer_tokens'])
        assert text['point'] == [0, 1, 2, 4, 6] and text['task'] == line['task']
        for states in text['states']:
            part, at = want[at:at + len(line['rows'])], at + len(line['rows'])
            error = np.abs(states[line['rows']] - part).max() / np.abs(part).max()
            assert error < 1e-4, (text['id'], error)
    assert at == len(want) or len(seen) < len(lines)


def rounded(narrow, wide):
    pairs = list(zip(texts(narrow), texts(wide)))
    assert pairs
    for a, b in pairs:
        bits = b['states'].view(np.uint32).astype(np.uint64)
        assert a['type'] == '<V2' and b['type'] == '<f4'
        assert (a['states'] == ((bits + 0x7fff + (bits >> 16 & 1)) >> 16)).all()


def same(a, b):
    def key(text):
        return (text['tokens'].tobytes(), text['mask'].tobytes(), text['point'], text['states'].tobytes(), text['validation'])
    one, other = sorted(map(key, texts(a))), sorted(map(key, texts(b)))
    assert one and one == other


def marked(stream, vocab):
    words = {i: word for word, i in json.loads(pathlib.Path(vocab).read_text())['model']['vocab'].items()}
    words |= {item['id']: item['content'] for item in json.loads(pathlib.Path(vocab).read_text())['added_tokens']}
    for text in texts(stream):
        assert text['prompt_tokens'] == text['mask'].tolist().index(1)
        out, inside = '', 0
        for token, mask in zip(text['tokens'].tolist(), text['mask'].tolist()):
            out += ('[' if mask else ']') * (mask != inside) + words[token].replace('\u0120', ' ').replace('\u010a', '\n')
            inside = mask
        print(json.dumps({'id': text['id'], 'text': out + ']' * inside}))


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
