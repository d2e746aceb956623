#!/usr/bin/env python3
"""hello_engine computes, checks its result, and reports that by its exit status. Usage: ... PROGRAM"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


def run(*arguments, **environment):
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


class HelloEngine(unittest.TestCase):
    def assert_good(self, *arguments, **environment):
        result = run(*arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("yes, as the serial run", result.stdout)
        self.assertRegex(result.stdout, r"speed-up +[0-9.]+ x")
        self.assertRegex(result.stdout, r"residual .*, within")
        return result

    def test_any_shape_of_tiles(self):
        for n, tile in [(1, 1), (5, 8), (96, 32), (300, 64), (257, 50)]:
            with self.subTest(n=n, tile=tile):
                self.assert_good("--n", str(n), "--tile", str(tile), "--threads", "2")

    def test_every_mode_of_the_engine(self):
        for mode in ["threaded", "naive", "fuzz:7"]:
            with self.subTest(mode=mode):
                self.assert_good("--n", "200", "--tile", "32", MX_ENGINE=mode)

    def test_trace_shows_every_operation_after_what_it_depends_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            self.assert_good("--n", "320", "--tile", "32", "--threads", "2", "--trace", path)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        names = [e["name"] for e in events if e["ph"] == "X"]
        tiles = 10
        self.assertEqual(names.count("potrf"), tiles)
        self.assertEqual(names.count("trsm"), tiles * (tiles - 1) // 2)
        self.assertEqual(names.count("syrk"), tiles * (tiles - 1) // 2)
        self.assertEqual(names.count("gemm"), tiles * (tiles - 1) * (tiles - 2) // 6)
        starts = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
        ends = {e["id"]: e["ts"] for e in events if e["ph"] == "f"}
        self.assertTrue(starts)
        self.assertEqual(starts.keys(), ends.keys())
        for arrow, begin in starts.items():
            self.assertLessEqual(float(begin), float(ends[arrow]))

    def test_residual_that_is_too_large_fails(self):
        result = run("--n", "100", "--tile", "32", "--max-residual", "1e-30")
        self.assertEqual(result.returncode, 1)
        self.assertIn("NOT within", result.stdout)

    def test_trace_that_cannot_be_written_is_refused_at_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ["/nonexistent/folder/trace.json", folder]:
                with self.subTest(path=path):
                    result = run("--n", "50", "--tile", "32", "--trace", path)
                    self.assertEqual(result.returncode, 1)
                    self.assertIn(path, result.stderr)
                    self.assertEqual(result.stdout, "")
            self.assertEqual(os.listdir(folder), [])

    def test_trace_of_a_run_that_fails_keeps_the_old_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write("old")
            result = run("--n", "50", "--tile", "32", "--trace", path, MX_ENGINE="nonsense")
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual(os.listdir(folder), ["trace.json"])
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "old")

    def test_wrong_usage_is_status_2_and_names_the_option(self):
        for arguments in [("--n", "0"), ("--tile", "many"), ("--threads", "-1"), ("--frobnicate",)]:
            with self.subTest(arguments=arguments):
                result = run(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertIn(arguments[0], result.stdout + result.stderr)

    def test_help_names_every_option(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        for option in ["--n", "--tile", "--threads", "--trace", "--max-residual", "--no-serial"]:
            self.assertIn(option, result.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
