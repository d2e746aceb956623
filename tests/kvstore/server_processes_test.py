"""Jobs with parameter servers, started by mxrun: results, ends, and processes that are killed."""

import os
import re
import resource
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mxrun"))
import jobs  # noqa: E402

PROGRAM = ""
HOST = socket.gethostname()


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
    def run_job(self, *arguments, **environment):
        job = jobs.Job(*arguments, **environment)
        self.addCleanup(job.kill_all)
        return job.finish()

    def test_rounds_are_the_sums_of_all_workers(self):
        for servers in (1, 2):
            job = self.run_job("-n", 3, "-s", servers, PROGRAM, "dist_sync", 4)
            self.assertEqual(job.code, 0, job.stderr)
            self.assertEqual(len(re.findall(r"ends with -6\b", job.stdout)), 3, job.stdout)
            self.assertEqual(job.left(), {})

    def test_rounds_over_encrypted_connections_are_the_sums_of_all_workers(self):
        job = self.run_job("-n", 3, "-s", 2, "--tls", PROGRAM, "dist_sync", 4)
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

    def test_stores_without_servers_have_workers_only_in_any_order(self):
        for types in ("dist_sync+dist_allreduce", "dist_allreduce+dist_sync"):
            job = self.run_job("-n", 2, "-s", 2, PROGRAM, types, 2)
            self.assertEqual(job.code, 0, job.stderr)
            self.assertEqual(len(re.findall(r"ends with -3\b", job.stdout)), 2, job.stdout)

    def test_the_worker_that_fails_is_the_first_failure(self):
        for i in range(jobs.rounds(24)):
            how = ("throws", "aborts")[i % 2]
            worker, servers = i % 3, 1 + i // 2 % 2
            store = "dist_allreduce" if i % 6 == 5 else "dist_sync"
            job = self.run_job("-n", 3, "-s", servers, PROGRAM, store, 1000, how, worker)
            self.assertEqual(job.code, 3 if how == "throws" else 134, job.stderr)
            self.assertRegex(job.stderr, f"first failure: rank {worker} on ")

    def test_a_worker_that_ends_early_ends_the_rounds_of_the_others(self):
        for servers in (1, 2):
            job = self.run_job("-n", 2, "-s", servers, PROGRAM, "dist_sync", 1000, "ends", 1)
            self.assertEqual(job.code, 3, job.stderr)
            self.assertRegex(job.stderr, rf"error: .*worker 1 on host {HOST} .*'1'.* has left")

    def test_workers_that_leave_without_handlers_at_exit_are_no_failure(self):
        for store, servers in (("dist_sync", 2), ("dist_async", 1), ("dist_allreduce", 0)):
            job = self.run_job("-n", 2, "-s", servers, PROGRAM, store, 3, "leaves")
            self.assertEqual(job.code, 0, job.stderr)
            self.assertEqual(len(re.findall("ends with", job.stdout)), 2, job.stdout)

    def test_a_failed_value_is_told_to_the_others(self):
        job = self.run_job("-n", 2, "-s", 1, PROGRAM, "dist_sync", 1000, "spoils", 1)
        self.assertEqual(job.code, 3, job.stderr)
        self.assertRegex(job.stderr, rf"\[0:0\] error: .*'1' from worker 1 on host {HOST}.*the batch is spoilt")
        self.assertRegex(job.stderr, "first failure: rank 1 on ")
        job = self.run_job("-n", 2, PROGRAM, "dist_allreduce", 1000, "spoils", 1)
        self.assertEqual(job.code, 3, job.stderr)
        self.assertRegex(job.stderr, rf"\[0:0\] error: .*'1'.*the batch is spoilt.* on rank 1 on host {HOST}")

    def test_a_forked_child_tells_nobody_anything(self):
        # A child has none of the other threads, so the memory that only their stacks point to looks leaked there.
        sanitizer = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0"]))
        for store in ("dist_sync", "dist_allreduce"):
            job = self.run_job("-n", 2, "-s", 1, PROGRAM, store, 5, "forks", 1, ASAN_OPTIONS=sanitizer)
            self.assertEqual(job.code, 0, job.stderr)
            self.assertEqual(len(re.findall(r"ends with -3\b", job.stdout)), 2, job.stdout)

    def kill_one(self, role, rank, number=signal.SIGKILL):
        job = jobs.Job("-n", 2, "-s", 2, PROGRAM, "dist_sync", 1000000)
        self.addCleanup(job.kill_all)
        started = 0
        while started < 2:
            line = job.process.stdout.readline()
            self.assertTrue(line, "the job ended early")
            started += "has started" in line
        pids = processes_of(job, role, rank)
        self.assertEqual(len(pids), 1)
        os.kill(pids[0], number)
        job.finish()
        self.assertEqual(job.code, 128 + number, job.stderr)
        self.assertEqual(job.left(), {})
        return job.stderr

    def test_a_killed_server_is_named(self):
        stderr = self.kill_one(b"server", 1)
        self.assertRegex(stderr, rf"error: .*server.* 1 on host {HOST}\b")
        self.assertNotIn("at step -1", stderr)

    def test_a_server_that_somebody_ends_is_the_first_failure(self):
        stderr = self.kill_one(b"server", 1, signal.SIGTERM)
        self.assertRegex(stderr, "first failure: server 1 on ")

    def test_a_killed_worker_is_named(self):
        stderr = self.kill_one(b"worker", 1)
        self.assertRegex(stderr, rf"error: .*(worker|rank) 1 on host {HOST}\b")

    def test_a_server_without_descriptors_waits_instead_of_spinning(self):
        job = jobs.Job("-n", 1, "-s", 1, "--dead-after", 100, "--timeout", 100, PROGRAM, "dist_sync", 1000000)
        self.addCleanup(job.kill_all)
        while "has started" not in job.process.stdout.readline():
            self.assertIsNone(job.process.poll())
        (server,), (worker,) = processes_of(job, b"server", 0), processes_of(job, b"worker", 0)
        os.kill(worker, signal.SIGSTOP)  # so that the server has nothing to do
        names = [os.readlink(f"/proc/{server}/fd/{fd}") for fd in os.listdir(f"/proc/{server}/fd")]
        resource.prlimit(server, resource.RLIMIT_NOFILE, (len(names) + 20, len(names) + 20))
        with open("/proc/net/tcp", encoding="ascii") as table:
            entries = [line.split() for line in table]
        port = next(int(e[1].split(":")[1], 16) for e in entries if e[3] == "0A" and f"socket:[{e[9]}]" in names)
        for _ in range(60):
            stranger = socket.create_connection(("127.0.0.1", port))
            self.addCleanup(stranger.close)

        def seconds():
            with open(f"/proc/{server}/stat", encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        time.sleep(0.5)
        before = seconds()
        time.sleep(1.5)
        self.assertLess(seconds() - before, 0.3)


if __name__ == "__main__":
    jobs.MXRUN, PROGRAM = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
