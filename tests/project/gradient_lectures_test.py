#!/usr/bin/env python3
"""The numbers of the lectures on gradients agree with closed formulas and with a computation by hand.
Usage: ... DEFINE_BY_RUN FUNCTIONAL_GRAD TWO_OPTIMIZERS"""

import math
import os
import re
import subprocess
import sys
import unittest

DEFINE_BY_RUN = FUNCTIONAL_GRAD = TWO_OPTIMIZERS = ""


def run(*command, **environment):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def output(*command, **environment):
    result = run(*command, **environment)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


class Lecture(unittest.TestCase):
    def assert_close(self, got, expected, relative=1e-12):
        self.assertEqual(len(got), len(expected))
        for a, b in zip(got, expected):
            self.assertAlmostEqual(a, b, delta=relative * max(1, abs(b)))

    def assert_every_mode_prints_the_same(self, *command):
        modes = [{}, {"MX_ENGINE": "naive"}, {"MX_ENGINE": "check"}, {"MX_ENGINE": "fuzz:2"}]
        self.assertEqual(len({output(*command, **mode) for mode in modes}), 1)


class DefineByRun(Lecture):
    def test_gradients_follow_the_way_that_ran(self):
        ways = set()
        for x in [2, 1, 0.75, 0, -0.5, -1, -3]:
            rows = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in
                    output(DEFINE_BY_RUN, f"--x={x}").splitlines()]
            self.assertEqual(len(rows), 3)
            for row, at in zip(rows, [x, -x]):
                self.assertEqual(float(row["x"]), at)
                value, slope = math.exp(at) * (math.exp(at) + 1), 2 * math.exp(2 * at) + math.exp(at)
                factor = 2 if value > 0.5 else 1
                self.assertEqual(row["way"], "doubled" if factor == 2 else "plain")
                self.assert_close([float(row["value"]), float(row["gradient"])],
                                  [factor * value, factor * slope])
                ways.add(row["way"])
        self.assertEqual(ways, {"doubled", "plain"})

    def test_gradients_go_back_through_as_many_rounds_as_ran(self):
        rounds = set()
        for x in [0, 0.5, 2, 9]:
            row = dict(re.findall(r"(\w+)=(\S+)", output(DEFINE_BY_RUN, f"--x={x}").splitlines()[2]))
            a = x * x + 1
            self.assertEqual(float(row["a"]), a)
            self.assert_close([float(row["value"]), float(row["gradient"])],
                              [math.sqrt(a), 0.5 / math.sqrt(a)])
            rounds.add(int(row["rounds"]))
        self.assertGreaterEqual(len(rounds), 3)

    def test_every_mode_prints_the_same(self):
        self.assert_every_mode_prints_the_same(DEFINE_BY_RUN)

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run(DEFINE_BY_RUN, "--x", "11").returncode, 2)


class FunctionalGrad(Lecture):
    def results(self, x):
        text = output(FUNCTIONAL_GRAD, f"--x={x}")
        return {name: [float(v) for v in values.split()] for name, values in
                re.findall(r"^(.+?) =(.*)$", text, re.MULTILINE)}

    def test_derivatives_of_derivatives(self):
        for x in [0.5, -1.25, 0, 3]:
            got, t = self.results(x), math.tanh(x)
            d = 1 - t * t
            self.assert_close(got["tanh"] + got["first"] + got["second"] + got["third"],
                              [t, d, -2 * t * d, d * (6 * t * t - 2)])

    def test_gradients_by_argument(self):
        w = [0.1, -0.2, 0.3]
        for scale in [0.5, -1.25]:
            got = self.results(scale)
            x = [[scale * v for v in row] for row in [[1, 2, -1], [0.5, -0.25, 3]]]
            t = [math.tanh(sum(a * b for a, b in zip(row, w))) for row in x]
            self.assert_close(got["value"], [sum(t)])
            self.assert_close(got["dw"], [sum((1 - t[i] ** 2) * x[i][j] for i in range(2)) for j in range(3)])
            self.assert_close(got["dx"], [(1 - t[i] ** 2) * w[j] for i in range(2) for j in range(3)])

    def test_matrices_of_derivatives(self):
        v = [1, -1, 2]
        for scale in [0.5, -2]:
            got = self.results(scale)
            e = [math.exp(scale * a) for a in [0, 1, 0.5]]
            p = [a / sum(e) for a in e]
            matrix = [[p[i] * ((i == j) - p[j]) for j in range(3)] for i in range(3)]
            product = [sum(a * b for a, b in zip(row, v)) for row in matrix]
            self.assert_close(got["gradient"], p)
            self.assert_close(got["jacobian"], sum(matrix, []))
            self.assert_close(got["jacobian v"], product)
            self.assert_close(got["hvp"], product)

    def test_every_mode_prints_the_same(self):
        self.assert_every_mode_prints_the_same(FUNCTIONAL_GRAD)

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run(FUNCTIONAL_GRAD, "--x", "much").returncode, 2)


