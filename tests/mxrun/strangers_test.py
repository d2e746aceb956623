#!/usr/bin/env python3
"""Strangers at the rendezvous of a job that runs: the job goes on unharmed. Usage: ... MXRUN RANK_PROGRAM

The strangers come while the ranks wait. They send garbage, too little and too slowly, and stay until the job ends; the
ranks find each other behind them. The bytes are those of docs/wire.md.
"""

import contextlib
import hashlib
import hmac
import os
import select
import socket
import struct
import sys

import jobs

PROGRAM = ""
HELLO, ANSWER, PROOF, ACCEPT, REFUSE = 1, 2, 3, 4, 5
WRONG_JOB, WRONG_SECRET = 2, 6
JOIN, PUT, ERROR = 1, 2, 12
MANY = 300


class Stranger:
    """A connection to the rendezvous."""

    def __init__(self, test):
        host, port = test.address.rsplit(":", 1)
        self.test = test
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        test.addCleanup(self.socket.close)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise AssertionError(f"expected {count} bytes, got {data!r} and the end")
            data += part
        return data

    def message(self, kind, nonce, job, mac=bytes(32)):
        purpose = b"rendezvous"
        return struct.pack("<4sHBBqiBBH64s32s32sQ32s", b"MXHS", 1, kind, 0, 0, -1, len(job), len(purpose), 0, job,
                           purpose, nonce, 0, mac)

    def shake_hands(self, job=None, secret=None):
        """Returns the kind and the reason of the last message of the rendezvous."""
        job = self.test.job_name if job is None else job
        secret = self.test.secret if secret is None else secret
        nonce = os.urandom(32)
        hello = self.message(HELLO, nonce, job)
        self.send(hello)
        answer = self.receive(192)
        if answer[6] != ANSWER:
            return answer[6], answer[7]
        proof = self.message(PROOF, nonce, job)[:160]
        self.send(proof + hmac.new(secret, hello + answer + proof, hashlib.sha256).digest())
        last = self.receive(192)
        return last[6], last[7]

    def member(self):
        """A connection whose handshake has succeeded, as that of a process of the job that is no rank."""
        self.test.assertEqual(self.shake_hands(), (ACCEPT, 0))
        return self

    @staticmethod
    def frame(kind, request, key=b"", value=b""):
        return struct.pack("<IBBHQq", 20 + len(key) + len(value), kind, 0, len(key), request, 0) + key + value

    def expect_end(self):
        """The rendezvous ends the connection, perhaps after an error."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(65536):
                pass

    def is_open(self):
        return not select.select([self.socket], [], [], 0)[0]


class Strangers(jobs.JobTest):
    def start_waiting(self):
        """Starts a job whose ranks wait for go()."""
        job = self.start("-n", 3, "--no-tag-output", "sh", "-c",
                         f'cd {self.folder}; [ $MX_RANK != 1 ] || {{ cat <&$MX_SECRET_FD > secret; '
                         'eval "exec $MX_SECRET_FD< secret"; echo "$MX_RDZV $MX_JOB_ID" > job; }; until [ -e go ]; do sleep 0.02; done; exec "$0" sum',
                         PROGRAM, MX_TRANSPORT="tcp")
        words = self.wait_for_lines("job", 1)[0].split()
        self.address, self.job_name = words[0], words[1].encode()
        with open(self.path("secret"), "rb") as file:
            self.secret = file.read()
        return job

    def check_unharmed(self, job):
        """The ranks find each other and end as they should."""
        self.write("go", "")
        job.finish()
        self.assertEqual((job.code, job.stdout, job.stderr), (0, "6\n" * 3, ""))
        self.assert_nothing_left(job)

    def test_a_foreign_job_is_refused(self):
        job = self.start_waiting()
        self.assertEqual(Stranger(self).shake_hands(job=b"another"), (REFUSE, WRONG_JOB))
        self.assertEqual(Stranger(self).shake_hands(secret=b"guessed"), (REFUSE, WRONG_SECRET))
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(200), bytes(192), os.urandom(4096)):
            stranger = Stranger(self)
            stranger.send(garbage)
            stranger.expect_end()
        self.check_unharmed(job)

    def test_a_frame_that_is_too_long_is_refused(self):
        job = self.start_waiting()
        for size in (0xFFFFFFFF, 20 + 256 + 65536 + 1, 0):
            stranger = Stranger(self).member()
            stranger.send(struct.pack("<IBBHQq", size, PUT, 0, 1, 1, 0))
            stranger.expect_end()
        self.check_unharmed(job)

    def test_a_frame_that_is_cut_harms_nobody(self):
        job = self.start_waiting()
        whole = Stranger.frame(JOIN, 1, b"visitor", b"here") + Stranger.frame(PUT, 2, b"0/visitor", b"value")
        strangers = []
        for length in (1, 4, 23, 24, 30, 40, len(whole) - 1):
            for stays in (False, True):
                strangers.append(Stranger(self).member())
                strangers[-1].send(whole[:length])
                if not stays:
                    strangers[-1].socket.close()
        self.check_unharmed(job)

    def test_slow_strangers_take_nobodys_place(self):
        job = self.start_waiting()
        strangers = [Stranger(self) for _ in range(MANY)]
        for number, stranger in enumerate(strangers):
            with contextlib.suppress(OSError):  # the oldest have been ended
                stranger.send(b"MXHS\1\0\1\0"[:1 + number % 8])
        self.assertTrue(any(stranger.is_open() for stranger in strangers))
        self.check_unharmed(job)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
