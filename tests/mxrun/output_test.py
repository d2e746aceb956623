#!/usr/bin/env python3
"""The output of ranks is tagged, logged and bounded; events and job.json say what happened. Usage: ... MXRUN"""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time

import jobs

F_SETPIPE_SZ = 1031

# A server is told to end as soon as the workers have ended. So the workers wait until it has said what it says.
AFTER_THE_SERVER = ('if [ $MX_ROLE = server ]; then {say}; touch {file}; sleep 60; fi; '
                    'while [ ! -e {file} ]; do sleep 0.05; done; {say}')


class Output(jobs.JobTest):
    def test_lines_are_tagged_with_node_and_rank(self):
        job = self.run_job("-n", "3", "-s", "1", "sh", "-c",
                           AFTER_THE_SERVER.format(file=self.path("said"), say="echo out $MX_RANK; echo err $MX_RANK >&2"))
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(sorted(job.stdout.splitlines()),
                         ["[0:0] out 0", "[0:1] out 1", "[0:2] out 2", "[0:server0] out 0"])
        self.assertEqual(sorted(job.stderr.splitlines()),
                         ["[0:0] err 0", "[0:1] err 1", "[0:2] err 2", "[0:server0] err 0"])

    def test_one_process_has_no_tags_and_its_bytes_unchanged(self):
        job = self.run_job("printf", "a\\n\\nb")
        self.assertEqual(job.stdout, "a\n\nb")
        self.assertEqual(self.run_job("--tag-output", "printf", "a\\nb").stdout, "[0:0] a\n[0:0] b\n")
        self.assertEqual(sorted(self.run_job("-n", "2", "--no-tag-output", "echo", "a").stdout.split()), ["a", "a"])

    def test_times(self):
        job = self.run_job("-n", "2", "--timestamp-output", "echo", "a")
        for line in job.stdout.splitlines():
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} \[0:[01]\] a$")

    def test_only_chosen_ranks_are_printed(self):
        job = self.run_job("-n", "4", "--ranks", "0,2-3", "--log-dir", self.path("logs"), "--tee", "sh", "-c",
                           "echo $MX_RANK")
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] 0", "[0:2] 2", "[0:3] 3"])
        self.assertEqual(self.read("logs/rank1.out"), "1\n")

    def test_lines_of_ranks_do_not_mix(self):
        job = self.run_job("-n", "4", "--no-tag-output", "sh", "-c",
                           "for i in 1 2 3 4 5; do printf \"a$MX_RANK\"; printf \"b$MX_RANK\"; echo c$MX_RANK; done")
        lines = job.stdout.splitlines()
        self.assertEqual(sorted(lines), sorted(f"a{r}b{r}c{r}" for r in range(4) for _ in range(5)))

    def test_a_line_without_end_is_printed_at_the_end(self):
        job = self.run_job("-n", "2", "printf", "no newline")
        self.assertEqual(sorted(job.stdout.splitlines()), ["[0:0] no newline", "[0:1] no newline"])

    def test_a_very_long_line_is_cut(self):
        job = self.run_job("-n", "2", "head", "-c", "1000000", "/dev/zero")
        self.assertEqual(job.code, 0)
        for tag in ("[0:0] ", "[0:1] "):
            mine = [line[6:] for line in job.stdout.splitlines() if line.startswith(tag)]
            self.assertEqual(sum(map(len, mine)), 1000000)
            self.assertGreater(len(mine), 1)

    def test_lines_are_cut_at_256_kib(self):
        longest = 256 * 1024
        for size, pieces in ((longest - 1, [longest - 1]), (longest, [longest]), (longest + 1, [longest, 1]),
                             (2 * longest, [longest, longest])):
            job = self.run_job("--tag-output", "sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x; echo; echo; echo end")
            self.assertEqual([len(line) - 6 for line in job.stdout.splitlines()], pieces + [0, 3])

    def test_pieces_of_long_lines_do_not_mix(self):
        size = 3_000_000
        program = f"head -c {size} /dev/zero | tr '\\0' $MX_RANK; [ $MX_RANK = 0 ] || exit 0; echo; echo end"
        for redirection in ("", " >&2"):
            # Ranks 1 and 2 write to the other stream, which is the same pipe.
            command = f"if [ $MX_RANK = 0 ]; then {program}; else {{ {program}; }}{redirection}; fi"
            job = self.start("-n", "3", "sh", "-c", command, stderr=jobs.subprocess.STDOUT).finish()
            self.assertEqual(job.code, 0)
            found = dict.fromkeys("012", 0)
            for line in job.stdout.splitlines():
                if line == "[0:0] end":
                    continue
                rank = line[3]
                self.assertEqual(line[:6], f"[0:{rank}] ")
                self.assertEqual(line[6:].strip(rank), "", "text of another rank in a line")
                self.assertLessEqual(len(line), 6 + 256 * 1024)
                found[rank] += len(line) - 6
            self.assertEqual(found, dict.fromkeys("012", size))

    def test_unfinished_lines_of_both_streams_do_not_wait_for_each_other(self):
        # The rank leaves a line of standard output unfinished, and goes on with it while one of standard error is cut.
        done = self.path("done")
        job = self.start("sh", "-c", f"printf a; sleep 0.5; (yes abcdef | head -c 300000 >&2) & sleep 1; printf b; touch {done}; wait",
                         stderr=jobs.subprocess.STDOUT)
        jobs.wait_for(lambda: os.path.exists(done), "the whole output")
        time.sleep(0.5)  # nobody has read yet, so the pipe is full
        job.finish(30)
        self.assertEqual(job.code, 0)
        self.assertEqual((len(job.stdout), job.stdout[0], job.stdout.count("b")), (300002, "a", 42858))

    def test_logs(self):
        logs = self.path("deep/logs")
        job = self.run_job("-n", "2", "-s", "1", "--log-dir", logs, "sh", "-c",
                           AFTER_THE_SERVER.format(file=self.path("said"), say="echo out $MX_RANK; echo err >&2"))
        self.assertEqual((job.code, job.stdout, job.stderr), (0, "", ""))
        self.assertEqual(self.read("deep/logs/rank0.out"), "out 0\n")
        self.assertEqual(self.read("deep/logs/rank1.out"), "out 1\n")
        self.assertEqual(self.read("deep/logs/rank1.err"), "err\n")
        self.assertEqual(self.read("deep/logs/server0.out"), "out 0\n")
        job = self.run_job("-n", "2", "--log-dir", logs, "--tee", "sh", "-c", "echo again")
        self.assertEqual(job.stdout.splitlines().count("[0:0] again"), 1)
        self.assertEqual(self.read("deep/logs/rank0.out"), "again\n")

    def test_logs_of_an_earlier_job_are_removed(self):
        logs = self.path("logs")
        def names():
            return sorted(os.listdir(logs))
        job = self.run_job("-n", "4", "-s", "1", "--max-restarts", "1", "--log-dir", logs, "sh", "-c",
                           "[ $MX_ROLE = server ] && exec sleep 100; [ $MX_RESTART_COUNT = 1 ] || exit 7")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(len(names()), 4 * 5 + 1)
        foreign = ["rank9.out", "rank1.restart2.out", "rank1.txt", "server1.err", "rank.out", "ranks0.out", "rank2.outer",
                   "rank01.out", "rank1.restart0.out", "rank1.restart01.err", "server00.out"]
        for name in foreign:
            self.write(f"logs/{name}", "of somebody else\n")
        os.mkdir(os.path.join(logs, "rank0.restart0.out"))
        self.assertEqual(self.run_job("-n", "2", "--log-dir", logs, "true").code, 0)
        self.assertEqual(names(), sorted(foreign + ["rank0.restart0.out", "job.json", "rank0.out", "rank0.err", "rank1.out",
                                                    "rank1.err"]))
        # Without a job.json of mxrun nothing is removed.
        for text in ("", "[]", "{}", '{"workers": 2}', "not json"):
            self.write("logs/job.json", text)
            self.assertEqual(self.run_job("-n", "1", "--log-dir", logs, "true").code, 0)
            self.assertTrue(os.path.exists(self.path("logs/rank1.out")))
            self.write("logs/rank1.out", "")

    def test_job_json_is_not_written_through_a_link(self):
        self.write("precious", "kept\n")
        os.mkdir(self.path("logs"))
        for name in ("job.json.new", "job.json"):
            os.symlink(self.path("precious"), self.path(f"logs/{name}"))
        job = self.run_job("-n", "2", "--log-dir", self.path("logs"), "true")
        self.assertEqual((job.code, job.stderr), (0, ""))
        self.assertEqual(self.read("precious"), "kept\n")
        self.assertEqual(json.loads(self.read("logs/job.json"))["result"], "succeeded")
        self.assertEqual(sorted(os.listdir(self.path("logs"))), ["job.json", "rank0.err", "rank0.out", "rank1.err", "rank1.out"])

    def test_job_json_and_events(self):
        job = self.run_job("-n", "2", "--job-id", "j", "--log-dir", self.path("logs"), "--events", self.path("events"),
                           "sh", "-c", 'echo oh dear >&2; [ "$MX_RANK" = 0 ] || exit 9')
        self.assertEqual(job.code, 9)
        described = json.loads(self.read("logs/job.json"))
        self.assertEqual((described["job"], described["result"], described["exit_code"]), ("j", "failed", 9))
        self.assertEqual(described["workers"], 2)
        self.assertEqual(described["first_failure"]["rank"], 1)
        self.assertEqual(described["first_failure"]["stderr"], ["oh dear"])
        self.assertEqual([(p["rank"], p["code"]) for p in described["processes"]], [(0, 0), (1, 9)])
        self.assertEqual(described["nodes"][0]["host"], os.uname().nodename)
        events = [json.loads(line) for line in self.read("events").splitlines()]
        names = [event["event"] for event in events]
        self.assertEqual(names[:4], ["job_started", "agent_ready", "started", "started"])
        self.assertEqual(names[-1], "job_ended")
        self.assertEqual(sorted(names[4:-1]), ["exited", "exited", "failed"])
        self.assertEqual(events[-1]["exit_code"], 9)
        self.assertEqual([e["seconds"] for e in events], sorted(e["seconds"] for e in events))

    def test_the_last_lines_of_standard_error_are_kept(self):
        job = self.run_job("-n", "2", "--log-dir", self.path("logs"), "sh", "-c",
                           '[ "$MX_RANK" = 1 ] || exec sleep 100; seq 1 50 >&2; exit 3')
        self.assertEqual(job.code, 3)
        kept = [line.split("| ")[1] for line in job.stderr.splitlines() if " | " in line]
        self.assertEqual(kept, [str(i) for i in range(31, 51)])


