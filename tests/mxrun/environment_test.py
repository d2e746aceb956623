#!/usr/bin/env python3
"""The processes of a job get the environment, the processors and the input that mxrun promises. Usage: ... MXRUN"""

import json
import os
import re
import subprocess
import sys
import tempfile

import jobs

# Prints what a rank sees, as JSON. A job ends with its workers, so they wait until every server has printed.
LOOK = """
import json, os, signal, time
print(json.dumps({
    "env": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0)), "folder": os.getcwd(),
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "blocked": [int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "int_ignored": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    "group_is_own": os.getpgid(0) == os.getpid()}), flush=True)
done, servers = os.environ["LOOK_FOLDER"], int(os.environ["MX_NUM_SERVERS"])
if os.environ["MX_ROLE"] == "server":
    open(os.path.join(done, os.environ["MX_RANK"]), "w").close()
while len(os.listdir(done)) < servers:
    time.sleep(0.01)
"""


class Environments(jobs.JobTest):
    def look(self, *options, processes=1, **job_options):
        with tempfile.TemporaryDirectory() as done:
            job = self.run_job(*options, "--no-tag-output", sys.executable, "-c", LOOK, LOOK_FOLDER=done, **job_options)
        self.assertEqual(job.code, 0, job.stderr)
        seen = [json.loads(line) for line in job.stdout.splitlines()]
        self.assertEqual(len(seen), processes)
        return sorted(seen, key=lambda one: (one["env"]["MX_ROLE"], int(one["env"]["MX_RANK"])))

    def test_time_limits_follow_from_the_timeout(self):
        for timeout, heartbeat, dead_after in (("60", 500, 5000), ("1000", 500, 5000), ("36", 300, 3000), ("3", 200, 2000)):
            env = self.look("-n", "1", "--timeout", timeout)[0]["env"]
            self.assertEqual((env["MX_HEARTBEAT_MS"], env["MX_DEAD_AFTER_MS"]), (str(heartbeat), str(dead_after)))

    def test_variables(self):
        seen = self.look("-n", "3", "-s", "2", "--job-id", "job7", "--timeout", "7", "--heartbeat", "0.25",
                         "--dead-after", "3s", processes=5)
        for index, one in enumerate(seen):
            env = one["env"]
            server = index < 2
            rank = index if server else index - 2
            expected = {
                "MX_ROLE": "server" if server else "worker", "MX_RANK": rank, "MX_WORLD_SIZE": 2 if server else 3,
                "MX_LOCAL_RANK": rank, "MX_LOCAL_WORLD_SIZE": 2 if server else 3, "MX_NODE_RANK": 0, "MX_NUM_SERVERS": 2,
                "MX_JOB_ID": "job7", "MX_EPOCH": 0, "MX_RESTART_COUNT": 0, "MX_TIMEOUT_MS": 7000, "MX_HEARTBEAT_MS": 250,
                "MX_DEAD_AFTER_MS": 3000, "RANK": rank, "WORLD_SIZE": 2 if server else 3, "LOCAL_RANK": rank,
                "MASTER_ADDR": "127.0.0.1", "DMLC_ROLE": "server" if server else "worker", "DMLC_NUM_WORKER": 3,
                "DMLC_NUM_SERVER": 2, "DMLC_PS_ROOT_URI": "127.0.0.1",
            }
            self.assertEqual({name: env.get(name) for name in expected},
                             {name: str(value) for name, value in expected.items()})
            self.assertRegex(env["MX_RDZV"], r"^127\.0\.0\.1:\d+$")
            self.assertEqual(env["DMLC_PS_ROOT_PORT"], env["MX_RDZV"].split(":")[1])
            self.assertRegex(env["MASTER_PORT"], r"^\d+$")
            self.assertTrue(env["MX_DEVICE"])
            # 0, 1, 2, the secret, and the listing of the folder itself.
            self.assertEqual(one["fds"][:4], [0, 1, 2, int(env["MX_SECRET_FD"])])
            self.assertLessEqual(len(one["fds"]), 5)
            self.assertEqual(one["blocked"], [])
            self.assertTrue(one["group_is_own"])
        self.assertEqual(len({one["env"]["MX_INCARNATION"] for one in seen}), 5)
        self.assertEqual(len({one["env"]["MX_RDZV"] for one in seen}), 1)

    def test_variables_of_the_user(self):
        one = self.look("-x", "MX_TEST_A=1 2=3", "-x", "MX_TEST_B", "-x", "MX_NUM_THREADS=5", MX_TEST_B="from here")[0]
        self.assertEqual(one["env"]["MX_TEST_A"], "1 2=3")
        self.assertEqual(one["env"]["MX_TEST_B"], "from here")
        self.assertEqual(one["env"]["MX_NUM_THREADS"], "5")

    def test_arguments_after_the_program_are_the_programs(self):
        job = self.run_job("-n", "1", "echo", "-n", "2", "--help", "--", "-x")
        self.assertEqual(job.stdout, "2 --help -- -x")
        job = self.run_job("-n", "1", "--", "echo", "--dry-run")
        self.assertEqual(job.stdout, "--dry-run\n")

    def test_workers_are_bound_to_cores_of_their_own(self):
        cores = len(os.sched_getaffinity(0))
        if cores < 2:
            self.skipTest("needs two processors")
        seen = self.look("-n", "2", processes=2)
        if seen[0]["cpus"] == seen[1]["cpus"]:
            self.skipTest("the processors are one core, or a quota allows less than two")
        self.assertFalse(set(seen[0]["cpus"]) & set(seen[1]["cpus"]))
        self.assertEqual(int(seen[0]["env"]["MX_NUM_THREADS"]), len(seen[0]["cpus"]))
        everywhere = self.look("-n", "2", "--bind", "none", processes=2)
        self.assertEqual(everywhere[0]["cpus"], everywhere[1]["cpus"])
        self.assertEqual(len(everywhere[0]["cpus"]), cores)
        self.assertGreaterEqual(int(everywhere[0]["env"]["MX_NUM_THREADS"]), 1)

    def test_a_number_of_threads_does_not_turn_binding_off(self):
        expected = self.look("-n", "2", processes=2)
        seen = self.look("-n", "2", processes=2, MX_NUM_THREADS="1")
        self.assertEqual([one["cpus"] for one in seen], [one["cpus"] for one in expected])
        self.assertEqual(seen[0]["env"]["MX_NUM_THREADS"], "1")

    def test_more_workers_than_cores_are_not_bound(self):
        cores = len(os.sched_getaffinity(0))
        if cores > 8:
            self.skipTest("would need many processes")
        seen = self.look("-n", str(cores + 1), processes=cores + 1)
        self.assertEqual(len(seen[0]["cpus"]), cores)
        self.assertEqual(seen[0]["env"]["MX_NUM_THREADS"], "1")

    def test_processes_per_node(self):
        self.assertEqual(len(self.look("--nproc-per-node", "2", processes=2)), 2)
        self.assertEqual(len(self.look("-H", "localhost:4", "--nproc-per-node", "2", processes=2)), 2)
        self.assertEqual(len(self.look("-H", "localhost:4", processes=4)), 4)
        job = self.run_job("--nproc-per-node", "cpu", "--dry-run", "true", MX_NUM_THREADS="3")
        self.assertIn("3 workers", job.stdout)
        self.assertIn("1 workers", self.run_job("--dry-run", "true").stdout)
        gpus = len(os.listdir("/proc/driver/nvidia/gpus")) if os.path.isdir("/proc/driver/nvidia/gpus") else 0
        job = self.run_job("--nproc-per-node", "auto", "--dry-run", "true", MX_NUM_THREADS="3")
        self.assertIn(f" {gpus or 3} workers", job.stdout)
        job = self.run_job("--nproc-per-node", "gpu", "--dry-run", "true")
        if gpus:
            self.assertIn(f" {gpus} workers", job.stdout)
        else:
            self.assert_one_line(job, 2, "--nproc-per-node gpu: this node has no GPU")

    def test_tasks_of_slurm_are_the_default(self):
        allocation = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n0", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "n0",
                      "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "4"}
        self.assertIn(": 4 workers, 0 servers, 1 nodes", self.run_job("--dry-run", "true", **allocation).stdout)
        self.assertIn(": 3 workers, 1 servers, 1 nodes", self.run_job("--dry-run", "-s", "1", "true", **allocation).stdout)
        self.assertIn(": 6 workers, 0 servers, 1 nodes", self.run_job("--dry-run", "-n", "6", "true", **allocation).stdout)
        self.assertEqual(self.run_job("--no-tag-output", "sh", "-c", "echo $WORLD_SIZE", **allocation).stdout, "4\n" * 4)

    def test_rank_0_reads_standard_input(self):
        read, write = os.pipe()
        os.write(write, b"hello\n")
        os.close(write)
        job = self.run_job("-n", "2", "sh", "-c", "cat; echo end", stdin=read)
        os.close(read)
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] end", "[0:0] hello", "[0:1] end"])

    def test_an_ignored_interrupt_stays_ignored(self):
        one = self.look(before=lambda: jobs.signal.signal(jobs.signal.SIGINT, jobs.signal.SIG_IGN))[0]
        self.assertTrue(one["int_ignored"])
        self.assertFalse(self.look()[0]["int_ignored"])

    def test_a_variable_of_a_job_around_this_one_is_replaced(self):
        inner = ("-n", "2", "--no-tag-output", "sh", "-c", "echo $MX_RDZV $MX_JOB_ID $MX_RANK$MX_WORLD_SIZE$RANK$WORLD_SIZE")
        job = self.run_job("-n", "3", "--job-id", "outer", "--no-tag-output", "sh", "-c",
                           'echo $MX_RDZV outer; [ $MX_RANK != 2 ] || exec "$@"', "sh", jobs.MXRUN, *inner)
        self.assertEqual(job.code, 0, job.stderr)
        lines = [line.split() for line in job.stdout.splitlines()]
        outside = [line for line in lines if len(line) == 2]
        inside = sorted(line for line in lines if len(line) == 3)
        self.assertEqual((len(outside), len(inside)), (3, 2))
        self.assertEqual([line[2] for line in inside], ["0202", "1212"])
        self.assertEqual(len({line[0] for line in inside}), 1)
        self.assertNotEqual(inside[0][0], outside[0][0])
        self.assertNotIn("outer", (inside[0][1], inside[1][1]))


if __name__ == "__main__":
    jobs.main()
