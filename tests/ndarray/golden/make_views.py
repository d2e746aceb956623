#!/usr/bin/env python3
"""Writes views.txt: random programs of view operations, and their results in NumPy 2.

Usage: make_views.py > views.txt

    base 2,3,4                the array 0, 1, ..., 23 of that shape
    OP ARGUMENTS | SHAPE HASH the operation, the shape of its result, and a hash of shape and elements
    share 1 HASH              1 if the last view shares memory with the base (2: it is empty). Then a hash of
                              the base after view[...] = -1

Lists are comma-separated, "-" is the empty one. The hash is FNV-1a over the int64s of the shape and then of the
elements in row-major order.
"""

import random

import numpy as np

MASK = (1 << 64) - 1


def text(numbers):
    return ",".join(str(n) for n in numbers) or "-"


def fnv(array):
    h = 0xCBF29CE484222325
    for number in list(array.shape) + [int(x) for x in array.ravel()]:
        for byte in int(number).to_bytes(8, "little", signed=True):
            h = ((h ^ byte) * 0x100000001B3) & MASK
    return f"{h:016x}"


def random_slice(r, size):
    def end():
        return None if r.random() < 0.5 else r.randint(-size - 2, size + 2)

    step = r.choice([1, 1, 1, 2, 3, -1, -1, -2, -3])
    return slice(end(), end(), step)


def slice_text(s):
    return ":".join("" if n is None else str(n) for n in (s.start, s.stop, s.step))


def op_index(r, a):
    entries, words, left = [], [], a.ndim
    ellipsis_at = r.randint(0, 4) if r.random() < 0.3 else -1
    axis = 0
    for k in range(r.randint(0, min(5, a.ndim + 1))):
        if k == ellipsis_at:
            entries.append(Ellipsis)
            words.append("e")
            ellipsis_at = -1
            axis = -1  # from here on sizes are unknown, so only slices are possible
            continue
        kind = r.choice("isssn")
        if kind == "n":
            entries.append(None)
            words.append("n")
            continue
        if left == 0:
            continue
        left -= 1
        size = a.shape[axis] if axis >= 0 else 3
        if kind == "i" and axis >= 0 and size > 0:
            i = r.randint(-size, size - 1)
            entries.append(i)
            words.append(f"i{i}")
        else:
            s = random_slice(r, size)
            entries.append(s)
            words.append("s" + slice_text(s))
        axis += axis >= 0
    if Ellipsis not in entries:
        entries.append(Ellipsis)  # so that the result is a view even without dimensions
    return ",".join(words) or "-", a[tuple(entries)]


def op_slice(r, a):
    if a.ndim == 0:
        return None
    d = r.randrange(a.ndim)
    s = random_slice(r, a.shape[d])
    index = [slice(None)] * a.ndim
    index[d] = s
    return f"{r.choice([d, d - a.ndim])} {slice_text(s)}", a[tuple(index)]


def op_select(r, a):
    if a.ndim == 0:
        return None
    d = r.randrange(a.ndim)
    if a.shape[d] == 0:
        return None
    i = r.randint(-a.shape[d], a.shape[d] - 1)
    return f"{d} {i}", a[(slice(None),) * d + (i, ...)]


def op_transpose(r, a):
    if r.random() < 0.3:
        return "-", a.T
    axes = list(range(a.ndim))
    r.shuffle(axes)
    if not axes:
        return None
    return text(axes), a.transpose(axes)


def op_swap(r, a):
    if a.ndim == 0:
        return None
    x, y = (r.randrange(-a.ndim, a.ndim) for _ in range(2))
    return f"{x} {y}", a.swapaxes(x, y)


def op_move(r, a):
    if a.ndim == 0:
        return None
    x, y = (r.randrange(-a.ndim, a.ndim) for _ in range(2))
    return f"{x} {y}", np.moveaxis(a, x, y)


def op_reshape(r, a):
    shape, rest = [], a.size
    if rest == 0:
        shape = r.choice([[0], [2, 0], [0, 3], [4, 0, 1]])
        return text(shape), a.reshape(shape)
    while rest > 1 and len(shape) < 5:
        factors = [f for f in range(2, rest + 1) if rest % f == 0]
        f = r.choice(factors)
        shape.append(f)
        rest //= f
        if r.random() < 0.2:
            shape.insert(r.randint(0, len(shape)), 1)
    if rest > 1:
        shape[-1] *= rest
    result = a.reshape(shape)
    if shape and r.random() < 0.3:
        shape[r.randrange(len(shape))] = -1
    return text(shape), result


def op_squeeze(r, a):
    ones = [i for i in range(a.ndim) if a.shape[i] == 1]
    if ones and r.random() < 0.7:
        d = r.choice(ones)
        return str(d), a.squeeze(d)
    return "-", a.squeeze()


def op_expand(r, a):
    if a.ndim > 7:
        return None
    d = r.randint(-a.ndim - 1, a.ndim)
    return str(d), np.expand_dims(a, d)


def op_broadcast(r, a):
    shape = [r.randint(2, 3) if size == 1 and r.random() < 0.8 else size for size in a.shape]
    for _ in range(r.choice([0, 0, 1])):
        shape.insert(0, r.randint(1, 3))
    if np.prod(shape, dtype=int) > 200 or len(shape) > 8:
        return None
    strides = np.broadcast_to(a, shape).strides
    return text(shape), np.lib.stride_tricks.as_strided(a, shape, strides)  # may be written to


def op_diagonal(r, a):
    if a.ndim < 2:
        return None
    x, y = r.sample(range(a.ndim), 2)
    offset = r.randint(-3, 3)
    view = a.diagonal(offset, x, y)
    if view.size:  # NumPy returns diagonals read-only
        corner = [slice(None)] * a.ndim
        corner[x if offset < 0 else y] = slice(abs(offset), None)
        view = np.lib.stride_tricks.as_strided(a[tuple(corner)], view.shape, view.strides)
    return f"{offset} {x} {y}", view


OPS = {
    "index": op_index,
    "slice": op_slice,
    "select": op_select,
    "transpose": op_transpose,
    "swap": op_swap,
    "move": op_move,
    "reshape": op_reshape,
    "squeeze": op_squeeze,
    "expand": op_expand,
    "broadcast": op_broadcast,
    "diagonal": op_diagonal,
}
SHAPES = [[24], [4, 6], [2, 3, 4], [3, 1, 5], [5, 5], [2, 3, 2, 2], [1, 6, 1], [], [1], [0], [3, 0, 2], [60], [3, 4, 5]]


def main():
    r = random.Random(20240517)
    names = list(OPS) + ["index", "slice", "reshape", "reshape"]
    for case in range(400):
        shape = SHAPES[case % len(SHAPES)]
        base = np.arange(int(np.prod(shape, dtype=int)), dtype=np.int64).reshape(shape)
        print(f"base {text(shape)}")
        view = base[...]
        for _ in range(r.randint(1, 6)):
            name = r.choice(names)
            made = OPS[name](r, view)
            if made is None:
                continue
            view = made[1]
            print(f"{name} {made[0]} | {text(view.shape)} {fnv(view)}")
        share = int(np.shares_memory(base, view)) if view.size else 2
        if share == 1:
            view[...] = -1
        print(f"share {share} {fnv(base)}")


if __name__ == "__main__":
    main()
