#!/usr/bin/env python3
"""Agents on "other machines": an ssh stand-in runs its command here, so that loopback addresses are hosts."""

import os
import signal
import socket
import time

import jobs
import launcher_suite

# Notes the arguments that it got, drops the options, and gives the rest to a shell, as sshd does.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" >> "$FOLDER/arguments"
while :; do case "$1" in -o) shift 2;; -*) shift;; *) break;; esac; done
case "$1" in 127.0.0.9) echo "ssh: connect to host $1: no route" >&2; exit 255;; esac
MX_HOSTNAME="$1"; export MX_HOSTNAME; shift
exec /bin/sh -c "$*"
"""
TWO = ("-H", "127.0.0.1:2,127.0.0.2:2")


class Ssh(launcher_suite.LauncherSuite, jobs.JobTest):
    COMMAND_VARIABLE = "MX_SSH"

    def setUp(self):
        super().setUp()
        self.environment = {"MX_SSH": self.write("ssh", STAND_IN), "FOLDER": self.folder}

    def start_ranks(self, *arguments, **options):
        return self.start(*TWO, *arguments, **{**self.environment, **options})

    def run_ssh(self, *arguments, **environment):
        job = self.start(*arguments, **{**self.environment, **environment}).finish()
        self.assert_nothing_left(job)
        return job

    def test_every_rank_runs_on_its_host(self):
        job = self.run_ssh(*TWO, "sh", "-c", "echo $MX_RANK $MX_NODE_RANK $MX_LOCAL_RANK $MX_WORLD_SIZE $MX_HOSTNAME")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(job.stdout.splitlines()), [
            "[0:0] 0 0 0 4 127.0.0.1", "[0:1] 1 0 1 4 127.0.0.1", "[1:2] 2 1 0 4 127.0.0.2", "[1:3] 3 1 1 4 127.0.0.2"])

    def test_a_hostfile_says_the_same(self):
        hostfile = self.write("hosts", "127.0.0.1 slots=1 # first\n127.0.0.2:2\n")
        job = self.run_ssh("--hostfile", hostfile, "sh", "-c", "echo $MX_RANK $MX_HOSTNAME")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] 0 127.0.0.1", "[1:1] 1 127.0.0.2", "[1:2] 2 127.0.0.2"])

    def test_the_secret_is_in_no_argument_of_ssh(self):
        path = self.write("secret", "a-secret-that-nobody-prints\n", 0o600)
        job = self.run_ssh("-H", "127.0.0.1,127.0.0.2", "--secret-file", path, "true")
        self.assertEqual(job.code, 0, job.stderr)
        arguments = self.read("arguments")
        self.assertNotIn("a-secret-that-nobody-prints", arguments)
        self.assertNotIn(b"a-secret-that-nobody-prints".hex(), arguments)

    def test_a_host_that_cannot_be_reached_is_named(self):
        job = self.run_ssh("-H", "127.0.0.1,127.0.0.9", "true")
        self.assertEqual(job.code, 69, job.stderr)
        self.assertIn("127.0.0.9", job.stderr)
        self.assertIn("no route", job.stderr)

    def test_agents_that_do_not_come_end_the_start(self):
        slow = self.write("slow", "#!/bin/sh\nexec sleep 1000\n")
        job = self.run_ssh(*TWO, "--start-timeout", "0.3", "true", MX_SSH=slow)
        self.assertEqual(job.code, 124, job.stderr)
        self.assertIn("expected the agents of all nodes within 300 ms, got none from: 127.0.0.1, 127.0.0.2", job.stderr)

    def test_an_agent_with_another_secret_is_refused(self):
        # Like the stand-in, but it exchanges the hexadecimal digits of the secret that ssh carries to the agent.
        other = STAND_IN.replace('exec /bin/sh -c "$*"', 'read -r secret; printf "%s\\n" "$secret" | tr 0-9a-f 1-9a-f0 | /bin/sh -c "$*"')
        job = self.run_ssh(*TWO, "true", MX_SSH=self.write("ssh", other))
        self.assertEqual(job.code, 77, job.stderr)
        self.assertIn("knows the secret of job", job.stderr)
        self.assertRegex(job.stderr, r"first failure: node [01] \(127.0.0.[12]\)")

    PRINT = "for i in $(seq 4000); do echo line $MX_RANK $i abcdefghijklmnopqrstuvwxyz; done"

    def start_unread(self, **options):
        """Returns a job whose agents have ended, and whose output nobody has read yet: more than a pipe holds."""
        job = self.start_ranks("sh", "-c", self.PRINT + '; echo $MX_RANK >> "$FOLDER/ended"', **options)
        self.wait_for_lines("ended", 4)  # a look at the processes may miss agents that end soon
        jobs.wait_for(lambda: not job.named("mxrun-agent"), "the end of the agents")
        return job

    def test_a_slow_reader_gets_everything(self):
        job = self.start_unread()
        time.sleep(1.5)  # longer than mxrun waits for a reader when it is in a hurry
        job.finish()
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(job.stdout.splitlines()),
                         sorted(f"[{node}:{rank}] line {rank} {i} abcdefghijklmnopqrstuvwxyz"
                                for node, rank in ((0, 0), (0, 1), (1, 2), (1, 3)) for i in range(1, 4001)))
        self.assert_nothing_left(job)

    def test_a_signal_ends_the_wait_for_a_reader(self):
        job = self.start_unread()
        job.process.terminate()
        job.process.wait(60)
        self.assert_nothing_left(job)

    def test_a_signal_while_the_carriers_end_ends_the_wait_for_a_reader(self):
        slow = self.write("slow", STAND_IN.replace('exec /bin/sh -c "$*"', '/bin/sh -c "$*"; sleep 0.5'))
        job = self.start_unread(MX_SSH=slow)
        job.process.terminate()
        job.process.wait(60)
        self.assert_nothing_left(job)

    def test_a_reader_that_has_gone_ends_the_output_of_the_ranks(self):
        job = self.start_ranks("sh", "-c", "while echo y; do :; done; exit 0")
        job.process.stdout.readline()
        job.process.stdout.close()
        job.process.wait(60)
        job.stderr = job.process.stderr.read()
        self.assertEqual(job.process.returncode, 128 + signal.SIGPIPE, job.stderr)
        self.assert_nothing_left(job)

    def test_check_asks_every_host(self):
        job = self.run_ssh(*TWO, "--check", "sh")
        self.assertEqual((job.code, job.stdout), (0, "127.0.0.1: ok\n127.0.0.2: ok\n"), job.stderr)
        job = self.run_ssh(*TWO, "--check", "/no/such/program")
        self.assertEqual(job.code, 127)
        self.assertIn("127.0.0.2: no program /no/such/program", job.stdout)
        job = self.run_ssh(*TWO, "--check", self.write("text", "hello\n", 0o644))
        self.assertEqual(job.code, 126)
        self.assertIn("text is not executable", job.stdout)
        job = self.run_ssh(*TWO, "--check", "sh", MX_MXRUN="/no/mxrun")
        self.assertEqual(job.code, 78)
        self.assertIn("127.0.0.1: no mxrun at /no/mxrun", job.stdout)
        job = self.run_ssh("-H", "127.0.0.9", "--launcher", "ssh", "--check", "sh")
        self.assertEqual(job.code, 78)
        self.assertIn("127.0.0.9: ssh 127.0.0.9 ended with exit code 255", job.stdout)

    def test_check_looks_at_the_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            for check in ([], ["--check"]):
                job = self.run_ssh("-H", "localhost:2", "--launcher", "ssh", "--rdzv", f"127.0.0.1:{taken.getsockname()[1]}", *check, "true")
                self.assertEqual(job.code, 71, job.stderr)

    def test_an_ignored_signal_of_children_changes_nothing(self):
        def ignore():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        job = self.run_ssh(*TWO, "--check", "/no/such/program", before=ignore)
        self.assertEqual(job.code, 127, job.stdout)
        self.assertIn("127.0.0.2: no program /no/such/program", job.stdout)
        # The agents begin with it, too, and their guardians must see how they end. A shell would undo it.
        other = STAND_IN.replace('exec /bin/sh -c "$*"', 'eval "set -- ${*#exec }"; exec env --ignore-signal=CHLD "$@"')
        begin = time.monotonic()
        job = self.run_ssh(*TWO, "sh", "-c", "exit 3", MX_SSH=self.write("ssh", other))
        self.assertEqual(job.code, 3, job.stderr)
        self.assertLess(time.monotonic() - begin, 8 * jobs.SLOW)

    def test_dry_run_prints_the_commands_and_starts_nothing(self):
        job = self.run_ssh(*TWO, "--dry-run", "sh", "-c", "exit 3")
        self.assertEqual(job.code, 0, job.stderr)
        for part in ("ssh 127.0.0.1: ", "ssh 127.0.0.2: ", "BatchMode=yes", "--agent-node 1", "--secret-stdin"):
            self.assertIn(part, job.stdout)
        self.assertFalse(os.path.exists(self.path("arguments")))

    def test_bad_input(self):
        cases = [
            (("-H", "127.0.0.1:2,127.0.0.2:x", "true"), "'x'"),
            (("--hostfile", self.write("bad", "a slots=1\n\nb slots=zwei\n"), "true"), "line 3, 'b slots=zwei'"),
            (("--hostfile", self.path("missing"), "true"), "No such file"),
            (("-H", "127.0.0.1", "--hostfile", self.path("bad"), "true"), "got both"),
            (("-n", "5", *TWO, "true"), "1 are missing"),
            (("--nnodes", "3", *TWO, "true"), "at most 2 nodes"),
            (("--nnodes", "1:2", *TWO, "true"), "fixed number"),
            (("--launcher", "ssh", "true"), "-H or --hostfile"),
            (("--launcher", "mpi", "true"), "-H or --hostfile"),
            (("--launcher", "slurm", "true"), "allocation"),
            (("--launcher", "local", "-H", "elsewhere", "true"), "'elsewhere'"),
            (("--nproc-per-node", "auto", *TWO, "true"), "'auto'"),
            (("-H", "elsewhere:2", "true"), "--rdzv"),
            (("-H", "elsewhere:2", "--rdzv", "127.0.0.1:0", "true"), "other machines reach"),
            ((*TWO, "--rdzv", "0.0.0.0:0", "true"), "wildcard"),
            ((*TWO, "--rdzv", "nowhere", "true"), "nowhere"),
        ]
        for arguments, message in cases:
            with self.subTest(arguments=arguments):
                job = self.run_ssh(*arguments, SLURM_JOB_ID="", SLURM_JOB_NODELIST="")
                self.assertEqual(job.code, 2, job.stderr)
                self.assertIn(message, job.stderr)
                self.assertEqual(len(job.stderr.splitlines()), 1, job.stderr)
        job = self.run_ssh(*TWO, "true", OMPI_COMM_WORLD_SIZE="4")
        self.assertEqual(job.code, 2)
        self.assertIn("started once, got OMPI_COMM_WORLD_SIZE=4", job.stderr)

    def test_the_number_of_processes_follows_the_hosts(self):
        job = self.run_ssh("--nnodes", "1", "--nproc-per-node", "3", *TWO, "--dry-run", "--launcher", "ssh", "true")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertIn("3 workers, 0 servers, 1 nodes", job.stdout)


if __name__ == "__main__":
    launcher_suite.main()
