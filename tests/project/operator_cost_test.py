#!/usr/bin/env python3
"""The cost of a new operator: it is one file, and no other file needs to know of it. Usage: ... SOURCE_DIR [--show]

Prints the files and line counts of three sample operators: elementwise, a reduction, structured.
"""

import os
import re
import sys
import unittest

SOURCE = ""
FOLDER = "tests/operators/one_file"
# If an operator needs more lines than this, find out why before raising the limit.
LIMITS = {"softsign": 20, "rms": 32, "center": 75}
LAYERS = ["engine", "ndarray", "operators", "optim", "cmake"]


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def sources(folder):
    for here, _, names in os.walk(os.path.join(SOURCE, folder)):
        for name in names:
            if name.endswith((".h", ".cc", ".cu", ".txt", ".in", ".cmake")):
                yield os.path.relpath(os.path.join(here, name), SOURCE)


def code_lines(text):
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def knows(text, name):
    """Returns true if the operator is named outside of comments."""
    return re.search(rf"\bfamily_{name}\b|\b{name}\(|\"{name}\"", re.sub(r"//.*", "", text)) is not None


def cost(name):
    text = read(f"{FOLDER}/{name}.cc")
    return {
        "lines": code_lines(text),
        "functions": len(re.findall(rf"^NDArray {name}\(", text, re.MULTILINE)),
        "families": len(re.findall(rf"^OperatorFamily family_{name}\(\)", text, re.MULTILINE)),
        "elsewhere": [p for layer in LAYERS for p in sources(layer) if knows(read(p), name)],
    }


def show():
    for name in LIMITS:
        c = cost(name)
        print(f"{name}: 1 file, {c['lines']} lines of code; and its name in operators/CMakeLists.txt, 1 declaration")


class OperatorCost(unittest.TestCase):
    def test_an_operator_is_one_file(self):
        for name, limit in LIMITS.items():
            with self.subTest(operator=name):
                c = cost(name)
                self.assertEqual(c["elsewhere"], [])
                self.assertEqual((c["functions"], c["families"]), (1, 1))
                self.assertLessEqual(c["lines"], limit)

    def test_every_family_in_the_list_is_a_file(self):
        text = read("operators/CMakeLists.txt")
        families = re.search(r"set\(mx_operator_families\n(.*?)\)", text, re.DOTALL).group(1).split()
        for family in families:
            self.assertTrue(os.path.exists(os.path.join(SOURCE, "operators", family + ".cc")), family)


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    show()
    if "--show" not in sys.argv:
        unittest.main()
