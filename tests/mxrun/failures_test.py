#!/usr/bin/env python3
"""The first failure ends the job, is named, and decides the exit code; groups restart. Usage: ... MXRUN"""

import contextlib
import ctypes
import json
import os
import signal
import tempfile
import time

import jobs

HOST = os.uname().nodename
# Waits without children of its own, so that only signals end it.
WAIT = "exec sleep 1000"


class Failures(jobs.JobTest):
    def test_success(self):
        for arguments in (["-n", "4"], ["-n", "2", "-s", "2"], []):
            job = self.run_job(*arguments, "true")
            self.assertEqual((job.code, job.stdout, job.stderr), (0, "", ""))

    def test_starting_is_fast(self):
        best = min(self.seconds("-n", "4", "true") for _ in range(5))
        print(f"mxrun -n 4 true: {best * 1e3:.0f} ms")
        self.assertLess(best, 5)

    def seconds(self, *arguments):
        begin = time.monotonic()
        job = self.start(*arguments).finish()
        seconds = time.monotonic() - begin
        self.assertEqual(job.code, 0, job.stderr)
        return seconds

    def test_exit_code_of_the_first_failure(self):
        job = self.run_job("-n", "3", "sh", "-c", f'[ "$MX_RANK" = 1 ] || {WAIT}; echo reason >&2; exit 7')
        self.assertEqual(job.code, 7)
        self.assertRegex(job.stderr, rf"mxrun: first failure: rank 1 on {HOST} \(node 0, pid \d+\): exit code 7\n")
        self.assertIn("mxrun:   | reason\n", job.stderr)
        self.assertNotIn("rank 0", job.stderr)

    def test_signal_of_the_first_failure(self):
        for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM):
            job = self.run_job("-n", "2", "sh", "-c", f'[ "$MX_RANK" = 1 ] || {WAIT}; kill -{int(number)} $$')
            self.assertEqual(job.code, 128 + number)
            self.assertRegex(job.stderr, f"first failure: rank 1 on .*: killed by {number.name}")

    def test_survivors_have_time_to_report(self):
        self.write("rank", "#!/bin/sh\n"
                   f'cd {self.folder}; if [ "$MX_RANK" = 1 ]; then echo $$ > died; exit 5; fi\n'
                   'while [ ! -s died ]; do sleep 0.01; done; read pid < died\n'
                   'while [ -d /proc/$pid ]; do sleep 0.01; done\n'  # until the agent has seen its end
                   "echo rank 1 is lost >&2; exit 1\n")
        job = self.run_job("-n", "3", self.path("rank"))
        self.assertEqual(job.code, 5)
        self.assertIn("[0:0] rank 1 is lost\n", job.stderr)
        self.assertRegex(job.stderr, r"failed afterwards: rank [02] \(1\), rank [02] \(1\)\n")

    def test_a_program_that_ignores_sigterm(self):
        begin = time.monotonic()
        job = self.run_job("-n", "2", "--grace", "0.5", "sh", "-c",
                           'trap "" TERM; [ "$MX_RANK" = 0 ] && exit 3; while true; do sleep 1; done')
        self.assertEqual(job.code, 3)
        self.assertLess(time.monotonic() - begin, 10 * jobs.SLOW)

    def test_sigterm_comes_before_sigkill(self):
        job = self.run_job("-n", "2", "sh", "-c",
                           f'trap "echo bye; exit 0" TERM; [ "$MX_RANK" = 0 ] && {{ sleep 0.2; exit 3; }}; '
                           "while true; do sleep 0.1; done")
        self.assertEqual(job.code, 3)
        self.assertEqual(job.stdout, "[0:1] bye\n")

    def test_an_early_end_without_failure(self):
        job = self.run_job("-n", "2", "sh", "-c", '[ "$MX_RANK" = 0 ] && exit 0; sleep 0.5; echo done')
        self.assertEqual((job.code, job.stdout), (0, "[0:1] done\n"))

    def test_ranks_that_had_ended_before_the_failure_are_named(self):
        # Rank 9 waits until the agent has seen the ends of ranks 0 to 8.
        wait = (f'cd {self.folder}; for i in 0 1 2 3 4 5 6 7 8; do while [ ! -s ended$i ]; do sleep 0.05; done; '
                'while [ -d /proc/$(cat ended$i) ]; do sleep 0.05; done; done')
        job = self.run_job("-n", "11", "sh", "-c", f'if [ $MX_RANK -lt 9 ]; then echo $$ > {self.path("ended")}$MX_RANK; exit 0; fi; '
                           f'[ $MX_RANK = 9 ] || {WAIT}; {wait}; exit 3')
        self.assertEqual(job.code, 3)
        # Rank 10 ends because of the failure.
        self.assertRegex(job.stderr, rf"mxrun: ended before that, with exit code 0: (rank [0-8] on {HOST}, ){{7}}rank [0-8] on {HOST} and 1 more\n")

    def test_grandchildren_end_with_the_job(self):
        for code in (0, 4):
            job = self.run_job("-n", "2", "sh", "-c",
                               f"sleep 1000 & setsid sleep 1000 & (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &) ; exit {code}")
            self.assertEqual(job.code, code, job.stderr)

    def test_an_agent_that_stops_answering(self):
        job = self.start("-n", "2", "--heartbeat", "0.1", "--dead-after", "1", "sh", "-c", WAIT)
        agent = jobs.wait_for(lambda: job.named("mxrun-agent"), "the agent")[0]
        jobs.wait_for(lambda: len(job.named("sleep")) == 2, "the ranks")
        os.kill(agent, signal.SIGSTOP)
        job.finish()
        self.assertEqual(job.code, 137)
        self.assertRegex(job.stderr, rf"first failure: node 0 \({HOST}\): its agent has not answered for 1000 ms")
        self.assert_nothing_left(job)

    def test_a_job_that_stops_and_goes_on_as_a_whole(self):
        # As when a container or a virtual machine is paused: no process was silent while mxrun ran.
        os.mkfifo(self.path("go"))
        go = os.open(self.path("go"), os.O_RDWR)
        self.addCleanup(os.close, go)
        job = self.start("-n", "2", "--heartbeat", "0.2", "--dead-after", "2", "sh", "-c", f'read line < {self.path("go")}')
        jobs.wait_for(lambda: len(job.named("sh")) == 2, "the ranks")
        pids = list(job.left())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4)  # longer than --dead-after
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the assertion below says more
                os.kill(pid, signal.SIGCONT)
        time.sleep(1)  # for a launcher that would end the job now
        os.write(go, b"\n\n")
        job.finish()
        self.assertEqual((job.code, job.stderr), (0, ""))


