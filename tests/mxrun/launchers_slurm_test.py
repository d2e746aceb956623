#!/usr/bin/env python3
"""Agents started by srun, on a Slurm cluster of two nodes that is made for this test.

One slurmctld and two slurmd run on this machine, in a network namespace of their own. That needs root and the packages
slurm-wlm and munge; without them the test is skipped. Usage: ... MXRUN RANK_PROGRAM
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import unittest

import jobs
import launcher_suite

PROGRAM = ""
NEEDED = ("srun", "scontrol", "slurmctld", "slurmd", "munged", "ip", "unshare")
NAMESPACES = ("--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
ADDRESS = "10.93.0.1"
CONFIGURATION = """ClusterName=mx
SlurmctldHost={host}({address})
SlurmctldPort=6817
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SwitchType=switch/none
NodeName=n[0-1] NodeHostname={host} NodeAddr={address} Port=[16818-16819] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=n[0-1] Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    if os.geteuid() != 0:
        return "not root"
    absent = [name for name in NEEDED if not shutil.which(name, path=PATH)]
    if absent:
        return "not installed: " + ", ".join(absent)
    if subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, check=False).returncode:
        return "no namespaces here"
    return ""


class Slurm(launcher_suite.LauncherSuite, jobs.JobTest):
    COMMAND_VARIABLE = "MX_SRUN"

    @classmethod
    def setUpClass(cls):
        import tempfile
        cls.root = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.root.cleanup)
        folder = cls.root.name
        os.makedirs(folder + "/state")
        for name in ("n0", "n1"):
            os.makedirs(f"{folder}/spool.{name}")
        host = socket.gethostname()
        cls.configuration = folder + "/slurm.conf"
        with open(cls.configuration, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(host=host, address=ADDRESS, folder=folder))
        with open(folder + "/munge.key", "wb") as file:
            file.write(os.urandom(128))
        os.chmod(folder + "/munge.key", 0o400)
        cls.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": cls.configuration}
        cls.daemons = []
        cls.addClassCleanup(cls.end_daemons)
        cls.daemon("munged", "-F", "-f", "-S", folder + "/munge.socket", "--key-file", folder + "/munge.key",
                   "--pid-file", folder + "/munge.pid", "--log-file", folder + "/munge.log",
                   "--seed-file", folder + "/munge.seed")
        jobs.wait_for(lambda: os.path.exists(folder + "/munge.socket"), "munged")
        cls.daemon("slurmctld", "-D", "-c", "-f", cls.configuration)
        for name in ("n0", "n1"):
            cls.daemon("slurmd", "-D", "-N", name, "-f", cls.configuration)
        jobs.wait_for(lambda: cls.is_up(), "the cluster", 90)

    @classmethod
    def daemon(cls, *command):
        log = open(f"{cls.root.name}/{command[0]}.{len(cls.daemons)}.out", "wb")
        cls.daemons.append(subprocess.Popen(command, env=cls.environment, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL))
        log.close()

    @classmethod
    def is_up(cls):
        done = subprocess.run(["sinfo", "-h", "-o", "%t %D"], env=cls.environment, capture_output=True, text=True,
                              check=False)
        return done.stdout.strip() == "idle 2" or (time.sleep(0.2) and False)

    @classmethod
    def end_daemons(cls):
        for process in reversed(cls.daemons):
            process.terminate()
        for process in cls.daemons:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def salloc(self, *arguments, nodes="2", seconds=90):
        return subprocess.run(["salloc", "-Q", "-N", nodes, "--exclusive", jobs.MXRUN, "--rdzv", ADDRESS + ":0", *arguments],
                              env=self.environment, capture_output=True, text=True, check=False, timeout=seconds,
                              stdin=subprocess.DEVNULL, cwd=self.folder)

    def test_the_launcher_is_found_and_every_node_gets_its_ranks(self):
        job = self.salloc("-n", "4", "sh", "-c", "echo $MX_RANK $MX_NODE_RANK $SLURMD_NODENAME $SLURM_PROCID$SLURM_STEP_ID")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(sorted(line.strip() for line in job.stdout.splitlines()),
                         ["[0:0] 0 0 n0", "[0:1] 1 0 n0", "[1:2] 2 1 n1", "[1:3] 3 1 n1"])

    def start_ranks(self, *arguments, **options):
        return self.start("--rdzv", ADDRESS + ":0", "-n", "4", *arguments,
                          command=("salloc", "-Q", "-N", "2", "--exclusive"), **{**self.environment, **options})

    def test_dry_run(self):
        job = self.salloc("--dry-run", "--nproc-per-node", "1", "true")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("--nodelist=n0,n1", job.stdout)
        self.assertIn("2 workers, 0 servers, 2 nodes", job.stdout)

    def test_check(self):
        job = self.salloc("--check", "-n", "4", "sh")
        self.assertEqual((job.returncode, job.stdout), (0, "srun: ok\n"), job.stderr)

    def srun(self, *arguments, **variables):
        return subprocess.run(["srun", *arguments], env={**self.environment, **variables}, capture_output=True, text=True,
                              check=False, timeout=90, stdin=subprocess.DEVNULL, cwd=self.folder)

    def test_processes_of_srun_find_each_other_without_mxrun(self):
        # On one node they need nothing: the port follows from the number of the job and the step.
        job = self.srun("-N", "1", "-n", "2", PROGRAM, "sum")
        self.assertEqual((job.returncode, job.stdout), (0, "3\n" * 2), job.stderr)
        # On several they need a secret, and a name of the first node that leads to it.
        secret = self.write("secret", "0123456789abcdef" * 4 + "\n", 0o600)
        job = self.srun("-N", "2", "-n", "4", PROGRAM, "sum", MX_SECRET_FILE=secret, MX_RDZV=ADDRESS + ":15555")
        self.assertEqual((job.returncode, job.stdout), (0, "10\n" * 4), job.stderr)
        job = self.srun("-N", "2", "-n", "4", PROGRAM, "sum", MX_RDZV=ADDRESS + ":15555")
        self.assertEqual(job.returncode, 1)
        self.assertIn("MX_SECRET_FILE", job.stdout)

    def test_processes_of_srun_with_pmix_find_each_other(self):
        kinds = self.srun("--mpi=list")
        if "pmix" not in kinds.stdout + kinds.stderr:
            self.skipTest("this Slurm has no PMIx")
        job = self.srun("--mpi=pmix", "-N", "1", "-n", "2", PROGRAM, "sum")
        if "can not load PMIx library" in job.stderr:
            self.skipTest("Slurm's plugin finds no PMIx library (libpmix2)")
        self.assertEqual((job.returncode, job.stdout), (0, "3\n" * 2), job.stderr)

    def test_mxrun_below_srun_is_refused(self):
        job = subprocess.run(["srun", "-N", "2", jobs.MXRUN, "true"], env=self.environment, capture_output=True,
                             text=True, check=False, timeout=60, stdin=subprocess.DEVNULL, cwd=self.folder)
        self.assertEqual(job.returncode, 2, job.stderr)
        self.assertIn("SLURM_STEP_NUM_TASKS=2", job.stderr)


def main():
    why = missing()
    if why:
        print("skipped:", why)
        sys.exit(77)  # skipped
    if "--inside" not in sys.argv:
        inside = ("ip link set lo up && ip addr add " + ADDRESS + "/32 dev lo && "
                  "exec \"$@\"")
        # The processes below form a PID namespace that ends with this process, so no daemon outlives the test, not even
        # one that has detached itself and when the test is killed.
        os.execvpe("unshare", ["unshare", *NAMESPACES, "sh", "-c", inside, "sh", sys.executable,
                               os.path.abspath(__file__), *sys.argv[1:], "--inside"], {**os.environ, "PATH": PATH})
    sys.argv.remove("--inside")
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv[2])
    socket.sethostname("mxnode")
    launcher_suite.main()


if __name__ == "__main__":
    main()
