#!/usr/bin/env python3
"""Writes numpy.txt: the results of NumPy and SciPy for the functions of tests/operators/numpy_golden_test.cc.

A line is "name shape = values": the shape as sizes with commas ("-" for none), the values as Python writes a
double. The test makes the same inputs from the same formulas. Made with NumPy 2.4.6 and SciPy 1.17.1:

    python3 make_numpy.py > numpy.txt
"""
import warnings

import numpy as np
import scipy.spatial.distance
import scipy.special

warnings.simplefilter("ignore")


def numbers(*shape):
    n = int(np.prod(shape))
    return (((np.arange(n) * 7919 + 13) % 101) - 50).reshape(shape) / 8


def holes(*shape):
    x = numbers(*shape).copy()
    x.reshape(-1)[np.arange(x.size) % 7 == 2] = np.nan
    return x


def whole(*shape):
    n = int(np.prod(shape))
    return ((np.arange(n) * 7919 + 13) % 11).reshape(shape)


def put(name, value):
    value = np.asarray(value)
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(repr(float(v)) for v in value.reshape(-1)))


x, h, w = numbers(3, 4, 5), holes(3, 4, 5), whole(24)
for name in ["nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanmedian"]:
    f = getattr(np, name)
    put(name + "/all", f(h))
    put(name + "/1", f(h, axis=1))
    put(name + "/-1,0", f(h, axis=(-1, 0)))
put("nanargmax/1", np.nanargmax(h, axis=1))
put("nanargmin/-1", np.nanargmin(h, axis=-1))
put("nanvar/1", np.nanvar(h, axis=1, ddof=1))
put("nanstd/all", np.nanstd(h, ddof=0))
for method in ["linear", "lower", "higher", "nearest", "midpoint"]:
    put("quantile/" + method, np.quantile(x, [0, 0.1, 0.37, 0.5, 0.75, 1], axis=1, method=method))
    put("nanquantile/" + method, np.nanquantile(h, [0, 0.1, 0.37, 0.5, 0.75, 1], axis=2, method=method))
put("median/all", np.median(x))
put("median/0,2", np.median(x, axis=(0, 2)))
put("median/ints", np.median(w.reshape(4, 6), axis=1))
put("quantile/nan", np.quantile(h, 0.5, axis=1))

put("average/1", np.average(x, axis=1, weights=[1, 2, 3, 4]))
put("average/all", np.average(x, weights=np.abs(x)))
put("ptp/1", np.ptp(x, axis=1))
put("cov", np.cov(x[0]))
put("cov/0", np.cov(x[0], ddof=0))
put("cov/columns", np.cov(x[0], rowvar=False))
put("cov/vector", np.cov(x[0, 0]))
put("cov/f", np.cov(x[0], fweights=[1, 2, 0, 3, 1]))
put("cov/a", np.cov(x[0], aweights=[0.5, 2, 1, 3, 1]))
put("cov/fa", np.cov(x[0], fweights=[1, 2, 0, 3, 1], aweights=[0.5, 2, 1, 3, 1]))
put("corrcoef", np.corrcoef(x[0]))
put("corrcoef/columns", np.corrcoef(x[0], rowvar=False))

put("bincount", np.bincount(w))
put("bincount/weights", np.bincount(w, weights=numbers(24), minlength=14))
put("histogram", np.histogram(x)[0])
put("histogram/edges", np.histogram(x)[1])
put("histogram/range", np.histogram(h, bins=7, range=(-4, 3))[0])
put("histogram/weights", np.histogram(x, bins=5, weights=x * x)[0])
put("histogram/density", np.histogram(x, bins=5, density=True)[0])
put("histogram/uneven", np.histogram(x, bins=[-5, -4.5, 0, 0.125, 6.25])[0])
put("histogram/uneven density", np.histogram(x, bins=[-5, -4.5, 0, 0.125, 6.25], density=True)[0])
edges = np.array([-5.0, -2.0, -2.0, 0.125, 4.0])
put("digitize", np.digitize(x, edges))
put("digitize/right", np.digitize(x, edges, right=True))
put("digitize/down", np.digitize(x, edges[::-1]))
put("digitize/down right", np.digitize(x, edges[::-1], right=True))

