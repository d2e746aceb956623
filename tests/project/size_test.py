#!/usr/bin/env python3
"""A program that links every operator and all CUDA kernels for one architecture stays below the size that was promised.

Usage: size_test.py PROGRAM STRIP
"""

import os
import subprocess
import sys
import tempfile

MOST_BYTES = 60 * 1000 * 1000


def main():
    program, strip = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "program")
        subprocess.run([strip, "-o", stripped, program], check=True)
        size = os.path.getsize(stripped)
    print(f"{size / 1e6:.1f} MB of {MOST_BYTES / 1e6:.0f} MB")
    if size > MOST_BYTES:
        sys.exit(f"expected at most {MOST_BYTES} bytes without symbols, got {size}: {program}")


if __name__ == "__main__":
    main()
