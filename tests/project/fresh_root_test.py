#!/usr/bin/env python3
"""fresh_root.sh says what is wrong before it makes anything, and leaves nothing behind. Usage: ... SOURCE_DIR

Whether a bare system builds and passes is for .ci/run; here the programs that make it are stand-ins.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = ""


class FreshRoot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tools, self.made = (os.path.join(folder.name, name) for name in ("tools", "made"))
        os.mkdir(self.tools)
        os.mkdir(self.made)
        for name in "awk bash cat dirname env grep mkdir mktemp rm sed tar".split():
            os.symlink(shutil.which(name), os.path.join(self.tools, name))
        self.tool("id", "echo 0")
        self.tool("git", "case $* in *archive*) tar -cf - -T /dev/null ;; esac")
        self.tool("unshare", 'while case $1 in --propagation) shift ;; -*) true ;; *) false ;; esac; do shift; done\n"$@"')
        self.tool("mmdebstrap", "exit 1")

    def tool(self, name, text):
        path = os.path.join(self.tools, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!{shutil.which('bash')}\n{text}\n")
        os.chmod(path, 0o755)

    def run_it(self, *arguments, **environment):
        return subprocess.run(
            [shutil.which("bash"), os.path.join(SOURCE, "scripts/fresh_root.sh"), *arguments],
            env={"PATH": self.tools, "MX_FRESH_FOLDER": self.made, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def assert_error(self, text, *arguments, status=1):
        result = self.run_it(*arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertIn(text, result.stderr)
        self.assertEqual(os.listdir(self.made), [])

    def test_usage(self):
        self.assertIn("Usage: scripts/fresh_root.sh", self.run_it("--help").stdout)
        self.assert_error("Usage: scripts/fresh_root.sh", status=2)
        self.assert_error("Usage: scripts/fresh_root.sh", "buster", "true", status=2)
        self.assert_error("expected a command to run in trixie", "trixie", status=2)

    def test_without_mmdebstrap(self):
        os.remove(os.path.join(self.tools, "mmdebstrap"))
        self.assert_error("install the package mmdebstrap", "trixie", "true")

    def test_without_the_right_to_mount(self):
        self.tool("unshare", "echo unshare failed: Operation not permitted >&2; exit 1")
        self.assert_error("may not mount: unshare failed: Operation not permitted", "trixie", "true")

    def test_without_root(self):
        self.tool("id", "echo 1000")
        self.assert_error("needs root", "trixie", "true")

    def test_what_mmdebstrap_says_is_shown(self):
        self.tool("mmdebstrap", "echo E: no such mirror; exit 1")
        self.assert_error("E: no such mirror", "trixie", "true")
        self.assert_error("could not make bookworm", "bookworm", "true")

    def test_the_status_of_the_command_is_returned_and_the_system_removed(self):
        self.tool("mmdebstrap", 'for a; do case $a in */root) mkdir -p "$a" ;; esac; done')
        self.tool("mount", "")
        # Shows the files of the system, then runs the command outside of it.
        self.tool("chroot", 'ls "$1"; while [ "$1" != fresh ]; do shift; done; shift 2; exec "$@"')
        os.symlink(shutil.which("ls"), os.path.join(self.tools, "ls"))
        result = self.run_it("trixie", "bash", "-c", "exit 7")
        self.assertEqual(result.returncode, 7, result.stdout + result.stderr)
        self.assertIn(os.path.abspath(SOURCE).split(os.sep)[1], result.stdout.split())
        self.assertEqual(os.listdir(self.made), [])

    def test_the_mirror_can_be_given(self):
        self.tool("mmdebstrap", f'echo "$*" >{self.made}.arguments; exit 1')
        self.run_it("trixie", "true", MX_FRESH_MIRROR="http://mirror.invalid/debian")
        with open(self.made + ".arguments", encoding="utf-8") as file:
            arguments = file.read().split()
        self.assertEqual(arguments[-1], "http://mirror.invalid/debian")
        self.assertIn("trixie", arguments)
        self.assertIn("--variant=apt", arguments)


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main()
