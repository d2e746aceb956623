#!/usr/bin/env python3
"""softmax_regression learns the digits, with the same results in every run. Usage: ... PROGRAM DATA"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = DATA = ""
SHORT = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where the program is slow


def run(*arguments, **environment):
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


class SoftmaxRegression(unittest.TestCase):
    @unittest.skipIf(SHORT, "the same with fewer epochs is below")
    def test_learns_and_prints_the_accuracy_last(self):
        result = run("--data", DATA, "--epochs", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        last = result.stdout.splitlines()[-1]
        match = re.fullmatch(r"test accuracy: (0\.\d{4})", last)
        self.assertTrue(match, last)
        self.assertGreater(float(match.group(1)), 0.89)

    def test_without_a_terminal_each_epoch_is_a_line(self):
        lines = run("--data", DATA, "--epochs", "2").stderr.splitlines()
        self.assertEqual(len(lines), 2)
        losses = []
        for number, line in enumerate(lines, 1):
            match = re.fullmatch(rf"epoch  {number}/2  loss (\d+\.\d+)  accuracy 0\.\d+  \d+ images/s", line)
            self.assertTrue(match, line)
            losses.append(float(match.group(1)))
        self.assertLess(losses[1], losses[0])

    def test_threads_and_modes_do_not_change_the_result(self):
        arguments = ["--data", DATA, "--epochs", "1", "--momentum", "0.5", "--rate", "0.1"]
        results = {
            re.sub(r"  \d+ images/s", "", run(*arguments, **environment).stderr)
            for environment in [{"MX_NUM_THREADS": "1"}, {"MX_NUM_THREADS": "4"}, {"MX_ENGINE": "naive"}]
        }
        self.assertEqual(len(results), 1, results)
        self.assertIn("epoch  1/1", results.pop())

    def test_data_that_is_missing_or_damaged_is_named(self):
        result = run("--data", "/nonexistent")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/train-images-idx3-ubyte.gz", result.stderr)
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(DATA):
                shutil.copy(os.path.join(DATA, name), folder)
            path = os.path.join(folder, "train-labels-idx1-ubyte.gz")
            with open(path, "r+b") as file:
                file.truncate(1000)
            result = run("--data", folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn(path, result.stderr)

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run("--epochs", "0").returncode, 2)


if __name__ == "__main__":
    PROGRAM, DATA = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
