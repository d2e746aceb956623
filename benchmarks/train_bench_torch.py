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

CASES = ("mlp_train", "mlp_infer", "mlp_infer_8", "lenet_train", "resnet18_train", "lstm_train", "transformer_train",
         "gpt_decode", "first_step")
CALLERS = 8  # threads in mlp_infer_8
MLP_STEPS = 512
# As kTrainNets of the runner: samples in a batch, batches, learning rate, steps in a block.
NETS = {"mlp": (64, 16, 0.1, MLP_STEPS), "lenet": (64, 8, 0.1, 64), "resnet18": (32, 2, 0.01, 2),
        "lstm": (32, 8, 0.1, 24), "transformer": (16, 4, 0.05, 8)}
TUNED = {"OMP_WAIT_POLICY": "passive", "MALLOC_TRIM_THRESHOLD_": "1073741824",
         "MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TOP_PAD_": "16777216", "THP_MEM_ALLOC_ENABLE": "1"}
# Of gpt_decode, as in the runner.
VOCABULARY, WIDTH, HEADS, LAYERS, FEED_FORWARD, PROMPT, DECODED = 1000, 128, 4, 2, 512, 16, 112
SYSTEMS = {"pytorch": {}, "pytorch_tuned": TUNED}


def note(text):
    print(text, file=sys.stderr)


def report(case, system, threads, values, unit):
    record = {"bench": "train", "case": case, "system": system, "threads": threads,
              "value": float(f"{statistics.median(values):.6g}"), "unit": unit}
    if len(values) > 1:
        record.update(min=float(f"{min(values):.6g}"), max=float(f"{max(values):.6g}"), n=len(values))
    print(json.dumps(record, separators=(",", ":")), flush=True)


def networks(torch):
    """The functions that make the networks."""
    nn = torch.nn

    class Block(nn.Module):
        """Two convolutions of 3 x 3 and what goes around them."""

        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
            self.shortcut = nn.Identity()
            if inputs != outputs or stride != 1:
                self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                              nn.BatchNorm2d(outputs))

        def forward(self, x):
            return torch.relu(self.shortcut(x) + self.body(x))

    def mlp():
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def lenet():
        return nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def resnet18():
        layers, inputs = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
        for outputs in (64, 128, 256, 512):
            layers += [Block(inputs, outputs, 1 if inputs == outputs else 2), Block(outputs, outputs, 1)]
            inputs = outputs
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

    class LastOfLstm(nn.Module):
        """The result of the last step of an LSTM layer."""

        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(32, 128)

        def forward(self, x):
            return self.lstm(x)[0][-1]

    class Encoder(nn.Module):
        """The mean over the tokens of two encoder layers."""

        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x):
            return self.encoder(x).mean(0)

    def lstm():
        return nn.Sequential(LastOfLstm(), nn.Linear(128, 10))

    def transformer():
        return nn.Sequential(nn.Embedding(1000, 128), Encoder(), nn.Linear(128, 10))

    return {"mlp": mlp, "lenet": lenet, "resnet18": resnet18, "lstm": lstm, "transformer": transformer}


def make_input(torch, net, batch):
    """A random batch."""
    if net == "lstm":
        return torch.randn(32, batch, 32)
    if net == "transformer":
        return torch.randint(0, 1000, (64, batch))
    return torch.randn(batch, *{"mlp": (784,), "lenet": (1, 28, 28), "resnet18": (3, 32, 32)}[net])


def net_of(case):
    return next((net for net in NETS if case.startswith(net + "_")), "mlp")


