"""What every launcher of mxrun must do, as one list of tests. The file of a launcher derives from LauncherSuite and adds what
is special about it."""

import json
import os
import signal
import sys

import jobs

PROGRAM = ""

# Appends what a process has got to a file of its own: arguments, variables, the folder, and its standard input.
SHOW = """#!/usr/bin/env python3
import json, os, sys
shown = {"arguments": sys.argv[1:], "env": dict(os.environ), "folder": os.getcwd(), "stdin": sys.stdin.read()}
with open(f"{os.environ['SHOW_FOLDER']}/shown{os.environ['MX_RANK']}", "a", encoding="utf-8") as file:
    file.write(json.dumps(shown) + "\\n")
"""
# Variables by which a program would take itself for a task of the launcher's own command.
FOREIGN = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_LOCALID")
# Each rank has grandchildren, of which one leaves its session.
WAIT = "cd {folder}; sleep 1000 & setsid sleep 1001 & echo $$ > pid$MX_RANK; exec sleep 1002"


class LauncherSuite:
    """Tests for a class that also derives from jobs.JobTest and has start_ranks()."""

    NODES = (0, 0, 1, 1)  # the node of each rank
    COMMAND_VARIABLE = ""  # the variable that replaces the launcher's command
    PASSES_STDIN = False  # the first rank gets the standard input of mxrun
    QUICK = ("--grace", "1", "--heartbeat", "0.2", "--dead-after", "3")

    def start_ranks(self, *arguments, **options):
        """Starts a job of four ranks on the nodes NODES. `options` as of jobs.Job."""
        raise NotImplementedError

    def run_ranks(self, *arguments, **options):
        job = self.start_ranks(*arguments, **options).finish()
        self.assert_nothing_left(job)
        return job

    def launcher(self, job):
        """The process id of mxrun itself."""
        return next(iter(job.named("mxrun")))

    def show(self, *arguments, options=(), **more):
        """Runs SHOW on all ranks and returns what each has got."""
        job = self.run_ranks(*options, "-x", "SHOW_FOLDER=" + self.folder, self.write("show", SHOW), *arguments, **more)
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(job.stdout, "")
        ranks = []
        for rank in range(4):
            starts = [json.loads(line) for line in self.read(f"shown{rank}").splitlines()]
            self.assertEqual(len(starts), 1, f"rank {rank} started {len(starts)} times")
            ranks.append(starts[0])
        return ranks

    def start_waiting(self):
        """Returns a job whose ranks wait, and their process ids."""
        job = self.start_ranks(*self.QUICK, "sh", "-c", WAIT.format(folder=self.folder))
        return job, [int(self.wait_for_lines(f"pid{rank}", 1)[0]) for rank in range(4)]

    def tag(self, rank):
        return f"[{self.NODES[rank]}:{rank}]"

    # --- starting ---

    def test_every_rank_starts_once_with_its_variables(self):
        ranks = [one["env"] for one in self.show(options=("--job-id", "job7", "--timeout", "24"))]
        for rank, env in enumerate(ranks):
            local = self.NODES[:rank].count(self.NODES[rank])
            expected = {"MX_ROLE": "worker", "MX_RANK": rank, "MX_WORLD_SIZE": 4,
                        "MX_LOCAL_RANK": local, "MX_LOCAL_WORLD_SIZE": self.NODES.count(self.NODES[rank]),
                        "MX_NODE_RANK": self.NODES[rank], "MX_NUM_SERVERS": 0, "MX_JOB_ID": "job7", "MX_EPOCH": 0,
                        "MX_RESTART_COUNT": 0, "MX_TIMEOUT_MS": 24000, "MX_DEAD_AFTER_MS": 2000, "RANK": rank,
                        "WORLD_SIZE": 4, "LOCAL_RANK": local}
            self.assertEqual({name: env.get(name) for name in expected},
                             {name: str(value) for name, value in expected.items()})
            self.assertEqual([name for name in FOREIGN if env.get(name)], [])
        self.assertEqual(len({env["MX_INCARNATION"] for env in ranks}), 4)
        self.assertEqual(len({env["MX_RDZV"] for env in ranks}), 1)

    def test_arguments_variables_and_the_folder_arrive_unchanged(self):
        words = ["two words", "it's", "$HOME", "`id`", "a;b", "", "\\", "*", "new\nline", "-n", "--help", "\u00fc"]
        for one in self.show(*words, options=("-x", "TRICKY=a b'c$d=\"e\"", "-x", "EMPTY=", "-x", "LARGE=" + "x" * 100000)):
            self.assertEqual(one["arguments"], words)
            self.assertEqual(one["env"]["TRICKY"], "a b'c$d=\"e\"")
            self.assertEqual(one["env"]["EMPTY"], "")
            self.assertEqual(one["env"]["LARGE"], "x" * 100000)
            self.assertEqual(os.path.realpath(one["folder"]), os.path.realpath(os.getcwd()))

    def test_no_rank_waits_for_a_standard_input_that_is_not_its_own(self):
        read, write = os.pipe()
        os.write(write, b"hello\n")
        os.close(write)
        try:
            inputs = [one["stdin"] for one in self.show(stdin=read)]
        finally:
            os.close(read)
        self.assertEqual(inputs, ["hello\n" if self.PASSES_STDIN else "", "", "", ""])

    def test_the_secret_is_in_no_argument_and_no_variable(self):
        secret = "a-secret-that-nobody-prints"
        path = self.write("secret", secret + "\n", 0o600)
        program = self.write("look", "#!/bin/sh\ncat /proc/*/cmdline > \"$SHOW_FOLDER/lines$MX_RANK\" 2>/dev/null\n"
                                     "env > \"$SHOW_FOLDER/env$MX_RANK\"\ncat <&$MX_SECRET_FD\n")
        job = self.run_ranks("-x", "SHOW_FOLDER=" + self.folder, "--secret-file", path, program)
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(job.stdout.count(secret), 4)
        for name in [kind + str(rank) for kind in ("lines", "env") for rank in range(4)]:
            with open(self.path(name), "rb") as file:
                content = file.read()
            self.assertNotIn(secret.encode(), content, name)
            self.assertNotIn(secret.encode().hex().encode(), content, name)

    def test_a_program_that_cannot_be_started(self):
        job = self.run_ranks("/no/such/program")
        self.assertEqual(job.code, 127, job.stderr)
        self.assertIn("/no/such/program", job.stderr)
        text = self.write("text", "hello\n", 0o644)
        job = self.run_ranks(text)
        self.assertEqual(job.code, 126, job.stderr)
        self.assertIn(text, job.stderr)

    def test_a_missing_command_of_the_launcher_is_named(self):
        if not self.COMMAND_VARIABLE:
            self.skipTest("this launcher runs no command")
        job = self.run_ranks("true", **{self.COMMAND_VARIABLE: "/no/such/command"})
        self.assertEqual(job.code, 69, job.stderr)
        self.assertIn("/no/such/command", job.stderr)

    def test_dry_run_and_check_start_no_rank(self):
        program = self.write("mark", f"#!/bin/sh\ntouch {self.path('started')}\n")
        for option in ("--dry-run", "--check"):
            job = self.run_ranks(option, program)
            self.assertEqual(job.code, 0, job.stderr)
            self.assertNotEqual(job.stdout, "")
            self.assertFalse(os.path.exists(self.path("started")), option)
        job = self.run_ranks("--check", "/no/such/program")
        self.assertEqual(job.code, 127, job.stderr)
        self.assertIn("/no/such/program", job.stdout + job.stderr)

    def test_ranks_find_each_other(self):
        # All nodes are this machine, so loopback leads to them.
        job = self.run_ranks("--no-tag-output", "-x", "MX_INTERFACE=lo", PROGRAM, "sum")
        self.assertEqual((job.code, job.stdout.split()), (0, ["10"] * 4), job.stderr)

    # --- output ---

    def test_each_line_has_the_tag_of_its_rank(self):
        lines = 3000
        rest = "abcdefghijklmnopqrstuvwxyz"
        job = self.run_ranks("sh", "-c",
                             f"for i in $(seq {lines}); do echo out $MX_RANK $i {rest}; echo err $MX_RANK $i {rest} >&2; done")
        self.assertEqual(job.code, 0, job.stderr)
        for stream, text in (("out", job.stdout), ("err", job.stderr)):
            found = {rank: [] for rank in range(4)}
            for line in text.splitlines():
                if self.COMMAND_VARIABLE and line.startswith(self.COMMAND_VARIABLE.removeprefix("MX_").lower() + ": "):
                    continue  # a remark of the launcher's command
                rank = next((rank for rank in range(4) if line.startswith(self.tag(rank) + " ")), None)
                self.assertIsNotNone(rank, line)
                found[rank].append(line.rstrip())
            for rank in range(4):
                expected = [f"{self.tag(rank)} {stream} {rank} {i} {rest}" for i in range(1, lines + 1)]
                self.assertTrue(found[rank] == expected, set(found[rank]) ^ set(expected))

    def test_an_unfinished_last_line_is_printed(self):
        job = self.run_ranks("sh", "-c", "printf 'no end of rank %s' $MX_RANK")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(line.rstrip() for line in job.stdout.splitlines()),
                         [f"{self.tag(rank)} no end of rank {rank}" for rank in range(4)])

    def test_tags_can_be_left_out_and_ranks_chosen(self):
        job = self.run_ranks("--no-tag-output", "--ranks", "1,3", "sh", "-c", "echo rank $MX_RANK")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(line.rstrip() for line in job.stdout.splitlines()), ["rank 1", "rank 3"])

    def test_ranks_get_sigpipe_when_the_reader_of_the_output_ends(self):
        # As `mxrun ... | head -1`. The launcher's command must not break first: its exit code would hide that of the rank.
        end, other_end = os.pipe()
        job = self.start_ranks("sh", "-c", "while :; do echo line; done", stdout=other_end)
        os.close(other_end)
        with open(end, encoding="utf-8", errors="replace") as output:
            self.assertIn("line", output.readline())
        job.finish()
        self.assertEqual(job.code, 128 + signal.SIGPIPE, job.stderr)
        self.assertRegex(job.stderr, r"first failure: rank \d on .*: killed by SIGPIPE")
        self.assert_nothing_left(job)

    # --- ends ---

    def test_the_exit_code_is_that_of_the_first_rank_that_fails(self):
        job = self.run_ranks("sh", "-c", "exit 0")
        self.assertEqual((job.code, job.stdout), (0, ""), job.stderr)
        for how, code in (("exit 7", 7), ("exit 1", 1), ("kill -9 $$", 128 + 9), ("kill -11 $$", 128 + 11)):
            with self.subTest(how=how):
                job = self.run_ranks("sh", "-c", f"[ $MX_RANK != 3 ] || {how}; exec sleep 300")
                self.assertEqual(job.code, code, job.stderr)
                self.assertRegex(job.stderr, f"first failure: rank 3 on .* \\(node {self.NODES[3]}, ")

    def test_later_failures_do_not_hide_the_first(self):
        job = self.run_ranks("sh", "-c", "trap 'exit 4' TERM; [ $MX_RANK != 1 ] || exit 3; sleep 300 & wait")
        self.assertEqual(job.code, 3, job.stderr)
        self.assertRegex(job.stderr, "first failure: rank 1 on ")

    def test_the_last_lines_of_the_failed_rank_are_shown(self):
        job = self.run_ranks("sh", "-c", "[ $MX_RANK = 2 ] || exec sleep 300; echo this is why >&2; exit 5")
        self.assertEqual(job.code, 5, job.stderr)
        self.assertRegex(job.stderr, r"mxrun:   \| this is why")

    def test_a_signal_to_mxrun_ends_all_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                for rank in range(4):
                    if os.path.exists(self.path(f"pid{rank}")):
                        os.remove(self.path(f"pid{rank}"))
                job, _ = self.start_waiting()
                os.kill(self.launcher(job), number)
                job.finish()
                self.assertEqual(job.code, 128 + number, job.stderr)
                self.assert_nothing_left(job)

    def test_a_killed_rank_ends_the_job(self):
        job, pids = self.start_waiting()
        os.kill(pids[3], signal.SIGKILL)
        job.finish()
        self.assertEqual(job.code, 137, job.stderr)
        self.assertRegex(job.stderr, "first failure: rank 3 on .*: killed by SIGKILL")
        self.assert_nothing_left(job)

    def test_nothing_is_left_of_a_job_whose_launcher_is_killed(self):
        job, _ = self.start_waiting()
        os.kill(self.launcher(job), signal.SIGKILL)
        job.finish()
        self.assert_nothing_left(job)

    def test_a_killed_agent_ends_the_job_and_its_node_is_named(self):
        job, pids = self.start_waiting()
        with open(f"/proc/{pids[3]}/stat", encoding="utf-8") as file:
            agent = int(file.read().rsplit(")", 1)[1].split()[1])  # the parent of the rank
        self.assertIn(agent, job.named("mxrun-agent"))
        os.kill(agent, signal.SIGKILL)
        job.finish()
        self.assertNotEqual(job.code, 0)
        self.assertRegex(job.stderr, f"node {self.NODES[3]}|rank [23]")
        self.assert_nothing_left(job)

    def test_the_group_restarts(self):
        job = self.run_ranks("--restart", "group", "--max-restarts", "1", "sh", "-c",
                             "[ $MX_RESTART_COUNT = 1 ] || [ $MX_RANK != 3 ] || exit 5; echo epoch $MX_EPOCH")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sum("epoch 1" in line for line in job.stdout.splitlines()), 4, job.stdout)


def main():
    """For the files of launchers. Usage: ... MXRUN RANK_PROGRAM"""
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
