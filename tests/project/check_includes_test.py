#!/usr/bin/env python3
"""The check of standard includes reports missing includes, accepts complete ones, and --fix works. Usage: ... SCRIPT"""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = ""

HEADER = "#pragma once\n\n#include <cstdint>\n#include <vector>\n\nstd::vector<uint64_t> sizes();\n"


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, path, text):
        os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def check(self, *options):
        return subprocess.run([sys.executable, SCRIPT, *options, self.root], capture_output=True, text=True)

    def assert_passes(self):
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("0 violations", result.stdout)

    def assert_refused(self, *lines):
        result = self.check()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[:-1], list(lines))

    def test_an_empty_tree_is_an_error(self):
        self.assertEqual(self.check().returncode, 1)

    def test_a_header_that_includes_what_it_names_passes(self):
        self.write("engine/sizes.h", HEADER)
        self.assert_passes()

    def test_a_header_relies_on_no_other(self):
        self.write("engine/sizes.h", HEADER)
        self.write("engine/more.h", '#pragma once\n\n#include "engine/sizes.h"\n\nstd::uint8_t more();\nint32_t less();\n')
        self.assert_refused("engine/more.h:5: uint8_t is used without #include <cstdint>")

    def test_names_are_reported_where_they_are_used_first(self):
        self.write("engine/a.h", "#pragma once\n// std::string\n/* std::map\n*/\n\nstd::string a();\nstd::map<int, int> b();\n")
        self.assert_refused("engine/a.h:7: std::map is used without #include <map>",
                            "engine/a.h:6: std::string is used without #include <string>")

    def test_a_source_may_rely_on_headers_of_the_tree_but_not_on_standard_ones(self):
        self.write("engine/sizes.h", HEADER)
        self.write("engine/more.h", '#pragma once\n#include "engine/sizes.h"\n')
        self.write("engine/more.cc", '#include "engine/more.h"\n\nuint64_t x;\nstd::vector<int> v;\n')
        self.assert_passes()
        self.write("engine/more.cc", '#include "engine/more.h"\n\n#include <vector>\n\nint x = std::min(1, 2);\n')
        self.assert_refused("engine/more.cc:5: std::min is used without #include <algorithm>")

    def test_umbrellas_count(self):
        self.write("engine/sizes.h", HEADER)
        self.write("include/mx/engine.h", '#pragma once\n#include "engine/sizes.h"\n')
        self.write("examples/hello.cc", "#include <mx/engine.h>\n\nstd::vector<int> v;\n")
        self.assert_passes()

    def test_comments_and_strings_are_no_use(self):
        self.write("engine/a.h", '#pragma once\n// a std::string\nconst char* a = "// std::map"; /* uint8_t */\n')
        self.assert_passes()
        self.write("engine/b.h", '#pragma once\nconst char* b = "//"; uint8_t c;\n')
        self.assert_refused("engine/b.h:2: uint8_t is used without #include <cstdint>")

    def test_mending(self):
        uses = "\nuint8_t a();\nstd::vector<int> b();\n"
        self.write("engine/a.h", "#pragma once\n" + uses)
        self.write("engine/b.h", '#pragma once\n\n#include "engine/a.h"\n' + uses)
        self.write("engine/c.h", "#pragma once\n\n#include <atomic>\n#include <string>\n" + uses)
        self.write("engine/d.cc", '#include "engine/c.h"\n\nstd::mutex m;\n')
        self.assertEqual(self.check("--fix").returncode, 0)
        self.assert_passes()
        self.assertEqual(
            self.read("engine/c.h"),
            "#pragma once\n\n#include <atomic>\n#include <cstdint>\n#include <string>\n#include <vector>\n" + uses,
        )
        self.assertEqual(
            self.read("engine/b.h"),
            '#pragma once\n\n#include <cstdint>\n#include <vector>\n\n#include "engine/a.h"\n' + uses,
        )
        self.assertEqual(self.read("engine/d.cc"), '#include "engine/c.h"\n\n#include <mutex>\n\nstd::mutex m;\n')


if __name__ == "__main__":
    SCRIPT = sys.argv.pop(1)
    unittest.main()