FEATURES, HEAD = range(9), range(9, 13)  # positions of the parameters in the list of all
INPUTS = [((0, 0), 0), ((0, 1), 1), ((1, 0), 1), ((1, 1), 0)]


def loss_and_gradient(p):
    """p: weight (3, 2), bias (3,), weight (1, 3), bias (1,), concatenated."""
    loss, g = 0.0, [0.0] * 13
    for (a, b), y in INPUTS:
        h = [math.tanh(p[2 * i] * a + p[2 * i + 1] * b + p[6 + i]) for i in range(3)]
        off = sum(p[9 + i] * h[i] for i in range(3)) + p[12] - y
        loss += off * off / 4
        g[12] += off / 2
        for i in range(3):
            back = off / 2 * p[9 + i] * (1 - h[i] ** 2)
            g[9 + i] += off / 2 * h[i]
            g[2 * i] += back * a
            g[2 * i + 1] += back * b
            g[6 + i] += back
    return loss, g


class ByHand:
    def __init__(self, p):
        self.p = list(p)
        self.u, self.m, self.v, self.count = [0.0] * 13, [0.0] * 13, [0.0] * 13, 0

    def step(self, features, head):
        _, g = loss_and_gradient(self.p)
        if features:
            for i in FEATURES:
                self.u[i] = 0.9 * self.u[i] + g[i]
                self.p[i] -= 0.1 * self.u[i]
        if head:
            self.count += 1
            for i in HEAD:
                self.m[i] = 0.9 * self.m[i] + 0.1 * g[i]
                self.v[i] = 0.999 * self.v[i] + 0.001 * g[i] ** 2
                mean, square = self.m[i] / (1 - 0.9**self.count), self.v[i] / (1 - 0.999**self.count)
                self.p[i] -= 0.05 * mean / (math.sqrt(square) + 1e-8)


class TwoOptimizers(Lecture):
    def phases(self, *arguments):
        """Returns [(name, loss, all 13 parameters)]."""
        text = output(TWO_OPTIMIZERS, *arguments)
        found = re.findall(r"^(\S.*): loss = (\S+)\n((?:  .+\n){4})", text, re.MULTILINE)
        self.assertEqual([name for name, _, _ in found], ["start", "features only", "head only", "both"])
        result = []
        for name, loss, rows in found:
            names, values = zip(*(row.split(" = ") for row in rows.splitlines()))
            self.assertEqual([n.strip() for n in names],
                             ["features.weight", "features.bias", "head.weight", "head.bias"])
            result.append((name, float(loss), [float(v) for v in " ".join(values).split()]))
        return result

    def test_each_moves_its_own_parameters_only(self):
        start, features, head, both = (p for _, _, p in self.phases("--steps", "1"))
        moved = lambda before, after: {i for i in range(13) if before[i] != after[i]}
        self.assertTrue(moved(start, features) and moved(start, features) <= set(FEATURES))
        self.assertEqual(moved(features, head), set(HEAD))
        self.assertEqual(moved(head, both) & set(HEAD), set(HEAD))
        self.assertTrue(moved(head, both) & set(FEATURES))

    def test_numbers_are_those_of_a_computation_by_hand(self):
        for seed in ["1", "5"]:
            for steps in [1, 2, 60]:
                phases = self.phases("--steps", str(steps), "--seed", seed)
                net = ByHand(phases[0][2])
                self.assert_close([phases[0][1]], [loss_and_gradient(net.p)[0]], 1e-13)
                for (name, loss, p), which in zip(phases[1:], [(True, False), (False, True), (True, True)]):
                    for _ in range(steps):
                        net.step(*which)
                    with self.subTest(seed=seed, steps=steps, phase=name):
                        self.assert_close(p, net.p, 1e-10)
                        self.assert_close([loss], [loss_and_gradient(net.p)[0]], 1e-10)

    def test_each_phase_lowers_the_loss(self):
        losses = [loss for _, loss, _ in self.phases()]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertLess(losses[-1], 1e-3)

    def test_every_mode_prints_the_same(self):
        self.assert_every_mode_prints_the_same(TWO_OPTIMIZERS, "--steps", "20")

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run(TWO_OPTIMIZERS, "--steps", "0").returncode, 2)


if __name__ == "__main__":
    DEFINE_BY_RUN, FUNCTIONAL_GRAD, TWO_OPTIMIZERS = (sys.argv.pop(1) for _ in range(3))
    unittest.main()
