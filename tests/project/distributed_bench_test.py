#!/usr/bin/env python3
"""distributed_bench.py measures every part, sets figures beside bars, and leaves nothing behind.

Usage: ... DISTRIBUTED_BENCH_PY [BUILD_FOLDER]. Without the folder only the table is tested.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BENCH, BUILD = "", ""


def record(system, value, **more):
    return {"bench": "b", "case": "c", "system": system, "threads": 2, "value": value, "unit": "us", **more}


def processes_with(marker):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if f"MX_TEST_MARKER={marker}".encode() in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue
    return found


class DistributedBench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def start(self, *arguments):
        return subprocess.Popen([sys.executable, BENCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "MX_TEST_MARKER": self.folder})

    def run_bench(self, *arguments, status=0):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=280)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def table(self, bars, *records, options=(), status=0):
        bars = [{"bench": "b", "case": "c", "threads": 2, **bar} for bar in bars]
        bar_file = self.write("bars.json", json.dumps({"distributed": bars}))
        lines = self.write("lines.jsonl", "a note\n" + "".join(json.dumps(one) + "\n" for one in records))
        return self.run_bench("none", "--bars", bar_file, "--table", lines, *options, status=status)[0]

    def test_a_bar_is_a_value_or_a_part_of_another_system(self):
        records = [record("mx_tcp", 14), record("loopback", 10)]
        for bar, met in (({"most": 15}, "yes"), ({"most": 13}, "NO"), ({"least": 15}, "NO"), ({"least": 13}, "yes"),
                         ({"most": 1.5, "of": "loopback"}, "yes"), ({"most": 1.3, "of": "loopback"}, "NO")):
            text = self.table([{"system": "mx_tcp", **bar}], *records)
            self.assertRegex(text, rf"b c +mx_tcp +2 +14 us +[<>]= [0-9.]+ +{met} +loopback 10\n")

    def test_a_bar_on_the_worst_sample(self):
        text = self.table([{"system": "mx", "most": 5, "field": "max"}], record("mx", 4, max=6))
        self.assertRegex(text, r"6 us +<= 5 +NO")

    def test_the_median_of_several_runs_counts(self):
        text = self.table([{"system": "mx", "most": 5}], record("mx", 1), record("mx", 4), record("mx", 9))
        self.assertRegex(text, r" 4 us +<= 5 +yes")

    def test_what_is_missing_is_said(self):
        text = self.table([{"system": "mx", "most": 5}], record("peer", 1))
        self.assertRegex(text, r"mx +2 +not measured")
        self.assertIn("0 bars met, 0 missed, 1 not measured", text)
        text = self.table([{"system": "mx", "most": 2, "of": "peer"}], record("mx", 1))
        self.assertIn("0 bars met, 0 missed, 1 not measured", text)

    def test_strict_fails_for_a_missed_bar(self):
        self.table([{"system": "mx", "most": 5}], record("mx", 6), options=["--strict"], status=1)
        self.table([{"system": "mx", "most": 5}], record("mx", 5), options=["--strict"])

    def test_an_unknown_part_is_an_error_that_lists_the_parts(self):
        err = self.run_bench("none", "--only", "overlap,nothing", status=2)[1]
        self.assertRegex(err, "expected some of .*overlap.*, got nothing")

    def test_programs_that_are_not_built_are_named_and_left_out(self):
        save = os.path.join(self.folder, "records.jsonl")
        out, err = self.run_bench(self.folder, "--only", "start,kvstore", "--save", save)
        self.assertIn("start: skipped: mxrun is not built", err)
        self.assertIn("kvstore: skipped: benchmarks/kvstore_bench is not built", err)
        self.assertIn("0 bars met, 0 missed", out)

    def test_a_part_that_fails_is_named_and_the_others_run(self):
        os.chmod(self.write("mxrun", "#!/bin/sh\necho broken >&2\nexit 3\n"), 0o755)
        save = os.path.join(self.folder, "records.jsonl")
        err = self.run_bench(self.folder, "--only", "start,kvstore", "--save", save, status=1)[1]
        self.assertRegex(err, "start: FAILED: .*mxrun -n 4 true ended with 3: broken")
        self.assertIn("kvstore: skipped", err)

    @unittest.skipUnless(len(sys.argv) > 2, "no build folder")
    def test_every_part_measures_something(self):
        save = os.path.join(self.folder, "records.jsonl")
        out, err = self.run_bench(BUILD, "--quick", "--save", save)
        with open(save, encoding="utf-8") as file:
            found = {(one["bench"], one["case"]) for one in map(json.loads, file)}
        for wanted in (("allreduce", "allreduce_4KB"), ("kvstore", "pushpull/4194304"), ("overlap", "on_to_bound/16"),
                       ("overlap", "sharded_memory/16"), ("mnist", "speedup"), ("start", "start"),
                       ("ranks", "waiting_cpu"), ("ranks", "waiting_cpu_store"), ("ranks", "detect_killed")):
            self.assertIn(wanted, found, err)
        self.assertIn("bars met", out)
        self.assertEqual(processes_with(self.folder), [])

    @unittest.skipUnless(len(sys.argv) > 2, "no build folder")
    def test_nothing_is_left_when_it_is_ended(self):
        process = self.start(BUILD, "--only", "wait", "--save", os.path.join(self.folder, "records.jsonl"))
        end = time.monotonic() + 60
        while len(processes_with(self.folder)) < 5 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertGreaterEqual(len(processes_with(self.folder)), 5)  # mxrun, its agent or ranks
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertEqual(processes_with(self.folder), [])


if __name__ == "__main__":
    BENCH = os.path.abspath(sys.argv[1])
    BUILD = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
    unittest.main(argv=sys.argv[:1])