put("diff", np.diff(x))
put("diff/2,0", np.diff(x, 2, 0))
put("diff/joined", np.diff(x, axis=1, prepend=x[:, :1], append=numbers(3, 2, 5)))
put("diag/up", np.diag(np.arange(1.0, 4), 2))
put("diag/down", np.diag(np.arange(1.0, 4), -1))
put("diag/of", np.diag(x[0], -1))
put("window", np.lib.stride_tricks.sliding_window_view(x, 3, axis=1))
put("window/2", np.lib.stride_tricks.sliding_window_view(x[0], (2, 3)))
for k in range(-1, 4):
    put("rot90/%d" % k, np.rot90(x, k))
put("rot90/axes", np.rot90(x, 1, (2, 0)))
put("column_stack", np.column_stack([np.arange(3.0), x[0, :3], np.arange(3.0) * 2]))
put("logspace", np.logspace(-2, 3, 7))
put("logspace/2", np.logspace(0, 10, 11, base=2))
put("geomspace", np.geomspace(1, 1000, 7))
put("geomspace/-", np.geomspace(-2, -0.125, 5))
for i, part in enumerate(np.array_split(x, 4, axis=2)):
    put("array_split/%d" % i, part)

put("inner", np.inner(x, numbers(2, 5)))
put("tensordot/2", np.tensordot(x, numbers(4, 5, 2)))
put("tensordot/0", np.tensordot(x[0], numbers(2), 0))
put("tensordot/axes", np.tensordot(x, numbers(5, 2, 3), ([0, 2], [2, 0])))
put("kron", np.kron(x[0, :2, :3], numbers(3, 2)))
put("kron/ranks", np.kron(x, numbers(2)))
put("cross", np.cross(numbers(4, 3), numbers(3)[::-1]))
put("cross/0", np.cross(numbers(3, 4), numbers(3, 4)[::-1], axis=0))
put("trace", np.trace(x))
put("trace/1", np.trace(x, 1, 2, 1))
for p in [1, 2, 3, 0.5]:
    put("cdist/%g" % p, scipy.spatial.distance.cdist(x[0], x[1, :3], "minkowski", p=p))
put("cdist/inf", scipy.spatial.distance.cdist(x[0], x[1, :3], "chebyshev"))

put("erfinv", scipy.special.erfinv([-1, -0.999999, -0.9, -0.5, -1e-300, 0, 1e-10, 0.3, 0.85, 0.97, 1 - 2**-53, 1, 1.5]))
put("logit", scipy.special.logit([0, 1e-300, 0.1, 0.4999, 0.5, 0.5000001, 0.9, 1 - 2**-53, 1, 2]))
put("xlogy", scipy.special.xlogy([0, 0, 0, 1, 2, -1, 0], [0, -1, np.nan, 0, 3, 3, np.inf]))
put("round/1", np.round(x, 1))
put("round/-1", np.round(x * 10, -1))
put("round/ints", np.round(np.array([-25, -15, -5, 5, 15, 25, 149, 151]), -1))

a, b = whole(20) * 3, whole(15) * 2
put("isin", np.isin(a, b))
put("union1d", np.union1d(a, b))
put("intersect1d", np.intersect1d(a, b))
put("setdiff1d", np.setdiff1d(a, b))
put("setxor1d", np.setxor1d(a, b))
nan_a, nan_b = np.array([1, np.nan, 2]), np.array([np.nan, 2, 3])
put("nan/union1d", np.union1d(nan_a, nan_b))
put("nan/intersect1d", np.intersect1d(nan_a, nan_b))
put("nan/setdiff1d", np.setdiff1d(nan_a, nan_b))
put("nan/setxor1d", np.setxor1d(nan_a, nan_b))
put("lexsort", np.lexsort((numbers(24), whole(24))))
put("lexsort/0", np.lexsort((numbers(4, 6), whole(24).reshape(4, 6)), axis=0))
put("nan_to_num", np.nan_to_num(np.array([np.nan, np.inf, -np.inf, 1.5])))
put("gcd", np.gcd.outer([0, 12, -18, -128], [0, 8, 27, 64]))
put("lcm", np.lcm.outer([0, 12, -18, -128], [0, 8, 27, 64]))
