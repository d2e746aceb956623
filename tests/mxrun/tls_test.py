#!/usr/bin/env python3
"""Jobs whose connections are encrypted: --tls, and --tls-cert with certificates. Usage: ... MXRUN RANK_PROGRAM"""

import os
import signal
import subprocess
import sys

import jobs

PROGRAM = ""
# A process that fails keeps the thread of its heartbeats to the end. ThreadSanitizer would call it leaked.
THREADS = ":".join(filter(None, [os.environ.get("TSAN_OPTIONS"), "report_thread_leaks=0"]))

# Runs a rank behind a relay to the rendezvous, which writes into a file what passes.
TAP = """
import os, socket, subprocess, sys, threading
host, port = os.environ["MX_RDZV"].rsplit(":", 1)
listener = socket.create_server(("127.0.0.1", 0))
def pump(a, b, file):
    try:
        while data := a.recv(65536):
            file.write(data)
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def run():
    near, _ = listener.accept()
    far = socket.create_connection((host, int(port)))
    with open(os.environ["TAP_FILE"], "wb") as file:
        threads = [threading.Thread(target=pump, args=(*pair, file)) for pair in ((near, far), (far, near))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
thread = threading.Thread(target=run)
thread.start()
code = subprocess.call(sys.argv[1:], close_fds=False,
                       env={**os.environ, "MX_RDZV": "127.0.0.1:%d" % listener.getsockname()[1]})
thread.join()
sys.exit(code)
"""

# Like the one of launchers_ssh_test.py; CHANGE is a command that may change what the other machine runs.
STAND_IN = """#!/bin/sh
while :; do case "$1" in -o) shift 2;; -*) shift;; *) break;; esac; done
shift
exec /bin/sh -c "$(printf '%s' "$*" | $CHANGE)"
"""


