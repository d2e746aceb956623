#!/usr/bin/env python3
"""Agents started by Open MPI's mpirun, one for each "node"; both are this machine."""

import shutil
import unittest

import jobs
import launcher_suite


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class Mpi(launcher_suite.LauncherSuite, jobs.JobTest):
    COMMAND_VARIABLE = "MX_MPIRUN"

    def start_ranks(self, *arguments, **options):
        environment = {"MX_MPIRUN": "mpirun --oversubscribe --allow-run-as-root", **options}
        return self.start("--launcher", "mpi", "-H", "localhost:2,127.0.0.1:2", *arguments, **environment)


if __name__ == "__main__":
    launcher_suite.main()
