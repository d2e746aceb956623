#!/usr/bin/env python3
"""The documents agree with the tree. Usage: ... SOURCE_DIR"""

import os
import re
import sys
import unittest

SOURCE = ""


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def prose(path):
    """Returns the text without code, because `[](...)` is not a link in code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", read(path), flags=re.DOTALL)


def documents():
    names = [n for n in os.listdir(SOURCE) if n.endswith(".md")]
    for folder, _, files in os.walk(os.path.join(SOURCE, "docs")):
        names += [os.path.relpath(os.path.join(folder, n), SOURCE) for n in files if n.endswith(".md")]
    return names


class Documents(unittest.TestCase):
    def test_program_of_the_readme_is_the_example_that_is_built_and_run(self):
        self.assertIn("```cpp\n" + read("examples/first_program.cc") + "```", read("README.md"))

    def test_code_on_gradients_is_in_the_tests(self):
        def lines(text):
            return "\n".join(line.strip() for line in text.splitlines() if line.strip())

        blocks = re.findall(r"```cpp\n(.*?)```", read("docs/autograd.md"), flags=re.DOTALL)
        self.assertGreater(len(blocks), 5)
        examples = lines(read("tests/executor/examples_test.cc"))
        for block in blocks:
            self.assertIn(lines(block), examples)

    def test_code_on_data_formats_is_in_the_tests(self):
        # Only the words count: the formatter breaks lines at other places.
        examples = re.sub(r"\s", "", read("tests/data/examples_test.cc"))
        blocks = re.findall(r"```cpp\n(.*?)```", read("docs/data_formats.md"), flags=re.DOTALL)
        self.assertGreater(len(blocks), 5)
        for block in blocks:
            self.assertIn(re.sub(r"\s", "", block), examples)

    def test_code_on_mixed_precision_is_in_the_tests(self):
        examples = re.sub(r"\s", "", read("tests/nn/autocast_test.cc"))
        blocks = re.findall(r"```cpp\n(.*?)```", read("docs/mixed_precision.md"), flags=re.DOTALL)
        self.assertEqual(len(blocks), 2)
        for block in blocks:
            self.assertIn(re.sub(r"\s", "", block), examples)

    def test_code_on_operators_is_in_an_operator_of_the_tests_or_in_the_snippets(self):
        folder = "tests/operators/one_file"
        sources = "\n".join(read(f"{folder}/{name}") for name in sorted(os.listdir(os.path.join(SOURCE, folder))))
        known = [line.strip() for line in sources.splitlines()]
        snippets = re.sub(r"\s", "", read("tests/project/snippets_test.cc"))
        blocks = re.findall(r"```cpp\n(.*?)```", read("docs/operators.md"), flags=re.DOTALL)
        self.assertGreater(len(blocks), 5)
        for block in blocks:
            if re.sub(r"\s", "", block) not in snippets:
                for line in block.splitlines():
                    self.assertIn(line.strip(), known)

    def test_code_of_the_guides_is_in_the_snippets(self):
        snippets = re.sub(r"\s", "", read("tests/project/snippets_test.cc"))
        count = 0
        for page in ["nn", "optim", "data", "training", "sparse"]:
            for block in re.findall(r"```cpp\n(.*?)```", read(f"docs/{page}.md"), flags=re.DOTALL):
                count += 1
                program = re.search(r"int main\(\) \{\n(.*)\n\}", block, flags=re.DOTALL)
                # A line of dots stands for code of the program.
                for part in re.split(r"(?m)^\.\.\.$", program.group(1) if program else block):
                    self.assertIn(re.sub(r"\s", "", part), snippets, page)
        self.assertGreater(count, 20)

    def test_code_for_those_who_come_from_elsewhere_is_in_the_tests(self):
        tests = re.sub(r"\s", "", read("tests/project/coming_from_test.cc"))
        rows = [line for line in read("docs/coming_from.md").splitlines() if line.startswith("| ")][1:]
        self.assertGreater(len(rows), 40)
        for row in rows:
            code = re.search(r"`([^`]+)`[^`|]*(?:`[^`|]*`[^`|]*)?\|$", row)
            self.assertTrue(code, row)
            self.assertIn(re.sub(r"\s", "", code.group(1)), tests, row)

    def test_links_between_documents_lead_somewhere(self):
        for document in documents():
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose(document)):
                if re.match(r"[a-z]+://", target):
                    continue
                path = os.path.normpath(os.path.join(SOURCE, os.path.dirname(document), target))
                self.assertTrue(os.path.exists(path), f"{document} links {target}, which does not exist")

    def test_every_page_on_performance_is_in_the_index(self):
        pages = sorted(os.listdir(os.path.join(SOURCE, "docs/performance")))
        self.assertGreater(len(pages), 3)
        index = read("docs/performance.md")
        for page in pages:
            self.assertIn(f"](performance/{page})", index)

    def test_every_package_that_the_scripts_install_is_explained(self):
        packages = re.findall(r"^([a-z0-9.+-]+)\|\S+\|.+$", read("scripts/lib/common.sh"), re.MULTILINE)
        self.assertGreater(len(packages), 5)
        text = read("docs/dependencies.md")
        for package in packages:
            self.assertIn(f"`{package}`", text)

    def test_every_error_type_is_explained(self):
        types = re.findall(r"^class (\w+) : public ", read("engine/base/error.h"), re.MULTILINE)
        self.assertGreater(len(types), 5)
        text = read("docs/errors.md")
        for name in types:
            self.assertIn(f"`{name}`", text)

    def test_ticked_features_name_a_test(self):
        lines = [line for line in read("docs/features.md").splitlines() if line.startswith("| ")]
        rows = [line.strip()[1:-1].split("|") for line in lines]
        marks = [row for row in rows if row[0].strip() in ("yes", "no")]
        self.assertTrue(marks)
        for row in marks:
            ticked, test = row[0].strip() == "yes", row[-1].strip()
            self.assertEqual(ticked, bool(test), f"tick without test, or test without tick: {row}")

    def test_tests_that_documents_name_exist(self):
        there = {}  # test suite -> its tests
        for folder, _, files in os.walk(os.path.join(SOURCE, "tests")):
            for name in files:
                if name.endswith((".cc", ".cu")):
                    text = read(os.path.join(folder, name))
                    for suite, test in re.findall(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", text):
                        there.setdefault(suite, set()).add(test)
        self.assertGreater(len(there), 20)
        named = re.findall(r"`(?:\w+/)?([A-Z]\w+)\.([A-Z]\w+|\*)`", read("docs/features.md"))
        self.assertGreater(len(named), 20)
        for suite, test in named:
            self.assertIn(suite, there, f"docs/features.md names {suite}.{test}")
            if test != "*":
                self.assertIn(test, there[suite], f"docs/features.md names {suite}.{test}")


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main()
