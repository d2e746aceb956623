#!/usr/bin/env python3
"""Completion scripts and the man page know every option that --help knows."""

import os
import re
import shutil
import subprocess
import unittest

import jobs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Completion(jobs.JobTest):
    def output(self, *arguments):
        job = self.run_job(*arguments)
        self.assertEqual((job.code, job.stderr), (0, ""))
        return job.stdout

    def complete(self, *words):
        """Returns what bash offers for the last of the words."""
        script = self.write("mxrun.bash", self.output("--completion", "bash"))
        lines = f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mxrun; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "--norc", "-c", lines, "bash", "mxrun", *words], capture_output=True, text=True,
                              check=True, cwd=self.folder)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def options_of_help(self):
        """Names in the help text, except in the descriptions."""
        names = set()
        for line in self.output("--help").splitlines():
            if line.startswith("  -"):
                names |= set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", re.split(r"\s{2,}|\s[A-Z\[{a-z]", line.strip())[0]))
        return names

    def test_bash(self):
        self.assertEqual(self.complete("--launch"), ["--launcher"])
        self.assertEqual(self.complete("--launcher", "s"), ["ssh", "slurm"])
        self.assertEqual(self.complete("-n", "2", "--bind", ""), ["core", "none"])
        self.write("hosts.txt", "")
        os.mkdir(self.path("logs"))
        self.assertEqual(self.complete("--hostfile", "hos"), ["hosts.txt"])
        self.assertEqual(self.complete("--log-dir", ""), ["logs"])
        self.assertEqual(self.complete("-n", ""), [])
        self.assertEqual(self.complete("-n", "2", "program", "--launch"), [])
        self.assertIn("hosts.txt", self.complete("-n", "2", "program", "hos"))

    def test_every_option_is_there(self):
        names = self.options_of_help()
        self.assertGreater(len(names), 25)
        man = self.output("--man").replace("\\-", "-")
        fish = self.output("--completion", "fish")
        zsh = self.output("--completion", "zsh")
        offered = set(self.complete("-"))
        for name in names:
            with self.subTest(name=name):
                self.assertIn(name, offered)
                self.assertIn(f"\\fB{name}\\fR", man)
                self.assertIn(f"{name}[", zsh)
                self.assertIn(f" -l {name[2:]} " if name.startswith("--") else f" -s {name[1:]} ", fish)
        self.assertNotIn("--agent", man)

    def test_other_shells_accept_their_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                script = self.write("script." + shell, self.output("--completion", shell))
                done = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_the_man_page_is_the_one_in_docs(self):
        with open(os.path.join(ROOT, "docs", "mxrun.1"), encoding="utf-8") as file:
            self.assertEqual(self.output("--man"), file.read(), "run: mxrun --man > docs/mxrun.1")

    @unittest.skipUnless(shutil.which("man"), "no man")
    def test_man_prints_it_without_warnings(self):
        done = subprocess.run(["man", "--warnings", "-l", os.path.join(ROOT, "docs", "mxrun.1")], capture_output=True,
                              text=True, check=False, env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C"})
        if done.returncode == 0:
            self.assertEqual(done.stderr, "")
            self.assertIn("--nproc-per-node", done.stdout)

    def test_an_unknown_shell_is_refused(self):
        self.assertEqual(self.run_job("--completion", "tcsh").code, 2)


if __name__ == "__main__":
    jobs.main()
