#!/usr/bin/env python3
"""Runs the conformance suite of communicators over MPI. Usage: conformance.py PROGRAM RANKS MPIRUN [OPTION ...]

The first job runs what leaves its groups usable, and says which tests have parts that do not. Each of those parts gets a job
of its own, because no process can use MPI after a failure."""

import re
import subprocess
import sys

PROGRAM, RANKS, MPIRUN = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def run(*arguments):
    """Returns whether all ranks have passed, and what they printed."""
    try:
        done = subprocess.run([*MPIRUN, "-n", str(RANKS), PROGRAM, *arguments], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, check=False)
        text = done.stdout
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace") + "\nthe job did not end"
    # The exit code of mpirun says nothing: it complains about every process that has not finalised MPI.
    passed = all(f"rank {rank} of {RANKS}: passed" in text for rank in range(RANKS))
    return passed and "FAILED" not in text and "exited on signal" not in text, text


passed, text = run()
failed = []
if not passed:
    failed.append("the tests without ends")
    print(text, flush=True)
# The delays of the other cases change nothing about the ends of groups.
endings = re.findall(r"^ending (\S+/mpi) (\d+)$", text, re.MULTILINE)
if RANKS > 1 and not endings:
    failed.append("no test has an end")
for test, parts in endings:
    for part in range(int(parts)):
        passed, text = run(f"--gtest_filter={test}", f"--ending={part}")
        if not passed:
            failed.append(f"part {part} of {test}")
            print(text, flush=True)
        else:
            print(f"passed: part {part} of {test}", flush=True)
for what in failed:
    print(f"failed: {what} with {RANKS} ranks")
sys.exit(1 if failed else 0)
