#!/usr/bin/env python3
"""The cases of gpu_bench (benchmarks/gpu_bench.cc) in the PyTorch of this Python, one JSON record a line.

Systems: `pytorch`, as it comes; `pytorch_compiled`, the network through torch.compile; `pytorch_graph`, a step that was captured
in a CUDA graph. Without PyTorch, or without a GPU, it says so and prints no record. --device cpu --quick shows that it runs.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import train_bench_torch  # noqa: E402  (the folder of this file has to be on the path)

NETS = {"mlp": 64, "lenet": 256, "resnet18": 256, "resnet50": 128, "lstm": 128, "transformer": 64, "gpt2": 8}


def record(case, system, values, unit):
    print(json.dumps({"bench": "gpu", "case": case, "system": system, "threads": 1,
                      "value": float(f"{statistics.median(values):.6g}"), "unit": unit}, separators=(",", ":")), flush=True)


class Bench:
    def __init__(self, options):
        import torch

        self.torch, self.options = torch, options
        self.device = torch.device(options.device)
        self.cuda = self.device.type == "cuda"

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    def seconds(self, call):
        """Seconds of one call; each sample takes long enough that the wait at its end does not count."""

        def measure(calls):
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            self.wait()
            return time.perf_counter() - begin

        measure(2)
        once = measure(1)
        calls = 1 if self.options.quick else max(1, min(5000, int(0.1 / max(once, 1e-7))))
        return [measure(calls) / calls for _ in range(self.options.rounds)]

    def report(self, case, system, unit, work, call):
        if self.options.case not in case:
            return
        record(case, system, [work / each for each in self.seconds(call)], unit)

    def bandwidth(self):
        torch, options = self.torch, self.options
        rows, columns = (8 if options.quick else 65536), 1024
        for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            x, y = (torch.rand(rows, columns, device=self.device).mul(4).sub(2).to(dtype) for _ in range(2))
            weight, bias = (make(columns, dtype=dtype, device=self.device) for make in (torch.ones, torch.zeros))
            size = x.numel() * x.element_size() * 1e-9
            cases = {
                "copy": (2, x.clone), "add": (3, lambda x=x, y=y: x + y), "relu": (2, x.relu), "exp": (2, x.exp),
                "tanh": (2, x.tanh), "sum": (1, x.sum), "sum_rows": (1, lambda x=x: x.sum(1)),
                "softmax": (2, lambda x=x: x.softmax(1)),
                "layer_norm": (2, lambda x=x, w=weight, b=bias: torch.nn.functional.layer_norm(x, (columns,), w, b)),
                "chain": (3, lambda x=x, y=y: torch.tanh(x * 2 + y) * x),
            }
            with torch.no_grad():
                for case, (arrays, call) in cases.items():
                    self.report(f"{case}_{name}", "pytorch", "GB/s", arrays * size, call)

    def products(self):
        torch, n = self.torch, 32 if self.options.quick else 8192
        for name, dtype in self.types():
            a, b = (torch.randn(n, n, device=self.device).to(dtype) for _ in range(2))
            self.report(f"matmul_{name}", "pytorch", "TFLOP/s", 2e-12 * n**3, lambda a=a, b=b: a @ b)

    def convolutions(self):
        torch, quick = self.torch, self.options.quick
        images, channels, size = (1, 8, 6) if quick else (64, 128, 28)
        for name, dtype in self.types():
            x = torch.randn(images, channels, size, size, device=self.device).to(dtype)
            weight = torch.randn(channels, channels, 3, 3, device=self.device).to(dtype)
            work = 2e-12 * x.numel() * channels * 9
            grad = torch.nn.grad
            calls = {"": lambda x=x, w=weight: torch.nn.functional.conv2d(x, w, padding=1),
                     "_x": lambda x=x, w=weight: grad.conv2d_input(x.shape, w, x, padding=1),
                     "_weight": lambda x=x, w=weight: grad.conv2d_weight(x, w.shape, x, padding=1)}
            with torch.no_grad():
                for part, call in calls.items():
                    self.report(f"conv_{name}{part}", "pytorch", "TFLOP/s", work, call)

    def types(self):
        """The types, with the setting of tf32 that belongs to each."""
        torch = self.torch
        for name, dtype in (("f32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16),
                            ("f16", torch.float16)):
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"
            yield name, dtype
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def launches(self):
        torch, count = self.torch, 20 if self.options.quick else 20_000
        x, one = torch.zeros(2, 2, device=self.device), torch.ones(2, 2, device=self.device)

        def run():
            begin = time.perf_counter()
            with torch.no_grad():
                for _ in range(count):
                    x.add_(one)
            self.wait()
            return (time.perf_counter() - begin) / count * 1e9

        if self.options.case in "enqueue_add":
            run()
            record("enqueue_add", "pytorch", [run() for _ in range(self.options.rounds)], "ns/op")

    def make(self, name, batch):
        """The network, its input and its labels."""
        torch = self.torch
        if name == "gpt2":
            tokens, vocabulary, net = gpt2(torch, self.options.quick)
            data = torch.randint(0, vocabulary, (batch, tokens), device=self.device)
            return net.to(self.device), data, torch.randint(0, vocabulary, (batch * tokens,), device=self.device)
        if name == "resnet50":
            net, data = resnet50(torch), torch.randn(batch, 3, 224, 224)
            net, data = (each.to(memory_format=torch.channels_last) for each in (net, data))
        else:
            net = train_bench_torch.networks(torch)[name]()
            data = train_bench_torch.make_input(torch, name, batch)
        return net.to(self.device), data.to(self.device), torch.randint(0, 10, (batch,), device=self.device)

    def training(self):
        for name, batch in NETS.items():
            for lower in (False, True):
                suffix = "_bf16" if lower else ""
                if self.options.case not in f"{name}_train{suffix}" and self.options.case not in f"{name}_memory{suffix}":
                    continue
                if self.options.quick and name.startswith(("resnet", "lenet")):
                    continue
                for system in ("pytorch", "pytorch_compiled") if self.cuda else ("pytorch",):
                    self.train(name, 2 if self.options.quick else batch, lower, system)
        if self.cuda and self.options.case in "mlp_replay":
            self.replay()

    def step_of(self, net, data, labels, lower):
        torch = self.torch
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

        def step():
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast(self.device.type, torch.bfloat16) if lower else contextlib.nullcontext():
                logits = net(data)
                loss = torch.nn.functional.cross_entropy(logits.reshape(labels.numel(), -1), labels)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def train(self, name, batch, lower, system):
        torch = self.torch
        net, data, labels = self.make(name, batch)
        step = self.step_of(torch.compile(net) if system == "pytorch_compiled" else net, data, labels, lower)
        if self.cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        suffix = "_bf16" if lower else ""
        unit = "tokens/s" if name == "gpt2" else "samples/s"
        self.report(f"{name}_train{suffix}", system, unit, labels.numel(), step)
        if self.cuda:
            step().item()
            peak = torch.cuda.max_memory_allocated(self.device) * 1e-6
            record(f"{name}_memory{suffix}", system, [peak], "MB")

    def replay(self):
        torch = self.torch
        step = self.step_of(*self.make("mlp", NETS["mlp"]), False)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):  # a capture needs steps before it on a stream of its own
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        self.report("mlp_replay", "pytorch_graph", "samples/s", NETS["mlp"], graph.replay)


def resnet50(torch):
    nn = torch.nn

    def conv(inputs, outputs, kernel, stride):
        return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            outputs = 4 * width
            self.body = nn.Sequential(
                conv(inputs, width, 1, 1), nn.BatchNorm2d(width), nn.ReLU(), conv(width, width, 3, stride),
                nn.BatchNorm2d(width), nn.ReLU(), conv(width, outputs, 1, 1), nn.BatchNorm2d(outputs))
            self.shortcut = nn.Identity()
            if inputs != outputs or stride != 1:
                self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

        def forward(self, x):
            return torch.relu(self.shortcut(x) + self.body(x))

    layers = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for k in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if k == 0 and width > 64 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def gpt2(torch, quick):
    """The number of tokens, the vocabulary, and a network of the shape of GPT-2 with 124M parameters."""
    nn = torch.nn
    vocabulary, tokens, width, layers, heads = (50, 8, 16, 1, 2) if quick else (50257, 1024, 768, 12, 12)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = self.qkv(self.first(x)).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.joined(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.narrow(nn.functional.gelu(self.wide(self.second(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(layers))), nn.LayerNorm(width)

        def forward(self, x):
            y = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            return self.norm(self.blocks(y)) @ self.tokens.weight.t()

    return tokens, vocabulary, Gpt()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each; the median is printed")
    parser.add_argument("--case", default="", help="only cases whose names contain this text")
    parser.add_argument("--quick", action="store_true", help="small sizes, to show that it runs")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        train_bench_torch.note("gpu_bench_torch: this Python has no PyTorch; nothing is measured")
        return
    import torch

    if options.device.startswith("cuda") and not torch.cuda.is_available():
        train_bench_torch.note("gpu_bench_torch: PyTorch finds no GPU; nothing is measured")
        return
    torch.manual_seed(1)
    bench = Bench(options)
    for cases in (bench.launches, bench.bandwidth, bench.products, bench.convolutions, bench.training):
        cases()


if __name__ == "__main__":
    main()
