#!/usr/bin/env python3
"""The examples that train on text, shortened: after being killed and resumed they have the bits of a whole run, in flat
memory; they refuse wrong options, and files that they cannot write, at the start. Usage: ... PROGRAM [DATA]"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = NAME = ""
DATA = []
SHORT = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where programs are slow

# The options of a run of 1,000 small steps or more, those of a short one, an option whose value may not change, and the
# line of the result.
RUNS = {
    "char_gpt": (
        ["--batch", "2", "--length", "16", "--layers", "1", "--heads", "2", "--width", "16", "--dropout", "0.1",
         "--validate", "2", "--write", "10"],
        ["--steps", "1200"],
        ["--steps", "40"],
        ["--width", "32"],
        r"validation loss: .*",
    ),
    "char_lstm": (
        ["--batch", "4", "--length", "8", "--hidden", "16", "--embedding", "8", "--write", "10"],
        ["--characters", "9000", "--epochs", "4"],
        ["--characters", "600", "--epochs", "4"],
        ["--hidden", "32"],
        r"validation loss: .*",
    ),
    "seq2seq_addition": (
        ["--batch", "4", "--hidden", "16", "--embedding", "8", "--heads", "2", "--test", "20"],
        ["--steps", "1200"],
        ["--steps", "40"],
        ["--hidden", "32"],
        r"exact: .*",
    ),
}


def slurp(path):
    with open(path, "rb") as file:
        return file.read()


class TextExample(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.options, full, short, self.other, self.result = RUNS[NAME]
        self.options = [*self.options, *(short if SHORT else full)]
        self.short = [*self.options, *short]

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *arguments, threads="2"):
        return subprocess.Popen(
            [PROGRAM, *DATA, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "MX_NUM_THREADS": threads},
        )

    def run_to_end(self, *arguments, status=0, **keywords):
        """Returns what the program printed on stdout and on stderr."""
        with self.start(*arguments, **keywords) as process:
            out, err = process.communicate()
        self.assertEqual(process.returncode, status, err)
        return out, err

    def killed_after_the_first_checkpoint(self, *arguments, **keywords):
        with self.start(*arguments, "--save", "killed", **keywords) as process:
            while process.poll() is None and not os.path.exists(self.path("killed")):
                time.sleep(0.001)
            process.kill()
            process.communicate()
        self.assertEqual(process.returncode, -signal.SIGKILL)

    def test_goes_on_after_being_killed_in_flat_memory(self):
        out, err = self.run_to_end(*self.options, "--save", "whole", threads="4")
        self.killed_after_the_first_checkpoint(*self.options, threads="1")
        self.assertFalse(slurp(self.path("whole")) == slurp(self.path("killed")), "the run was not interrupted")
        resumed_out, resumed_err = self.run_to_end(*self.options, "--save", "killed", "--resume", threads="1")
        self.assertRegex(resumed_out + resumed_err, r"resumed after (step|epoch) [1-9]")
        self.assertTrue(slurp(self.path("whole")) == slurp(self.path("killed")), "the checkpoints differ")
        self.assertEqual(re.search(self.result, out).group(), re.search(self.result, resumed_out).group())
        if SHORT:
            return
        memory = re.search(r"memory (\d+) MB after 100 steps, (\d+) MB at the end", err)
        self.assertTrue(memory, err)
        # On a busy machine, other threads with memory of their own join in: some 20 MB, but not more with each step.
        self.assertLess(int(memory.group(2)), 1.2 * int(memory.group(1)) + 32)  # 1,000 steps

    def test_a_checkpoint_of_other_options_is_refused(self):
        self.run_to_end(*self.short, "--save", "model")
        before = slurp(self.path("model"))
        _, err = self.run_to_end(*self.short, *self.other, "--save", "model", "--resume", status=1)
        name, value = self.other[0].removeprefix("--"), self.other[1]
        self.assertRegex(err, rf"\A{NAME}: .*{name}={value}.*{name}=16.*\n\Z")
        self.assertTrue(before == slurp(self.path("model")))

    def test_files_that_cannot_be_written_are_named_before_training(self):
        options = ["--save", "--weights"] if NAME == "char_gpt" else ["--save"]
        for option in options:
            out, err = self.run_to_end(*self.short, option, "/nonexistent/file", status=1)
            self.assertRegex(err, rf"\A{NAME}: .*/nonexistent/.*\n\Z")
            self.assertNotRegex(out, r"(?m)^(step|epoch) ")

    def test_wrong_options_are_refused_with_one_line(self):
        for wrong in [["--rate", "-1"], ["--batch", "0"], ["--unknown"], ["word"]]:
            out, err = self.run_to_end(*wrong, status=2)
            self.assertEqual(out, "")
            self.assertRegex(err, rf"\A{NAME}: .*{wrong[0]}.*\n\Z")

    def test_resuming_needs_the_file(self):
        if NAME == "char_lstm":
            self.skipTest("it has a default")
        _, err = self.run_to_end(*self.short, "--resume", status=1)
        self.assertRegex(err, rf"\A{NAME}: .*expected the file of the checkpoint.*\n\Z")


class Seq2SeqAddition(TextExample):
    """What only seq2seq_addition does."""

    def test_learns_to_add(self):
        length = ["--steps", "20"] if SHORT else ["--steps", "1500"]
        small = ["--digits", "2", "--hidden", "64", "--batch", "32", "--rate", "0.005", "--test", "500", "--show", "3"]
        outs = [self.run_to_end(*small, *length, threads=threads)[0] for threads in "14"]
        self.assertEqual(*(re.sub(r"\d+ tokens/s", "", out) for out in outs))
        lines = outs[0].splitlines()
        exact = re.fullmatch(r"exact: (\d\.\d{4}) of 500 additions that training has not seen", lines[-1])
        self.assertTrue(exact, lines[-1])
        shown = [re.fullmatch(r"(\d+)\+(\d+)=(\d*)( \(wrong\))?", line) for line in lines[-5:-2]]
        self.assertTrue(all(shown), lines)
        for a, b, answer, wrong in (match.groups() for match in shown):
            self.assertEqual(answer != str(int(a) + int(b)), wrong is not None)
        if not SHORT:
            self.assertGreater(float(exact.group(1)), 0.8)  # answers at random: below 0.01


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    NAME = os.path.basename(PROGRAM)
    if len(sys.argv) > 1 and os.path.exists(sys.argv[1]):
        DATA = ["--data", os.path.abspath(sys.argv.pop(1))]
    unittest.main(defaultTest="Seq2SeqAddition" if NAME == "seq2seq_addition" else "TextExample")
