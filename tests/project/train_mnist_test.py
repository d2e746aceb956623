#!/usr/bin/env python3
"""train_mnist learns the digits, with the same bits wherever it runs, and reports what it cannot do.

Usage: ... PROGRAM DATA FILE_CALLS (train_mnist_runs.py)
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from train_mnist_runs import DATA, PROGRAM, SANITIZED, SMALL, TrainMnistTest, arrays_of


def slices_of(path):
    """Returns (begin, end, row, name) of each operation of a trace, ordered by begin; in microseconds."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    found = [e for e in events if e["ph"] == "X"]
    return sorted((float(e["ts"]), float(e["ts"]) + float(e["dur"]), e["tid"], e["name"]) for e in found)


def overlap(found, first, second):
    """Returns true if an operation of `first` and one of `second` ran on different rows at the same time."""
    return any(
        a[2] != b[2] and a[0] < b[1] and b[0] < a[1]
        for a in found
        if a[3] in first
        for b in found
        if b[3] in second
    )


class TrainMnist(TrainMnistTest):
    # Training and output.

    @unittest.skipIf(SANITIZED, "takes minutes with a sanitizer")
    def test_defaults_reach_98_percent(self):
        result = self.run_to_end(data=DATA)
        self.assertEqual(result.returncode, 0, result.stderr)
        match = re.fullmatch(r"test accuracy: ([01]\.\d{4})", result.stdout.splitlines()[-1])
        self.assertTrue(match, result.stdout)
        self.assertGreaterEqual(float(match.group(1)), 0.98)
        self.assertEqual(sorted(os.listdir(self.folder)), ["mnist.safetensors", "mnist_loss.svg"])

    def test_few_images_teach_something(self):
        result = self.run_to_end("--epochs", "6", "--batch", "20")
        self.assertEqual(result.returncode, 0, result.stderr)
        match = re.fullmatch(r"test accuracy: ([01]\.\d{4})", result.stdout.splitlines()[-1])
        self.assertTrue(match, result.stdout)
        self.assertGreater(float(match.group(1)), 0.6)

    def test_without_a_terminal_each_epoch_is_a_line(self):
        lines = self.run_to_end("--epochs", "3", "--batch", "20").stderr.splitlines()
        self.assertEqual(len(lines), 3)
        losses = []
        for number, line in enumerate(lines, 1):
            match = re.fullmatch(rf"epoch  {number}/3  loss (\d+\.\d+)  accuracy [01]\.\d+  \d+ images/s", line)
            self.assertTrue(match, line)
            losses.append(float(match.group(1)))
        self.assertLess(losses[2], losses[0])

    def test_help_names_every_option_and_its_default(self):
        result = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0)
        options = ["data", "device", "epochs", "batch", "parts", "kvstore", "rate", "seed", "save", "resume", "shard", "curve", "trace"]
        self.assertEqual(re.findall(r"^  (?:-h,)?--(\w+)", result.stdout, re.MULTILINE), ["help", *options])
        # CLI11 2.3 prints "TEXT=cpu", 2.4 "TEXT [cpu]".
        for default in ["examples/data/mnist", "cpu", "30", "64", "mnist.safetensors", "mnist_loss.svg"]:
            self.assertRegex(result.stdout, rf"=\s*{re.escape(default)}\s|\[{re.escape(default)}\]")

    # Reproducibility.

    def test_modes_threads_and_devices_do_not_change_a_bit(self):
        arguments = ["--epochs", "2", "--batch", "50", "--seed", "3"]
        expected = self.train("first", *arguments, MX_ENGINE="naive", MX_NUM_THREADS="1")
        self.assertIn("model/fc1.weight", expected)
        runs = itertools.product(["cpu", "virt:0"], ["threaded", "naive", "fuzz:1", "fuzz:2"], ["1", "2"])
        if SANITIZED:
            runs = [("cpu", "fuzz:1", "2"), ("virt:0", "threaded", "2")]
        for device, mode, threads in runs:
            with self.subTest(device=device, mode=mode, threads=threads):
                got = self.train("next", *arguments, "--device", device, MX_ENGINE=mode, MX_NUM_THREADS=threads)
                self.same(expected, got)
        other = self.train("other", *arguments[:-1], "4")
        self.assertFalse(expected["model/fc1.weight"] == other["model/fc1.weight"])

    def test_two_devices_give_the_bits_of_one_that_adds_up_two_parts(self):
        # A batch size that does not divide evenly gives parts of different sizes.
        for batch in ["33"] if SANITIZED else ["50", "33"]:
            arguments = ["--epochs", "2", "--batch", batch]
            expected = self.train("one", *arguments, "--parts", "2", MX_NUM_THREADS="1")
            for device, mode in [
                ("virt:0,virt:1", "threaded"),
                ("virt:0,virt:1", "naive"),
                ("virt:0,virt:1", "fuzz:5"),
                ("virt:1,virt:0", "threaded"),
                ("cpu,virt:0", "threaded"),
            ]:
                with self.subTest(batch=batch, device=device, mode=mode):
                    got = self.train("two", *arguments, "--device", device, MX_ENGINE=mode, MX_NUM_THREADS="2")
                    self.same(expected, got)
            # Without parts the sums differ; equal sums would mean that no parts were made.
            whole = self.train("whole", *arguments)
            self.assertFalse(expected["model/fc1.weight"] == whole["model/fc1.weight"])

    # Errors.

    def test_devices_that_are_not_there_are_refused(self):
        for device, expected in [
            ("tpu:0", "expected cpu, virt:N or gpu:N"),
            ("virt:x", "expected cpu, virt:N or gpu:N"),
            ("virt:-1", "expected cpu, virt:N or gpu:N"),
            ("cpu,", "expected cpu, virt:N or gpu:N"),
            ("virt:2", "expected one of the 2 devices of kind virt"),
            ("virt:0,gpu:99", "of kind gpu"),
        ]:
            with self.subTest(device=device):
                self.assertIn(expected, self.refused("--device", device))

    def test_parts_that_do_not_fit_are_refused(self):
        last = self.refused("--device", "virt:0,virt:1", "--parts", "3")
        self.assertIn("expected one part for each of the 2 devices, got 3", last)
        self.assertIn("expected at most 8", self.refused("--parts", "9", "--batch", "8"))
        last = self.refused("--device", "virt:0,virt:1", "--batch", "1")
        self.assertIn("expected at most 1, an image in each, got 2", last)

    def test_data_that_is_missing_or_damaged_is_named(self):
        self.assertIn("/nonexistent/train-images-idx3-ubyte", self.refused(data="/nonexistent"))
        with tempfile.TemporaryDirectory() as folder:
            for name in ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]:
                shutil.rmtree(folder)
                shutil.copytree(SMALL, folder)
                path = os.path.join(folder, name)
                os.truncate(path, os.path.getsize(path) - 1)
                self.assertIn(path, self.refused(data=folder))
            shutil.rmtree(folder)
            shutil.copytree(DATA, folder)
            path = os.path.join(folder, "train-images-idx3-ubyte.gz")
            os.truncate(path, 100000)
            self.assertIn(path, self.refused(data=folder))

    def test_files_that_cannot_be_written_are_refused_before_training(self):
        for option in ["--save", "--curve", "--trace"]:
            with self.subTest(option=option):
                result = self.run_to_end(option, "nowhere/file")
                self.assertEqual(result.returncode, 1)
                self.assertEqual(len(result.stderr.splitlines()), 1, "an epoch was trained")
                self.assertIn("'nowhere/file': No such file or directory", result.stderr)

    def test_a_folder_that_takes_no_files_is_refused_before_training(self):
        for option in ["--save", "--curve", "--trace"]:
            with self.subTest(option=option):
                result = self.run_to_end(option, "/proc/file")  # not even root may create this file
                self.assertEqual(result.returncode, 1)
                self.assertEqual(len(result.stderr.splitlines()), 1, "an epoch was trained")
                self.assertIn("'/proc/file'", result.stderr)
                self.assertEqual(self.files(), {}, "something was left behind")

    def test_output_that_cannot_be_written_is_an_error(self):
        for arguments in [["--help"], ["--data", SMALL, "--epochs", "1", "--batch", "50"]]:
            with self.subTest(arguments=arguments), open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run(
                    [PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, cwd=self.folder, check=False
                )
                self.assertEqual(result.returncode, 1)
                self.assertIn("cannot write the standard output: No space left on device", result.stderr)

    def test_a_rate_that_is_too_high_ends_without_a_checkpoint(self):
        for rate in ["1e6", "1e30"]:
            last = self.refused("--rate", rate, "--epochs", "2", "--batch", "50")
            self.assertRegex(last, r"expected finite losses and weights, got -?(nan|inf) in epoch [12]; .*--rate")

    def test_losses_that_are_not_finite_leave_the_checkpoint_that_was_there(self):
        arguments = ["--save", "model", "--epochs", "1", "--batch", "50"]
        self.assertEqual(self.run_to_end(*arguments).returncode, 0)
        self.assertIn("expected finite", self.refused(*arguments, "--rate", "1e30"))
        self.assertEqual(self.run_to_end(*arguments, "--resume").returncode, 0)

    def test_the_last_of_several_values_counts(self):
        # The options that scripts/quickstart.sh passes, followed by options of the user.
        own = ["--save", "own", "--curve", "own.svg", "--trace", "own.json", "--epochs", "9"]
        users = ["--save", "model", "--curve", "curve.svg", "--trace", "trace.json", "--epochs", "1"]
        result = self.run_to_end(*own, *users)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(self.files()), ["curve.svg", "model", "trace.json"])
        self.assertEqual(arrays_of(self.path("model"))[1]["options"].split()[0], "epochs=1")

    def test_wrong_usage_is_status_2(self):
        for wrong in [["--epochs", "0"], ["--batch", "x"], ["--rate", "-1"], ["--parts", "-1"], ["--unknown"]]:
            self.assertEqual(self.run_to_end(*wrong).returncode, 2, wrong)

    # Curves and traces.

    def test_the_curve_has_a_point_for_every_look_and_goes_down(self):
        # 62 batches: one point after 50, and one at the end of the epoch.
        self.assertEqual(self.run_to_end("--epochs", "3", "--batch", "16", "--curve", "c.svg").returncode, 0)
        root = ElementTree.parse(self.path("c.svg")).getroot()
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, space + "svg")
        width, height = float(root.get("width")), float(root.get("height"))
        (line,) = root.findall(space + "polyline")
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        self.assertEqual(len(points), 6)
        for x, y in points:
            self.assertTrue(0 < x < width and 0 < y < height, (x, y))
        self.assertEqual([x for x, _ in points], sorted({x for x, _ in points}))
        self.assertGreater(points[-1][1], points[0][1])  # y grows downwards in SVG
        self.assertIn("training loss", [text.text for text in root.findall(space + "text")])

    def test_the_trace_is_one_that_perfetto_opens(self):
        result = self.run_to_end("--epochs", "1", "--trace", "t.json", MX_NUM_THREADS="2")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("t.json"), encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        rows = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        last_end = {}
        for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: float(e["ts"])):
            row = e["pid"], e["tid"]
            self.assertIn(row, rows)
            self.assertTrue(e["name"])
            self.assertGreaterEqual(float(e["dur"]), 0)
            # Operations of one row do not overlap (times have three digits after the point).
            self.assertGreaterEqual(float(e["ts"]), last_end.get(row, 0) - 0.01)
            last_end[row] = float(e["ts"]) + float(e["dur"])
        arrows = {kind: sorted(e["id"] for e in events if e["ph"] == kind) for kind in "sf"}
        self.assertTrue(arrows["s"])
        self.assertEqual(set(arrows["s"]), set(arrows["f"]))
        self.assertEqual({e["ph"] for e in events}, {"M", "X", "s", "f"})

    def test_the_trace_shows_loading_and_branches_of_backward_at_the_same_time(self):
        # Two threads can compute at the same time. On a busy machine they may not, but hardly in every attempt.
        computing = {"linear", "matmul", "cross_entropy", "sgd_update"}
        backward = {"matmul", "sum", "relu_backward"}  # matmul is used only here: forward uses linear
        loading_overlaps = branches_overlap = False
        for _ in range(20):
            result = self.run_to_end("--epochs", "1", "--batch", "200", "--trace", "t.json", MX_NUM_THREADS="2")
            self.assertEqual(result.returncode, 0, result.stderr)
            found = slices_of(self.path("t.json"))
            loading_overlaps |= overlap(found, {"warp_affine"}, computing)
            branches_overlap |= overlap(found, {"matmul"}, backward)
            if loading_overlaps and branches_overlap:
                break
        self.assertTrue(loading_overlaps)
        self.assertTrue(branches_overlap)

    def test_the_trace_shows_later_batches_being_loaded_between_steps(self):
        # On one thread nothing overlaps, but a batch is still not loaded too early: at most three are loaded before a step.
        self.run_to_end("--epochs", "1", "--batch", "50", "--trace", "t.json", MX_NUM_THREADS="1")
        found = slices_of(self.path("t.json"))
        updates = [s for s in found if s[3] == "sgd_update"]
        self.assertGreaterEqual(len(updates), 8)
        later = [s for s in found if s[3] == "warp_affine" and s[0] > updates[0][0]]
        self.assertGreaterEqual(len(later), len(updates) - 4)


if __name__ == "__main__":
    unittest.main()
