#!/usr/bin/env python3
"""The small examples of arrays print the right results. Usage: ... CUSTOM_OP NUMPY_INTERCHANGE"""

import os
import struct
import subprocess
import sys
import tempfile
import unittest

CUSTOM_OP = NUMPY_INTERCHANGE = ""


def run(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def python_with_numpy():
    python = os.environ.get("MX_TEST_PYTHON", sys.executable)
    return python if run(python, "-c", "import numpy").returncode == 0 else None


class CustomOp(unittest.TestCase):
    def test_prints_results_and_the_error_of_the_call(self):
        result = run(CUSTOM_OP)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("[[ 1.  3.  5.]\n [ 7.  9. 11.]]", result.stdout)
        self.assertIn("0.5 ", result.stdout)
        self.assertRegex(result.stdout, r"\[axpy\] expected two arrays .*custom_op\.cc:\d+")


class NumpyInterchange(unittest.TestCase):
    def test_file_is_an_npy_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.npy")
            result = run(NUMPY_INTERCHANGE, path)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("f32 (4, 3)", result.stdout)
            with open(path, "rb") as file:
                content = file.read()
        self.assertEqual(content[:8], b"\x93NUMPY\x01\x00")
        self.assertIn(b"'shape': (4, 3)", content)
        values = struct.unpack("<12f", content[-48:])
        self.assertEqual(values[:4], (0, 1, 2, 0.25))

    def test_numpy_reads_it_and_it_reads_numpys(self):
        python = python_with_numpy()
        if python is None:
            self.skipTest("needs a Python with numpy (set MX_TEST_PYTHON)")
        with tempfile.TemporaryDirectory() as folder:
            written, read = os.path.join(folder, "a.npy"), os.path.join(folder, "b.npy")
            script = "import numpy, sys; numpy.save(sys.argv[1], numpy.arange(3, dtype='>f8')[::-1])"
            self.assertEqual(run(python, "-c", script, read).returncode, 0)
            result = run(NUMPY_INTERCHANGE, written, read)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("[2. 1. 0.]\nf64 (3,)", result.stdout)
            check = "import numpy, sys; x = numpy.load(sys.argv[1]); assert (x.T.ravel() * 4 == range(12)).all()"
            result = run(python, "-c", check, written)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_errors_name_the_file(self):
        result = run(NUMPY_INTERCHANGE, "/nonexistent/x.npy")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/x.npy", result.stderr)

    def test_wrong_arguments_are_refused_before_a_file_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.npy")
            for wrong in [[], ["--unknown", path], [path, path, path]]:
                result = run(NUMPY_INTERCHANGE, *wrong)
                self.assertEqual(result.returncode, 2, wrong)
                self.assertRegex(result.stderr, r"\Anumpy_interchange: .*\n\Z")
                self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    CUSTOM_OP, NUMPY_INTERCHANGE = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
