#!/usr/bin/env python3
"""compare.py finds the faster program by medians, for times and for rates. Usage: ... COMPARE_PY"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

COMPARE = ""


def record(bench, case, system, value, unit, threads=1):
    return {"bench": bench, "case": case, "system": system, "threads": threads, "value": value, "unit": unit}


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def lines(self, name, *records):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("a note that is not a record\n")
            for r in records:
                file.write(json.dumps(r) + "\n")
        return self.path(name)

    def program(self, name, *records):
        """Writes a program that prints its records, and logs each start with its arguments."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "{name} $*" >>"{self.path("started")}"\n')
            for r in records:
                file.write(f"echo '{json.dumps(r)}'\n")
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def compare(self, *arguments, status=0):
        result = subprocess.run([sys.executable, COMPARE, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout

    def row(self, text, *cells):
        rows = [line.split() for line in text.splitlines()]
        found = [r for r in rows if r[: len(cells)] == list(cells)]
        self.assertEqual(len(found), 1, text)
        return found[0]

    def test_twice_as_much_throughput_is_a_ratio_of_a_half(self):
        text = self.compare(self.lines("a", record("op", "exp/16KiB", "mx", 40, "GB/s"),
                                       record("op", "exp/16KiB", "onednn", 20, "GB/s"),
                                       record("op", "exp/16KiB", "libtorch", 10, "GB/s")))
        row = self.row(text, "exp/16KiB", "mx", "1")
        self.assertEqual(row[3:8], ["40", "GB/s", "20", "onednn", "0.50x"])

    def test_twice_the_time_is_a_ratio_of_two(self):
        text = self.compare(self.lines("a", record("eager", "add", "mx", 800, "ns/op"),
                                       record("eager", "add", "libtorch", 400, "ns/op")))
        self.assertEqual(self.row(text, "add", "mx", "1")[3:8], ["800", "ns/op", "400", "libtorch", "2.00x"])
        self.assertIn("1 bars missed", text)

    def test_of_repeated_records_the_median_counts_or_the_last(self):
        files = [self.lines(str(i), record("op", "add/16KiB", "mx", v, "GB/s")) for i, v in enumerate([5, 90, 7])]
        self.assertEqual(self.row(self.compare(*files), "add/16KiB", "mx", "1")[3], "7")
        files = [files[0], files[2], files[1]]
        self.assertEqual(self.row(self.compare(*files), "add/16KiB", "mx", "1")[3], "7")
        self.assertEqual(self.row(self.compare("--latest", *files), "add/16KiB", "mx", "1")[3], "90")

    def test_a_bar_may_be_a_part_of_a_limit_of_the_same_run(self):
        lines = [record("op", "add/64MiB", "mx", 8, "GB/s", 2), record("limits", "copy/64MiB", "machine", 10, "GB/s", 2),
                 record("limits", "copy_nt/64MiB", "machine", 20, "GB/s", 2),
                 record("limits", "copy_nt/64MiB", "machine", 99, "GB/s", 1)]
        text = self.compare(self.lines("a", *lines), "--strict", status=1)
        self.assertIn("add/64MiB mx on 2: 8 GB/s, bar 18", text)
        lines[0]["value"] = 19
        self.compare(self.lines("a", *lines), "--strict")

    def test_a_bar_of_the_engine_is_a_figure(self):
        lines = [record("engine", "chain", "mx", 70, "ns/op"), record("engine", "chain", "omp", 350, "ns/op")]
        text = self.compare(self.lines("a", *lines), "--strict", status=1)
        self.assertEqual(self.row(text, "chain", "mx", "1")[3:], ["70", "ns/op", "350", "omp", "0.20x", "35", "2.00x"])

    def test_what_a_copy_of_the_same_size_and_run_reaches_stands_beside_it(self):
        text = self.compare(self.lines("a", record("registry", "roll/64MiB", "mx", 8, "GB/s", 2),
                                       record("limits", "copy/64MiB", "machine", 10, "GB/s", 2),
                                       record("limits", "copy_nt/64MiB", "machine", 20, "GB/s", 2),
                                       record("limits", "copy/64MiB", "machine", 99, "GB/s", 1)))
        self.assertEqual(self.row(text, "roll/64MiB", "mx", "2")[3:], ["8", "GB/s", "20", "0.40"])

    def test_cases_of_the_same_name_in_different_benchmarks_are_kept_apart(self):
        text = self.compare(self.lines("a", record("op", "add", "mx", 1, "GB/s"), record("eager", "add", "mx", 2, "ns/op")))
        self.assertEqual(len([line for line in text.splitlines() if line.startswith("add ")]), 2)

    def test_worse_than_the_baseline_fails(self):
        now = self.lines("now", record("op", "add/16KiB", "mx", 10, "GB/s"))
        before = self.lines("before", record("op", "add/16KiB", "mx", 15, "GB/s"))
        self.compare(now, "--baseline", before, "--fail-above", "1.6")
        self.assertIn("1.50x", self.compare(now, "--baseline", before, "--fail-above", "1.4", status=1))

    def test_programs_are_started_in_turn_and_their_records_kept(self):
        ours = self.program("ours", record("op", "mul/16KiB", "mx", 30, "GB/s"))
        peer = self.program("peer", record("op", "mul/16KiB", "onednn", 15, "GB/s"))
        saved = self.path("saved")
        text = self.compare("--run", ours, peer, "--rounds", "3", "--save", saved, "--", "--cases", "mul")
        self.assertEqual(self.row(text, "mul/16KiB", "mx", "1")[3:8], ["30", "GB/s", "15", "onednn", "0.50x"])
        with open(self.path("started"), encoding="utf-8") as file:
            started = file.read().split("\n")[:-1]
        self.assertEqual(started, [n + " --cases mul" for n in ["ours", "peer", "peer", "ours", "ours", "peer"]])
        self.assertEqual(self.compare(saved), text)

    def test_without_our_own_program_it_shows_what_is_to_beat(self):
        text = self.compare(self.lines("a", record("op", "sgemm_64", "onednn", 100, "GFLOP/s"),
                                       record("op", "sgemm_64", "openblas", 120, "GFLOP/s")))
        self.assertEqual(self.row(text, "sgemm_64", "1")[2:], ["GFLOP/s", "120", "openblas", "114"])


if __name__ == "__main__":
    COMPARE = sys.argv.pop(1)
    unittest.main()
