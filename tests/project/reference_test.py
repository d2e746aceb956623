#!/usr/bin/env python3
"""The committed reference pages match the registry, and differences are detected. Usage: ... MX_REFERENCE DOCS"""

import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = DOCS = ""


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)


class Reference(unittest.TestCase):
    def test_committed_pages_are_those_of_the_registry(self):
        result = run("--check", DOCS)
        self.assertEqual(0, result.returncode, result.stderr)

    def test_differences_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            pages = os.path.join(folder, "pages")
            self.assertEqual(1, run("--check", pages).returncode)
            self.assertEqual(0, run(pages).returncode)
            self.assertEqual(0, run("--check", pages).returncode)
            page = os.path.join(pages, "elementwise.md")
            with open(page, encoding="utf-8") as file:
                text = file.read()
            self.assertIn("## add\n\n`add(a, b) -> y`", text)
            with open(page, "a", encoding="utf-8") as file:
                file.write("more\n")
            self.assertIn("elementwise.md differs from the operator records", run("--check", pages).stderr)
            os.remove(page)
            self.assertIn("elementwise.md is missing", run("--check", pages).stderr)
            self.assertEqual(0, run(pages).returncode)
            open(os.path.join(pages, "old.md"), "w").close()
            self.assertIn("old.md belongs to no operator family", run("--check", pages).stderr)

    def test_wrong_use_is_explained(self):
        self.assertEqual(2, run().returncode)
        self.assertIn("usage", run("--no").stderr)


if __name__ == "__main__":
    DOCS = sys.argv.pop()
    PROGRAM = sys.argv.pop()
    unittest.main()
