#!/usr/bin/env python3
"""scripts/cuda_resources.py reports what a kernel uses beyond the table, and nothing else.

    cuda_resources_test.py SCRIPTS"""

import pathlib
import struct
import sys
import tempfile

sys.path.insert(0, sys.argv[1])
import cuda_resources  # noqa: E402

TABLE = {"a.cu plain": (32, 0, 1024, ""), "a.cu sine": (40, 40, 0, "an array")}


def problems(**changes):
    """Changes: the numbers of kernels in place of those of the table, or None for a kernel that is missing."""
    kernels = {name: row[:3] for name, row in TABLE.items()}
    for name, numbers in changes.items():
        kernels["a.cu " + name] = numbers
    kernels = {name: numbers for name, numbers in kernels.items() if numbers is not None}
    return list(cuda_resources.differences(kernels, TABLE))


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


expect(problems() == [], "kernels as in the table")
expect(problems(plain=(40, 0, 512)) == [], "a few more registers, less shared memory")
expect("registers" in problems(plain=(41, 0, 1024))[0], "many more registers")
expect("a stack of 8 bytes, expected at most 0" in problems(plain=(32, 8, 1024))[0], "a new stack")
expect("without a reason" in problems(plain=(32, 8, 1024))[1], "a stack without a reason")
expect("expected at most 40" in problems(sine=(40, 48, 0))[0], "a larger stack")
expect("shared memory" in problems(plain=(32, 0, 1025))[0], "more shared memory")
expect("not in the table" in problems(other=(1, 0, 0))[0], "a new kernel")
expect("no such kernel" in problems(sine=None)[0], "a kernel that is gone")

# The table is read as it was written.
with tempfile.TemporaryDirectory() as folder:
    cuda_resources.TABLE = pathlib.Path(folder) / "table.txt"
    given = {name: row[:3] for name, row in TABLE.items()}
    cuda_resources.write_table("nvcc 1 sm_2", given, TABLE)
    expect(cuda_resources.read_table() == ("nvcc 1 sm_2", TABLE), "the table that was written")

# A program for a GPU with one kernel that has 38 registers, 16 bytes of stack and 64 of shared memory.
names = ["", ".symtab", ".strtab", ".nv.info", ".text.k", ".nv.shared.k", ".names"]
texts = b"\0".join(n.encode() for n in names) + b"\0"
symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0, 0, 4, 0, 0)
info = struct.pack("<BBHII", 4, cuda_resources.REGISTERS, 8, 1, 38) + struct.pack("<BBH", 3, 7, 1)
info += struct.pack("<BBHII", 4, cuda_resources.STACK, 8, 1, 16)
bodies = [b"", symbols, b"\0k\0", info, b"code", None, texts]
elf, headers = bytearray(64), b""
for name, body in zip(names, bodies):
    size = 64 if body is None else len(body)  # shared memory has no bytes in the file
    link = names.index(".strtab") if name == ".symtab" else 0
    at = texts.index(name.encode() + b"\0") if name else 0
    headers += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, len(elf), size, link, 0, 1, 0)
    elf += body or b""
struct.pack_into("<Q", elf, 40, len(elf))
struct.pack_into("<HHH", elf, 58, 64, len(names), names.index(".names"))
expect(cuda_resources.kernels_of(bytes(elf) + headers) == {"k": [38, 16, 64]}, "the numbers of an object file")
