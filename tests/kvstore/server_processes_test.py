"""Jobs with parameter servers, started by mxrun: results, ends, and processes that are killed."""

import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mxrun"))
import jobs  # noqa: E402

PROGRAM = ""


def role_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return dict(e.split(b"=", 1) for e in file.read().split(b"\0") if b"=" in e)
    except OSError:
        return {}


def processes_of(job, role, rank):
    found = []
    for pid in job.left():
        variables = role_of(pid)
        if variables.get(b"MX_ROLE") == role and variables.get(b"MX_RANK") == str(rank).encode():
            found.append(pid)
    return found


class Servers(unittest.TestCase):
    def run_job(self, *arguments):
        job = jobs.Job(*arguments)
        self.addCleanup(job.kill_all)
        return job.finish()

    def test_rounds_are_the_sums_of_all_workers(self):
        for servers in (1, 2):
            job = self.run_job("-n", 3, "-s", servers, PROGRAM, "dist_sync", 4)
            self.assertEqual(job.code, 0, job.stderr)
            self.assertEqual(len(re.findall(r"ends with -6\b", job.stdout)), 3, job.stdout)
            self.assertEqual(job.left(), {})

    def test_asynchronous_pushes_are_all_applied(self):
        job = self.run_job("-n", 2, "-s", 2, PROGRAM, "dist_async", 5)
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(len(re.findall(r"ends with 15\b", job.stdout)), 2, job.stdout)

    def test_without_servers_the_error_says_what_to_do(self):
        job = self.run_job("-n", 2, PROGRAM, "dist_sync", 1)
        self.assertEqual(job.code, 3)
        self.assertIn("mxrun -n 4 -s 2", job.stderr)

    def kill_one(self, role, rank):
        job = jobs.Job("-n", 2, "-s", 2, PROGRAM, "dist_sync", 1000000)
        self.addCleanup(job.kill_all)
        started = 0
        while started < 2:
            line = job.process.stdout.readline()
            self.assertTrue(line, "the job ended early")
            started += "has started" in line
        pids = processes_of(job, role, rank)
        self.assertEqual(len(pids), 1)
        os.kill(pids[0], signal.SIGKILL)
        job.finish()
        self.assertEqual(job.code, 137, job.stderr)
        self.assertEqual(job.left(), {})
        return job.stderr

    def test_a_killed_server_is_named(self):
        stderr = self.kill_one(b"server", 1)
        self.assertRegex(stderr, r"error: .*server.* 1\b")

    def test_a_killed_worker_is_named(self):
        stderr = self.kill_one(b"worker", 1)
        self.assertRegex(stderr, r"error: .*(worker|rank) 1\b")


if __name__ == "__main__":
    jobs.MXRUN, PROGRAM = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
