#!/usr/bin/env python3
"""gcn_cora learns to classify papers. Usage: ... PROGRAM DATA"""

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


class GcnCora(unittest.TestCase):
    def test_learns_from_140_papers(self):
        result = run("--data", DATA, "--seeds", "1" if SHORT else "3", "--epochs", "30" if SHORT else "200")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], "Cora: 2708 papers, 5278 citations, 140 papers with known classes")
        mean = float(re.fullmatch(r"mean test accuracy: (0\.\d{4})", lines[-1]).group(1))
        self.assertGreater(mean, 0.7 if SHORT else 0.8)

    def test_threads_and_modes_do_not_change_the_result(self):
        results = {
            re.sub(r", \d+ epochs/s", "", run("--data", DATA, "--seeds", "1", "--epochs", "5", **environment).stdout)
            for environment in [{"MX_NUM_THREADS": "1"}, {"MX_NUM_THREADS": "4"}, {"MX_ENGINE": "naive"}]
        }
        self.assertEqual(len(results), 1, results)
        self.assertIn("mean test accuracy", results.pop())

    def test_data_that_is_missing_or_damaged_is_named(self):
        result = run("--data", "/nonexistent")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/nodes.txt.gz", result.stderr)
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(DATA):
                shutil.copy(os.path.join(DATA, name), folder)
            path = os.path.join(folder, "edges.txt.gz")
            with open(path, "r+b") as file:
                file.truncate(1000)
            result = run("--data", folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn(path, result.stderr)


if __name__ == "__main__":
    PROGRAM, DATA = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
