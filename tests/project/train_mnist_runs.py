"""Helpers shared by the tests of train_mnist: small data, and runs of the program in a separate folder.

The scripts that import this are called with PROGRAM DATA FILE_CALLS; FILE_CALLS is the library of file_calls.cc, or
"none" in sanitizer builds, where the program is slow.
"""

import gzip
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

SANITIZED = sys.argv[3] == "none"
PROGRAM, DATA, FILE_CALLS = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))

small_folder = tempfile.TemporaryDirectory()
SMALL = small_folder.name  # 1,000 training and 200 test images


def write_small():
    for split, count in [("train", 1000), ("t10k", 200)]:
        for name, header, size in [("images-idx3", 16, 784), ("labels-idx1", 8, 1)]:
            with gzip.open(os.path.join(DATA, f"{split}-{name}-ubyte.gz")) as file:
                data = bytearray(file.read(header + count * size))
            data[4:8] = struct.pack(">I", count)
            with open(os.path.join(SMALL, f"{split}-{name}-ubyte"), "wb") as file:
                file.write(data)


def arrays_of(path):
    """Returns {name: (type, shape, bytes)} of a safetensors file, and its metadata."""
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    texts = header.pop("__metadata__", {})
    data = content[8 + length :]
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }, texts


def write_arrays(path, arrays, texts):
    """The inverse: writes a well-formed file with the given contents."""
    header, data = {"__metadata__": texts}, b""
    for name, (dtype, shape, content) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def slurp(path):
    with open(path, "rb") as file:
        return file.read()


class TrainMnistTest(unittest.TestCase):
    """Each test runs the program in a separate folder."""

    @classmethod
    def setUpClass(cls):
        if not os.listdir(SMALL):
            write_small()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *arguments, data=None, **environment):
        return subprocess.Popen(
            [PROGRAM, "--data", data or SMALL, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "MX_VIRTUAL_DEVICES": "2", **environment},
        )

    def run_to_end(self, *arguments, **keywords):
        with self.start(*arguments, **keywords) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def train(self, name, *arguments, **keywords):
        """Returns the arrays of the checkpoint NAME after a run, which must succeed."""
        result = self.run_to_end("--save", name, *arguments, **keywords)
        self.assertEqual(result.returncode, 0, result.stderr)
        return arrays_of(self.path(name))[0]

    def same(self, expected, got):
        self.assertEqual(list(expected), list(got))
        for name, array in expected.items():
            self.assertTrue(array == got[name], f"{name} differs")

    def refused(self, *arguments, **keywords):
        """Returns the error message of a run, which must fail with status 1 and change no file."""
        before = self.files()
        result = self.run_to_end(*arguments, **keywords)
        self.assertEqual(result.returncode, 1, result.stderr)
        after = self.files()
        self.assertEqual(sorted(before), sorted(after))
        self.assertTrue(before == after, "a file has changed")  # assertEqual would print megabytes
        said = re.search(r"^train_mnist: .*\Z", result.stderr, re.DOTALL | re.MULTILINE)
        self.assertTrue(said, result.stderr)
        self.assertNotIn("test accuracy", result.stdout)
        return said.group()

    def files(self):
        return {name: slurp(self.path(name)) for name in os.listdir(self.folder)}