class SlowEnds(jobs.JobTest):
    """Killed processes that take long to be gone. Here a tracer, this test, keeps them; elsewhere it is the kernel."""
    SEIZE, ALL = 0x4206, 0x40000000  # PTRACE_SEIZE, __WALL
    OPTIONS = ("--heartbeat", "0.1", "--dead-after", "1", "--grace", "0.2")

    def hold(self, pid):
        if ctypes.CDLL(None, use_errno=True).ptrace(self.SEIZE, pid, None, None) != 0:
            self.skipTest("processes cannot be traced here: " + os.strerror(ctypes.get_errno()))

    def let_go(self, pid):
        jobs.wait_for(lambda: self.state(pid) == "Z", "the kill")
        time.sleep(3)  # much longer than --dead-after
        os.waitpid(pid, self.ALL)

    def state(self, pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    def test_of_what_a_rank_has_left_behind(self):
        job = self.start("-n", "1", *self.OPTIONS, "sh", "-c",
                         f'setsid sh -c "echo \\$\\$ > {self.path("pid")}; exec sleep 1000" & until [ -e {self.path("go")} ]; do sleep 0.05; done')
        pid = int(self.wait_for_lines("pid", 1)[0])
        self.hold(pid)
        self.write("go", "")
        self.let_go(pid)
        job.finish()
        self.assertEqual((job.code, job.stderr), (0, ""))
        self.assert_nothing_left(job)

    def test_of_a_rank(self):
        job = self.start("-n", "2", *self.OPTIONS, "--log-dir", self.path("logs"), "sh", "-c",
                         f'trap "" TERM; echo $$ > {self.path("pid")}$MX_RANK; until [ -e {self.path("go")} ]; do sleep 0.05; done; '
                         f'[ $MX_RANK = 0 ] || exit 3; {WAIT}')
        pid = int(self.wait_for_lines("pid0", 1)[0])
        self.hold(pid)
        self.write("go", "")
        self.let_go(pid)
        job.finish()
        self.assertEqual(job.code, 3, job.stderr)
        described = json.loads(self.read("logs/job.json"))
        self.assertEqual([(p["rank"], p.get("code")) for p in described["processes"]], [(0, 137), (1, 3)])
        self.assert_nothing_left(job)


class Configurations(jobs.JobTest):
    """What the agent finds wrong after the start of the job."""

    def refused(self, pattern, **environment):
        job = self.run_job("-n", "2", "--max-restarts", "3", "--log-dir", self.path("logs"), "sh", "-c", WAIT, **environment)
        self.assertEqual(job.code, 78, job.stderr)
        self.assertRegex(job.stderr, f"^mxrun: first failure: {pattern}\n$")

    def test_a_log_that_cannot_be_written(self):
        os.makedirs(self.path("logs/rank1.out"))
        self.refused(rf"rank 1 on {HOST}: could not be started: cannot write the log .*/rank1.out: Is a directory")

    def test_a_log_that_is_a_link(self):
        self.write("precious", "kept\n")
        os.makedirs(self.path("logs"))
        os.symlink(self.path("precious"), self.path("logs/rank0.err"))
        self.refused(rf"rank 0 on {HOST}: could not be started: cannot write the log .*/rank0.err: expected a file or none, got a symbolic link")
        self.assertEqual(self.read("precious"), "kept\n")

    def test_a_number_of_threads_that_is_none(self):
        self.refused(r"rank 0 on .*: could not be started: \[MX_NUM_THREADS\] expected a number from 1 to 4096, got 'abc'",
                     MX_NUM_THREADS="abc")


class Servers(jobs.JobTest):
    # The workers end when the servers are ready for the signal that tells them to end.
    PROGRAM = ('if [ "$MX_ROLE" = worker ]; then for i in $(seq 0 $((MX_NUM_SERVERS - 1))); do '
               'while [ ! -e {folder}/ready$i ]; do sleep 0.05; done; done; exit {code}; fi; '
               'trap "echo saved; exit {end}" TERM; touch {folder}/ready$MX_RANK; while true; do sleep 0.05; done')

    def program(self, **values):
        return self.PROGRAM.format(folder=tempfile.mkdtemp(dir=self.path(".")), **values)

    def test_servers_are_told_to_end_after_the_workers(self):
        for end in (0, 3):
            job = self.run_job("-n", "2", "-s", "2", "sh", "-c", self.program(code="0", end=end))
            self.assertEqual(job.code, 0, job.stderr)
            self.assertEqual(sorted(job.stdout.splitlines()), ["[0:server0] saved", "[0:server1] saved"])

    def test_a_worker_fails(self):
        job = self.run_job("-n", "2", "-s", "1", "sh", "-c", self.program(code="$((MX_RANK * 6))", end=0))
        self.assertEqual(job.code, 6)
        self.assertIn("first failure: rank 1", job.stderr)

    def test_a_server_fails(self):
        job = self.run_job("-n", "2", "-s", "2", "sh", "-c",
                           f'[ "$MX_ROLE$MX_RANK" = server1 ] && exit 8; {WAIT}')
        self.assertEqual(job.code, 8)
        self.assertIn("first failure: server 1", job.stderr)

    def test_a_server_that_ignores_sigterm(self):
        job = self.run_job("-n", "1", "-s", "1", "--grace", "0.3", "sh", "-c",
                           '[ "$MX_ROLE" = worker ] && { sleep 0.3; exit 0; }; trap "" TERM; while true; do sleep 0.1; done')
        self.assertEqual(job.code, 0, job.stderr)


class Signals(jobs.JobTest):
    def interrupted(self, number, program, *options, twice=False):
        job = self.start("-n", "2", *options, "sh", "-c", f"{program}")
        self.wait_for_ready(job)
        os.kill(job.pid, number)
        if twice:
            self.wait_for_lines("got", 2)
            os.kill(job.pid, number)
        job.finish()
        self.assert_nothing_left(job)
        return job

    def wait_for_ready(self, job):
        jobs.wait_for(lambda: os.path.exists(self.path("ready0")) and os.path.exists(self.path("ready1")), "the ranks")

    def trap(self, number, action):
        return (f'trap "{action}" {number}; touch {self.path("ready")}$MX_RANK; '
                "while true; do sleep 0.05; done")

    def test_interrupt_is_passed_on(self):
        job = self.interrupted(signal.SIGINT, self.trap("INT", "echo INT; exit 0"))
        self.assertEqual(job.code, 130)
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] INT", "[0:1] INT"])
        self.assertEqual(job.stderr, "mxrun: ended by SIGINT\n")

    def test_stopping_the_launcher_is_refused(self):
        job = self.start("-n", "2", "--heartbeat", "0.2", "--dead-after", "2", "sh", "-c",
                         f"touch {self.path('ready')}$MX_RANK; until [ -e {self.path('go')} ]; do sleep 0.05; done; echo done")
        self.wait_for_ready(job)
        os.kill(job.pid, signal.SIGTSTP)
        time.sleep(3)
        self.write("go", "")
        job.finish()
        self.assertEqual((job.code, job.stdout.count("done")), (0, 2), job.stderr)
        self.assertRegex(job.stderr, "^mxrun: Ctrl-Z does not stop a job: .*\n$")

    def test_an_interrupt_after_a_failure_does_not_hide_it(self):
        job = self.start("-n", "2", "--grace", "5", "--events", self.path("events"), "sh", "-c",
                         '[ $MX_RANK = 1 ] && { echo reason >&2; exit 7; }; trap "" TERM; trap "exit 0" INT; while true; do sleep 0.05; done')
        jobs.wait_for(lambda: os.path.exists(self.path("events")) and '"failed"' in self.read("events"), "the failure")
        os.kill(job.pid, signal.SIGINT)
        job.finish()
        self.assertEqual(job.code, 130)
        self.assertRegex(job.stderr, r"mxrun: ended by SIGINT\nmxrun: first failure: rank 1 on .*: exit code 7\n")
        self.assertIn("mxrun:   | reason\n", job.stderr)

    def test_interrupt_then_term_then_kill(self):
        job = self.interrupted(signal.SIGINT, 'trap "" INT; ' + self.trap("TERM", "echo TERM"), "--grace", "1")
        self.assertEqual(job.code, 130)
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] TERM", "[0:1] TERM"])

    def test_term(self):
        job = self.interrupted(signal.SIGTERM, self.trap("TERM", "echo TERM; exit 0"))
        self.assertEqual(job.code, 143)
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] TERM", "[0:1] TERM"])

    def test_hangup(self):
        self.assertEqual(self.interrupted(signal.SIGHUP, self.trap("TERM", "exit 0")).code, 129)

    def test_twice_kills_at_once(self):
        begin = time.monotonic()
        job = self.interrupted(signal.SIGINT, 'trap "" TERM; ' + self.trap("INT", f"echo >> {self.path('got')}"),
                               "--grace", "600", twice=True)
        self.assertEqual(job.code, 130)
        self.assertLess(time.monotonic() - begin, 60)

    def test_ignored_interrupt_does_nothing(self):
        job = self.start("-n", "2", "sh", "-c", f'touch {self.path("ready")}$MX_RANK; sleep 0.5',
                         before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.wait_for_ready(job)
        os.kill(job.pid, signal.SIGINT)
        self.assertEqual(job.finish().code, 0, job.stderr)

    def test_a_signal_to_the_agent_ends_the_job(self):
        job = self.start("-n", "2", "sh", "-c", self.trap("TERM", "exit 0"))
        self.wait_for_ready(job)
        os.kill(job.named("mxrun-agent")[0], signal.SIGTERM)
        self.assertEqual(job.finish().code, 143)
        self.assert_nothing_left(job)


class Restarts(jobs.JobTest):
    SHOW = f'echo $MX_RANK $MX_EPOCH $MX_RESTART_COUNT $MX_INCARNATION >> {{}}; [ $MX_RANK = 1 ] || [ $MX_RESTART_COUNT -ge {{}} ] || {WAIT}; '

    def test_the_group_starts_again(self):
        show = self.SHOW.format(self.path("starts"), 2)
        job = self.run_job("-n", "2", "--restart", "group", "--max-restarts", "3", "--log-dir", self.path("logs"),
                           "--events", self.path("events"), "sh", "-c", show + "[ $MX_RESTART_COUNT = 2 ] || exit 7")
        self.assertEqual(job.code, 0, job.stderr)
        starts = [tuple(map(int, line.split())) for line in self.read("starts").splitlines()]
        self.assertEqual(sorted(start[:3] for start in starts), [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 0), (1, 1, 1), (1, 2, 2)])
        self.assertEqual(len({start[3] for start in starts}), 6)
        self.assertIn("mxrun: restart 2 of 3", job.stderr)
        self.assertIn("first failure: rank 1", job.stderr)
        self.assertTrue(os.path.exists(self.path("logs/rank0.restart2.out")))
        described = json.loads(self.read("logs/job.json"))
        self.assertEqual((described["restarts"], len(described["processes"])), (2, 6))
        self.assertEqual(self.read("events").count('"restart"'), 2)

    def test_restarts_are_counted(self):
        show = self.SHOW.format(self.path("starts"), 9)
        job = self.run_job("-n", "2", "--max-restarts", "2", "sh", "-c", show + "exit $((7 + MX_RESTART_COUNT))")
        self.assertEqual(job.code, 9)
        self.assertEqual(len(self.read("starts").splitlines()), 6)

    def test_no_restart_of_a_program_that_cannot_be_executed(self):
        for text, code, reason in (("no program\n", 126, "no program for this machine"),
                                   ("#!/no/such/interpreter\n", 127, "was not found"),
                                   ("#!/dev/null\n", 126, "cannot execute")):
            job = self.run_job("-n", "2", "--restart", "group", "--max-restarts", "5", self.write("junk", text))
            self.assertEqual(job.code, code, job.stderr)
            self.assertRegex(job.stderr, f"could not be started: .*{reason}")
            self.assertNotIn("restart ", job.stderr)

    def test_a_program_that_becomes_not_executable(self):
        program = self.write("program", f'#!/bin/sh\n[ $MX_RANK = 1 ] || {WAIT}\nchmod -x {self.path("program")}; exit 5\n')
        job = self.run_job("-n", "2", "--restart", "group", "--max-restarts", "5", program)
        self.assertEqual(job.code, 126, job.stderr)
        self.assertIn("mxrun: restart 1 of 5", job.stderr)
        self.assertNotIn("restart 2", job.stderr)
        self.assertIn("is not executable", job.stderr)

    def test_no_restart_after_an_interrupt_or_without_the_option(self):
        job = self.run_job("-n", "2", "sh", "-c", "exit 3")
        self.assertEqual(job.code, 3)
        self.assertNotIn("restart", job.stderr)
        job = self.start("-n", "2", "--restart", "group", "sh", "-c", f'touch {self.path("ready")}$MX_RANK; {WAIT}')
        jobs.wait_for(lambda: os.path.exists(self.path("ready1")), "the ranks")
        os.kill(job.pid, signal.SIGINT)
        self.assertEqual(job.finish().code, 130)
        self.assertNotIn("restart", job.stderr)


if __name__ == "__main__":
    jobs.main()
