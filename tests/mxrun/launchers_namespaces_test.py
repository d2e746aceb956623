#!/usr/bin/env python3
"""Hosts as network namespaces with names of their own; an ssh stand-in enters them. Usage: ... MXRUN RANK_PROGRAM

The ranks find each other over TCP, at the interfaces of their hosts. Needs root, ip and unshare; skipped without them.
"""

import os
import shutil
import signal
import subprocess
import sys
import unittest

import jobs

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
PROGRAM = ""
HAS_PROGRAM = len(sys.argv) > 2 and os.path.exists(sys.argv[2])
# Two hosts, each with a cable to the machine of mxrun, which forwards between them.
SET_UP = """set -e
mount -t tmpfs none /run
mkdir -p /run/netns
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
for i in 0 1; do
  ip netns add n$i
  ip link add cable$i type veth peer name eth0 netns n$i
  ip addr add 10.94.$i.1/24 dev cable$i
  ip link set cable$i up
  ip -n n$i link set lo up
  ip -n n$i addr add 10.94.$i.2/24 dev eth0
  ip -n n$i link set eth0 up
  ip -n n$i route add default via 10.94.$i.1
done
exec "$@"
"""
STAND_IN = """#!/bin/sh
while :; do case "$1" in -o) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
"""


def missing():
    if os.geteuid() != 0:
        return "not root"
    if not all(shutil.which(name, path=PATH) for name in ("ip", "unshare", "mount")):
        return "no ip, unshare or mount"
    done = subprocess.run(["unshare", "--net", "--mount", "sh", "-c", SET_UP, "sh", "true"], capture_output=True,
                          text=True, check=False, env={**os.environ, "PATH": PATH})
    return "" if done.returncode == 0 else "no namespaces here: " + done.stderr.strip()