class Floods(jobs.JobTest):
    FLOOD = "import os\nblock = b'x' * 99 + b'\\n'\nblock *= 600\nfor i in range(500): os.write(1, block)\n"

    def test_everything_arrives_and_the_tags_are_whole(self):
        with open(self.path("out"), "wb") as out:
            job = self.start("-n", "2", sys.executable, "-c", self.FLOOD, stdout=out).finish()
        self.assertEqual(job.code, 0, job.stderr)
        with open(self.path("out"), "rb") as file:
            lines = file.read().split(b"\n")
        self.assertEqual(lines.pop(), b"")
        self.assertEqual(len(lines), 2 * 500 * 600)
        self.assertEqual(set(lines), {b"[0:%d] " % rank + b"x" * 99 for rank in (0, 1)})

    def test_memory_is_bounded_when_nobody_reads(self):
        job = self.start("-n", "2", "sh", "-c", "exec yes $MX_RANK")
        agent = jobs.wait_for(lambda: job.named("mxrun-agent"), "the agent")[0]
        jobs.wait_for(lambda: self.memory_kb(agent) > 0 and self.is_idle(agent), "the agent at rest")
        self.assertLess(self.memory_kb(agent), 400_000 if jobs.SLOW > 1 else 30_000)
        # It still supervises: an end from outside comes through although the pipe is full.
        os.kill(job.pid, jobs.signal.SIGTERM)
        job.finish()
        self.assertEqual(job.code, 143)
        self.assert_nothing_left(job)

    def test_a_full_pipe_of_both_streams_does_not_stop_the_agent(self):
        read, write = os.pipe()
        fcntl.fcntl(write, F_SETPIPE_SZ, 4096)  # a write to one stream takes the room of the other
        job = self.start("-n", "2", "--grace", "1000", "--dead-after", "1000", "sh", "-c", "yes out & exec yes err >&2",
                         stdout=write, stderr=write)
        os.close(write)
        agent = jobs.wait_for(lambda: job.named("mxrun-agent"), "the agent")[0]
        jobs.wait_for(lambda: self.memory_kb(agent) > 0 and self.is_idle(agent), "the agent at rest")
        os.kill(job.pid, jobs.signal.SIGTERM)
        # Nobody reads yet, so the agent must see the request although its writes make no progress.
        jobs.wait_for(lambda: not job.named("yes"), "the end of the ranks")
        with os.fdopen(read, "rb") as file:
            file.read()
        job.finish()
        self.assertEqual(job.code, 143)
        self.assert_nothing_left(job)

    def memory_kb(self, pid):
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return int(line.split()[1])
        return 0

    def is_idle(self, pid):
        def used():
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        before = used()
        time.sleep(0.5)
        return used() - before <= 2

    def test_a_reader_that_ends(self):
        job = self.start("-n", "2", "sh", "-c", "exec yes $MX_RANK")
        self.assertRegex(job.process.stdout.readline(), r"^\[0:[01]\] [01]$")
        job.process.stdout.close()
        job.process.stdout = None
        job.finish()
        self.assertEqual(job.code, 128 + jobs.signal.SIGPIPE, job.stderr)
        self.assert_nothing_left(job)

    def test_the_job_ends_although_a_process_outside_holds_the_output(self):
        holder = self.path("holder")
        os.mkfifo(holder)
        # The pipe of the rank's output is opened by a process that is not below mxrun.
        job = self.start("-n", "1", "sh", "-c", f'echo $$ > {self.path("pid")}; read line < {holder}')
        pid = self.wait_for_lines("pid", 1)[0]
        outside = subprocess.Popen(["sleep", "1000"], stdout=os.open(f"/proc/{pid}/fd/1", os.O_WRONLY))
        self.addCleanup(outside.wait)
        self.addCleanup(outside.kill)
        with open(holder, "w", encoding="utf-8") as file:
            file.write("go on\n")
        self.assertEqual(job.finish().code, 0, job.stderr)

    def test_standard_streams_may_be_closed(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            done = subprocess.run(["sh", "-c", f'"{jobs.MXRUN}" -n 2 sh -c "echo out; exit 3" {closed}'],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 3, closed + done.stderr)
            self.assertEqual(done.stderr.count("mxrun: standard output is closed"), 1 if closed == ">&-" else 0, done.stderr)

    def test_what_cannot_be_written_is_said(self):
        job = self.run_job("-n", "2", "--events", "/dev/full", "true")
        self.assertEqual(job.code, 0)
        self.assertRegex(job.stderr, "^mxrun: cannot write /dev/full: No space left on device\n$")
        with open("/dev/full", "w", encoding="utf-8") as full:
            job = self.run_job("-n", "2", "echo", "a", stdout=full)
            self.assertRegex(job.stderr, "^mxrun: cannot write the output of ranks: No space left on device\n$")
            job = self.run_job("--help", stdout=full)
        self.assertEqual(job.code, 1)
        self.assertRegex(job.stderr, "^mxrun: cannot write to standard output: No space left on device\n$")

    def test_a_limit_of_file_sizes_ends_no_job(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        program = ("sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i + 1)); done; echo error >&2; exit 5")
        job = self.run_job("-n", "2", "--log-dir", self.path("logs"), *program, before=limit)
        self.assertEqual(job.code, 5, job.stderr)
        self.assertIn("File too large", job.stderr)
        with open(self.path("out"), "w", encoding="utf-8") as out:
            job = self.run_job("-n", "2", *program, before=limit, stdout=out)
        # As with a full disk, what cannot be printed is a closed pipe for the program, if it still writes then.
        self.assertIn(job.code, (5, 128 + signal.SIGPIPE), job.stderr)
        self.assertIn("File too large", job.stderr)
        # Programs find the signal as it was.
        job = self.run_job("sh", "-c", "exec head -c 9999 /dev/zero >" + self.path("big"), before=limit)
        self.assertEqual(job.code, 128 + signal.SIGXFSZ, job.stderr)


if __name__ == "__main__":
    jobs.main()
