#!/usr/bin/env python3
"""Agents started by Open MPI's mpirun, one for each "node"; both are this machine."""

import shutil
import unittest

import jobs

ARGUMENTS = ("--launcher", "mpi", "-H", "localhost:2,127.0.0.1:2")


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class Mpi(jobs.LauncherKills, jobs.JobTest):
    def start_ranks(self, *arguments):
        return self.start(*ARGUMENTS, *arguments, MX_MPIRUN="mpirun --oversubscribe --allow-run-as-root")

    def run_mpi(self, *arguments):
        job = self.start_ranks(*arguments).finish()
        self.assert_nothing_left(job)
        return job

    def test_every_rank_runs_and_is_no_task_of_mpirun(self):
        job = self.run_mpi("sh", "-c", "echo $MX_RANK $MX_NODE_RANK $OMPI_COMM_WORLD_RANK$PMIX_RANK")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(line.strip() for line in job.stdout.splitlines()),
                         ["[0:0] 0 0", "[0:1] 1 0", "[1:2] 2 1", "[1:3] 3 1"])

    def test_the_exit_code_is_that_of_the_rank(self):
        job = self.run_mpi("sh", "-c", "[ $MX_RANK != 3 ] || exit 7; sleep 300")
        self.assertEqual(job.code, 7, job.stderr)
        self.assertIn("rank 3", job.stderr)


if __name__ == "__main__":
    jobs.main()
