#!/usr/bin/env python3
"""Writes linalg.txt: the results of NumPy, SciPy and PyTorch for tests/operators/linalg_golden_test.cc.

The lines are those of make_numpy.py. Signs that a decomposition leaves open are those that operators/linalg.h
states. Made with NumPy 2.4.6, SciPy 1.17.1 and PyTorch 2.15.0:

    python3 make_linalg.py > linalg.txt
"""
import numpy as np
import scipy.linalg
import torch


def numbers(*shape):
    n = int(np.prod(shape))
    return (((np.arange(n) * 7919 + 13) % 101) - 50).reshape(shape) / 8


def put(name, value):
    value = np.asarray(value)
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(repr(float(v)) for v in value.reshape(-1)))


def turned(x):
    return np.swapaxes(x, -1, -2)


def column_signs(x):
    size = np.abs(x)
    at = (size >= size.max(-2, keepdims=True) / 2).argmax(-2, keepdims=True)
    return np.sign(np.take_along_axis(x, at, -2))


square = numbers(2, 4, 4) + 3 * np.eye(4)
positive = square @ turned(square) + np.eye(4)
symmetric = numbers(2, 5, 5)
symmetric = symmetric + turned(symmetric) + np.diag(np.arange(5))
tall = numbers(2, 5, 3)
b = numbers(4, 2)

put("solve", np.linalg.solve(square, b))
put("inv", np.linalg.inv(square))
put("det", np.linalg.det(square))
sign, logarithm = np.linalg.slogdet(square)
put("slogdet/sign", sign)
put("slogdet/log", logarithm)
put("cholesky", np.linalg.cholesky(positive))
for name, x in [("tall", tall), ("wide", turned(tall))]:
    q, r = np.linalg.qr(x)
    signs = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    put(f"qr/{name}/q", q * signs[:, None, :])
    put(f"qr/{name}/r", r * signs[:, :, None])
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    signs = column_signs(u)
    put(f"svd/{name}/u", u * signs)
    put(f"svd/{name}/s", s)
    put(f"svd/{name}/vh", vh * turned(signs))
    put(f"pinv/{name}", np.linalg.pinv(x))
    put(f"matrix_rank/{name}", np.linalg.matrix_rank(x))
    rows = numbers(x.shape[-2], 2)
    put(f"lstsq/{name}", np.stack([np.linalg.lstsq(one, rows)[0] for one in x]))
    put(f"cond/{name}", np.linalg.cond(x))
    for order in ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]:
        put(f"norm/{name}/{order}", np.linalg.norm(x, order, axis=(-2, -1)))
w, v = np.linalg.eigh(symmetric)
put("eigh/w", w)
put("eigh/v", v * column_signs(v))
put("eigvalsh/upper", np.linalg.eigvalsh(numbers(4, 4), "U"))
put("norm/all", np.linalg.norm(tall))
put("norm/vector/3", np.linalg.norm(tall, 3, axis=1))
for n in [-3, 0, 1, 5]:
    put(f"matrix_power/{n}", np.linalg.matrix_power(square / 4, n))
put("multi_dot", np.linalg.multi_dot([numbers(3), numbers(3, 7), numbers(7, 2), numbers(2, 5)]))
put("vecdot", np.vecdot(tall, numbers(5, 3)))
put("tensorsolve", np.linalg.tensorsolve(numbers(2, 3, 6) + np.eye(6).reshape(2, 3, 6), numbers(2, 3)))
put("tensorinv", np.linalg.tensorinv(numbers(2, 3, 6) + np.eye(6).reshape(2, 3, 6)))
put("cond/1", np.linalg.cond(square, 1))
put("solve_triangular", scipy.linalg.solve_triangular(square[0], b, lower=True))
put("solve_triangular/unit", scipy.linalg.solve_triangular(square[0], b, unit_diagonal=True))
put("matrix_exp", scipy.linalg.expm(square))
for name, x in [("square", square[0]), ("tall", tall[0]), ("wide", turned(tall)[0])]:
    lu, pivots = scipy.linalg.lu_factor(x)
    put(f"lu/{name}", lu)
    put(f"lu/{name}/pivots", pivots)
    for part, value in zip("plu", scipy.linalg.lu(x)):
        put(f"lu/{name}/{part}", value)


def put_gradient(name, f, *arrays):
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = f(*leaves)
    (y * torch.tensor(numbers(*y.shape))).sum().backward()
    for i, leaf in enumerate(leaves):
        put(f"gradient/{name}/{i}", leaf.grad.numpy())


put_gradient("solve", torch.linalg.solve, square, b)
put_gradient("inv", torch.linalg.inv, square)
put_gradient("det", torch.linalg.det, square)
put_gradient("slogdet", lambda a: torch.linalg.slogdet(a)[1], square)
put_gradient("cholesky", torch.linalg.cholesky, positive)
put_gradient("eigvalsh", torch.linalg.eigvalsh, symmetric)
put_gradient("svdvals", torch.linalg.svdvals, tall)
put_gradient("pinv", torch.linalg.pinv, tall)
put_gradient("lstsq", lambda a, b: torch.linalg.lstsq(a, b)[0], tall, numbers(2, 5, 2))
put_gradient("matrix_exp", torch.linalg.matrix_exp, square / 4)
