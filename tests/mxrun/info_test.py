#!/usr/bin/env python3
"""mx-info says what the build has and what it finds, and fails at nothing that is only missing. Usage: ... MX_INFO"""

import json
import os
import subprocess
import sys
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))


def run(*options, **environment):
    return subprocess.run([PROGRAM, *options], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False)


class Info(unittest.TestCase):
    def facts(self, **environment):
        job = run("--json", **environment)
        self.assertEqual((job.returncode, job.stderr), (0, ""))
        return json.loads(job.stdout)

    def test_the_sections(self):
        facts = self.facts(MX_VIRTUAL_DEVICES="3", MX_NUM_THREADS="1")
        self.assertEqual(list(facts), ["build", "processor", "devices", "libraries", "environment"])
        self.assertRegex(facts["build"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(facts["build"]["operators"], r"^\d\d\d, \d+ of them")
        self.assertEqual(facts["devices"]["virtual devices"], "3")
        self.assertEqual(facts["devices"]["engine"], "threaded")
        self.assertRegex(facts["processor"]["processors"], r"uses 1$")
        self.assertEqual(facts["environment"]["MX_VIRTUAL_DEVICES"], "3")

    def test_a_wrong_setting_is_a_fact(self):
        facts = self.facts(MX_NUM_THREADS="x")
        self.assertIn("MX_NUM_THREADS", facts["processor"]["problem"])
        self.assertEqual(facts["environment"]["MX_NUM_THREADS"], "x")

    def test_the_text_has_the_facts_of_the_object(self):
        text = run().stdout
        for section, facts in self.facts().items():
            self.assertIn(f"{section}\n", text)
            for name in facts:
                self.assertRegex(text, rf"(?m)^  {name} ")

    def test_what_is_missing_is_a_fact(self):
        # Without a GPU the reason is there, and without a module where it was looked for.
        facts = self.facts(CUDA_VISIBLE_DEVICES="")
        self.assertNotIn("gpu(0)", facts["devices"])
        self.assertRegex(facts["devices"]["GPUs"], "^none: .")
        for module in ("module mpi", "module nccl"):
            self.assertRegex(facts["libraries"][module], r"^found$|^none: .*[Ll]ooked for")

    def test_it_needs_no_environment_and_starts_nothing(self):
        # Only a program that communicates over MPI starts it: MPI needs a path, files and processes of its own.
        for environment in ({}, {**os.environ, "OPAL_PREFIX": "/nonexistent"}):
            job = subprocess.run([PROGRAM, "--json"], env=environment, capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual((job.returncode, job.stderr), (0, ""))
            self.assertIn("libraries", json.loads(job.stdout))

    def test_a_wrong_variable_is_a_fact(self):
        self.assertRegex(self.facts(MX_ENGINE="fast")["devices"]["engine"], "MX_ENGINE.*'?fast")

    def test_wrong_options(self):
        job = run("--xml")
        self.assertEqual((job.returncode, job.stdout), (2, ""))
        self.assertRegex(job.stderr, r"^mx-info: .*--xml.*; see mx-info --help\n$")
        self.assertEqual(run("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
