"""Shared by programs that write goldens: numbers from a hash that tests in C compute, too, and the pocket model's matrices."""
import json, os, struct
import numpy as np


def drawn(number, count, bound, center=0.0):
    """Returns `count` numbers around `center`, of the tensor `number`, from the hash."""
    x = (np.arange(count, dtype=np.uint64) * 2654435761 + number * 2654404609) % 2 ** 32
    x ^= x >> 16
    x = x * 2246822519 % 2 ** 32
    x ^= x >> 13
    return (center + bound * (x.astype(np.float64) / 2 ** 31 - 1)).astype(np.float32)


def pocket(name):
    """Returns a bf16 matrix of the pocket model as f32."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../models/pocket/model/model.safetensors'), 'rb') as file:
        length, = struct.unpack('<Q', file.read(8))
        entry = json.loads(file.read(length))[name]
        begin, end = entry['data_offsets']
        file.seek(8 + length + begin)
        raw = np.frombuffer(file.read(end - begin), np.uint16).astype(np.uint32) << 16
    return raw.view(np.float32).reshape(entry['shape'])
