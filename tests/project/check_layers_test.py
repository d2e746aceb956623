#!/usr/bin/env python3
"""The layer check finds each kind of violation and accepts what is allowed. Usage: ... SCRIPT"""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = ""

GOOD = {
    "engine/base/error.h": "#pragma once\n",
    "engine/device/device.h": '#include "engine/base/error.h"\n',
    "engine/device/registry.cc": '#include "engine/device/cpu/cpu_device.h"\n',
    "engine/device/cpu/cpu_device.h": '#include "engine/device/device.h"\n',
    "engine/device/cuda/cuda_device.cc": "#include <cuda_runtime.h>\n#ifdef CUDA_VERSION\n#endif\n",
    "engine/engine.h": '#include <vector>\n\n#include "engine/device/device.h"\n',
    "engine/CMakeLists.txt": "mx_add_library(engine\n  SOURCES engine.cc\n  DEPS mx::device TBB::tbb)\n",
    "include/mx/engine.h": '// Umbrella.\n#pragma once\n\n#include "engine/engine.h"\n',
    "operators/cuda/add.cu": "#include <cuda_fp16.h>\n",
    "comm/nccl/group.cc": "#include <nccl.h>\n",
    "kvstore/store.cc": "",
    "examples/hello.cc": "#include <mx/engine.h>\n",
    "tests/engine/CMakeLists.txt": "mx_add_test(engine_test SOURCES a.cc DEPS mx::engine)\n",
    "tests/engine/engine_test.cc": '#include "engine/engine.h"\n#include "tests/support/random.h"\n',
    "tests/support/random.h": "#pragma once\n",
}


class CheckLayers(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)

    def assert_refused(self, path, text, *expected):
        """Checks that the good tree plus one bad file gives exactly one report, with the place in that file."""
        result = self.run_on({**GOOD, path: text})
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        problems = [line for line in result.stdout.splitlines() if line.count(":") >= 2]
        self.assertEqual(len(problems), 1, result.stdout)
        self.assertTrue(problems[0].startswith(path + ":"), problems[0])
        for part in expected:
            self.assertIn(part, problems[0])

    def test_good_tree_passes(self):
        result = self.run_on(GOOD)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("0 violations", result.stdout)

    def test_empty_tree_is_an_error(self):
        self.assertEqual(self.run_on({}).returncode, 1)

    def test_include_upwards(self):
        self.assert_refused("engine/base/log.h", '#pragma once\n#include "engine/engine.h"\n', ":2:", "may not include")
        self.assert_refused("engine/device/pool.h", '#  include "engine/engine.h"\n', "layer engine/device")

    def test_include_of_a_sibling_layer(self):
        self.assert_refused(
            "executor/graph.h", '#include "kvstore/store.cc"\n', "layer executor may not include"
        )

    def test_tests_see_only_their_layer_and_below(self):
        self.assert_refused("tests/base/log_test.cc", '#include "engine/engine.h"\n', "layer engine/base")

    def test_sources_do_not_see_tests(self):
        self.assert_refused("engine/op.cc", '#include "tests/support/random.h"\n', "belongs to the tests")

    def test_link_upwards(self):
        self.assert_refused(
            "engine/base/CMakeLists.txt", "mx_add_library(base\n  DEPS mx::engine)\n", "may not link mx::engine"
        )
        self.assert_refused(
            "tests/device/CMakeLists.txt", "mx_add_test(device_test DEPS mx::engine)\n", "may not link mx::engine"
        )

    def test_concrete_backend_outside_the_registry(self):
        self.assert_refused("engine/op.cc", '#include "engine/device/cpu/cpu_device.h"\n', "concrete backend")
        self.assert_refused(
            "engine/device/virtual/virtual_device.cc", '#include "engine/device/cpu/cpu_device.h"\n', "concrete backend"
        )

    def test_cuda_header_elsewhere(self):
        self.assert_refused("engine/op.cc", "#include <cuda_runtime.h>\n", "CUDA header")
        self.assert_refused("operators/add.cc", "#include <cublasLt.h>\n", "CUDA header")
        self.assert_refused("kvstore/local.cc", "#include <nccl.h>\n", "CUDA header")

    def test_preprocessor_on_cuda_elsewhere(self):
        self.assert_refused("engine/op.cc", "#if defined(MX_HAVE_CUDA)\n#endif\n", "preprocessor")
        self.assert_refused("engine/device/registry.cc", "#ifdef __CUDACC__\n#endif\n", "preprocessor")

    def test_include_that_does_not_exist(self):
        self.assert_refused("engine/op.cc", '#include "op.h"\n', "does not exist")

    def test_umbrella_that_declares(self):
        self.assert_refused("include/mx/mx.h", "#pragma once\nint x;\n", "only includes")

    def test_library_that_uses_the_umbrella(self):
        self.assert_refused("engine/op.cc", "#include <mx/engine.h>\n", "for users")

    def test_long_file(self):
        self.assert_refused("engine/op.cc", "//\n" * 601, "601 lines")
        result = self.run_on({**GOOD, "engine/op.cc": "//\n" * 600})
        self.assertEqual(result.returncode, 0, result.stdout)


if __name__ == "__main__":
    SCRIPT = sys.argv.pop(1)
    unittest.main()
