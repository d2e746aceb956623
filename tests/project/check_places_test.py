#!/usr/bin/env python3
"""The check of call places finds functions whose errors do not name the line of the call. Usage: ... SCRIPT"""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = ""

HEADER = """// Halves.
#pragma once

namespace mx {
NDArray half(const Arg& x);
class Halves {
 public:
  void step(std::source_location where = std::source_location::current());

 private:
  void inner(std::source_location where);
};
}  // namespace mx
"""
CHECK = 'MX_CHECK(x.array.rank() > 0, InvalidArgument, "[half] expected (rank) {", got 0'


def source(*functions):
    return "namespace mx {\n" + "\n".join(functions) + "\n}  // namespace mx\n"


class CheckPlaces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, path, text):
        os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def check(self, *functions, header=HEADER, path="operators/half.cc"):
        self.write("operators/half.h", header)
        self.write(path, source(*functions))
        result = subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True)
        lines = result.stdout.splitlines()
        self.assertEqual(result.returncode, 0 if len(lines) == 1 else 1, result.stdout + result.stderr)
        return lines[:-1]

    def test_an_empty_tree_is_an_error(self):
        result = subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)

    def test_a_check_without_the_line_is_found(self):
        self.assertEqual(self.check("NDArray half(const Arg& x) {", f"  {CHECK});", "  return x / 2;", "}"),
                         ["operators/half.cc:2: half checks without the line of its call: half"])

    def test_a_constructor_of_a_layer_that_takes_no_line_is_found(self):
        header = "namespace mx::nn {\nclass Half {\n public:\n  explicit Half(double share);\n};\n}  // namespace mx::nn\n"
        self.write("nn/half.h", header)
        self.write("nn/data/set.h", header.replace("Half", "Set"))
        check = '{\n  MX_CHECK(share > 0, InvalidArgument, "[Half] expected a share above 0");\n}'
        self.write("nn/data/set.cc", source("Set::Set(double share) " + check).replace("mx {", "mx::nn {"))
        lines = self.check("Half::Half(double share) : share_(share) " + check, path="nn/half.cc")
        self.assertEqual(lines, ["nn/half.cc:2: Half::Half checks without the line of its call: Half"])

    def test_a_check_with_the_line_passes(self):
        self.assertEqual(self.check("NDArray half(const Arg& x) {", f"  {CHECK}, detail::called_at(x.where));", "}"), [])

    def test_a_function_that_rethrows_passes(self):
        self.assertEqual(self.check("NDArray half(const Arg& x) try {", f"  {CHECK});", "} catch (const Error&) {",
                                    "  detail::rethrow_at(x.where);", "}"), [])

    def test_checks_of_helpers_count(self):
        helper = "namespace {\nvoid fits(int64_t n) {\n  MX_CHECK(n > 0, InvalidArgument, n);\n}\n}  // namespace"
        found = self.check(helper, "NDArray half(const Arg& x) { fits(1); }")
        self.assertEqual(found, ["operators/half.cc:7: half checks without the line of its call: half > fits"])

    def test_checks_of_other_public_functions_do_not_count(self):
        self.write("operators/other.h", "// Other.\nnamespace mx {\nNDArray other(const Arg& x);\n}\n")
        self.write("operators/other.cc", source("NDArray other(const Arg& x) {", f"  {CHECK});", "}"))
        self.assertEqual(self.check("NDArray half(const Arg& x) { return other(x); }"),
                         ["operators/other.cc:2: other checks without the line of its call: other"])

    def test_private_functions_count_where_they_are_called(self):
        inner = "void Halves::inner(std::source_location where) { MX_CHECK(false, InvalidState, 1); }"
        self.assertEqual(self.check(inner), [])
        found = self.check(inner, "void Halves::step(std::source_location where) { inner(where); }")
        self.assertEqual(found, ["operators/half.cc:3: Halves::step checks without the line of its call: step > inner"])

    def test_internal_headers_and_functions_without_a_line_pass(self):
        self.assertEqual(self.check(f"NDArray half(const Arg& x) {{ {CHECK}); }}",
                                    header=HEADER.replace("Halves.", "Halves. Internal.")), [])
        self.assertEqual(self.check(f"NDArray half(const NDArray& x) {{ {CHECK}); }}"), [])


if __name__ == "__main__":
    SCRIPT = os.path.abspath(sys.argv.pop(1))
    unittest.main()
