#!/usr/bin/env python3
"""hello_ndarray prints d, and its trace shows that b and c run at the same time. Usage: ... PROGRAM"""

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


def operations(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return sorted(
        (float(e["ts"]), float(e["ts"]) + float(e["dur"]), e["name"]) for e in events if e["ph"] == "X"
    )


class HelloNdarray(unittest.TestCase):
    def test_prints_d_in_every_mode(self):
        for mode in ["threaded", "naive", "check", "fuzz:3"]:
            with self.subTest(mode=mode):
                result = run("--size", "50", MX_ENGINE=mode)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertTrue(result.stdout.startswith("[[12. 12.]\n [12. 12.]]"), result.stdout)

    def test_b_and_c_overlap_in_the_trace(self):
        rounds = 5
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            overlaps = 0
            # On a busy machine one thread may get its processor late, but hardly fifteen times.
            for _ in range(3):
                result = run("--size", "2000", "--rounds", str(rounds), "--trace", path, MX_NUM_THREADS="2")
                self.assertEqual(result.returncode, 0, result.stderr)
                found = operations(path)
                adds = [operation for operation in found if operation[2] in ("add", "add_scalar")]
                muls = [operation for operation in found if operation[2] in ("mul", "mul_scalar")]
                self.assertEqual(len(adds), 2 * rounds)
                self.assertEqual(len(muls), 2 * rounds)
                for i in range(rounds):
                    first, second = adds[2 * i], adds[2 * i + 1]
                    # a has ended before b or c starts, and d starts after both have ended.
                    self.assertLessEqual(muls[2 * i][1], first[0] + 1)
                    self.assertLessEqual(max(first[1], second[1]), muls[2 * i + 1][0] + 1)
                    overlaps += first[1] > second[0]
                if overlaps:
                    break
        self.assertGreater(overlaps, 0)

    def test_trace_that_cannot_be_written_is_refused_at_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ["/nonexistent/folder/trace.json", folder]:
                with self.subTest(path=path):
                    result = run("--size", "10", "--trace", path)
                    self.assertEqual(result.returncode, 1)
                    self.assertIn(path, result.stderr)
                    self.assertEqual(result.stdout, "")
            self.assertEqual(os.listdir(folder), [])

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run("--size", "0").returncode, 2)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
