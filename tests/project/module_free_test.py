#!/usr/bin/env python3
"""Programs start without MPI and NCCL, which only the modules need.

Usage: ... PROGRAM...
"""

import os
import subprocess
import sys
import unittest

PROGRAMS = sys.argv[1:]
del sys.argv[1:]


class Programs(unittest.TestCase):
    def test_no_program_needs_the_library_of_a_module(self):
        for program in PROGRAMS:
            with self.subTest(program=program):
                # The dynamic linker lists what it would load for the program, and does not start it.
                listed = subprocess.run(
                    [program],
                    capture_output=True,
                    text=True,
                    env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"},
                    timeout=60,
                    check=True,
                ).stdout
                self.assertIn("libstdc++", listed)
                for library in ("libmpi", "libnccl"):
                    self.assertNotIn(library, listed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
