#!/usr/bin/env python3
"""gcn_cora learns to classify papers. Usage: ... PROGRAM DATA"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = DATA = ""
SHORT = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where the program is slow


def run(*arguments, **environment):
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def slurp(path):
    with open(path, "rb") as file:
        return file.read()


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

    def test_goes_on_after_being_killed_in_flat_memory(self):
        options = ["--data", DATA, "--seeds", "2", "--epochs", "110" if SHORT else "550"]
        with tempfile.TemporaryDirectory() as folder:
            whole, killed = os.path.join(folder, "whole"), os.path.join(folder, "killed")
            result = run(*options, "--save", whole)
            self.assertEqual(result.returncode, 0, result.stderr)
            with subprocess.Popen(
                [PROGRAM, *options, "--save", killed], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                while process.poll() is None and not os.path.exists(killed):
                    time.sleep(0.001)
                process.kill()
                process.communicate()
            self.assertEqual(process.returncode, -signal.SIGKILL)
            self.assertFalse(slurp(whole) == slurp(killed), "the run was not interrupted")
            resumed = run(*options, "--save", killed, "--resume", MX_NUM_THREADS="1")
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
            self.assertRegex(resumed.stderr, r"resumed after epoch \d+ of seed [12]")
            self.assertTrue(slurp(whole) == slurp(killed), "the checkpoints differ")
            self.assertEqual(result.stdout.splitlines()[-1], resumed.stdout.splitlines()[-1])

            other = run("--data", DATA, "--seeds", "3", "--save", killed, "--resume")
            self.assertEqual(other.returncode, 1)
            self.assertRegex(other.stderr, r"\Agcn_cora: .*seeds=3.*seeds=2")
            self.assertTrue(slurp(whole) == slurp(killed), "the checkpoint was changed")
        memory = re.search(r"memory (\d+) MB after 100 steps, (\d+) MB at the end", result.stderr)
        self.assertTrue(memory, result.stderr)
        # On a busy machine, other threads with memory of their own join in: some 20 MB, but not more with each step.
        self.assertLess(int(memory.group(2)), 1.2 * int(memory.group(1)) + 32)  # 1,000 steps

    def test_the_place_of_the_checkpoint_is_checked_first(self):
        for arguments, expected in [
            (["--resume"], "expected the file of the checkpoint"),
            (["--save", "/nonexistent/file"], "/nonexistent/"),
        ]:
            result = run("--data", DATA, *arguments)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, rf"\Agcn_cora: .*{expected}.*\n\Z")
            self.assertNotIn("seed 1", result.stdout)

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
