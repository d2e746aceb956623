#!/usr/bin/env python3
"""Programs without options refuse arguments before they do anything. Usage: ... PROGRAM..."""

import os
import subprocess
import sys
import unittest

PROGRAMS = []


class ProgramsWithoutOptions(unittest.TestCase):
    def test_refuse_arguments_with_one_line_and_status_2(self):
        self.assertTrue(PROGRAMS)
        for program in PROGRAMS:
            for argument in ["--unknown", "word"]:
                with self.subTest(program=program, argument=argument):
                    result = subprocess.run([program, argument], capture_output=True, text=True, check=False)
                    self.assertEqual(result.returncode, 2)
                    self.assertEqual(result.stdout, "")
                    self.assertRegex(result.stderr, rf"\A{os.path.basename(program)}: .*{argument}.*\n\Z")


if __name__ == "__main__":
    PROGRAMS, sys.argv[1:] = sys.argv[1:], []
    unittest.main()
