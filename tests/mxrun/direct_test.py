#!/usr/bin/env python3
"""Programs that no mxrun has started: their processes get the variables of srun, or of the pods of an Indexed Job, and must
find each other. Usage: ... MXRUN RANK_PROGRAM"""

import concurrent.futures
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

import jobs

PROGRAM = ""
HOST = os.uname().nodename
# A process that fails keeps the thread of its heartbeats to the end. ThreadSanitizer would call it leaked.
THREADS = ":".join(filter(None, [os.environ.get("TSAN_OPTIONS"), "report_thread_leaks=0"]))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def srun(rank, size, job):
    return {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(size),
            "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": str(size),
            "SLURM_STEP_NODELIST": HOST}


def pod(rank, size, port):
    return {"JOB_COMPLETION_INDEX": str(rank), "MX_WORLD_SIZE": str(size), "MX_RDZV": f"127.0.0.1:{port}",
            "MX_INTERFACE": "lo"}


class Direct(jobs.JobTest):
    def setUp(self):
        super().setUp()
        # Pods are hosts of their own, so they need a secret.
        self.secret = self.write("secret", "0123456789abcdef" * 4 + "\n", 0o600)

    def launch(self, variables, *arguments):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("MX_R", "MX_W", "SLURM_", "PMIX_", "OMPI_", "JOB_"))}
        process = subprocess.Popen([PROGRAM, *arguments], env={**clean, "MX_SECRET_FILE": self.secret, "TSAN_OPTIONS": THREADS, **variables}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(jobs.kill_if_there, [process.pid])
        for stream in (process.stdout, process.stderr):
            self.addCleanup(stream.close)
        return process

    def launch_all(self, kind, size, *arguments, **more):
        # The job's number decides the port.
        number = os.getpid() * 100 + int(time.monotonic() * 1000) % 100 if kind is srun else free_port()
        return [self.launch({**kind(rank, size, number), **more}, *arguments) for rank in range(size)]

    def test_processes_find_each_other(self):
        for kind in (srun, pod):
            for size in (1, 2, 4):
                with self.subTest(kind=kind.__name__, size=size):
                    for process in self.launch_all(kind, size, "sum"):
                        out, err = process.communicate(timeout=60)
                        self.assertEqual((process.returncode, out, err), (0, f"{size * (size + 1) // 2}\n", ""))

    def test_processes_find_each_other_with_tls(self):
        for kind in (srun, pod):
            with self.subTest(kind=kind.__name__):
                for process in self.launch_all(kind, 3, "sum", MX_TLS="psk", MX_TRANSPORT="tcp"):
                    out, err = process.communicate(timeout=60)
                    self.assertEqual((process.returncode, out, err), (0, "6\n", ""))
        # Without a secret there is nothing that keys could be made of.
        process = self.launch_all(srun, 2, "sum", MX_TLS="psk", MX_SECRET_FILE="")[1]
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("expected a secret, because MX_TLS is psk", out)

    def test_survivors_name_a_killed_process(self):
        for kind in (srun, pod):
            # Rank 0 runs the rendezvous; its end is noticed by the end of the connections.
            for victim in (2, 0):
                with self.subTest(kind=kind.__name__, victim=victim):
                    for rank in range(3):
                        if os.path.exists(self.path(f"ready{rank}")):
                            os.remove(self.path(f"ready{rank}"))
                    processes = self.launch_all(kind, 3, "loop", self.folder)
                    jobs.wait_for(lambda: all(os.path.exists(self.path(f"ready{rank}")) for rank in range(3)), "the ranks")
                    os.kill(processes[victim].pid, signal.SIGKILL)
                    for rank, process in enumerate(processes):
                        out, err = process.communicate(timeout=60)
                        self.assertEqual(process.returncode, -9 if rank == victim else 1, err)
                        if rank != victim:
                            self.assertRegex(out, rf"(rank {victim}\b|rendezvous)" if victim == 0 else rf"rank {victim}\b")

    def test_a_process_that_does_not_come_is_named(self):
        for kind in (srun, pod):
            with self.subTest(kind=kind.__name__):
                number = os.getpid() * 100 + 77 if kind is srun else free_port()
                processes = [self.launch({**kind(rank, 3, number), "MX_TIMEOUT_MS": "1500"}, "sum") for rank in (0, 2)]
                outs = [process.communicate(timeout=60)[0] for process in processes]
                self.assertEqual([process.returncode for process in processes], [1, 1], outs)
                # Rank 0 runs the rendezvous and may give up first.
                self.assertTrue(any("rank 1" in out for out in outs), outs)
                self.assertRegex(outs[1], "rank 1|lost the rendezvous")

    def test_variables_that_disagree_are_an_error(self):
        both = {**srun(1, 2, 5), **pod(0, 2, free_port())}
        process = self.launch(both, "sum")
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(out, "SLURM_PROCID.*JOB_COMPLETION_INDEX|JOB_COMPLETION_INDEX.*SLURM_PROCID")


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
@unittest.skipIf(jobs.SLOW > 1, "Open MPI keeps memory until the process ends, and sanitizers report that")
class Mpirun(jobs.JobTest):
    """Processes that mpirun has started and that have nothing but MPI to find each other."""

    def setUp(self):
        super().setUp()
        self.module_folder = os.path.join(os.path.dirname(jobs.MXRUN), "modules")
        if not os.path.exists(os.path.join(self.module_folder, "libmx_comm_mpi.so")):
            self.skipTest("no module for MPI")

    def mpirun(self, ranks, *arguments, **variables):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MX_", "SLURM_", "PMIX_", "OMPI_"))}
        return subprocess.run(["mpirun", "--oversubscribe", "-n", str(ranks), PROGRAM, *arguments], timeout=120, text=True,
                              check=False, capture_output=True, stdin=subprocess.DEVNULL,
                              env={**clean, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables})

    def test_processes_find_each_other_through_mpi(self):
        for transport in ("shm", "tcp", "shm+tcp", "mpi"):
            for ranks in (1, 2, 4):
                with self.subTest(transport=transport, ranks=ranks):
                    job = self.mpirun(ranks, "large", MX_TRANSPORT=transport)
                    # A group of one machine needs no TCP, and a process that is alone needs no transport.
                    kind = "one" if ranks == 1 else transport
                    self.assertEqual((job.returncode, sorted(job.stdout.splitlines())),
                                     (0, [f"{kind} {ranks * (ranks + 1) // 2}"] * ranks), job.stderr)
                    self.assertEqual(job.stderr, "")

    def test_without_any_variable_they_share_memory(self):
        job = self.mpirun(3, "large")
        self.assertEqual((job.returncode, job.stdout), (0, "shm 6\n" * 3), job.stderr)

    def test_groups_over_several_transports_share_one_rendezvous(self):
        job = self.mpirun(3, "groups")
        self.assertEqual((job.returncode, sorted(job.stdout.splitlines())), (0, ["shm tcp shm+tcp mpi 6"] * 3), job.stderr)

    def test_ranks_that_make_different_calls_are_told(self):
        for transport in ("shm", "tcp", "mpi"):
            with self.subTest(transport=transport):
                job = self.mpirun(2, "count", self.folder, MX_TRANSPORT=transport)
                self.assertNotEqual(job.returncode, 0)
                # mpirun ends the others when the first process has failed.
                self.assertRegex(job.stdout, "1 x f32.*2 x f32|2 x f32.*1 x f32")

    def test_a_rank_that_ends_early_is_lost_at_once(self):
        # The end of MPI, which waits for all, comes after the rank has left its groups.
        for transport in ("shm", "tcp", "mpi"):
            with self.subTest(transport=transport):
                before = time.monotonic()
                job = self.mpirun(2, "early", self.folder, MX_TRANSPORT=transport)
                self.assertNotEqual(job.returncode, 0)
                self.assertRegex(job.stdout, "rank 0")
                self.assertNotIn("in time", job.stdout)
                self.assertLess(time.monotonic() - before, 50)  # not at the time limit of the calls

    def test_a_rank_may_work_on_after_its_last_call(self):
        # Longer than any limit that MPI's end could reasonably have: it once was 30 s. But a rank that knows of a failure must not
        # wait for ever for one that is stuck; mpirun ends the job then.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            works = pool.submit(self.mpirun, 2, "works", self.folder)
            calm = pool.submit(self.mpirun, 2, "calm", self.folder, MX_TIMEOUT_MS="1500", MX_TRANSPORT="shm")
            job = works.result()
            self.assertEqual((job.returncode, job.stdout), (0, "saved\n"), job.stderr)
            self.assertRegex(calm.result().stdout, r"rank 1\b")
            self.assertNotEqual(calm.result().returncode, 0)

    def test_the_start_of_mpi_has_the_limit_of_the_job(self):
        # Within the time limit of the test, not in 120 s. MPI does not say which rank has not come. (If a rank ends before the
        # others have begun, they wait in the same way; if it ends later, mpirun itself ends the job and names it.)
        job = self.mpirun(2, "away", self.folder, MX_TIMEOUT_MS="1000")
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(job.stdout, r"MPI_Init_thread did not end within the time limit of 1000 ms and .*has one ended", job.stderr)

    def test_mxrun_cannot_stand_in_for_mpirun(self):
        job = self.run_job("-n", "2", PROGRAM, "sum", MX_TRANSPORT="mpi", MX_MODULE_PATH=self.module_folder)
        self.assertNotEqual(job.code, 0)
        self.assertIn("start them with mpirun -n 2", job.stdout + job.stderr)

    def test_nccl_says_what_it_needs(self):
        if not os.path.exists(os.path.join(self.module_folder, "libmx_comm_nccl.so")) or os.path.exists("/dev/nvidiactl"):
            self.skipTest("no module for NCCL, or a GPU")
        job = self.mpirun(2, "sum", MX_TRANSPORT="nccl")
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(job.stdout, "(?i)nccl.*(GPU|CUDA)")

    def test_an_unknown_transport_is_refused(self):
        job = self.mpirun(2, "sum", MX_TRANSPORT="infiniband")
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("expected a transport among auto, shm, tcp", job.stdout)

    def test_traffic_that_is_not_encrypted_is_named(self):
        secret = self.write("secret", "0123456789abcdef" * 4 + "\n", 0o600)
        for transport, lines in (("mpi", 1), ("tcp", 0)):
            job = self.mpirun(2, "sum", MX_TRANSPORT=transport, MX_SECRET_FILE=secret, MX_TLS="psk")
            self.assertEqual((job.returncode, job.stdout), (0, "3\n3\n"), job.stderr)
            self.assertEqual(job.stderr.count("not the traffic of transport mpi"), lines, job.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
