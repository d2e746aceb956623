#!/usr/bin/env python3
"""get_data.sh leaves complete files or none, and reports errors. Usage: ... SOURCE_DIR

It runs in a small separate tree with its own list of files, which a server on this host provides.
"""

import functools
import hashlib
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

SOURCE = ""
FILES = {f"part-{i}.gz": bytes([i]) * (1000 * i + 1) for i in range(3)}


class Server:
    """Serves a folder; the transfer of a file named "slow" begins but never ends."""

    def __init__(self, folder):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(handler):
                if not os.path.exists(os.path.join(folder, "slow")):
                    return super().do_GET()
                handler.send_response(200)
                handler.send_header("Content-Length", "1000000")
                handler.end_headers()
                handler.wfile.write(b"x" * 1000)
                handler.wfile.flush()
                self.begun.set()
                self.stop.wait()

        self.begun, self.stop = threading.Event(), threading.Event()
        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
        )
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()


class GetData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree, self.served, self.target = (os.path.join(folder.name, n) for n in ("tree", "served", "target"))
        for name in ["scripts/get_data.sh", "scripts/lib/common.sh"]:
            path = os.path.join(self.tree, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, name), path)
        os.makedirs(os.path.join(self.tree, "examples/data"))
        with open(os.path.join(self.tree, "examples/data/mnist.sha256"), "w", encoding="utf-8") as file:
            for name, content in FILES.items():
                file.write(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        os.mkdir(self.served)
        for name, content in FILES.items():
            self.serve(name, content)
        self.server = Server(self.served)
        self.addCleanup(self.server.close)

    def serve(self, name, content):
        with open(os.path.join(self.served, name), "wb") as file:
            file.write(content)

    def start(self, *arguments, urls=None, path=None):
        # A proxy would also be asked for addresses of this host, so remove its settings.
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        environment["PATH"] = path or os.environ["PATH"]
        return subprocess.Popen(
            [shutil.which("bash"), os.path.join(self.tree, "scripts/get_data.sh"), *arguments],
            env={**environment, "MX_DATA_URLS": urls or self.server.url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run_to_end(self, *arguments, urls=None, path=None):
        with self.start(*arguments or (self.target,), urls=urls, path=path) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def there(self, folder=None):
        found = {}
        for name in os.listdir(folder or self.target):
            with open(os.path.join(folder or self.target, name), "rb") as file:
                found[name] = file.read()
        return found

    def test_fetches_every_file_from_http_and_from_a_folder(self):
        for urls in [self.server.url, self.server.url + "/", "file://" + self.served]:
            with self.subTest(urls=urls):
                shutil.rmtree(self.target, ignore_errors=True)
                result = self.run_to_end(urls=urls)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(self.there(), FILES)
                self.assertIn(self.target, result.stdout.splitlines()[-1])

    def test_without_a_folder_it_is_one_of_the_build(self):
        with self.start() as process:
            process.communicate()
        self.assertEqual(self.there(os.path.join(self.tree, "build/data/mnist")), FILES)

    def test_files_that_are_right_are_kept_and_others_replaced(self):
        self.assertEqual(self.run_to_end().returncode, 0)
        kept = os.path.join(self.target, "part-0.gz")
        stamp = os.stat(kept).st_ino
        with open(os.path.join(self.target, "part-1.gz"), "wb") as file:
            file.write(b"cut")
        os.remove(os.path.join(self.served, "part-0.gz"))  # the script must not ask for this file
        result = self.run_to_end()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(os.stat(kept).st_ino, stamp)
        self.assertEqual(self.there(), FILES)

    def test_a_wrong_file_never_gets_its_name(self):
        self.serve("part-1.gz", FILES["part-1.gz"] + b"x")
        result = self.run_to_end()
        self.assertEqual(result.returncode, 1)
        self.assertIn("part-1.gz is another file than expected", result.stderr)
        self.assertIn(hashlib.sha256(FILES["part-1.gz"]).hexdigest(), result.stderr)
        self.assertIn("error: could not get part-1.gz", result.stderr)
        self.assertEqual(self.there(), {"part-0.gz": FILES["part-0.gz"]})

    def test_the_next_address_is_tried(self):
        wrong = os.path.join(self.served, "wrong")
        os.mkdir(wrong)
        with open(os.path.join(wrong, "part-0.gz"), "wb") as file:
            file.write(b"wrong")
        result = self.run_to_end(urls=f"{self.server.url}/none {self.server.url}/wrong {self.server.url}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.there(), FILES)

    def test_without_a_network_it_says_what_to_do(self):
        with socket.socket() as unused:  # no server listens on this port
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            result = self.run_to_end(urls=url)
        self.assertEqual(result.returncode, 1)
        last = result.stderr.splitlines()[-1]
        self.assertTrue(last.startswith(f"error: could not get part-0.gz from any of: {url}"), last)
        self.assertIn("examples/data/mnist", last)
        self.assertEqual(self.there(), {})

    def test_interrupted_it_leaves_nothing_half(self):
        self.assertEqual(self.run_to_end().returncode, 0)
        os.remove(os.path.join(self.target, "part-2.gz"))
        self.serve("slow", b"")
        with self.start(self.target) as process:
            self.assertTrue(self.server.begun.wait(60))
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(self.there(), {name: FILES[name] for name in ["part-0.gz", "part-1.gz"]})

    def test_a_folder_that_cannot_be_is_an_error(self):
        path = os.path.join(self.served, "part-0.gz", "inside")
        result = self.run_to_end(path)
        self.assertEqual(result.returncode, 1)
        self.assertIn(path, result.stderr)

    def test_where_nothing_fetches_it_installs_what_does(self):
        """Simulates a minimal machine: a folder of commands without curl and wget, and an apt-get that adds curl to it."""
        tools = os.path.join(self.tree, "tools")
        os.mkdir(tools)
        for name in "awk cat chmod dirname env mkdir mktemp mv rm sha256sum sync".split():
            os.symlink(shutil.which(name), os.path.join(tools, name))

        def script(name, text):
            with open(os.path.join(tools, name), "w", encoding="utf-8") as file:
                file.write(f"#!{shutil.which('bash')}\n{text}\n")
            os.chmod(file.name, 0o755)

        # The curl that apt-get installs copies from the served folder. It is called with "... --output FILE -- ADDRESS".
        script("curl.new", f'{shutil.which("cp")} "{self.served}/${{@: -1}}" "${{@: -3:1}}"')
        script("id", "echo 0")
        script("dpkg-query", "echo installed")
        script("apt-get", f'echo "apt-get $*"; case $1 in install) mv {tools}/curl.new {tools}/curl ;; esac')
        result = self.run_to_end(urls=".", path=tools)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"apt-get install .* curl\n")
        self.assertEqual(self.there(), FILES)

    def test_usage(self):
        result = self.run_to_end("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage: scripts/get_data.sh", result.stdout)
        self.assertEqual(self.run_to_end("--unknown").returncode, 2)

    def test_the_list_of_the_project_has_the_four_files(self):
        with open(os.path.join(SOURCE, "examples/data/mnist.sha256"), encoding="utf-8") as file:
            lines = [line.split("  ") for line in file.read().splitlines()]
        self.assertEqual({name for _, name in lines}, set(os.listdir(os.path.join(SOURCE, "examples/data/mnist"))))
        for sum_, _ in lines:
            self.assertRegex(sum_, "^[0-9a-f]{64}$")


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main()
