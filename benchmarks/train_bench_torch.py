#!/usr/bin/env python3
"""The training benchmark (benchmarks/train/runner.h) in the PyTorch of this Python, as it comes and with its
environment tuned. Without PyTorch it says so and prints no record. Options as those of train_bench."""
import argparse
import importlib.util
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import threading
import time

CASES = ("mlp_train", "mlp_infer", "mlp_infer_8", "first_step")
CALLERS = 8  # threads in mlp_infer_8
BATCH, BATCHES, RATE = 64, 16, 0.1
TUNED = {"OMP_WAIT_POLICY": "passive", "MALLOC_TRIM_THRESHOLD_": "1073741824",
         "MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TOP_PAD_": "16777216"}
SYSTEMS = {"pytorch": {}, "pytorch_tuned": TUNED}


def note(text):
    print(text, file=sys.stderr)


def report(case, system, threads, values, unit):
    record = {"bench": "train", "case": case, "system": system, "threads": threads,
              "value": float(f"{statistics.median(values):.6g}"), "unit": unit}
    if len(values) > 1:
        record.update(min=float(f"{min(values):.6g}"), max=float(f"{max(values):.6g}"), n=len(values))
    print(json.dumps(record, separators=(",", ":")), flush=True)


class Job:
    """The network, its optimiser and its batches."""

    def __init__(self, torch, batches):
        self.torch = torch
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        self.net = torch.nn.Sequential(linear(784, 128), relu(), linear(128, 64), relu(), linear(64, 10))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=RATE)
        self.images = [torch.randn(BATCH, 784) for _ in range(batches)]
        self.labels = [torch.randint(0, 10, (BATCH,)) for _ in range(batches)]
        self.count = 0

    def next(self):
        self.count += 1
        return (self.count - 1) % len(self.images)

    def train(self, steps):
        for _ in range(steps):
            k = self.next()
            self.optimizer.zero_grad()
            loss = self.torch.nn.functional.cross_entropy(self.net(self.images[k]), self.labels[k])
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def infer(self, steps):
        with self.torch.no_grad():
            for _ in range(steps):
                self.net(self.images[self.next()])

    def infer_from(self, callers, steps):
        """The steps shared out among threads that use the one network at once."""

        def caller(first):
            # The mode is per thread, and so is the choice of batches.
            with self.torch.inference_mode():
                for step in range(first, steps, callers):
                    self.net(self.images[step % len(self.images)])

        threads = [threading.Thread(target=caller, args=(first,)) for first in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def measure(args):
    """In a process of its own, which is confined already."""
    import torch  # pylint: disable=import-error,import-outside-toplevel

    threads, case, system = args.threads[0], args.confined, args.systems[0]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    if case == "first_step":
        print("loss", Job(torch, 1).train(1), flush=True)
        return 0
    job = Job(torch, BATCHES)
    first = last = job.train(BATCHES) if case == "mlp_train" else 0.0
    rates = []
    for number in range(args.samples + 1):  # the first block is a warm-up
        start = time.perf_counter()
        if case == "mlp_train":
            last = job.train(args.steps)
        elif case == "mlp_infer_8":
            job.infer_from(CALLERS, args.steps)
        else:
            job.infer(args.steps)
        if number > 0:
            rates.append(args.steps * BATCH / (time.perf_counter() - start))
    if case == "mlp_train" and not (math.isfinite(last) and last < first):
        note(f"{system}: the loss went from {first} to {last}")
        return 1
    report(case, system, threads, rates, "samples/s")
    report(case + "_rss", system, threads, [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024], "MB")
    return 0


class Runs:
    def __init__(self, args):
        self.args = args
        self.failed = False

    def child(self, system, case, threads, cpus):
        """What a confined process wrote, and the milliseconds from its start to its first line."""
        environment = {"OMP_NUM_THREADS": str(threads), **SYSTEMS[system], **os.environ}
        command = ["taskset", "-c", ",".join(map(str, cpus)), sys.executable, os.path.abspath(__file__),
                   "--confined", case, "--systems", system, "--threads", str(threads),
                   "--steps", str(self.args.steps), "--samples", str(self.args.samples)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            start = time.perf_counter()
            line = process.stdout.readline()
            first_ms = (time.perf_counter() - start) * 1e3
            rest = process.stdout.read()
        if process.returncode != 0:
            note(f"{system} {case} with {threads} threads: ended with status {process.returncode}")
            self.failed = True
        return line + rest, first_ms

    def time_starts(self, threads, cpus):
        values = {system: [] for system in self.args.systems}
        # The first start is not counted, because it reads files that later starts find in the page cache.
        for number in range(self.args.samples + 1):
            for system, found in values.items():
                first_ms = self.child(system, "first_step", threads, cpus)[1]
                if number > 0:
                    found.append(first_ms)
        for system, found in values.items():
            report("first_step", system, threads, found, "ms")

    def all(self):
        allowed = sorted(os.sched_getaffinity(0))
        for threads in self.args.threads:
            if threads > len(allowed):
                note(f"threads {threads}: left out, there are fewer processors")
                continue
            cpus = allowed[:threads]
            for case in self.args.cases:
                if case == "first_step":
                    self.time_starts(threads, cpus)
                    continue
                for system in self.args.systems:
                    print(self.child(system, case, threads, cpus)[0], end="", flush=True)
        return 1 if self.failed else 0


def main():
    def names(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=names, default=list(CASES))
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--systems", type=names, default=list(SYSTEMS))
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--smoke", action="store_true", help="short: shows that everything works")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--confined", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.list:
        print("\n".join(list(CASES) + ["system " + name for name in SYSTEMS]))
        return 0
    if importlib.util.find_spec("torch") is None:
        note("train_bench_torch.py: this Python has no PyTorch; nothing is measured")
        return 0
    unknown = [case for case in args.cases if case not in CASES]
    if unknown:
        note(f"no case is called '{unknown[0]}'; --list lists them")
        return 2
    args.systems = [name for name in args.systems if name in SYSTEMS]  # other names belong to other programs
    if args.smoke:
        args.steps, args.samples = 1, 1
    args.steps = -(-args.steps // BATCHES) * BATCHES
    return measure(args) if args.confined else Runs(args).all()


if __name__ == "__main__":
    sys.exit(main())
