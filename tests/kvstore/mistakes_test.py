"""A rank whose keys, shapes, types or rounds differ from those of the others. Usage: ... MXRUN MISTAKES_PROGRAM"""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mxrun"))
import jobs  # noqa: E402

PROGRAM = ""


class Mistakes(jobs.JobTest):
    def errors_of(self, kind, mistake, timeout=10):
        servers = 1 if kind == "dist_sync" else 0
        job = self.start("-n", 3, "-s", servers, "--timeout", timeout, PROGRAM, kind, mistake).finish()
        self.assert_nothing_left(job)
        return job, dict(re.findall(r"\[0:(\d)\] error: (.*)", job.stdout))

    def test_what_differs_is_shown_to_every_rank(self):
        words = {"shape": ("30 x 10|30, 10", "10 x 30|10, 30"), "dtype": ("f64|float64", "f32|float32"), "order": ("[\"']a[\"']", "[\"']b[\"']"),
                 "name": ("[\"']b[\"']", "[\"']c[\"']")}
        for kind in ("dist_allreduce", "dist_sync"):
            for mistake, both in words.items():
                with self.subTest(kind=kind, mistake=mistake):
                    job, errors = self.errors_of(kind, mistake)
                    self.assertEqual(job.code, 3, job.stderr)
                    self.assertTrue(errors, job.stdout)
                    for word in both:
                        self.assertRegex(job.stdout, word)
                    self.assertNotIn("within the time limit", job.stdout)

    def test_a_rank_with_fewer_rounds_is_named(self):
        for kind in ("dist_allreduce", "dist_sync"):
            with self.subTest(kind=kind):
                job, errors = self.errors_of(kind, "steps")
                self.assertEqual(job.code, 3, job.stderr)
                self.assertEqual(set(errors), {"0", "2"}, job.stdout)
                for error in errors.values():
                    self.assertRegex(error, "(rank|worker) 1 on ")
                    self.assertRegex(error, "'[ab]'")

    def test_a_round_that_a_rank_leaves_out_is_an_error_of_the_others(self):
        for kind in ("dist_allreduce", "dist_sync"):
            with self.subTest(kind=kind):
                job, errors = self.errors_of(kind, "batch")
                self.assertEqual(job.code, 3, job.stderr)
                self.assertTrue(errors, job.stdout)
                for rank, error in errors.items():
                    if rank != "1":
                        self.assertRegex(error, "'b'.*(rank|worker) 1|(rank|worker) 1.*'b'")

    def test_a_rank_that_does_not_come_to_a_choice_is_named(self):
        job, errors = self.errors_of("dist_allreduce", "choice", timeout=2)
        self.assertRegex(job.stderr, "first failure: rank 1 on ")
        self.assertEqual(set(errors), {"0", "2"}, job.stdout)
        for error in errors.values():
            self.assertRegex(error, "rank 1 on ")

    @unittest.skipIf(jobs.SLOW > 1, "sanitizers reserve more memory than the limit of the process")
    def test_missing_memory_of_a_rank_is_told_to_the_others(self):
        for kind in ("dist_allreduce", "dist_sync"):
            for mistake in ("memory", "first"):
                with self.subTest(kind=kind, mistake=mistake):
                    job, errors = self.errors_of(kind, mistake)
                    self.assertEqual(job.code, 3, job.stderr)
                    self.assertIn("1", errors, job.stdout)
                    self.assertRegex(errors["1"], "expected .*bytes.* of memory|out of memory|memory")
                    others = [text for rank, text in errors.items() if rank != "1"]
                    self.assertTrue(others, job.stdout)
                    for text in others:
                        self.assertRegex(text, "(rank|worker) 1 on ")
                        self.assertIn("'b'", text)
                        self.assertIn("memory", text)
                        self.assertNotIn("cancelled", text)
                        self.assertNotIn("within", text)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
