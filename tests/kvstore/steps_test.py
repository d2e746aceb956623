"""A process of a job is killed, stopped, or stopped and continued while a rank is at each named step.
Usage: ... MXRUN STEPS_PROGRAM"""

import os
import random
import re
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mxrun"))
import jobs  # noqa: E402

PROGRAM = ""
HOST = os.uname().nodename
DEAD_AFTER = 1.5  # seconds
CALLS = ("start", "joined", "between", "allreduce", "large_allreduce", "broadcast", "all_to_all", "receive", "barrier", "end")
STORE = ("start", "created", "push", "pushed", "barrier", "end")


def process_of(job, role, rank):
    def find():
        for pid in job.left():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    variables = file.read().split(b"\0")
            except OSError:
                continue
            if b"MX_ROLE=" + role.encode() in variables and b"MX_RANK=%d" % rank in variables:
                return pid
        return None
    return jobs.wait_for(find, f"{role} {rank}")


class Steps(jobs.JobTest):
    def start_at(self, kind, step, transport="auto", options=()):
        """Starts a job and waits until rank 1 is at the step."""
        for name in ("at", "go"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        servers = 1 if kind == "dist_sync" else 0
        job = self.start("-n", 3, "-s", servers, *options, PROGRAM, kind, step, self.folder, MX_TRANSPORT=transport)
        jobs.wait_for(lambda: os.path.exists(self.path("at")), f"rank 1 at {step}")
        return job

    def go(self):
        with open(self.path("go"), "w", encoding="utf-8"):
            pass

    def check_named(self, job, name, step):
        self.assertEqual(job.code, 137, job.stderr)
        self.assertRegex(job.stderr, f"first failure: {name} on {HOST}")
        errors = re.findall("error: .*", job.stdout)
        # Ranks that were through before it happened have no error: nobody waits for a rank that is in a barrier.
        if step not in ("start", "barrier", "end"):
            # On a busy machine mxrun may end a rank (143) before it has said anything.
            self.assertEqual(len(errors) + job.stderr.count("(143)"), 3 if name.startswith("server") else 2,
                             job.stdout + job.stderr)
        for error in errors:
            self.assertRegex(error, name.replace("rank", "(rank|worker)") + " on ")
        self.assert_nothing_left(job)

    def each(self, cases, do):
        """Calls do() with every case, or under a sanitizer with a few."""
        random.seed(17)
        if jobs.SLOW > 1:
            cases = random.sample(cases, max(2, len(cases) // 4))
        for number in jobs.round_numbers(1):
            for case in cases:
                with self.round(number, case=case):
                    do(*case)

    def kill(self, kind, transport, step, role, rank):
        job = self.start_at(kind, step, transport)
        victim = process_of(job, role, rank)
        os.kill(victim, signal.SIGKILL)
        # Its parent knows by then. Otherwise all workers might end first, and then nobody needs a server any more.
        jobs.wait_for(lambda: not os.path.exists(f"/proc/{victim}"), f"the end of {role} {rank}")
        self.go()
        if step == "end" and role == "server":
            # The last worker may end while the server still dies. Then nothing is missing.
            job.finish()
            if job.code == 0:
                return self.assert_nothing_left(job)
            return self.check_named(job, f"server {rank}", step)
        self.check_named(job.finish(), f"{'rank' if role == 'worker' else role} {rank}", step)

    def stop(self, kind, transport, step, role, rank):
        job = self.start_at(kind, step, transport, ("--heartbeat", 0.2, "--dead-after", DEAD_AFTER, "--timeout", 600))
        os.kill(process_of(job, role, rank), signal.SIGSTOP)
        begin = time.monotonic()
        self.go()
        self.check_named(job.finish(), f"{'rank' if role == 'worker' else role} {rank}", step)
        # No process has waited for the time limit of its call.
        self.assertLess(time.monotonic() - begin, 20 * DEAD_AFTER * jobs.SLOW)

    def pause(self, kind, transport, step, role, rank):
        job = self.start_at(kind, step, transport, ("--dead-after", 60))
        victim = process_of(job, role, rank)
        os.kill(victim, signal.SIGSTOP)
        self.go()
        time.sleep(0.2)
        os.kill(victim, signal.SIGCONT)
        job.finish()
        self.assertEqual((job.code, job.stderr), (0, ""), job.stdout)
        self.assertEqual(job.stdout.count("has ended"), 3)

    def cases(self):
        found = [("comm", transport, step, "worker", 1) for transport in ("shm", "tcp", "shm+tcp") for step in CALLS]
        found += [(kind, "shm", step, "worker", 1) for kind in ("dist_allreduce", "by_priority") for step in STORE]
        found += [("dist_sync", "tcp", step, role, rank) for step in STORE for role, rank in (("worker", 1), ("server", 0))]
        return found

    def test_kill(self):
        self.each(self.cases(), self.kill)

    def test_stop(self):
        # Before it has joined, a process sends no heartbeats: test_stop_before_joining. A server that is stopped when
        # all workers have ended is no failure.
        cases = [case for case in self.cases() if case[2] != "start" and case[2:4] != ("end", "server")]
        # Each takes the time until a silence is noticed.
        self.each(cases if "MX_TEST_ROUNDS" in os.environ else cases[::2], self.stop)

    def test_stop_before_joining(self):
        for kind, transport in (("comm", "shm"), ("comm", "tcp"), ("comm", "shm+tcp"), ("dist_sync", "tcp")):
            with self.subTest(kind=kind, transport=transport):
                job = self.start_at(kind, "start", transport, ("--timeout", 2))
                os.kill(process_of(job, "worker", 1), signal.SIGSTOP)
                job.finish()
                self.assertEqual(job.code, 137, job.stderr)
                self.assertRegex(job.stdout, "error: .*(rank|worker) 1")
                self.assertRegex(job.stderr, f"first failure: rank 1 on {HOST} .*: does not go on")
                self.assert_nothing_left(job)

    def test_stop_and_continue(self):
        # A server that is stopped when all workers have ended is killed, so it cannot be continued.
        self.each([case for case in self.cases() if case[2:4] != ("end", "server")], self.pause)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
