#!/usr/bin/env python3
"""moe_mnist learns the digits and uses all experts. Usage: ... PROGRAM DATA"""

import os
import re
import subprocess
import sys
import unittest

PROGRAM = DATA = ""
SHORT = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where the program is slow


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


class MoeMnist(unittest.TestCase):
    def test_learns_and_uses_every_expert(self):
        for top_k in ["2"] if SHORT else ["1", "2"]:
            result = run("--data", DATA, "--epochs", "1", "--experts", "4", "--top-k", top_k)
            self.assertEqual(result.returncode, 0, result.stderr)
            experts, smallest, last = result.stdout.splitlines()
            shares = [float(share) for share in experts.split("in the last epoch: ")[1].split()]
            self.assertEqual(len(shares), 4)
            self.assertAlmostEqual(sum(shares), 1, places=2)
            self.assertGreater(min(shares), 0.02, experts)
            share = float(re.fullmatch(r"smallest share of an expert: (0\.\d{4})", smallest).group(1))
            self.assertAlmostEqual(share, min(shares), delta=0.0006)
            self.assertGreater(float(re.fullmatch(r"test accuracy: (0\.\d{4})", last).group(1)), 0.93)

    def test_more_choices_than_experts_are_refused(self):
        result = run("--data", DATA, "--experts", "2", "--top-k", "3")
        self.assertEqual(result.returncode, 1)
        self.assertIn("top_k from 1 to the number of experts, 2, got 3", result.stderr)


if __name__ == "__main__":
    PROGRAM, DATA = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
