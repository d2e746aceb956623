#!/usr/bin/env python3
"""The three ways of logistic_regression agree with each other and with plain Python. Usage: ... PROGRAM DATA"""

import gzip
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = DATA = ""
SHORT = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where the program is slow


def run(*arguments, data=None, **environment):
    return subprocess.run(
        [PROGRAM, "--data", data or DATA, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )


def table(text):
    """Returns {step: (define by run, functional, by hand)}."""
    return {
        int(step): tuple(float(x) for x in rest.split())
        for step, rest in re.findall(r"^ *(\d+)((?:  +\d+\.\d+){3}) *$", text, re.MULTILINE)
    }


def accuracies(text):
    return [float(x) for x in re.search(r"^test accuracy: (.*)$", text, re.MULTILINE).group(1).split()]


def digits(kind, count):
    """Returns [(label, [(pixel, value), ...])] with only the nonzero pixels."""
    with gzip.open(os.path.join(DATA, f"{kind}-images-idx3-ubyte.gz")) as file:
        images = file.read(16 + count * 784)[16:]
    with gzip.open(os.path.join(DATA, f"{kind}-labels-idx1-ubyte.gz")) as file:
        labels = file.read(8 + count)[8:]
    return [
        (labels[i], [(j, v / 255) for j, v in enumerate(images[784 * i : 784 * (i + 1)]) if v])
        for i in range(count)
    ]


class Plain:
    """The model, computed in plain Python."""

    def __init__(self):
        self.w = [[0.0] * 10 for _ in range(784)]
        self.b = [0.0] * 10

    def scores(self, pixels):
        rows = [(v, self.w[j]) for j, v in pixels]
        return [b + sum([v * row[k] for v, row in rows]) for k, b in enumerate(self.b)]

    def step(self, batch, rate):
        loss, back = 0.0, []
        for label, pixels in batch:
            s = self.scores(pixels)
            top = max(s)
            e = [math.exp(x - top) for x in s]
            total = sum(e)
            loss += top + math.log(total) - s[label]
            back.append([(x / total - (k == label)) / len(batch) for k, x in enumerate(e)])
        for (_, pixels), d in zip(batch, back):
            for k in range(10):
                self.b[k] -= rate * d[k]
            for j, v in pixels:
                row = self.w[j]
                for k in range(10):
                    row[k] -= rate * v * d[k]
        return loss / len(batch)


class LogisticRegression(unittest.TestCase):
    @unittest.skipIf(SHORT, "takes a quarter of a minute with a sanitizer")
    def test_the_three_ways_agree_at_each_of_1000_steps(self):
        result = run("--every", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = table(result.stdout)
        self.assertEqual(sorted(rows), list(range(1000)))
        apart = max(max(row) - min(row) for row in rows.values())
        self.assertLessEqual(apart, 1e-5)
        said = float(re.search(r"^largest difference: (\S+)$", result.stdout, re.MULTILINE).group(1))
        self.assertAlmostEqual(said, apart, delta=0.06 * apart + 2e-9)
        first, last = (sum(rows[i][0] for i in steps) for steps in (range(100), range(900, 1000)))
        self.assertLess(last, 0.6 * first)
        found = accuracies(result.stdout)
        self.assertEqual(len(found), 3)
        self.assertGreater(min(found), 0.89)
        self.assertLessEqual(max(found) - min(found), 0.0002)

    def test_losses_and_accuracy_are_those_of_plain_numbers(self):
        steps, batch, rate = 25, 25, 0.25
        result = run("--every", "1", "--steps", str(steps), "--batch", str(batch), "--rate", str(rate))
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = table(result.stdout)
        self.assertEqual(len(rows), steps)
        train, model = digits("train", steps * batch), Plain()
        for i in range(steps):
            expected = model.step(train[i * batch : (i + 1) * batch], rate)
            for got in rows[i]:
                self.assertAlmostEqual(got, expected, delta=1e-5, msg=f"step {i}")
        right = sum(s.index(max(s)) == label for label, s in
                    ((label, model.scores(pixels)) for label, pixels in digits("t10k", 10000)))
        for got in accuracies(result.stdout):
            self.assertAlmostEqual(got, right / 10000, delta=0.00025)  # a near tie may be decided differently

    def test_threads_and_modes_do_not_change_the_result(self):
        results = {
            run("--steps", "60", "--every", "1", **environment).stdout
            for environment in [{"MX_NUM_THREADS": "4"}, {"MX_ENGINE": "naive"}, {"MX_ENGINE": "fuzz:5"}]
        }
        self.assertEqual(len(results), 1)
        self.assertEqual(len(table(results.pop())), 60)

    def test_fewer_images_than_a_batch_are_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("train", "t10k"):
                with gzip.open(os.path.join(folder, f"{kind}-images-idx3-ubyte.gz"), "wb") as file:
                    file.write(struct.pack(">4i", 2051, 3, 28, 28) + bytes(3 * 784))
                with gzip.open(os.path.join(folder, f"{kind}-labels-idx1-ubyte.gz"), "wb") as file:
                    file.write(struct.pack(">2i", 2049, 3) + bytes(3))
            self.assertEqual(run("--steps", "2", "--batch", "3", data=folder).returncode, 0)
            result = run("--steps", "2", "--batch", "4", data=folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("expected at least 4 training images for a batch, got 3", result.stderr)

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run("--rate", "0").returncode, 2)


if __name__ == "__main__":
    PROGRAM, DATA = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
