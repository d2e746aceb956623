#!/usr/bin/env python3
"""Writes print.txt: arrays, and the text that NumPy prints for them. Usage: make_print.py [CASES [SEED]] > print.txt

Made with NumPy 2.4.6 (pip install numpy==2.4.6) and the defaults. Older versions differ: before 2.3, float16 and
float32 change to exponents only at 1e8. A case is

    case <dtype> <shape, as 2x3, or - without dimensions> <precision> <threshold> <edge items> <line width> <suppress>
    v <elements as their bits in hexadecimal; when there are too few, they start over>
    |<line of text>, as often as there are lines

bf16 is written as the f32 of the same value, because NumPy has no bf16.
"""

import sys

import numpy as np

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.float32, "i8": np.int8, "u8": np.uint8,
    "i32": np.int32, "i64": np.int64, "bool": np.bool_,
}
DEFAULTS = (8, 1000, 3, 75, False)


def bits(values, name):
    if name == "bf16":
        return [int(b) >> 16 for b in values.view(np.uint32)]
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[values.itemsize]
    return [int(b) for b in values.view(unsigned)]


def bf16_only(values):
    """Returns the values truncated to bf16."""
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def write(name, values, shape, options=DEFAULTS):
    values = np.ascontiguousarray(values).ravel()
    count = int(np.prod(shape))
    array = np.resize(values, shape) if count else np.zeros(shape, DTYPES[name])
    precision, threshold, edge, width, suppress = options
    with np.printoptions(precision=precision, threshold=threshold, edgeitems=edge, linewidth=width, suppress=suppress):
        text = str(array)
    print("case", name, "x".join(map(str, shape)) or "-", precision, threshold, edge, width, int(suppress))
    print("v", " ".join(format(b, "x") for b in bits(values[: max(count, 1)], name)))
    for line in text.split("\n"):
        print("|" + line)


def floats(rng, name, n):
    dtype = DTYPES[name]
    top = {"f16": 4, "f32": 37, "bf16": 37, "f64": 300}[name]
    kind = rng.integers(0, 9)
    if kind == 0:
        values = rng.standard_normal(n)
    elif kind == 1:  # few decimal places
        values = np.round(rng.standard_normal(n) * 10 ** rng.integers(0, 4), int(rng.integers(0, 4)))
    elif kind == 2:  # every magnitude
        values = rng.standard_normal(n) * 10.0 ** rng.uniform(-top, top, n)
    elif kind == 3:  # around the limits of number formats
        values = rng.choice([1e-4, 9.9e-5, 0.1, 1, 999.5, 1000, 1001, 999999, 1e6, 99999999, 1e8], n)
        values = values * rng.choice([1, 1, -1], n)
    elif kind == 4:  # whole numbers
        values = rng.integers(-100, 1000, n).astype(float)
    elif kind == 5:  # one magnitude
        values = rng.uniform(1, 10, n) * 10.0 ** rng.integers(-min(top, 12), min(top, 12))
    elif kind == 6:  # random bits
        raw = rng.integers(0, 256, n * np.dtype(dtype).itemsize, dtype=np.uint8)
        values = raw.view(dtype)
    elif kind == 7:  # powers of two, whose two neighbours are at different distances
        values = np.ldexp(rng.choice([1, -1], n), rng.integers(-20, 20, n))
    else:  # ties of the last digit
        values = rng.integers(-50, 50, n) / 8.0
    with np.errstate(over="ignore", invalid="ignore"):
        values = values.astype(dtype)
    special = rng.integers(0, 6)
    if special == 0:
        values[rng.integers(0, n)] = np.nan
    elif special == 1:
        values[rng.integers(0, n)] = rng.choice([np.inf, -np.inf])
    elif special == 2:
        values[rng.integers(0, n)] = -0.0
    elif special == 3 and rng.integers(0, 3) == 0:
        values[:] = rng.choice([np.nan, np.inf, -np.inf, 0.0], n)
    return bf16_only(values) if name == "bf16" else values


def elements(rng, name, n):
    if name == "bool":
        return rng.integers(0, 2, n).astype(bool) if rng.integers(0, 4) else np.ones(n, bool)
    if name.startswith(("f", "b")):
        return floats(rng, name, n)
    limits = np.iinfo(DTYPES[name])
    if rng.integers(0, 2):
        return rng.integers(max(limits.min, -9), 100, n).astype(DTYPES[name])
    return rng.integers(limits.min, limits.max, n, endpoint=True, dtype=DTYPES[name])


def random_case(rng):
    name = rng.choice(list(DTYPES))
    options = list(DEFAULTS)
    size = rng.integers(0, 10)
    if size == 0:
        shape = ()
    elif size < 9:
        shape = tuple(int(d) for d in rng.integers(1, 5, rng.integers(1, 5)))
        if rng.integers(0, 3) == 0:
            shape = (int(rng.integers(1, 45)),)
    else:
        shape = [(1001,), (40, 50), (2, 600), (600, 2), (11, 10, 10), (7, 4, 9, 5), (1000,)][rng.integers(0, 7)]
    if rng.integers(0, 3) == 0:
        options[0] = int(rng.integers(0, 18))
        options[1] = int(rng.choice([0, 5, 10, 1000]))
        options[2] = int(rng.integers(1, 5))
        options[3] = int(rng.choice([10, 30, 75, 120]))
        options[4] = bool(rng.integers(0, 2))
        if np.prod(shape) > 100:
            options[1] = 10
    n = int(min(max(np.prod(shape), 1), 61 if np.prod(shape) > 100 else 100))
    write(name, elements(rng, name, n), shape, tuple(options))


def fixed_cases():
    nan, inf = np.nan, np.inf
    for name in ("f64", "f32", "f16"):
        dtype = DTYPES[name]
        with np.errstate(over="ignore"):
            for values in ([0], [-0.0], [1], [nan], [inf], [-inf], [nan, inf], [nan, -inf], [1, nan], [-inf, 0.5],
                           [1e-5, nan, -inf], [0.1, 0.25, -3], [1e16, 1e-16], [999, 1], [1000, 1], [1001, 1],
                           [0.0001, 0.05], [0.00009, 0.05], [0.5, 1.5, 2.5], [0.1, 1e8], [1 / 3, 2 / 3],
                           [123456.789], [5e-324, 1], [1e300, -1e-300], [3.4028235e38], [65504, 6e-8]):
                write(name, np.array(values, dtype), (len(values),))
            for value in (0, -0.0, 1, -1.5, 0.1, 1 / 3, 999, 1000, 999999, 1e6, 1e15, 1e16, 1e-4, 9e-5, nan, inf, -inf):
                write(name, np.array([value], dtype), ())
    for name in DTYPES:
        for shape in ((0,), (2, 0), (0, 3), (1, 1, 1), (2, 1, 3)):
            write(name, np.ones(1, DTYPES[name]), shape)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 250
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 20240)
    fixed_cases()
    for _ in range(count):
        random_case(rng)


if __name__ == "__main__":
    main()
