"""A trainer with several replicas in each process of a job. Usage: ... MXRUN REPLICAS_PROGRAM"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mxrun"))
import jobs  # noqa: E402

PROGRAM = ""
HOST = os.uname().nodename
TYPES = (("dist_device_sync", 0), ("dist_sync", 1))


class Replicas(jobs.JobTest):
    def run_ranks(self, kind, servers, ranks, replicas, mode=""):
        job = self.start("-n", ranks, "-s", servers, "--timeout", 20, "--dead-after", 20, PROGRAM, kind, replicas, mode).finish()
        self.assert_nothing_left(job)
        return job, dict(re.findall(r"\[0:(\d)\] error: (.*)", job.stdout))

    def check_ends_well(self, kind, servers, ranks, *arguments):
        job, errors = self.run_ranks(kind, servers, ranks, *arguments)
        self.assertEqual((job.code, errors), (0, {}), job.stdout + job.stderr)
        self.assertEqual(job.stdout.count("has ended"), ranks)

    def test_the_bits_are_those_of_sums_over_replicas_and_then_over_processes(self):
        for kind, servers in TYPES:
            for ranks, replicas in ((2, 1), (2, 2), (3, 2)):
                with self.subTest(kind=kind, ranks=ranks, replicas=replicas):
                    self.check_ends_well(kind, servers, ranks, replicas)

    def test_processes_may_have_other_numbers_of_replicas(self):
        for kind, servers in TYPES:
            with self.subTest(kind=kind):
                self.check_ends_well(kind, servers, 3, 2, "fewer")

    def test_batches_of_all_processes_are_normalised_together(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                self.check_ends_well("dist_device_sync", 0, ranks, 1, "norm")

    def test_what_differs_is_an_error_of_all(self):
        for mode, pattern in (("choice", r"another choice for parameter 0 '.*' on rank\(s\) 1 than on rank\(s\) 0, 2"),
                              ("model", "33.*34|34.*33")):
            with self.subTest(mode=mode):
                job, errors = self.run_ranks("dist_device_sync", 0, 3, 2, mode)
                self.assertEqual(job.code, 3, job.stdout + job.stderr)
                self.assertEqual(len(errors), 3, job.stdout)
                for error in errors.values():
                    self.assertRegex(error, pattern)

    def test_a_rank_that_is_killed_is_named(self):
        for kind, servers in TYPES:
            with self.subTest(kind=kind):
                job, errors = self.run_ranks(kind, servers, 3, 2, "killed")
                self.assertEqual(job.code, 137, job.stdout + job.stderr)
                self.assertRegex(job.stderr, f"first failure: rank 1 on {HOST}")
                self.assertEqual(set(errors), {"0", "2"}, job.stdout)
                for error in errors.values():
                    self.assertRegex(error, "(rank|worker) 1 on ")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
