#!/usr/bin/env python3
"""char_gpt learns a small text, with the same bits on any number of threads. Usage: ... PROGRAM"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
TEXT = "".join(f"{a} plus {b} is {a + b}.\n" for a in range(10) for b in range(10)) * 3
SMALL = ["--batch", "8", "--length", "32", "--layers", "2", "--heads", "2", "--width", "32", "--validate", "4"]
SHORT = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where the program is slow


class CharGpt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data = os.path.join(folder.name, "text.txt")
        self.save = os.path.join(folder.name, "checkpoint.safetensors")
        self.weights = os.path.join(folder.name, "weights.safetensors")
        with open(self.data, "w", encoding="ascii") as file:
            file.write(TEXT)

    def run_program(self, *arguments, **environment):
        return subprocess.run(
            [PROGRAM, "--data", self.data, "--save", self.save, "--weights", self.weights, *SMALL, *arguments],
            capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )

    @unittest.skipIf(SHORT, "fewer steps are below")
    def test_learns_and_writes(self):
        result = self.run_program("--steps", "200", "--write", "60", "--temperature", "0")
        self.assertEqual(result.returncode, 0, result.stderr)
        losses = [float(loss) for loss in re.findall(r"^step +\d+  loss (\d+\.\d+)  \d+ tokens/s$", result.stdout, re.M)]
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], losses[0] / 2)
        match = re.search(r"^validation loss: (\d+\.\d{4}) nats/char\n(.*)\nwriting: \d+ tokens/s$", result.stdout, re.M | re.S)
        self.assertTrue(match, result.stdout)
        self.assertLess(float(match.group(1)), 0.8)
        self.assertEqual(len(match.group(2)), 60)
        self.assertRegex(match.group(2), r"\d plus \d is ")

    def test_threads_and_modes_do_not_change_the_result(self):
        results = set()
        for environment in [{"MX_NUM_THREADS": "1"}, {"MX_NUM_THREADS": "4"}, {"MX_ENGINE": "naive"}]:
            run = self.run_program("--steps", "6", "--write", "20", "--dropout", "0.1", **environment)
            self.assertEqual(run.returncode, 0, run.stderr)
            with open(self.save, "rb") as file, open(self.weights, "rb") as weights:
                results.add((re.sub(r"\d+ tokens/s", "", run.stdout), file.read(), weights.read()))
        self.assertEqual(len(results), 1)
        self.assertIn(b'"transformer.wte.weight"', results.pop()[2])

    def test_data_that_is_missing_or_short_is_named(self):
        result = self.run_program("--data", "/nonexistent/text.txt")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/text.txt", result.stderr)
        with open(self.data, "w", encoding="ascii") as file:
            file.write(TEXT[:200])
        result = self.run_program()
        self.assertEqual(result.returncode, 1)
        self.assertIn("expected more than --length 32 characters for validation, a tenth of the text, got 20", result.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
