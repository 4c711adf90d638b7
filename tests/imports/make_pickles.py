#!/usr/bin/env python3
"""Values as Python pickles them, for test_import_pickle: python3 make_pickles.py > pickles.txt
One line each: the pickle in hex, a tab, the value as the test writes it, a tab, the opcodes in it (pickletools)."""
import pickle
import pickletools


def show(value, inside=()):
    """One form for every type; a value inside itself is written as @."""
    if id(value) in inside:
        return "@"
    inside = (*inside, id(value))
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return "%.17g" % value
    if isinstance(value, str):
        return "'" + "".join("%02x" % b for b in value.encode()) + "'"
    if isinstance(value, (bytes, bytearray)):
        return "b'" + value.hex() + "'"
    if isinstance(value, list):
        return "[" + ",".join(show(v, inside) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + ",".join(show(v, inside) for v in value) + ")"
    if isinstance(value, dict):
        return "{" + ",".join(show(k, inside) + ":" + show(v, inside) for k, v in value.items()) + "}"
    return "<" + ",".join(show(v, inside) for v in value) + ">"


def main():
    shared = ["twice"]
    loop = [1]
    loop.append(loop)
    knot = {}
    knot["self"] = (knot, [knot])
    ring, rings = [], []
    ring.append((ring,))
    rings.append((rings, 1, 2, 3))
    values = [
        None, True, False, 0, 1, 255, 256, 65535, 65536, -1, -128, -129, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1,
        2**62, 2**63 - 1, -(2**63), 0x7F3C00000000, 1763660000123456, 0.0, -1.5, 1e300, 0.1, "", "train.py", "naïve ∑",
        "a" * 255, "a" * 256, "nul\0inside", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], [[]], list(range(40)),
        {}, {"a": 1}, {"a": {"b": [1, None]}, 2: (True, 0.5)}, [shared, shared, shared], loop, knot, ring[0], rings[0],
        [str(i) for i in range(300)] + ["299"],
        [{"action": "alloc", "addr": 0x7F3C00000200, "size": 4096, "frames": []}, {"action": "oom", "size": 7}],
    ]
    for protocol in range(2, 6):
        more = [b"", b"\x00\xff", b"b" * 300] if protocol >= 3 else []
        more += [{7}, frozenset([8]), frozenset()] if protocol >= 4 else []
        more += [bytearray(b"data")] if protocol >= 5 else []
        for value in values + more:
            data = pickle.dumps(value, protocol)
            names = sorted({op.name for op, _, _ in pickletools.genops(data)})
            print(data.hex(), show(value), ",".join(names), sep="\t")


if __name__ == "__main__":
    main()