class Job:
    """A network, its optimiser and its batches."""

    def __init__(self, torch, net, batches=None):
        self.torch = torch
        batch, whole, rate, _ = NETS[net]
        batches = batches or whole
        self.net = networks(torch)[net]()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=rate)
        self.inputs = [make_input(torch, net, batch) for _ in range(batches)]
        self.labels = [torch.randint(0, 10, (batch,)) for _ in range(batches)]
        self.count = 0

    def next(self):
        self.count += 1
        return (self.count - 1) % len(self.inputs)

    def train(self, steps):
        for _ in range(steps):
            k = self.next()
            self.optimizer.zero_grad()
            loss = self.torch.nn.functional.cross_entropy(self.net(self.inputs[k]), self.labels[k])
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def infer(self, steps):
        with self.torch.no_grad():
            for _ in range(steps):
                self.net(self.inputs[self.next()])

    def infer_from(self, callers, steps):
        """The steps shared out among threads that use the one network at once."""

        def caller(first):
            # The mode is per thread, and so is the choice of batches.
            with self.torch.inference_mode():
                for step in range(first, steps, callers):
                    self.net(self.inputs[step % len(self.inputs)])

        threads = [threading.Thread(target=caller, args=(first,)) for first in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def make_decoder(torch):
    """A GPT that writes a text, each token the likeliest, with a cache of keys and values. Returns the function."""
    nn, functional = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, FEED_FORWARD), nn.GELU(approximate="tanh"),
                                     nn.Linear(FEED_FORWARD, WIDTH))

        def forward(self, x, cache, begin):
            length = x.shape[1]
            parts = self.c_attn(self.ln_1(x)).view(1, length, 3, HEADS, WIDTH // HEADS)
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            end = begin + length
            cache[0][:, :, begin:end], cache[1][:, :, begin:end] = key, value
            # One token sees all keys; those of the prompt, which begins at 0, see earlier ones.
            y = functional.scaled_dot_product_attention(query, cache[0][:, :, :end], cache[1][:, :, :end],
                                                        is_causal=length > 1)
            x = x + self.c_proj(y.transpose(1, 2).reshape(1, length, WIDTH))
            return x + self.mlp(self.ln_2(x))

    words, places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(PROMPT + DECODED, WIDTH)
    layers, last = nn.ModuleList([Layer() for _ in range(LAYERS)]), nn.LayerNorm(WIDTH)
    prompt = torch.randint(0, VOCABULARY, (1, PROMPT))

    def decode():
        with torch.inference_mode():
            shape = (1, HEADS, PROMPT + DECODED, WIDTH // HEADS)
            caches = [(torch.empty(shape), torch.empty(shape)) for _ in range(LAYERS)]
            tokens, begin, text = prompt, 0, []
            while len(text) < DECODED:
                end = begin + tokens.shape[1]
                x = words(tokens) + places(torch.arange(begin, end))
                for layer, cache in zip(layers, caches):
                    x = layer(x, cache, begin)
                logits = functional.linear(last(x[:, -1]), words.weight)
                tokens, begin = logits.argmax(-1, keepdim=True), end
                text.append(int(tokens))  # a program shows each token at once
        return text

    return decode


def measure(args):
    """In a process of its own, which is confined already."""
    import torch  # pylint: disable=import-error,import-outside-toplevel

    threads, case, system = args.threads[0], args.confined, args.systems[0]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    if case == "first_step":
        print("loss", Job(torch, "mlp", 1).train(1), flush=True)
        return 0
    if case == "gpt_decode":
        decode, rates = make_decoder(torch), []
        for number in range(args.samples + 1):  # the first text is a warm-up
            start = time.perf_counter()
            decode()
            if number > 0:
                rates.append(DECODED / (time.perf_counter() - start))
        report(case, system, threads, rates, "tokens/s")
        report(case + "_rss", system, threads, [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024], "MB")
        return 0
    net = net_of(case)
    batch, batches, _, block = NETS[net]
    steps = max(1, -(-(args.steps * block // MLP_STEPS) // batches)) * batches  # whole turns of the batches
    job = Job(torch, net)
    training = case.endswith("_train")
    first = last = job.train(batches) if training else 0.0
    rates = []
    for number in range(args.samples + 1):  # the first block is a warm-up
        start = time.perf_counter()
        if training:
            last = job.train(steps)
        elif case == "mlp_infer_8":
            job.infer_from(CALLERS, steps)
        else:
            job.infer(steps)
        if number > 0:
            rates.append(steps * batch / (time.perf_counter() - start))
    if training and not (math.isfinite(last) and last < first):
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
    parser.add_argument("--steps", type=int, default=MLP_STEPS)
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
    return measure(args) if args.confined else Runs(args).all()


if __name__ == "__main__":
    sys.exit(main())