class Tls(jobs.JobTest):
    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                     f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        return name

    def certificate(self, name, authority, days=1):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout",
                     f"{name}.key", "-out", f"{name}.csr")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                     "-set_serial", "7", "-days", str(days), "-out", f"{name}.pem")
        os.chmod(self.path(f"{name}.key"), 0o600)
        return ["--tls-cert", self.path(f"{name}.pem"), "--tls-key", self.path(f"{name}.key"), "--tls-ca",
                self.path(f"{authority}.pem")]

    def both_kinds(self):
        return [["--tls"], self.certificate("node", self.authority("authority"))]

    def test_ranks_find_each_other(self):
        for options in self.both_kinds():
            for transport in ("tcp", "shm"):
                job = self.run_job("-n", 3, *options, "--no-tag-output", PROGRAM, "sum", MX_TRANSPORT=transport)
                self.assertEqual((job.code, job.stdout, job.stderr), (0, "6\n" * 3, ""))

    def test_a_killed_rank_is_named(self):
        job = self.start("-n", 3, "--tls", PROGRAM, "loop", self.folder, MX_TRANSPORT="tcp")
        pid = int(self.wait_for_lines("ready1", 1)[0])
        for rank in (0, 2):
            self.wait_for_lines(f"ready{rank}", 1)
        os.kill(pid, signal.SIGKILL)
        job.finish()
        self.assertEqual(job.code, 137, job.stderr)
        self.assertIn("first failure: rank 1", job.stderr)
        self.assertEqual(job.stdout.count("rank 1"), 2, job.stdout)
        self.assert_nothing_left(job)

    def test_a_group_that_restarts_finds_each_other_again(self):
        for options in self.both_kinds():
            script = '[ "$MX_EPOCH" = 1 ] || { "$0" sum; exit 5; }; exec "$0" sum'
            job = self.run_job("-n", 2, *options, "--max-restarts", 1, "--no-tag-output", "sh", "-c", script, PROGRAM,
                               MX_TRANSPORT="tcp")
            self.assertEqual(job.code, 0, job.stderr)
            self.assertTrue(job.stdout.endswith("3\n3\n"), job.stdout)

    def test_agents_on_other_machines(self):
        for options in self.both_kinds():
            job = self.start("-H", "127.0.0.1,127.0.0.2", "-x", "MX_INTERFACE=lo", *options, "--no-tag-output", PROGRAM, "sum",
                             MX_SSH=self.write("ssh", STAND_IN), CHANGE="cat").finish()
            self.assertEqual((job.code, job.stdout), (0, "3\n3\n"), job.stderr)
            self.assert_nothing_left(job)

    def test_an_agent_that_differs_is_told_what_to_do(self):
        good = self.certificate("node", self.authority("authority"))
        self.certificate("stranger", self.authority("another"))
        stranger = "sed s/node\\./stranger./g;s/authority\\.pem/another.pem/"
        for options, change, text in (
                (["--tls"], "sed s/--tls//", "expected TLS, got clear text; give this process.*the same --tls options"),
                ([], "sed s/--agent-node/--tls&/;s/--tls--/--tls\\x20--/", "expected clear text, got TLS; give this process.*the same --tls options"),
                (good, stranger, "expected a certificate that the authority in .*another.pem"),
                (["--tls"], "sed s/--tls/" + "\\x20".join(good).replace("/", "\\/") + "/", "need the same --tls options"),
        ):
            with self.subTest(change=change):
                job = self.start("-H", "127.0.0.1,127.0.0.2", *options, "--timeout", "20", "true",
                                 MX_SSH=self.write("ssh", STAND_IN), CHANGE=change).finish()
                self.assertEqual(job.code, 77, job.stderr)
                self.assertRegex(job.stderr, text)
                self.assert_nothing_left(job)

    def test_a_rank_that_differs_is_told_what_to_do(self):
        for options, differs in ((["--tls"], "off"), ([], "psk")):
            job = self.start("-n", 2, *options, "--no-tag-output", "sh", "-c",
                             '[ "$MX_RANK" = 0 ] || export MX_TLS=$DIFFERS; exec "$0" sum', PROGRAM, DIFFERS=differs,
                             TSAN_OPTIONS=THREADS).finish()
            self.assertEqual(job.code, 1, job.stderr)
            self.assertIn("first failure: rank 1", job.stderr)
            self.assertRegex(job.stdout, "the other side refused this one.*the same --tls options")
            self.assert_nothing_left(job)

    def test_the_wire_does_not_show_what_is_said(self):
        words = [b"MXHS", b"0/tcp/world/1"]
        # A short name is among encrypted bytes by chance.
        if len(os.uname().nodename) >= 4:
            words.append(os.uname().nodename.encode())
        for options, shown in ((["--tls"], False), ([], True)):
            tap = self.path("tap")
            job = self.run_job("-n", 2, *options, "--no-tag-output", "sh", "-c",
                               '[ "$MX_RANK" = 1 ] || exec "$0" sum; exec "$PYTHON" -c "$TAP" "$0" sum', PROGRAM,
                               MX_TRANSPORT="tcp", PYTHON=sys.executable, TAP=TAP, TAP_FILE=tap)
            self.assertEqual((job.code, job.stdout), (0, "3\n3\n"), job.stderr)
            with open(tap, "rb") as file:
                seen = file.read()
            self.assertGreater(len(seen), 1000)
            for word in words:
                self.assertEqual(word in seen, shown, word)

    def test_an_inner_job_has_keys_of_its_own(self):
        node = self.certificate("node", self.authority("authority"))
        for outer, inner in ((node, ()), (["--tls"], node), ((), ["--tls"])):
            job = self.run_job(*outer, jobs.MXRUN, "-n", 2, *inner, "--no-tag-output", PROGRAM, "sum", MX_TRANSPORT="tcp")
            self.assertEqual((job.code, job.stdout), (0, "3\n3\n"), job.stderr)
            shown = self.run_job(*outer, jobs.MXRUN, *inner, "sh", "-c", 'echo "$MX_TLS $MX_TLS_CERT"')
            self.assertEqual(shown.stdout, f"cert {inner[1]}\n" if len(inner) > 1 else f"{'psk' if inner else 'off'} \n")

    def test_dry_run_and_config(self):
        self.write("config", "tls\n")
        job = self.run_job("--config", self.path("config"), "--dry-run", "true")
        self.assertIn(" MX_TLS=psk ", job.stdout)
        self.assertIn(" MX_TLS=off ", self.run_job("--dry-run", "true").stdout)
        # Files are named by their whole paths, because agents may start in another folder.
        job = self.run_job("--dry-run", "--launcher", "ssh", "-H", "127.0.0.1,127.0.0.2", "--tls-cert", "c.pem", "--tls-key",
                           "k.pem", "--tls-ca", "a.pem", "true")
        here = os.getcwd()
        self.assertIn(" MX_TLS=cert ", job.stdout, job.stderr)
        self.assertIn(f"MX_TLS_CERT={here}/c.pem MX_TLS_KEY={here}/k.pem MX_TLS_CA={here}/a.pem", job.stdout)
        self.assertRegex(job.stdout, f"ssh.*--tls-cert {here}/c.pem --tls-key {here}/k.pem --tls-ca {here}/a.pem")
        self.assertIn("name: MX_TLS", self.run_job("--launcher", "k8s", "--dry-run", "--k8s", "image=x", "--tls", "true").stdout)

    def test_files_that_are_wrong(self):
        good = self.certificate("node", self.authority("authority"))
        other = self.certificate("other", "authority")
        old = self.certificate("old", "authority", days=0)
        stranger = self.certificate("stranger", self.authority("another"))

        def wrong(pattern, options, code=78):
            self.assert_one_line(self.run_job(*options, "true"), code, "--tls-cert: " + pattern)
        for at in (1, 3, 5):
            missing = [*good[:at], self.path("missing"), *good[at + 1:]]
            wrong("expected .* in file '.*/missing', got No such file", missing)
            wrong("expected .* in file '.*/missing', got No such file", ["--check", *missing])
        wrong("expected the key of the certificate in file '.*node.pem', got another one in file '.*other.key'",
              [*good[:3], other[3], *good[4:]])
        wrong("expected certificates in PEM format", [good[0], good[3], *good[2:]])
        wrong(".*got one that is refused: certificate has expired", old)
        wrong(".*got one that is refused: unable to get local issuer", [*stranger[:5], good[5]])
        os.chmod(self.path("node.key"), 0o644)
        wrong("expected file '.*node.key' with the key to be accessible to its owner only.*chmod 600", good, 77)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
