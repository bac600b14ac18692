"""Reads any stream of moekit, independently of the C code; shared by the programs of this folder. Needs msgpack and numpy."""
import msgpack
import numpy as np


def records(path):
    """Yields (type, payload) of the header and of each record up to the end."""
    def ext(code, data):
        if code != 65:
            return None
        dtype, rank = np.dtype(data[:3].decode()), data[3]
        shape = np.frombuffer(data, "<u8", rank, 8)
        return np.frombuffer(data, dtype, -1, 8 + 8 * rank).reshape(shape.astype(int))
    with open(path, "rb") as file:
        for item in msgpack.Unpacker(file, ext_hook=ext, raw=False, max_buffer_size=1 << 30):
            if isinstance(item, list) and isinstance(item[0], str):
                yield item[0], item[2]
            elif isinstance(item, dict):
                yield "header", item
