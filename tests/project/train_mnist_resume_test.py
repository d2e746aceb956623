#!/usr/bin/env python3
"""train_mnist, stopped anywhere and resumed, ends with the same bits as an uninterrupted run.

Usage: ... PROGRAM DATA FILE_CALLS (train_mnist_runs.py)
"""

import os
import random
import signal
import struct
import subprocess
import unittest

from train_mnist_runs import FILE_CALLS, SANITIZED, TrainMnistTest, arrays_of, slurp, write_arrays


class TrainMnistResumed(TrainMnistTest):
    EPOCHS = 4
    LONG = ["--epochs", str(EPOCHS), "--batch", "50", "--save", "model", "--curve", "curve.svg"]

    def uninterrupted(self):
        self.assertEqual(self.run_to_end(*self.LONG).returncode, 0)
        result = slurp(self.path("model")), slurp(self.path("curve.svg"))
        os.remove(self.path("model"))
        os.remove(self.path("curve.svg"))
        return result

    def resume_to_end(self, expected, *arguments):
        result = self.run_to_end(*self.LONG, "--resume", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(expected[0] == slurp(self.path("model")), "the checkpoints differ")
        self.assertTrue(expected[1] == slurp(self.path("curve.svg")), "the loss curves differ")
        return result

    def interrupted_after(self, epochs):
        """Leaves the checkpoint of a run after the given number of epochs; each epoch writes one file."""
        tried = 2  # files written at the start: checkpoint and curve
        result = self.run_to_end(*self.LONG, LD_PRELOAD=FILE_CALLS, MX_TEST_KILL_AT_FILE=str(tried + epochs + 1))
        self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr)
        done = arrays_of(self.path("model"))[0]["epoch/value"][2]
        self.assertEqual(struct.unpack("<q", done)[0], epochs)

    def test_killed_at_random_times_it_goes_on_as_if_nothing_had_been(self):
        expected = self.uninterrupted()
        seed = random.randrange(1 << 30)
        choose = random.Random(seed)
        for attempt in range(2 if SANITIZED else 8):
            with self.subTest(seed=seed, attempt=attempt):
                if os.path.exists(self.path("model")):
                    os.remove(self.path("model"))
                for _ in range(4):
                    with self.start(*self.LONG, "--resume") as process:
                        for _ in range(choose.randrange(self.EPOCHS)):
                            process.stderr.readline()
                        try:  # wait for no time, for about an epoch, or until about the time of a checkpoint
                            process.wait(choose.choice([0, 0.001, 0.003, 0.01, 0.03, 0.1]) * choose.random())
                        except subprocess.TimeoutExpired:
                            process.kill()
                    if os.path.exists(self.path("model")):
                        self.assertIn("model/fc1.weight", arrays_of(self.path("model"))[0])
                self.resume_to_end(expected)

    @unittest.skipIf(SANITIZED, "a sanitizer's runtime wants to be loaded first")
    def test_killed_at_every_call_that_writes_a_checkpoint_it_goes_on(self):
        expected = self.uninterrupted()
        self.interrupted_after(self.EPOCHS - 1)
        before = slurp(self.path("model"))
        seen = []
        for call in range(1, 200):
            with open(self.path("model"), "wb") as file:
                file.write(before)
            result = self.run_to_end(*self.LONG, "--resume", LD_PRELOAD=FILE_CALLS, MX_TEST_KILL_AT=str(call))
            if result.returncode == 0:
                break
            self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr)
            seen.append(slurp(self.path("model")))
            self.assertTrue(seen[-1] in (before, expected[0]), f"killed at call {call}")
            self.resume_to_end(expected)
            os.remove(self.path("curve.svg"))
        else:
            self.fail("the program makes more calls than expected")
        # Several calls come before the rename and several after it.
        replaced = [content == expected[0] for content in seen]
        self.assertEqual(replaced, sorted(replaced))
        self.assertGreater(replaced.count(False), 8)
        self.assertGreater(replaced.count(True), 8)

    @unittest.skipIf(SANITIZED, "a sanitizer's runtime wants to be loaded first")
    def test_a_full_disk_is_an_error_that_costs_no_epoch_before_it(self):
        expected = self.uninterrupted()
        self.interrupted_after(2)
        size = os.path.getsize(self.path("model"))  # the checkpoint of the next epoch is longer by one loss
        for room in [0, 1, 70000, size // 2, size - 1]:
            with self.subTest(room=room):
                last = self.refused(*self.LONG, "--resume", LD_PRELOAD=FILE_CALLS, MX_TEST_DISK_BYTES=str(room))
                self.assertRegex(last, r"'model'.*No space left on device|No space left on device.*'model'")
        self.resume_to_end(expected)

    def test_a_run_of_several_devices_goes_on_with_one_and_the_other_way_round(self):
        pair = ["--device", "virt:0,virt:1"]
        one = ["--parts", "2"]
        arguments = ["--epochs", "6", "--batch", "50"]
        expected = self.train("expected", *arguments, *pair)
        for first, second in [(pair, one), (one, pair)]:
            # If the run ends before the test can stop it, try again.
            stopped = False
            while not stopped:
                with self.start(*arguments, "--save", "half", *first) as process:
                    process.stderr.readline()
                    process.stderr.readline()  # the checkpoint of the first epoch exists now
                    process.kill()
                stopped = process.returncode == -signal.SIGKILL
            got = self.train("half", *arguments, "--resume", *second)
            self.same(expected, got)
            os.remove(self.path("half"))

    def test_resume_without_a_checkpoint_begins(self):
        expected = self.uninterrupted()
        self.assertNotIn("resumed", self.resume_to_end(expected).stdout)

    def test_a_finished_run_resumed_only_tests(self):
        expected = self.uninterrupted()
        first = self.resume_to_end(expected)
        again = self.resume_to_end(expected)
        self.assertIn(f"resumed after epoch {self.EPOCHS}\n", again.stdout)
        self.assertEqual(again.stderr, "")
        self.assertEqual(first.stdout.splitlines()[-1], again.stdout.splitlines()[-1])

    def test_resuming_with_other_options_is_refused(self):
        self.assertEqual(self.run_to_end(*self.LONG).returncode, 0)
        for option in [
            ["--seed", "2"],
            ["--rate", "0.1"],
            ["--batch", "25"],
            ["--epochs", "5"],
            ["--parts", "2"],
            ["--device", "virt:0,virt:1"],
        ]:
            with self.subTest(option=option):
                arguments = list(self.LONG)
                if option[0] in arguments:
                    place = arguments.index(option[0])
                    del arguments[place : place + 2]
                last = self.refused(*arguments, *option, "--resume")
                self.assertIn("expected options '", last)
                self.assertIn("seed=1", last)

    def test_a_checkpoint_that_is_damaged_is_refused(self):
        self.assertEqual(self.run_to_end(*self.LONG).returncode, 0)
        whole = slurp(self.path("model"))
        for name, content in [("cut", whole[: len(whole) // 2]), ("empty", b""), ("text", b"not a checkpoint at all")]:
            with self.subTest(name=name):
                with open(self.path("model"), "wb") as file:
                    file.write(content)
                self.assertIn("model", self.refused(*self.LONG, "--resume"))

    def test_a_whole_file_that_no_run_has_written_is_refused(self):
        self.assertEqual(self.run_to_end(*self.LONG).returncode, 0)
        arrays, texts = arrays_of(self.path("model"))
        epoch = lambda n: ("I64", [], struct.pack("<q", n))
        losses = arrays["losses/value"]
        nan = struct.pack("<d", float("nan"))
        weight = arrays["model/fc1.weight"]
        for name, changed, said in [
            ("epoch/value", None, "epoch"),
            ("losses/value", None, "losses"),
            ("model/fc1.weight", None, "fc1.weight"),
            ("optimizer", None, "'optimizer'"),
            ("schedule", None, "'schedule'"),
            ("epoch/value", epoch(self.EPOCHS + 1), f"expected an epoch from 1 to {self.EPOCHS}"),
            ("epoch/value", epoch(-1), "got -1"),
            ("epoch/value", epoch(self.EPOCHS - 1), "expected a schedule at step"),
            ("epoch/value", ("I64", [2], bytes(16)), "'epoch'"),
            ("epoch/value", ("F64", [], bytes(8)), "'epoch'"),
            ("losses/value", ("F64", [1], losses[2][:8]), "losses in model, got 1"),
            ("losses/value", (*losses[:2], losses[2][:-8] + nan), "expected finite losses"),
            ("model/fc1.weight", ("F32", weight[1][::-1], weight[2]), "fc1.weight"),
            ("model/fc1.weight", (*weight[:2], struct.pack("<f", float("nan")) + weight[2][4:]), "fc1.weight"),
        ]:
            with self.subTest(name=name, said=said):
                others = {n: a for n, a in arrays.items() if n != name and not n.startswith(name + "/")}
                write_arrays(self.path("model"), {**others, **({name: changed} if changed else {})}, texts)
                self.assertIn(said, self.refused(*self.LONG, "--resume"))
        write_arrays(self.path("model"), arrays, {})
        self.assertIn("a checkpoint of this library", self.refused(*self.LONG, "--resume"))
        write_arrays(self.path("model"), arrays, texts)
        self.assertEqual(self.run_to_end(*self.LONG, "--resume").returncode, 0)


if __name__ == "__main__":
    unittest.main()
