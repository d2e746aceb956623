#!/usr/bin/env python3
"""Ranks that communicate find each other through mxrun, and learn of each other's end. Usage: ... MXRUN RANK_PROGRAM"""

import ctypes
import os
import random
import resource
import signal
import sys
import time

import jobs

PROGRAM = ""
HOST = os.uname().nodename


class Ranks(jobs.JobTest):
    def start_ranks(self, mode, count, *options, transport="auto"):
        for rank in range(count):
            if os.path.exists(self.path(f"ready{rank}")):
                os.remove(self.path(f"ready{rank}"))
        job = self.start("-n", count, *options, PROGRAM, mode, self.folder, MX_TRANSPORT=transport)
        def pids():
            try:
                found = [self.read(f"ready{rank}").strip() for rank in range(count)]
            except OSError:
                return None
            return list(map(int, found)) if all(found) else None
        return job, jobs.wait_for(pids, "the ranks")

    def test_ranks_find_each_other(self):
        for count in (1, 2, 4):
            job = self.run_job("-n", count, "--no-tag-output", PROGRAM, "sum")
            self.assertEqual(job.code, 0, job.stderr)
            self.assertEqual(job.stdout, f"{count * (count + 1) // 2}\n" * count)

    def test_a_rank_without_descriptors_is_named_at_once(self):
        # Where exactly a rank runs out of them depends on the libraries, so all limits are tried up to one that suffices.
        for transport in ("auto", "tcp"):
            for limited in (0, 1):
                codes = []
                for limit in [*range(5, 14, jobs.SLOW), 20]:
                    with self.subTest(transport=transport, rank=limited, limit=limit):
                        program = self.write("limited", f"#!/bin/sh\n[ $MX_RANK != {limited} ] || ulimit -n {limit}\n"
                                                        'exec "$@"\n')
                        job = self.run_job("-n", 2, "--timeout", 60, program, PROGRAM, "sum", MX_TRANSPORT=transport)
                        codes.append(job.code)
                        if job.code == 0:
                            continue
                        self.assertNotRegex(job.stdout + job.stderr, "time limit|in time|still waiting")
                        self.assertNotIn(f"first failure: rank {1 - limited}", job.stderr)
                self.assertNotEqual(codes[0], 0)
                self.assertEqual(codes[-1], 0)

    def run_with_transports(self, usual, other, rank):
        """Three ranks, of which one uses another transport."""
        program = self.write("other", f"#!/bin/sh\n[ $MX_RANK != {rank} ] || export MX_TRANSPORT={other}\n" 'exec "$@"\n')
        return self.run_job("-n", 3, "--timeout", 60, program, PROGRAM, "loop", self.folder, MX_TRANSPORT=usual)

    def test_ranks_with_different_transports_say_so(self):
        for usual, other in (("tcp", "shm+tcp"), ("shm+tcp", "tcp"), ("shm", "tcp"), ("tcp", "shm")):
            for rank in (0, 1):
                with self.subTest(usual=usual, other=other, rank=rank):
                    job = self.run_with_transports(usual, other, rank)
                    self.assertEqual(job.code, 1, job.stderr)
                    errors = job.stdout.splitlines()
                    self.assertTrue(errors)
                    for error in errors:
                        self.assertRegex(error, rf"'({usual}|{other})' on rank [12] .*'({other}|{usual})' on rank 0 .* \(from MX_TRANSPORT\)".replace("+", r"\+"))
                    # If rank 0 differs, any of the others may find that first.
                    self.assertRegex(job.stderr, "first failure: rank " + ("1" if rank == 1 else "[12]"))

    def test_why_a_rank_does_not_join_is_told_though_it_ends_at_once(self):
        for rank in (0, 1, 2):
            for usual in ("tcp", "shm", "shm+tcp"):
                with self.subTest(rank=rank, usual=usual):
                    job = self.run_with_transports(usual, "pigeon", rank)
                    self.assertEqual(job.code, 1, job.stderr)
                    errors = job.stdout.splitlines()
                    self.assertTrue(errors)
                    for error in errors:
                        self.assertIn("expected a transport among", error)
                    self.assertIn(f"first failure: rank {rank} ", job.stderr)

    def test_survivors_name_a_killed_rank_at_once(self):
        for transport in ("shm", "tcp", "shm+tcp"):
            job, pids = self.start_ranks("loop", 3, transport=transport)
            killed_at = time.monotonic()
            os.kill(pids[1], signal.SIGKILL)
            job.finish()
            self.assertEqual(job.code, 137, job.stderr)
            self.assertIn("first failure: rank 1", job.stderr)
            lines = dict(line.split(" ", 1) for line in job.stdout.splitlines())
            self.assertEqual(set(lines), {"[0:0]", "[0:2]"}, job.stderr)
            for line in lines.values():
                at, text = line.split(" ", 1)
                self.assertIn("rank 1", text)
                print(f"after {(float(at) - killed_at) * 1e3:.1f} ms: {text}")
                self.assertLess(float(at) - killed_at, 10)
            self.assert_nothing_left(job)

    def test_a_stopped_rank_is_found_by_its_heartbeats(self):
        job, pids = self.start_ranks("loop", 3, "--heartbeat", "0.2", "--dead-after", "2")
        time.sleep(1)  # for a heartbeat that carries a step
        os.kill(pids[2], signal.SIGSTOP)
        job.finish()
        self.assertEqual(job.code, 137, job.stderr)
        self.assertRegex(job.stderr, "first failure: rank 2 on .*heartbeat.*at step [0-9]+.*SIGKILL")
        self.assertEqual(job.stdout.count("rank 2"), 2, job.stdout)
        self.assert_nothing_left(job)

    def test_a_rank_killed_at_any_moment_is_named(self):
        for number in jobs.round_numbers(50 if jobs.SLOW == 1 else 10):
            chance = random.Random(number)
            transport, victim = ("shm", "tcp", "shm+tcp")[number % 3], chance.randrange(3)
            pause = chance.random() * 0.03
            with self.round(number, transport=transport, victim=f"rank {victim}", pause=f"{pause:.4f} s"):
                job, pids = self.start_ranks("loop", 3, transport=transport)
                time.sleep(pause)
                os.kill(pids[victim], signal.SIGKILL)
                job.finish()
                self.assertEqual(job.code, 137, job.stderr)
                self.assertIn(f"first failure: rank {victim} on {HOST}", job.stderr)
                self.assertEqual(len(job.stdout.splitlines()), 2, job.stdout)
                for line in job.stdout.splitlines():
                    self.assertIn(f"rank {victim}", line)
                self.assert_nothing_left(job)

    def test_a_rank_that_is_stuck_is_named(self):
        # Its heartbeats come, and it never ends: only the time limit of the others finds it.
        for transport in ("shm", "tcp", "shm+tcp"):
            job, _ = self.start_ranks("stuck", 3, "--timeout", "4", transport=transport)
            job.finish()
            self.assertEqual(job.code, 137, job.stderr)
            self.assertRegex(job.stderr, rf"first failure: rank 1 on {HOST} \(.*\): does not go on: others waited for it "
                             r"until their time limit \(at step 10\)")
            self.assertRegex(job.stderr, r"failed afterwards: rank [02] \(1\), rank [02] \(1\)\n")
            # On a busy machine, one of them may learn of the end of the other before its own time limit.
            self.assertEqual(len(job.stdout.splitlines()), 2, job.stdout)
            self.assertIn("rank 1 on", job.stdout)
            self.assert_nothing_left(job)

    def test_calls_that_differ_are_an_error_of_every_rank(self):
        parts = {"count": ("2", "1"), "type": ("i32", "f32"), "call": ("broadcast", "allreduce")}
        for transport in ("shm", "tcp", "shm+tcp"):
            for mode, words in parts.items():
                with self.subTest(mode=mode, transport=transport):
                    job = self.start("-n", 3, "--timeout", "20", PROGRAM, mode, self.folder, MX_TRANSPORT=transport).finish()
                    self.assertEqual(job.code, 1, job.stderr)
                    lines = job.stdout.splitlines()
                    self.assertEqual({line.split(" ")[0] for line in lines}, {f"[0:{rank}]" for rank in range(3)}, job.stdout)
                    for word in words:
                        self.assertTrue(any(word in line for line in lines), job.stdout)
                    for line in lines:
                        self.assertIn("rank", line.split(" ", 2)[2])
                    self.assertNotIn("time limit", job.stdout + job.stderr)
                    self.assert_nothing_left(job)

    def test_a_rank_that_continues_in_time_is_no_failure(self):
        for transport in ("shm", "tcp", "shm+tcp"):
            job, pids = self.start_ranks("long", 3, "--dead-after", "20", transport=transport)
            for rank in (1, 0, 2):
                os.kill(pids[rank], signal.SIGSTOP)
                time.sleep(0.3)
                os.kill(pids[rank], signal.SIGCONT)
            job.finish()
            self.assertEqual((job.code, job.stderr), (0, ""), transport)
            self.assertEqual(sorted(job.stdout.splitlines()), [f"[0:{rank}] 6" for rank in range(3)])

    def test_a_rank_that_ends_early_is_named(self):
        job, _ = self.start_ranks("early", 2)
        job.finish()
        self.assertEqual(job.code, 1, job.stderr)
        self.assertIn("first failure: rank 1", job.stderr)
        self.assertRegex(job.stdout, r"^\[0:1\] [0-9.]+ .*rank 0")
        # mxrun itself names the rank whose end the failure follows from.
        self.assertIn(f"mxrun: ended before that, with exit code 0: rank 0 on {HOST}\n", job.stderr)

    def test_a_rank_that_ends_before_it_joins_a_group_is_named_at_once(self):
        for mode, group in (("never", "world"), ("group", "group1")):
            for transport in ("shm", "tcp", "shm+tcp"):
                with self.subTest(mode=mode, transport=transport):
                    # The time limit is ten minutes, longer than that of the test.
                    job = self.start("-n", 3, "--timeout", 600, PROGRAM, mode, self.folder,
                                     MX_TRANSPORT=transport).finish()
                    self.assertEqual(job.code, 1, job.stderr)
                    self.assertRegex(job.stdout, rf"\[world\] expected all 3 ranks to join group '{group}', got rank 1 "
                                                 r"on host \S+, which ended with exit status 0 before it joined\n")
                    self.assertIn(f"mxrun: ended before that, with exit code 0: rank 1 on {HOST}\n", job.stderr)

    def test_ranks_without_shared_memory_use_tcp_and_say_so(self):
        def no_files():
            # As on a host whose memory for files is full. Standard streams are pipes, which have no such limit.
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        job = self.start("-n", 3, "--no-tag-output", PROGRAM, "sum", before=no_files).finish()
        self.assertEqual((job.code, job.stdout), (0, "6\n" * 3), job.stderr)
        self.assertRegex(job.stderr, r"warning: \[world\] no shared memory, so TCP is used: .*(limit|large|File)")
        self.assert_nothing_left(job)

    def test_a_full_dev_shm_changes_nothing(self):
        def fill():
            # A mount of its own, which only this job sees.
            call = ctypes.CDLL(None, use_errno=True)
            new_mounts, private, recursive = 0x20000, 1 << 18, 1 << 14
            if call.unshare(new_mounts) != 0 or call.mount(b"none", b"/", None, private | recursive, None) != 0 or \
                    call.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4k") != 0:
                os._exit(99)
            with open("/dev/shm/full", "wb") as file:
                file.write(b"x" * 4096)
        job = self.start("-n", 3, "--no-tag-output", PROGRAM, "sum", before=fill).finish()
        if job.code == 99 or job.code == 255:
            self.skipTest("mounts are not allowed here")
        self.assertEqual((job.code, job.stdout, job.stderr), (0, "6\n" * 3, ""))
        self.assert_nothing_left(job)

    def test_top_shows_the_steps_of_a_running_job(self):
        name = f"top-{os.getpid()}"
        job, pids = self.start_ranks("loop", 3, "--job-id", name)
        table = self.run_job("top", name, "--once")
        self.assertEqual((table.code, table.stderr), (0, ""))
        lines = table.stdout.splitlines()
        self.assertRegex(lines[0], f"^{name}: [0-9]+ s$")
        self.assertEqual(lines[1].split()[:7], ["ROLE", "RANK", "NODE", "HOST", "PID", "STATE", "STEP"])
        for rank, line in enumerate(lines[2:]):
            self.assertEqual(line.split()[:6], ["worker", str(rank), "0", HOST, str(pids[rank]), "running"])
        # It ends with the job. Rates come with the second table.
        tables = self.start("top", name, "--interval", "0.6")
        time.sleep(1.5)
        os.kill(pids[1], signal.SIGKILL)
        job.finish()
        tables.finish()
        self.assertEqual((tables.code, tables.stderr), (0, ""))
        self.assertRegex(tables.stdout, r"worker +0 +0 .* running +[0-9]+ +[0-9.]+ +[0-9]+ +[0-9.]+\n")
        self.assertGreater(tables.stdout.count(name), 1)
        gone = self.run_job("top", name)
        self.assert_one_line(gone, 2, f"top: expected a running job, got '{name}'")

    def test_tune_prints_the_cost_model(self):
        job = self.run_job("-n", "2", "--tune")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertTrue(job.stdout.startswith("cost model of tcp with 2 ranks\n"), job.stdout)
        self.assertGreater(len(job.stdout.splitlines()), 3)

    def test_a_group_that_restarts_finds_each_other_again(self):
        job, pids = self.start_ranks("loop", 2, "--restart", "group")
        for rank in (0, 1):
            os.remove(self.path(f"ready{rank}"))
        os.kill(pids[0], signal.SIGKILL)
        jobs.wait_for(lambda: all(os.path.exists(self.path(f"ready{rank}")) for rank in (0, 1)), "the second start")
        os.kill(job.pid, signal.SIGTERM)
        self.assertEqual(job.finish().code, 143, job.stderr)
        self.assertIn("mxrun: restart 1 of 1", job.stderr)
        self.assert_nothing_left(job)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
