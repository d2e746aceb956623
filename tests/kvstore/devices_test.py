"""Processes whose values lie on several devices: sums, and ranks that differ. Usage: ... MXRUN DEVICES_PROGRAM"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mxrun"))
import jobs  # noqa: E402

PROGRAM = ""
HOST = os.uname().nodename
TYPES = (("dist_device_sync", 0), ("dist_allreduce", 0), ("dist_sync", 1))


class Devices(jobs.JobTest):
    def run_ranks(self, kind, servers, ranks, devices, mode=""):
        job = self.start("-n", ranks, "-s", servers, "--timeout", 20, PROGRAM, kind, devices, mode).finish()
        self.assert_nothing_left(job)
        return job, dict(re.findall(r"\[0:(\d)\] error: (.*)", job.stdout))

    def check_errors(self, errors, servers, ranks, pattern, job):
        """All ranks have an error with the pattern. With servers, some may instead have that of a rank that has ended
        because of its own."""
        self.assertEqual(len(errors), ranks, job.stdout)
        self.assertRegex(job.stdout, pattern)
        for error in errors.values():
            self.assertRegex(error, pattern if servers == 0 else pattern + "|(rank|worker) [0-9] on ")

    def check_ends_well(self, ranks, *arguments):
        job, errors = self.run_ranks(*arguments[:2], ranks, *arguments[2:])
        self.assertEqual((job.code, errors), (0, {}), job.stdout + job.stderr)
        self.assertEqual(job.stdout.count("has ended"), ranks)

    def test_sums_are_folds_over_devices_and_then_over_processes(self):
        for kind, servers in TYPES:
            for ranks in (2, 3):
                for devices in (1, 2):
                    with self.subTest(kind=kind, ranks=ranks, devices=devices):
                        self.check_ends_well(ranks, kind, servers, devices)

    def test_processes_may_have_other_devices(self):
        for mode in ("fewer", "place"):
            for kind, servers in TYPES:
                with self.subTest(kind=kind, mode=mode):
                    self.check_ends_well(3, kind, servers, 2, mode)

    def test_means_of_other_numbers_of_devices_are_an_error_of_all(self):
        for kind, servers in TYPES:
            with self.subTest(kind=kind):
                job, errors = self.run_ranks(kind, servers, 3, 2, "mean")
                self.assertEqual(job.code, 3, job.stdout + job.stderr)
                self.check_errors(errors, servers, 3, "mean of", job)

    def test_another_order_of_keys_is_shown(self):
        for kind, servers in TYPES[:2]:
            with self.subTest(kind=kind):
                job, errors = self.run_ranks(kind, servers, 2, 2, "order")
                self.assertEqual(job.code, 3, job.stdout + job.stderr)
                self.check_errors(errors, servers, 2, "'a'.*'b'|'b'.*'a'", job)

    def test_a_rank_that_is_killed_is_named(self):
        for kind, servers in TYPES:
            with self.subTest(kind=kind):
                job, errors = self.run_ranks(kind, servers, 3, 2, "killed")
                self.assertEqual(job.code, 137, job.stdout + job.stderr)
                self.assertRegex(job.stderr, f"first failure: rank 1 on {HOST}")
                self.assertEqual(set(errors), {"0", "2"}, job.stdout)
                for error in errors.values():
                    self.assertRegex(error, "(rank|worker) 1 on ")

    def test_a_failed_operation_on_a_device_is_an_error_of_all(self):
        for kind, servers in TYPES:
            with self.subTest(kind=kind):
                job, errors = self.run_ranks(kind, servers, 3, 2, "fails")
                self.assertEqual(job.code, 3, job.stdout + job.stderr)
                self.check_errors(errors, servers, 3, "the kernel is broken", job)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
