#!/usr/bin/env python3
"""char_lstm learns from a short text, and a run that was interrupted gives the same. Usage: ... PROGRAM DATA"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = DATA = ""
SLOW = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where the program is slow
SHORT = [
    *("--characters", "5000" if SLOW else "30000", "--epochs", "3"),
    *("--hidden", "16" if SLOW else "48", "--embedding", "16", "--layers", "1"),
    *("--length", "32", "--batch", "8", "--write", "40", "--rate", "0.01"),
]
LINE = r"epoch {}: loss (\d\.\d{{4}}), validation (\d\.\d{{4}}) \(\d+ chars/s\)\n"


def run(*arguments, data=None, **environment):
    return subprocess.run(
        [PROGRAM, "--data", data or DATA, *SHORT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def without_rates(text):
    return re.sub(r" \(\d+ chars/s\)", "", text)


class CharLstm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.save = os.path.join(folder.name, "run.safetensors")

    def test_learns_and_gives_the_same_at_any_number_of_threads(self):
        results = [run("--save", self.save, MX_NUM_THREADS=threads) for threads in "14"]
        for result in results:
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(*(without_rates(result.stdout) for result in results))
        pattern = "".join(LINE.format(epoch) for epoch in (1, 2, 3))
        match = re.match(pattern + r"validation loss: (\d\.\d{4}) nats per character\n", results[0].stdout)
        self.assertTrue(match, results[0].stdout)
        losses = [float(match.group(i)) for i in (1, 3, 5)]
        self.assertEqual(losses, sorted(losses, reverse=True))
        # Characters at random: 4.1; their frequencies: 3.3.
        self.assertLess(float(match.group(7)), 3.9 if SLOW else 2.7)
        self.assertEqual(len(results[0].stdout[match.end() :]), 41)  # the written text and a new line

    def test_a_resumed_run_gives_what_one_run_gives(self):
        whole = run("--save", self.save + ".whole")
        part = run("--save", self.save, "--stop-after", "1")
        self.assertEqual(part.returncode, 0, part.stderr)
        self.assertNotIn("nats per character", part.stdout)
        rest = run("--save", self.save, "--resume")
        self.assertEqual(rest.returncode, 0, rest.stderr)
        self.assertEqual(
            without_rates(whole.stdout),
            without_rates(part.stdout + rest.stdout.removeprefix("resumed after epoch 1\n")),
        )
        other = run("--save", self.save, "--resume", "--hidden", "24")
        self.assertEqual(other.returncode, 1)
        self.assertIn("char_lstm: ", other.stderr)

    @unittest.skipIf(SLOW, "sanitizers need memory of their own")
    def test_memory_is_that_of_few_pieces(self):
        longer = ["--characters", "400000", "--epochs", "1", "--hidden", "64", "--length", "64", "--batch", "32"]
        result = run("--save", self.save, *longer, "--write", "0")
        memory = re.search(r"memory (\d+) MB after 100 steps, (\d+) MB at the end", result.stderr)
        self.assertTrue(memory, result.stderr)
        # On a busy machine, other threads with memory of their own join in: some 20 MB, but not more with each step.
        self.assertLess(int(memory.group(2)), 1.2 * int(memory.group(1)) + 32)  # of training and validation

    def test_errors_end_it_with_a_line_and_status_1(self):
        result = run(data="/nonexistent.txt")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Achar_lstm: .*/nonexistent.txt.*\n\Z")
        result = run("--batch", "60000")
        self.assertEqual(result.returncode, 1)
        self.assertIn("expected 2 characters or more for each of 60000 streams", result.stderr)
        self.assertEqual(run("--layers", "0").returncode, 2)


if __name__ == "__main__":
    PROGRAM, DATA = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
