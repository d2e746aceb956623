#!/usr/bin/env python3
"""mlp learns the digits, with the same results in every run. Usage: ... PROGRAM DATA"""

import os
import re
import subprocess
import sys
import unittest

PROGRAM = DATA = ""


def run(*arguments, stdout=subprocess.PIPE, **environment):
    return subprocess.run(
        [PROGRAM, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


class Mlp(unittest.TestCase):
    def test_learns_and_gives_the_same_at_any_number_of_threads(self):
        results = [run("--data", DATA, "--epochs", "1", MX_NUM_THREADS=threads) for threads in "14"]
        for result in results:
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(results[0].stdout, results[1].stdout)
        match = re.fullmatch(r"epoch 1: loss (\d\.\d{4})\ntest accuracy: (0\.\d{4})\n", results[0].stdout)
        self.assertTrue(match, results[0].stdout)
        self.assertLess(float(match.group(1)), 0.6)
        self.assertGreater(float(match.group(2)), 0.92)

    def test_errors_end_it_with_a_line_and_status_1(self):
        result = run("--data", "/nonexistent")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Amlp: .*/nonexistent/train-images-idx3-ubyte.*\n\Z")
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = run("--data", DATA, "--epochs", "1", stdout=full)
        self.assertEqual(result.returncode, 1)
        self.assertIn("mlp: cannot write the standard output", result.stderr)
        self.assertEqual(run("--epochs", "0").returncode, 2)


if __name__ == "__main__":
    PROGRAM, DATA = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
