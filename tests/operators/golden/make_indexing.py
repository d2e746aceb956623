#!/usr/bin/env python3
"""Writes indexing.txt: NumPy reads and writes at an index. Usage: make_indexing.py [CASES [SEED]] > indexing.txt

Made with NumPy 2.4.6 (pip install numpy==2.4.6). The indexed array is 0, 1, 2, .. of the given shape. A case is one
line:

    <shape> <entry> <entry> .. = <shape of the result> <hash> <shape of the assigned values> <hash of the array after it>

Shapes are 2x3, or - without dimensions. Entries: 5 a number; 1:_:2 a slice; e an ellipsis; n a new axis;
a2x2/0,1,-1,0 an array of integers; m3/101 a mask. The assigned values are -1, -2, -3, .. in their shape. The hash of
the numbers x begins at 17 and becomes hash * 1000003 + x, modulo 2^64.
"""

import random
import sys

import numpy as np


def text_of(shape):
    return "x".join(map(str, shape)) if shape else "-"


def hash_of(values):
    h = 17
    for x in values.ravel().tolist():
        h = (h * 1000003 + x) % 2**64
    return format(h, "x")


def random_shape(rng, least, most, sizes=(1, 2, 2, 3, 3, 4)):
    return tuple(rng.choice(sizes) for _ in range(rng.randint(least, most)))


def random_index(rng, shape):
    """Returns pairs of a Python entry and its text; the arrays usually broadcast together."""
    entries, d, ellipsis = [], 0, False
    together = random_shape(rng, 0, 2)
    while True:
        kinds = ["array"] * 4 + ["slice"] * 3 + ["number", "new", "mask", "ellipsis"] + ["end"] * (1 if d else 0)
        kind = rng.choice(kinds)
        if kind == "new":
            entries.append((None, "n"))
        elif kind == "ellipsis":
            if ellipsis:
                continue
            ellipsis = True
            skipped = rng.randint(0, len(shape) - d)
            d += skipped
            entries.append((Ellipsis, "e"))
        elif d >= len(shape) or kind == "end":
            return entries
        elif kind == "slice":
            n = shape[d]
            limits = [rng.choice([None, rng.randint(-n - 1, n + 1)]) for _ in range(2)] + [rng.choice([1, 1, 2, -1])]
            entries.append((slice(*limits), ":".join("_" if x is None else str(x) for x in limits)))
            d += 1
        elif kind == "number" and shape[d]:
            i = rng.randint(-shape[d], shape[d] - 1)
            entries.append((i, str(i)))
            d += 1
        elif kind == "array" and shape[d]:
            own = [n if rng.random() < 0.8 else 1 for n in together]
            if rng.random() < 0.2:
                own = own[1:]
            if rng.random() < 0.05:
                own = [0] * len(own)
            a = np.array([rng.randint(-shape[d], shape[d] - 1) for _ in range(int(np.prod(own)))], dtype=np.int64)
            entries.append((a.reshape(own), "a%s/%s" % (text_of(own), ",".join(map(str, a.tolist())))))
            d += 1
        elif kind == "mask":
            own = shape[d : d + rng.randint(1, 2)]
            m = np.array([rng.random() < 0.4 for _ in range(int(np.prod(own)))], dtype=bool)
            entries.append((m.reshape(own), "m%s/%s" % (text_of(own), "".join(str(int(x)) for x in m))))
            d += len(own)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    seen = set()
    while len(seen) < count:
        shape = random_shape(rng, 1, 4, (0, 1, 2, 2, 3, 3, 4, 4))
        entries = random_index(rng, shape)
        if not any(isinstance(e, np.ndarray) for e, _ in entries) or len(entries) > 6:
            continue
        index = tuple(e for e, _ in entries)
        base = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        try:
            result = base[index]
        except IndexError:
            continue
        if result.ndim > 8:
            continue
        # NumPy does not specify which value a repeated place gets, so all values are equal.
        values_shape = ()
        if len(set(result.ravel().tolist())) == result.size:
            values_shape = tuple(n if rng.random() < 0.8 else 1 for n in result.shape)[rng.choice([0, 0, 0, 1]) :]
        values = -1 - np.arange(int(np.prod(values_shape)), dtype=np.int64).reshape(values_shape)
        base[index] = values
        line = " ".join([text_of(shape)] + [t for _, t in entries])
        if line in seen:
            continue
        seen.add(line)
        print(line, "=", text_of(result.shape), hash_of(result), text_of(values_shape), hash_of(base))


main()
