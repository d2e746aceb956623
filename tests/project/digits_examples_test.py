#!/usr/bin/env python3
"""The examples that train on the digits, shortened: they learn, with the same bits at any number of threads and after
being killed and resumed, in flat memory. Usage: ... PROGRAM DATA [OPTION VALUE]"""

import gzip
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = DATA = NAME = ""
VARIANT = []  # an option that chooses what the program trains
SHORT = "MX_TEST_SHORT" in os.environ  # set in sanitizer builds, where programs are slow
IMAGES, TESTS = (300, 100) if SHORT else (1000, 500)

# The options of a short run, the line of its result, and what that must reach. A run that learns nothing reaches 0.1.
RUNS = {
    "mnist_regression": (["--rate", "0.01"], r"test accuracy: (.*)", 0.80),
    "mnist_regression --loss sigmoid": (["--rate", "0.01"], r"test accuracy: (.*)", 0.80),
    "mnist_mlp": (["--rate", "0.001"], r"test accuracy: (.*)", 0.80),
    "mnist_lenet": (["--rate", "0.01"], r"test accuracy: (.*)", 0.85),
    "mnist_resnet": (["--rate", "0.02"], r"test accuracy: (.*)", 0.85),
    "mnist_resnet --block v1": (["--rate", "0.02"], r"test accuracy: (.*)", 0.85),
    "moe_mnist": (["--rate", "0.002"], r"test accuracy: (.*)", 0.80),
    "mnist_autoencoder": (["--rate", "0.001"], r"test accuracy of a linear layer on the codes: (.*)", 0.75),
    "mnist_gan": (["--picture", "picture.png"], r"mean certainty of the judge: (.*)", 0.3),
}


# An option of the program's own that a resumed run must share, another value, and the default.
OTHERS = {
    "mnist_regression": ("loss", "sigmoid", "softmax"),
    "mnist_resnet": ("block", "v1", "v2"),
    "moe_mnist": ("balance", "0.5", "0.01"),
}


def run_of():
    return RUNS[" ".join([NAME, *VARIANT])]


def write_data(folder):
    for split, count in [("train", IMAGES), ("t10k", TESTS)]:
        for name, header, size in [("images-idx3", 16, 784), ("labels-idx1", 8, 1)]:
            with gzip.open(os.path.join(DATA, f"{split}-{name}-ubyte.gz")) as file:
                data = bytearray(file.read(header + count * size))
            data[4:8] = struct.pack(">I", count)
            with open(os.path.join(folder, f"{split}-{name}-ubyte"), "wb") as file:
                file.write(data)


def slurp(path):
    with open(path, "rb") as file:
        return file.read()


class DigitsExample(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        write_data(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *arguments, threads="2"):
        return subprocess.Popen(
            [PROGRAM, "--data", self.folder, *VARIANT, *run_of()[0], *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "MX_NUM_THREADS": threads},
        )

    def run_to_end(self, *arguments, **keywords):
        """Returns what the program printed on stdout and on stderr."""
        with self.start(*arguments, **keywords) as process:
            out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        return out, err

    def killed_after_an_epoch(self, *arguments, **keywords):
        with self.start(*arguments, **keywords) as process:
            while process.poll() is None and not os.path.exists(self.path("killed")):
                time.sleep(0.001)
            process.kill()
            process.communicate()
        self.assertEqual(process.returncode, -signal.SIGKILL)

    def test_learns_and_goes_on_after_being_killed_in_flat_memory(self):
        length = ["--epochs", "2", "--batch", "30"] if SHORT else ["--epochs", "10", "--batch", "10"]
        out, err = self.run_to_end(*length, "--save", "whole", "--events", "events", threads="4")
        picture = slurp(self.path("picture.png")) if NAME == "mnist_gan" else b""
        self.killed_after_an_epoch(*length, "--save", "killed", threads="1")
        self.assertFalse(slurp(self.path("whole")) == slurp(self.path("killed")), "the run was not interrupted")
        resumed_out, resumed_err = self.run_to_end(*length, "--save", "killed", "--resume", threads="1")
        self.assertRegex(resumed_err, r"resumed after epoch [1-9]")
        self.assertTrue(slurp(self.path("whole")) == slurp(self.path("killed")), "the checkpoints differ")
        self.assertEqual(out, resumed_out)
        if picture:
            self.assertTrue(picture == slurp(self.path("picture.png")), "the pictures differ")
            self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">II", picture[16:24]), (280, 280))
        self.assertEqual(len(os.listdir(self.path("events"))), 1)

        self.assertRegex(err, r"\d+ images/s, ")
        if SHORT:
            return
        _, pattern, bar = run_of()
        reached = re.search(pattern, out)
        self.assertTrue(reached, out)
        self.assertGreater(float(reached.group(1)), bar)
        memory = re.search(r"memory (\d+) MB after 100 steps, (\d+) MB at the end", err)
        self.assertTrue(memory, err)
        # On a busy machine, other threads with memory of their own join in: some 20 MB, but not more with each step.
        self.assertLess(int(memory.group(2)), 1.2 * int(memory.group(1)) + 32)  # 1,000 steps

    def test_a_checkpoint_of_other_options_is_refused(self):
        self.run_to_end("--epochs", "1", "--batch", "100", "--save", "model")
        before = slurp(self.path("model"))
        with self.start("--epochs", "1", "--batch", "50", "--save", "model", "--resume") as process:
            _, err = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(err, rf"\A{NAME}: .*batch=50.*batch=100")
        self.assertTrue(before == slurp(self.path("model")))
        if VARIANT or NAME not in OTHERS:
            return
        option, other, default = OTHERS[NAME]
        arguments = ["--epochs", "1", "--batch", "100", "--save", "model", "--resume", f"--{option}", other]
        with self.start(*arguments) as process:
            _, err = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(err, rf"\A{NAME}: .*{option}={other}.*{option}={default}")
        self.assertTrue(before == slurp(self.path("model")))

    def test_wrong_usage_and_missing_data_are_named(self):
        for wrong in [["--epochs", "0"], ["--rate", "-1"], ["--unknown"]]:
            with self.start(*wrong) as process:
                _, err = process.communicate()
            self.assertEqual(process.returncode, 2, wrong)
            self.assertRegex(err, rf"\A{NAME}: .*{wrong[0]}.*\n\Z")
        unwritable = ["--save", "--picture"] if NAME == "mnist_gan" else ["--save"]
        for arguments, expected in [
            (["--data", "/nonexistent"], "/nonexistent/train-images-idx3-ubyte"),
            (["--resume"], "expected the file of the checkpoint"),
            *(([option, "/nonexistent/file"], "/nonexistent/") for option in unwritable),
        ]:
            with self.start(*arguments) as process:
                _, err = process.communicate()
            self.assertEqual(process.returncode, 1)
            self.assertRegex(err, rf"\A{NAME}: .*{expected}.*\n\Z")


if __name__ == "__main__":
    PROGRAM, DATA = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
    NAME = os.path.basename(PROGRAM)
    if " ".join([NAME, *sys.argv[1:3]]) in RUNS:
        VARIANT, sys.argv[1:3] = sys.argv[1:3], []
    unittest.main()
