#!/usr/bin/env python3
"""Wrong usage of mxrun ends with its exit code and one clear line. Usage: ... MXRUN"""

import contextlib
import io
import os
import resource
import socket
import unittest

import jobs


class WrongUsage(jobs.JobTest):
    def wrong(self, pattern, *arguments, code=2, **environment):
        with self.subTest(arguments=arguments):
            self.assert_one_line(self.run_job(*arguments, **environment), code, pattern)

    def test_options_that_are_wrong(self):
        self.wrong("expected a program")
        self.wrong("expected a program", "-n", "2")
        self.wrong("-n: expected a whole number.*got x", "-n", "x", "true")
        self.wrong("-n: expected a whole number from 1.*got 0", "-n", "0", "true")
        self.wrong("-n: .*got 2.5", "--np", "2.5", "true")
        self.wrong("-s: .*got -1", "-s", "-1", "true")
        self.wrong("expected an option of mxrun, got --nope", "--nope", "true")
        self.wrong("expected an option.*got --nproc_per_node; did you mean --nproc-per-node", "--nproc_per_node", "2", "true")
        self.wrong("expected -n N or --np N, got -np", "-np", "2", "true")
        self.wrong("--nnodes: .*got '0'", "--nnodes", "0", "true")
        self.wrong("--nnodes: .*got 2", "--nnodes", "2", "--launcher", "local", "true")
        self.wrong(".*--?nproc-per-node.*got '?many", "--nproc-per-node", "many", "true")
        self.wrong("-n and --nproc-per-node disagree", "-n", "3", "--nproc-per-node", "2", "true")
        self.wrong("--launcher", "--launcher", "magic", "true")
        self.wrong("--bind", "--bind", "socket", "true")
        self.wrong("--restart", "--restart", "worker", "true")
        self.wrong("--max-restarts: expected --restart group", "--restart", "none", "--max-restarts", "1", "true")
        for flag in ("--timeout", "--start-timeout", "--heartbeat", "--dead-after", "--grace"):
            self.wrong(f"{flag}: expected a time.*got soon", flag, "soon", "true")
            self.wrong(f"{flag}: expected a time.*got -1", f"{flag}=-1", "true")
            self.wrong(f"{flag}: expected a time of at most 240h, got 241h", flag, "241h", "true")
        self.wrong("--timeout: expected more than 0", "--timeout", "0", "true")
        self.wrong("--dead-after: expected at least two heartbeats", "--dead-after", "0.5", "true")
        self.wrong("--ranks: .*got x", "--ranks", "x", "true")
        for text in (",", "0,", ",0", "0-", "0,,1"):
            self.wrong("--ranks: .*got nothing", "-n", "2", "--ranks", text, "true")
        self.wrong("--np: expected once, got it again", "-n", "2", "--np", "3", "true")
        self.wrong("--log-dir: expected once", "--log-dir", "a", "--log-dir", "b", "true")
        self.wrong("--np: .*missing", "-n")
        self.wrong("--job-id: expected at most 64 bytes, got 65", "--job-id", "j" * 65, "true")
        self.wrong("--job-id: expected printable ASCII characters without spaces, got", "--job-id", "caf\u00e9", "true")
        self.wrong("--job-id: expected printable ASCII characters without spaces, got", "--job-id", os.fsdecode(b"\xff"), "true")
        self.wrong("--ranks: expected the smaller rank of a range first, got 1-0", "-n", "2", "--ranks", "1-0", "true")
        self.wrong("--ranks: expected ranks below 2, got 2", "-n", "2", "--ranks", "0-2", "true")
        for one, others in (("--tls-cert", "--tls-key and --tls-ca"), ("--tls-key", "--tls-cert and --tls-ca"),
                            ("--tls-ca", "--tls-cert and --tls-key")):
            self.wrong(f"{one}: expected {others} with it, got none", "--tls", one, "a.pem", "true")
        self.wrong("--tls: expected true or false, got 'maybe'", "--tls=maybe", "true")
        self.wrong("--tls-cert: expected --tls-ca", "--tls-cert", "a", "--tls-key", "b", "true")
        self.wrong("--tee: expected --log-dir", "--tee", "true")
        self.wrong("--?.*tag-output", "--tag-output", "--no-tag-output", "true")
        self.wrong("-x: expected a variable that is set here, got MX_TEST_UNSET", "-x", "MX_TEST_UNSET", "true")
        self.wrong("-x: expected NAME", "-x", "=1", "true")
        self.wrong("--completion", "--completion", "tcsh")
        self.wrong("--tune: expected no program.*got ./program", "--tune", "./program")
        self.wrong("--nnodes: expected a fixed number of nodes, got '1:2'", "--nnodes", "1:2", "true")
        self.wrong("--nnodes: expected at most 1 nodes", "-H", "localhost:4", "--nnodes", "2", "true")
        self.wrong("--k8s: expected --launcher k8s", "--k8s", "image=x", "true")
        for option in (["-H", "a"], ["--hostfile", "a"], ["--nnodes", "2"], ["--nproc-per-node", "2"], ["--bind", "none"],
                       ["--rdzv", "lo:0"], ["--secret-file", "a"], ["--tls-cert", "a", "--tls-key", "a", "--tls-ca", "a"], ["--max-restarts", "1"], ["--log-dir", "a"],
                       ["--no-tag-output"], ["--timestamp-output"], ["--ranks", "0"], ["--events", "a"], ["--check"]):
            self.wrong("--[a-z].*: expected another launcher than k8s", "--launcher", "k8s", "--dry-run", "--k8s", "image=x", *option, "true")

    def test_two_options_of_one_file_that_disagree(self):
        config = self.write("both", "np=3\nnproc-per-node=2\n")
        self.wrong("-n and --nproc-per-node disagree: expected 2 .*got -n 3", "--config", config, "true")

    def test_slurm_without_an_allocation(self):
        for arguments in (("true",), ("-H", "n0,n1", "true"), ("-H", "n0,n1", "--dry-run", "true")):
            self.wrong("--launcher slurm: expected an allocation, got none .*salloc -N 2 mxrun", "--launcher", "slurm", "--rdzv", "lo:0",
                       *arguments)

    def test_top_that_is_wrong(self):
        self.wrong("top: expected a running job, got 'none'", "top", "none")
        self.wrong("top: .*--nope", "top", "--nope")
        self.wrong("top: .*--interval", "top", "none", "--interval", "0")
        # A program of this name is started after --.
        self.write("top", "#!/bin/sh\necho a program\n")
        job = self.run_job("--", "top", PATH=self.folder + ":" + os.environ["PATH"])
        self.assertEqual((job.code, job.stdout), (0, "a program\n"), job.stderr)

    def test_top_refuses_what_is_no_status(self):
        for number, answer in enumerate((b"", b"[]", b"{}", b'{"job":"j","elapsed":1,"restarts":0,"processes":[1]}', b'{"job":"\x1b[2J"')):
            name = f"impostor-{os.getpid()}-{number}"
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(f"\0mxrun/{os.geteuid()}/{name}")
                server.listen()
                job = self.start("top", name, "--once")
                with server.accept()[0] as asked:
                    asked.sendall(answer)
                self.assert_one_line(job.finish(), 69, "top: expected the status of a job, got '")
                self.assertNotIn("\x1b", job.stderr)

    def test_values_with_control_characters(self):
        job = self.run_job("-n", "\x1b[2J\n2", "true")
        self.assert_one_line(job, 2, r"-n: expected a whole number.*got \\x1b\[2J\\x0a2\n")
        job = self.run_job("-n", "x" * 100000, "true")
        self.assert_one_line(job, 2, "-n: expected a whole number.*\\.\\.\\.\n")
        self.assertLess(len(job.stderr), 3000)

    def test_empty_values(self):
        for flag in ("-n", "-s", "--nnodes", "--nproc-per-node", "--host", "--hostfile", "--launcher", "--k8s", "--bind", "--rdzv",
                     "--job-id", "--secret-file", "--tls-cert", "--tls-key", "--tls-ca", "--timeout", "--start-timeout", "--heartbeat", "--dead-after", "--grace",
                     "--restart", "--max-restarts", "--log-dir", "--ranks", "--events", "--completion", "--config"):
            self.wrong(f".*{flag}.*expected a value, got an empty one", flag, "", "true")
            if flag.startswith("--"):
                self.wrong(f"{flag}.*expected a value, got an empty one", f"{flag}=", "true")
        self.wrong("-x: expected NAME=VALUE or NAME, got ''", "-x", "", "true")
        # The value of a variable may be empty.
        job = self.run_job("-x", "MX_TEST_A=", "sh", "-c", "echo ${MX_TEST_A-unset}.")
        self.assertEqual((job.code, job.stdout), (0, ".\n"))

    def test_variables_of_mxrun_itself(self):
        for name in ("MX_RANK", "RANK", "MX_WORLD_SIZE", "LOCAL_RANK", "MX_RDZV", "MX_SECRET_FD", "MASTER_PORT", "DMLC_ROLE",
                     "DMLC_WORKER_ID", "DMLC_SERVER_ID", "MX_TIMEOUT_MS", "MX_TLS", "MX_TLS_CERT"):
            self.wrong(f"-x: expected a variable that mxrun does not set, got {name}", "-x", f"{name}=1", "true")
            self.wrong(f"-x: expected a variable that mxrun does not set, got {name}", "-x", name, "true", **{name: "1"})

    def test_help_and_version(self):
        job = self.run_job("--help")
        self.assertEqual((job.code, job.stderr), (0, ""))
        self.assertIn("Usage: ", job.stdout)
        for flag in ("--np", "--servers", "--nnodes", "--nproc-per-node", "--host", "--hostfile", "--launcher", "--rdzv",
                     "--job-id", "--start-timeout", "--timeout", "--bind", "--tune", "--max-restarts", "--restart",
                     "--heartbeat", "--dead-after", "--grace", "--log-dir", "--tee", "--tag-output", "--no-tag-output",
                     "--timestamp-output", "--ranks", "--events", "-x", "--config", "--dry-run", "--check",
                     "--completion", "--secret-file", "--tls", "--tls-cert", "--tls-key", "--tls-ca"):
            self.assertIn(flag, job.stdout)
        self.assertNotIn("--agent", job.stdout)
        self.assertRegex(self.run_job("--version").stdout, r"^mxrun \d+\.\d+\.\d+\n$")

    def test_programs_that_cannot_be_started(self):
        self.wrong("no_such_program was not found in PATH", "no_such_program", code=127)
        self.wrong("./no/such was not found", "./no/such", code=127)
        text = self.write("text", "hello\n", 0o644)
        self.wrong(".*text is not executable; try: chmod \\+x", "-n", "4", text, code=126)
        self.wrong(".* is a folder", self.folder, code=126)
        script = self.write("script", "#!/no/such/interpreter\n")
        job = self.run_job("-n", "3", script)
        self.assertEqual(job.code, 127)
        self.assertRegex(job.stderr, "^mxrun: first failure: rank 0 on .*: could not be started: .*interpreter")
        binary = self.write("binary", "no program\n")
        job = self.run_job("-n", "3", binary)
        self.assertEqual(job.code, 126)
        self.assertRegex(job.stderr, "#!/bin/sh")

    def test_configuration(self):
        self.wrong("--config", "--config", self.path("missing"), "true", code=78)
        for text, pattern in (("# fine\n\nno_such_option=1\n", "line 3, 'no_such_option=1': expected the name of an option"),
                              ("np=2\nnp x\n", "line 2, 'np x': expected the name of an option"),
                              ("np\n", "line 1, 'np': expected a value, as in np=N"),
                              ("np=x\n", "line 1, 'np=x': -n: expected a whole number.*got x"),
                              ("np=\n", "line 1, 'np=': .*--np.*expected a value, got an empty one"),
                              ("grace=1\nbind=socket\n", "line 2, 'bind=socket': .*--bind.*socket"),
                              ("tee=perhaps\n", "line 1, 'tee=perhaps': .*perhaps"),
                              ("x=RANK=3\n", "line 1, 'x=RANK=3': -x: expected a variable"),
                              ("n=1\nnp=2\n", "line 2, 'np=2': expected np once, got it in line 1"),
                              ("[mxrun]\n", "line 1, '\\[mxrun\\]': expected NAME=VALUE"),
                              ("=1\n", "line 1, '=1': expected NAME=VALUE"),
                              ("--np=1\n", "line 1, '--np=1': expected the name of an option without dashes"),
                              ("agent=true\n", "line 1, .*expected the name of an option"),
                              ("config=other\n", "line 1, .*expected the name of an option"),
                              ("help=true\n", "line 1, .*expected the name of an option")):
            bad = self.write("bad", text)
            self.wrong(f"--config {bad}: {pattern}", "--config", bad, "true", code=78)
        self.wrong("--events: cannot write", "--events", self.path("no/such/folder"), "true", code=78)
        self.write("file", "")
        self.wrong("--log-dir: cannot write", "--log-dir", self.path("file/below"), "true", code=78)
        self.wrong("--rdzv", "--rdzv", "nonsense", "true")
        self.wrong("--rdzv", "--rdzv", "0.0.0.0:0", "true")

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.wrong(f"--rdzv: cannot listen at 127.0.0.1:{port}", "--rdzv", f"127.0.0.1:{port}", "true", code=71)
            self.wrong("--rdzv: cannot listen", "--rdzv", f"127.0.0.1:{port}", "--check", "true", code=71)

    def test_a_folder_that_is_gone(self):
        os.mkdir(self.path("gone"))
        def leave():
            os.chdir(self.path("gone"))
            os.rmdir(self.path("gone"))
        job = self.run_job("-n", "2", "true", before=leave)
        self.assert_one_line(job, 78, "the current folder cannot be used: .*deleted.*enter a folder that exists")

    def test_too_few_open_files(self):
        def limit(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        def wrong(pattern, *arguments, files):
            job = self.run_job(*arguments, before=limit(files, files))
            self.assert_one_line(job, 78, pattern)
        for files in (12, 20):
            wrong(rf"open files: expected a limit of at least \d+ for the agent of this node, got {files}; raise it: ulimit -n \d+\n", "-n", "2", "true", files=files)
        wrong("open files: expected a limit of at least .* for mxrun, got 12", "--check", "true", files=12)
        wrong("open files: .* for the agent of this node, got 60", "-n", "8", "true", files=60)
        # mxrun takes what the hard limit allows; the program gets the soft one.
        job = self.run_job("-n", "8", "--no-tag-output", "sh", "-c", "ulimit -n", before=limit(40, 100))
        self.assertEqual((job.code, job.stdout), (0, "40\n" * 8), job.stderr)

    def test_secret_files(self):
        self.wrong("--secret-file: cannot read", "--secret-file", self.path("missing"), "true", code=77)
        open_to_all = self.write("open", "secret\n", 0o644)
        self.wrong("--secret-file: expected a file that only its owner", "--secret-file", open_to_all, "true", code=77)
        self.wrong("--secret-file: expected one line", "--secret-file", self.write("empty", "", 0o600), "true", code=77)
        for end in ("", "\n", "\r\n"):
            good = self.write("good", "the secret" + end, 0o600)
            job = self.run_job("--secret-file", good, "sh", "-c", 'cat <&"$MX_SECRET_FD"')
            self.assertEqual((job.code, job.stdout), (0, "the secret"))


class Rounds(jobs.JobTest):
    def test_a_round_that_fails_says_what_was_expected_and_how_to_repeat_it(self):
        class Three(jobs.JobTest):
            def runTest(self):
                for number in (6, 7, 8):
                    with self.round(number, victim="rank 1"):
                        job = self.run_job("sh", "-c", "echo out; echo err >&2; exit 3")
                        self.assertEqual(job.code, 4 if number == 7 else 3)
        result, printed = unittest.TestResult(), io.StringIO()
        with contextlib.redirect_stdout(printed):
            Three().run(result)
        self.assertEqual((len(result.failures), result.errors), (1, []))
        self.assertIn("(round=7, victim='rank 1')", str(result.failures[0][0]))
        for part in ("round 7 of ", "'victim': 'rank 1'", "3 != 4", "exit code 3", "\nout\n", "\nerr\n", "MX_TEST_ROUNDS=1 MX_TEST_FIRST_ROUND=7\n"):
            self.assertIn(part, printed.getvalue())
        self.assertNotIn("round 6", printed.getvalue())


class DryRuns(jobs.JobTest):
    def test_dry_run_starts_nothing(self):
        job = self.run_job("-n", "2", "-s", "1", "--job-id", "j1", "--dry-run", "touch", self.path("touched"))
        self.assertEqual(job.code, 0, job.stderr)
        self.assertIn("job j1", job.stdout)
        self.assertIn("server 0", job.stdout)
        self.assertRegex(job.stdout, "rank 1.*MX_WORLD_SIZE=2")
        for variable in ("MX_RDZV=127.0.0.1:<chosen at start>", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=<chosen at start>",
                         "DMLC_PS_ROOT_PORT=<chosen at start>", "MX_SECRET_FD=<chosen at start>",
                         "MX_NUM_THREADS=<chosen at start>"):
            self.assertEqual(job.stdout.count(f" {variable}"), 3, job.stdout)
        self.assertNotIn("MX_INTERFACE", job.stdout)
        self.assertFalse(os.path.exists(self.path("touched")))

    def test_dry_run_shows_what_is_known(self):
        job = self.run_job("--dry-run", "--rdzv", "127.0.0.1:29999", "-x", "MX_INTERFACE=lo", "-x", "MX_NUM_THREADS=3", "true",
                           OMP_NUM_THREADS="5")
        for variable in ("MX_RDZV=127.0.0.1:29999", "MX_INTERFACE=lo", "MX_NUM_THREADS=3", "OMP_NUM_THREADS=5"):
            self.assertEqual(job.stdout.count(f" {variable}"), 1, job.stdout)
        job = self.run_job("--dry-run", "-H", "127.0.0.8,127.0.0.9", "--launcher", "ssh", "true")
        self.assertEqual(job.stdout.count(" MX_INTERFACE=<chosen at start>"), 2, job.stdout)

    def test_check_starts_nothing(self):
        job = self.run_job("-n", "2", "--check", "touch", self.path("touched"))
        self.assertEqual(job.code, 0, job.stderr)
        self.assertIn("touch", job.stdout)
        self.assertFalse(os.path.exists(self.path("touched")))
        # The exit code is the one with which starting the program would end.
        self.assertEqual(self.run_job("--check", "no_such_program").code, 127)
        self.assertEqual(self.run_job("--check", "./no_such_program").code, 127)
        self.assertEqual(self.run_job("--check", self.write("text", "hello\n", 0o644)).code, 126)

    def test_config_file(self):
        config = self.write("config", "np=3\nlog-dir=%s\n" % self.path("logs"))
        job = self.run_job("--config", config, "sh", "-c", "echo $WORLD_SIZE")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(self.read("logs/rank2.out"), "3\n")
        config = self.write("config", "; all forms\n x = A=1 2 \nx=B=2\nn=4\ntee\nranks=0,1\n"
                            'no-tag-output = true\nlog-dir="%s"\n' % self.path("a folder"))
        job = self.run_job("--config", config, "-n", "2", "sh", "-c", "echo $WORLD_SIZE$A$B")
        self.assertEqual((job.code, job.stdout), (0, "21 22\n" * 2), job.stderr)
        self.assertEqual(self.read("a folder/rank1.out"), "21 22\n")

        job = self.run_job("--config", self.write("config", "n=1\ntls=maybe\n"), "true")
        self.assert_one_line(job, 78, "--config .*: line 2, 'tls=maybe': --tls: expected true or false, got 'maybe'")

    def test_the_command_line_overrides_what_does_not_go_together(self):
        def run(text, *arguments):
            job = self.run_job("--config", self.write("config", text), *arguments)
            self.assertEqual(job.code, 0, job.stderr)
            return job.stdout
        self.assertEqual(run("tag-output\n", "--no-tag-output", "echo", "a"), "a\n")
        self.assertEqual(run("no-tag-output\n", "--tag-output", "echo", "a"), "[0:0] a\n")
        for text, option in (("hostfile=/no/such/file\n", ("-H", "localhost:2")), ("host=a,b\n", ("--hostfile", self.write("hosts", "localhost:2\n")))):
            self.assertIn(" 2 workers", run(text, *option, "--dry-run", "true"))
        for text, option in (("np=3\n", ("--nproc-per-node", "2")), ("np=1\n", ("--nproc-per-node", "2")),
                             ("nproc-per-node=3\n", ("-n", "2")), ("nproc-per-node=gpu\n", ("-n", "2"))):
            self.assertIn(" 2 workers", run(text, *option, "--dry-run", "true"))
        # On several nodes the two go together.
        self.assertIn(" 3 workers", run("np=3\nlauncher=ssh\n", "--nproc-per-node", "2", "-H", "127.0.0.8,127.0.0.9", "--dry-run", "true"))
        self.assertEqual(run("max-restarts=3\n", "--restart", "none", "true"), "")
        self.assertEqual(run("k8s=image=x\n", "--launcher", "local", "true"), "")
        again = ("sh", "-c", "[ $MX_RESTART_COUNT = 2 ] && echo $MX_RESTART_COUNT")
        self.assertEqual(run("restart=none\n", "--max-restarts", "2", *again), "2\n")
        self.assertEqual(run("max-restarts=2\n", "--restart", "group", *again), "2\n")

    def test_variables_of_the_file_and_of_the_command_line(self):
        config = self.write("config", "x=A=1\nx=B=2\nx=PATH=/nowhere\n")
        job = self.run_job("--config", config, "-x", "B=3", "-x", "C=4", "-x", "PATH", "sh", "-c", "echo $A$B$C")
        self.assertEqual((job.code, job.stdout), (0, "134\n"), job.stderr)
        config = self.write("config", "launcher=k8s\nk8s=image=i:1,cpu=2\n")
        job = self.run_job("--config", config, "--k8s", "image=i:2", "--job-id", "j", "--dry-run", "true")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertIn('image: "i:2"', job.stdout)
        self.assertIn('cpu: "2"', job.stdout)


if __name__ == "__main__":
    jobs.main()