class Namespaces(jobs.JobTest):
    def setUp(self):
        super().setUp()
        self.environment = {"MX_SSH": self.write("ssh", STAND_IN)}

    def start_hosts(self, *arguments):
        return self.start("-H", "n0:2,n1:2", *arguments, **self.environment)

    def test_ranks_run_on_hosts_of_other_names(self):
        job = self.start_hosts("--rdzv", "cable0:0", "sh", "-c", "echo $MX_RANK $(hostname) $MX_INTERFACE ${MX_RDZV%:*}").finish()
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(job.stdout.splitlines()), [
            "[0:0] 0 n0 eth0 10.94.0.1", "[0:1] 1 n0 eth0 10.94.0.1",
            "[1:2] 2 n1 eth0 10.94.0.1", "[1:3] 3 n1 eth0 10.94.0.1"])
        self.assert_nothing_left(job)

    @unittest.skipUnless(HAS_PROGRAM, "no program")
    def test_a_sum_over_hosts(self):
        job = self.start_hosts("--rdzv", "10.94.0.1:0", "--no-tag-output", PROGRAM, "sum").finish()
        self.assertEqual((job.code, job.stdout), (0, "10\n" * 4), job.stderr)
        self.assert_nothing_left(job)

    @unittest.skipUnless(HAS_PROGRAM and shutil.which("mpirun"), "no program or no mpirun")
    def test_a_sum_over_hosts_of_mpirun(self):
        mpirun = "mpirun --allow-run-as-root --mca plm_rsh_agent " + self.environment["MX_SSH"]
        job = self.start("--launcher", "mpi", "-H", "n0:2,n1:2", "--rdzv", "10.94.0.1:0", "sh", "-c",
                         'echo "$(hostname) $("$0" sum)"', PROGRAM, MX_MPIRUN=mpirun).finish()
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] n0 10", "[0:1] n0 10", "[1:2] n1 10", "[1:3] n1 10"])
        self.assert_nothing_left(job)

    @staticmethod
    def loopback_bytes():
        """What the processes of a host have sent to each other through sockets, by host."""
        sent = {}
        for host in ("n0", "n1"):
            text = subprocess.run(["ip", "netns", "exec", host, "cat", "/proc/net/dev"], capture_output=True, text=True,
                                  check=True).stdout
            sent[host] = int(next(line for line in text.splitlines() if line.strip().startswith("lo:")).split()[1])
        return sent

    @unittest.skipUnless(HAS_PROGRAM, "no program")
    def test_ranks_of_a_host_share_memory(self):
        # Each rank exchanges 5 x 2 x 2 MB with each other one.
        least = 10_000_000
        for transport, name in (("auto", "shm+tcp"), ("tcp", "tcp")):
            before = self.loopback_bytes()
            job = self.start_hosts("--rdzv", "cable0:0", "--no-tag-output", "-x", "MX_TRANSPORT=" + transport,
                                   PROGRAM, "large").finish()
            self.assertEqual((job.code, job.stdout), (0, f"{name} 10\n" * 4), job.stderr)
            after = self.loopback_bytes()
            for host in before:
                through_sockets = after[host] - before[host]
                if name == "tcp":
                    self.assertGreater(through_sockets, least)
                else:
                    self.assertLess(through_sockets, least / 10)
            self.assertNotIn("share no memory", job.stderr)
            self.assert_nothing_left(job)

    @unittest.skipUnless(HAS_PROGRAM, "no program")
    def test_ranks_of_a_host_that_cannot_share_memory_use_tcp(self):
        job = self.start_hosts("--rdzv", "cable0:0", "--no-tag-output",
                               "sh", "-c", f"[ $MX_RANK -gt 1 ] || ulimit -f 8; exec {PROGRAM} large").finish()
        self.assertEqual((job.code, job.stdout), (0, "shm+tcp 10\n" * 4), job.stderr)
        self.assertEqual(job.stderr.count("share no memory"), 1, job.stderr)
        self.assertIn("the ranks 0, 1 on n0 share no memory", job.stderr)
        self.assert_nothing_left(job)

    @unittest.skipUnless(HAS_PROGRAM, "no program")
    def test_survivors_on_other_hosts_name_a_killed_rank(self):
        job = self.start_hosts("--rdzv", "cable0:0", PROGRAM, "loop", self.folder)
        pid = int(self.wait_for_lines("ready3", 1)[0])
        for rank in range(3):
            self.wait_for_lines(f"ready{rank}", 1)
        os.kill(pid, signal.SIGKILL)
        job.finish()
        self.assertEqual(job.code, 128 + signal.SIGKILL, job.stderr)
        for rank in range(3):
            self.assertRegex(job.stdout, rf"\[\d:{rank}\] .*rank 3")
        self.assert_nothing_left(job)

    def test_a_killed_rank_is_named_with_its_host(self):
        job = self.start_hosts("--rdzv", "cable1:0", "sh", "-c", "[ $MX_RANK != 2 ] || kill -9 $$; sleep 300").finish()
        self.assertEqual(job.code, 128 + signal.SIGKILL, job.stderr)
        self.assertIn("rank 2 on n1", job.stderr)
        self.assert_nothing_left(job)

    def test_a_host_that_is_cut_off_is_named(self):
        job = self.start_hosts("--rdzv", "cable0:0", "--dead-after", "3", "--grace", "1",
                               "sh", "-c", "echo up; sleep 300")
        for _ in range(4):
            self.assertIn("up", job.process.stdout.readline())
        subprocess.run(["ip", "link", "set", "cable1", "down"], check=True)
        try:
            job.finish()
        finally:
            subprocess.run(["ip", "link", "set", "cable1", "up"], check=True)
        self.assertNotEqual(job.code, 0)
        self.assertIn("n1", job.stderr)
        self.assert_nothing_left(job)


if __name__ == "__main__":
    if "--inside" not in sys.argv:
        WHY = missing()
        if WHY:
            print("skipped:", WHY)
            sys.exit(77)
        os.execvpe("unshare", ["unshare", "--net", "--uts", "--mount", "sh", "-c", SET_UP, "sh", sys.executable,
                               os.path.abspath(__file__), *sys.argv[1:], "--inside"], {**os.environ, "PATH": PATH})
    sys.argv.remove("--inside")
    PROGRAM = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
    del sys.argv[2:3]
    jobs.main()
