"""What the tests of mxrun share: starting jobs, and finding the processes that belong to them."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

MXRUN = ""
SLOW = 5 if os.environ.get("MX_TEST_SHORT") else 1  # under sanitizers


def rounds(default):
    return int(os.environ.get("MX_TEST_ROUNDS", default))


def round_numbers(default):
    """The numbers of the rounds of a test: MX_TEST_ROUNDS many, from MX_TEST_FIRST_ROUND."""
    first = int(os.environ.get("MX_TEST_FIRST_ROUND", 0))
    return range(first, first + rounds(default))


def processes_with(marker):
    """Returns {pid: name} of all processes whose environment has MX_TEST_MARKER=marker."""
    wanted = f"MX_TEST_MARKER={marker}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/comm", encoding="utf-8") as file:
                found[int(name)] = file.read().strip()
        except OSError:
            continue
    return found


def kill_if_there(pids):
    """Kills processes, of which some may end because of the first kill."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_for(condition, what, seconds=60):
    """Polls until condition() is true and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {seconds} s")
        time.sleep(0.01)


class Job:
    """A running mxrun. Its processes, with everything below them, carry a marker in their environment."""

    def __init__(self, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 before=None, command=(), **environment):
        """`command`: the words that start mxrun; empty: it is started itself."""
        self.marker = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [*command, MXRUN, *map(str, arguments)], stdin=stdin, stdout=stdout, stderr=stderr, text=True, preexec_fn=before,
            start_new_session=True,
            env={**os.environ, **environment, "MX_TEST_MARKER": self.marker},
        )
        self.pid = self.process.pid
        self.code, self.stdout, self.stderr = None, "", ""

    def finish(self, seconds=120):
        self.stdout, self.stderr = self.process.communicate(timeout=seconds)
        self.code = self.process.returncode
        return self

    def left(self):
        return processes_with(self.marker)

    def named(self, name):
        return [pid for pid, found in self.left().items() if found == name]

    def kill_all(self):
        kill_if_there(self.left())


class JobTest(unittest.TestCase):
    maxDiff = None
    last_job = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o755):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def start(self, *arguments, **options):
        job = self.last_job = Job(*arguments, **options)
        self.addCleanup(job.process.wait)
        self.addCleanup(job.kill_all)
        for stream in (job.process.stdout, job.process.stderr):
            if stream:
                self.addCleanup(stream.close)
        return job

    @contextlib.contextmanager
    def round(self, number, **case):
        """A round of a test with many. A failure does not end the test, and is printed at once, because the report of the
        test comes after the last round: the round, the case, what was expected, and what the last job of the round said."""
        with self.subTest(round=number, **case):
            self.last_job = None
            try:
                yield
            except unittest.SkipTest:
                raise
            except Exception as error:
                job, said = self.last_job, "no job was started"
                if job:
                    said = (f"exit code {job.code}" if job.code is not None else f"runs: {job.left()}") + \
                        f"\n--- standard output\n{job.stdout[-4000:]}\n--- standard error\n{job.stderr[-4000:]}\n---"
                print(f"round {number} of {self.id()} failed, {case}: {type(error).__name__}: {error}\n"
                      f"the last job: {said}\n"
                      f"to repeat the round: MX_TEST_ROUNDS=1 MX_TEST_FIRST_ROUND={number}", flush=True)
                raise
            finally:
                if self.last_job and self.last_job.code is None:
                    self.last_job.kill_all()  # the next rounds must not be disturbed

    def run_job(self, *arguments, **options):
        job = self.start(*arguments, **options).finish()
        self.assert_nothing_left(job, 0.0)
        return job

    def assert_nothing_left(self, job, seconds=20.0):
        end = time.monotonic() + seconds
        while job.left() and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(job.left(), {})

    def assert_one_line(self, job, code, pattern):
        """The job ended with this code and one line that says why."""
        self.assertEqual(job.code, code, job.stderr)
        self.assertEqual(job.stdout, "")
        self.assertEqual(len(job.stderr.splitlines()), 1, job.stderr)
        self.assertRegex(job.stderr, "^mxrun: " + pattern)

    def wait_for_lines(self, name, count):
        """Waits until a file has so many lines."""
        def enough():
            try:
                lines = self.read(name).splitlines()
            except OSError:
                return None
            return lines if len(lines) >= count else None
        return wait_for(enough, f"{count} lines in {name}")


def main():
    global MXRUN
    MXRUN = os.path.abspath(sys.argv.pop(1))
    # Continuous integration starts tests with these ignored, which programs would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    unittest.main()
