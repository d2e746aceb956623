#!/usr/bin/env python3
"""train_mnist by several processes writes the very file of one process that accumulates the same parts.

Usage: ... PROGRAM DATA FILE_CALLS MXRUN (train_mnist_runs.py); mpirun is used if it is installed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

MXRUN = os.path.abspath(sys.argv.pop())

from train_mnist_runs import DATA, PROGRAM, SANITIZED, SMALL, TrainMnistTest, slurp  # noqa: E402

# Continuous integration starts tests with these signals ignored, and programs would inherit that.
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)

FEW = ["--epochs", "2", "--batch", "50", "--seed", "3"]
# Processes of mpirun find each other through the module for MPI, which builds with a sanitizer lack.
MODULE = os.path.join(os.path.dirname(MXRUN), "modules", "libmx_comm_mpi.so")
MPIRUN = shutil.which("mpirun") if os.path.exists(MODULE) else None


class Processes(TrainMnistTest):
    def run_command(self, command, *arguments, data=SMALL, **environment):
        """Returns the completed run of PROGRAM, started by the words of `command`."""
        return subprocess.run(
            [*command, PROGRAM, "--data", data, *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **environment},
            timeout=300,
            check=False,
        )

    def file_of(self, command, *arguments, **environment):
        """Returns the checkpoint that a run writes, which must succeed."""
        result = self.run_command(command, *FEW, "--save", "run.st", *arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("test accuracy", result.stdout)
        content = slurp(self.path("run.st"))
        os.remove(self.path("run.st"))
        return content

    def check_same(self, expected, got, what):
        self.assertTrue(expected == got, f"{what}: the files differ")  # assertEqual would print megabytes

    def mxrun(self, *options):
        return [MXRUN, "--timeout", "120", *options]

    def test_any_number_of_processes_writes_the_file_of_one(self):
        for count in [1, 2, 3, 4]:
            one = self.file_of([], "--parts", str(count))
            self.check_same(one, self.file_of(self.mxrun("-n", str(count))), f"{count} processes")
            if count > 1:
                sharded = self.file_of(self.mxrun("-n", str(count)), "--shard-optimizer")
                self.check_same(one, sharded, f"{count} processes, sharded optimiser")

    def test_every_transport_gives_the_same_file(self):
        one = self.file_of([], "--parts", "3")
        for transport in ["shm", "tcp", "shm+tcp"]:
            got = self.file_of(self.mxrun("-n", "3", "-x", f"MX_TRANSPORT={transport}"))
            self.check_same(one, got, transport)

    def test_servers_give_the_same_file(self):
        for count, servers in [("3", "1"), ("4", "2")]:
            one = self.file_of([], "--parts", count)
            got = self.file_of(self.mxrun("-n", count, "-s", servers))
            self.check_same(one, got, f"{count} processes, {servers} servers")

    @unittest.skipIf(MPIRUN is None or SANITIZED, "no mpirun, no module for MPI, or a sanitizer")
    def test_started_by_mpirun(self):
        for count in ["2", "3"]:
            start = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", count]
            one = self.file_of([], "--parts", count)
            self.check_same(one, self.file_of(start), f"{count} processes started by mpirun")
            self.check_same(one, self.file_of(start, "--kvstore", "mpi"), f"{count} processes over MPI")

    def test_a_run_of_several_processes_resumes(self):
        for options in [[], ["--shard-optimizer"]]:
            whole = self.file_of(self.mxrun("-n", "2"), *options)
            # A run of two epochs that was stopped after the first has the same file as a whole run with the
            # same options; so the first run is ended while it writes the second checkpoint.
            with subprocess.Popen(
                [*self.mxrun("-n", "2"), PROGRAM, "--data", SMALL, *FEW, "--save", "run.st", *options],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                for line in process.stderr:
                    if "epoch  1/2" in line:
                        break
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=120)
            resumed = self.run_command(
                self.mxrun("-n", "2"), *FEW, "--save", "run.st", "--resume", *options
            )
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
            self.check_same(whole, slurp(self.path("run.st")), f"resumed {options}")
            os.remove(self.path("run.st"))

    def test_processes_that_disagree_are_told(self):
        result = self.run_command(self.mxrun("-n", "2"), *FEW, "--parts", "3")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("expected one part for each of the 2 processes, got 3", result.stderr)

    @unittest.skipIf(SANITIZED, "takes minutes with a sanitizer")
    def test_asynchronous_servers_learn(self):
        epochs, wanted = (3, 0.9) if SANITIZED else (20, 0.98)
        result = self.run_command(
            self.mxrun("-n", "2", "-s", "1"), "--epochs", str(epochs), "--kvstore", "dist_async", data=DATA
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        accuracy = re.search(r"test accuracy: ([0-9.]+)", result.stdout)
        self.assertTrue(accuracy, result.stdout)
        self.assertGreaterEqual(float(accuracy.group(1)), wanted)


if __name__ == "__main__":
    unittest.main(verbosity=2)
