#!/usr/bin/env python3
"""Whatever part of a job is killed, nothing is left of it, grandchildren included. Usage: ... MXRUN

MX_TEST_ROUNDS=1000 kills so many jobs in each test. Without it, the first test kills 50 jobs and the second 20, because
each takes up to a few seconds. At its end a test prints, for each kind of kill, the number of jobs and the longest time
from the kill until mxrun had ended and nothing of the job was left.
"""

import os
import random
import signal
import time

import jobs

# A rank with grandchildren of all kinds: in its group, in a session of their own, without parent, deaf to signals,
# and without the variables that would show where they come from.
RANK = """#!/bin/sh
sleep 1000 &
setsid sleep 1001 &
(setsid sh -c 'trap "" TERM INT HUP; while true; do sleep 1002; done' &)
(setsid env -i /bin/sleep 4{number} &)
touch {folder}/ready$MX_RANK
exec sleep 1003
"""


class Kills(jobs.JobTest):
    def setUp(self):
        super().setUp()
        self.number = str(os.getpid())
        self.times = {}  # by what was killed: number of jobs, longest time until the end
        self.addCleanup(self.print_times)

    def start_job(self):
        for rank in (0, 1):
            if os.path.exists(self.path(f"ready{rank}")):
                os.remove(self.path(f"ready{rank}"))
        self.write("rank", RANK.format(folder=self.folder, number=self.number))
        job = self.start("-n", "2", "--grace", "0.5", "--heartbeat", "0.1", "--dead-after", "2", self.path("rank"))
        jobs.wait_for(lambda: all(os.path.exists(self.path(f"ready{r}")) for r in (0, 1)), "the ranks")
        jobs.wait_for(lambda: len(self.ranks(job)) == 2, "the ranks themselves")
        # The processes without environment are known by their argument.
        jobs.wait_for(lambda: len(self.unmarked()) == 2, "the grandchildren without environment")
        return job

    def unmarked(self):
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/cmdline", "rb") as file:
                        if file.read() == f"/bin/sleep\0004{self.number}\0".encode():
                            found.append(int(name))
                except OSError:
                    pass
        return found

    def ranks(self, job):
        """The processes of the ranks themselves: those that wait 1003 seconds."""
        found = []
        for pid in job.named("sleep"):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if b"1003" in file.read():
                        found.append(pid)
            except OSError:
                pass
        return sorted(found)

    def check(self, job, code):
        job.finish()
        self.assertEqual(job.code, code, job.stderr)
        self.assert_nothing_left(job)
        jobs.wait_for(lambda: not self.unmarked(), "the end of the grandchildren without environment")

    def note_time(self, kind, begin):
        count, longest = self.times.get(kind, (0, 0.0))
        self.times[kind] = count + 1, max(longest, time.monotonic() - begin)

    def print_times(self):
        for kind, (count, longest) in self.times.items():
            print(f"{kind}: {count} jobs, the longest end took {longest:.2f} s")

    def kill_one_of_the_job(self, target):
        job = self.start_job()
        begin = time.monotonic()
        if target == "rank":
            os.kill(self.ranks(job)[0], signal.SIGKILL)
            self.check(job, 137)
            self.assertIn("killed by SIGKILL", job.stderr)
        elif target == "launcher":
            os.kill(job.pid, signal.SIGKILL)
            self.check(job, -9)
        elif target == "agent":
            os.kill(job.named("mxrun-agent")[0], signal.SIGKILL)
            self.check(job, 137)
            self.assertIn("first failure: node 0", job.stderr)
        elif target == "guardian":
            os.kill(job.named("mxrun-guard")[0], signal.SIGKILL)
            self.check(job, 137)
        elif target == "agent and guardian":
            jobs.kill_if_there(job.named("mxrun-guard") + job.named("mxrun-agent"))
            self.check(job, 137)
        elif target == "launcher and agent":
            os.kill(job.pid, signal.SIGKILL)
            jobs.kill_if_there(job.named("mxrun-agent"))
            self.check(job, -9)
        elif target == "stopped agent, launcher":
            os.kill(job.named("mxrun-agent")[0], signal.SIGSTOP)
            os.kill(job.pid, signal.SIGKILL)
            self.check(job, -9)
        elif target == "stopped agent":
            os.kill(job.named("mxrun-agent")[0], signal.SIGSTOP)
            self.check(job, 137)
        elif target == "stopped rank":
            ranks = self.ranks(job)
            os.kill(ranks[0], signal.SIGSTOP)
            os.kill(ranks[1], signal.SIGKILL)
            self.check(job, 137)
        elif target == "stopped launcher":
            os.kill(job.pid, signal.SIGSTOP)
            os.kill(self.ranks(job)[0], signal.SIGKILL)
            os.kill(job.pid, signal.SIGCONT)
            self.check(job, 137)
        self.note_time(target, begin)

    def test_ranks_end_even_if_all_of_mxrun_is_killed_at_once(self):
        """Nobody is left who could end the descendants that have a session of their own; docs/mxrun.md says so."""
        job = self.start_job()
        for pid in [job.pid, *job.named("mxrun-guard"), *job.named("mxrun-agent")]:
            os.kill(pid, signal.SIGSTOP)  # so that none reacts to the end of another
        # The kernel may end the others together with the launcher.
        jobs.kill_if_there([job.pid, *job.named("mxrun-guard"), *job.named("mxrun-agent")])
        job.finish()
        jobs.wait_for(lambda: not self.ranks(job), "the end of the ranks")
        self.addCleanup(lambda: jobs.kill_if_there(self.unmarked()))

    def test_nothing_is_left(self):
        targets = ["rank", "launcher", "agent", "guardian", "agent and guardian", "launcher and agent",
                   "stopped agent, launcher", "stopped rank", "stopped launcher", "stopped agent"]
        for number in jobs.round_numbers(50 if jobs.SLOW == 1 else 20):
            target = targets[number % len(targets)]
            with self.round(number, target=target):
                self.kill_one_of_the_job(target)

    def test_kills_while_the_job_starts(self):
        for number in jobs.round_numbers(20):
            chance = random.Random(number)
            # At some moment of the start: after so many processes are there.
            wanted, which = chance.randrange(1, 7), chance.random()
            with self.round(number, wanted=f"{wanted} processes", which=f"{which:.3f} of them"):
                job = self.start("-n", "2", "--grace", "0.5", "sh", "-c", "setsid sleep 1000 & exec sleep 1000")
                jobs.wait_for(lambda: len(job.left()) >= wanted, f"{wanted} processes")
                victims = sorted(job.left())
                victim = victims[int(which * len(victims))]
                begin = time.monotonic()
                jobs.kill_if_there([victim])
                # A grandchild that is killed concerns nobody.
                jobs.wait_for(lambda: job.process.poll() is not None or len(job.left()) >= 6, "the end or the whole job")
                if job.process.poll() is None:
                    os.kill(job.pid, signal.SIGKILL)
                job.finish()
                self.assertNotEqual(job.code, 0)
                self.assert_nothing_left(job)
                self.note_time("while it starts", begin)


if __name__ == "__main__":
    jobs.main()
