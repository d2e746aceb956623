#!/usr/bin/env python3
"""Checks that the tree respects the order of its layers. Usage: check_layers.py [ROOT]

Prints one line per violation, "path:line: what is wrong", and exits 1 if there is any. The rules:

  * an include goes to the same layer or to one below, never up and never to a sibling; so does a DEPS entry of
    mx_add_library and of mx_add_test;
  * includes in quotes are written from the root of the tree and name a file that exists;
  * only engine/device/registry.cc (and tests) include the concrete backends, engine/device/<backend>/; folders of CUDA above
    include that of CUDA;
  * CUDA headers stay in engine/device/cuda/, in the folders cuda/ of ndarray/, operators/ and optim/, in .cu files of tests/
    and benchmarks/, in comm/nccl/, and in tests/comm/nccl/ and tests/cuda/; no other file tests CUDA macros;
  * files in include/mx/ contain only includes;
  * no source file is longer than 600 lines.
"""

import os
import re
import sys

MAX_LINES = 600

# Order of the layers: a layer may include the layers on earlier lines.
ORDER = [
    ["engine/base"],
    ["engine/device"],
    ["engine"],
    ["comm"],
    ["ndarray"],
    ["operators"],
    ["optim"],
    ["executor", "kvstore", "nn/data", "nn/metric"],
    ["nn"],
    ["nn/training"],
    ["examples", "mxrun"],
]
RANK = {layer: rank for rank, layers in enumerate(ORDER) for layer in layers}

# The layer of library `mx::<name>` or `mx_add_library(<name> ...)`, if its name differs from the folder's.
LIBRARY_LAYER = {
    "base": "engine/base",
    "device": "engine/device",
    "operator_samples": "operators",
    "data": "nn/data",
    "metric": "nn/metric",
    "training": "nn/training",
}

# Headers that the build generates (mx_cuda_kernels).
GENERATED = {"ndarray/cuda_kernels.h", "operators/cuda_kernels.h", "optim/cuda_kernels.h"}

# Folders of tests/ that may include every layer.
FREE_TESTS = {"conformance", "support", "project"}

SOURCE = (".h", ".cc", ".cu", ".cuh")
SCRIPT = (".py", ".sh", ".cmake")
SKIP_FOLDERS = {"build", "out", ".git", ".cache", "__pycache__"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
CONDITION = re.compile(r"^\s*#\s*(?:el)?if(?:n?def)?\b(.*)")
ABOUT_CUDA = re.compile(r"CUDA|NVCC|NCCL|CUDNN|CUBLAS|NVRTC", re.IGNORECASE)
CUDA_HEADER = re.compile(
    r"^(cuda|cublas|cudnn|curand|cusparse|cusolver|cufft|nccl|nvrtc|nvml|nvtx|nvToolsExt|thrust/|cub/|cute/"
    r"|cutlass|cooperative_groups|mma\.h|device_launch_parameters|vector_types|driver_types)"
)
COMMAND = re.compile(r"mx_add_(library|test)\s*\(\s*(\w+)([^)]*)\)")


def layer_of(path):
    """Returns the layer that a path of the tree belongs to, or None."""
    for layer in sorted(RANK, key=len, reverse=True):
        if path.startswith(layer + "/"):
            return layer
    return None


def backend_of(path):
    """Returns the concrete device backend that a path belongs to, or None."""
    parts = path.split("/")
    return parts[2] if parts[:2] == ["engine", "device"] and len(parts) > 3 else None


def tested_layer(path):
    """Returns the layer whose tests a path of tests/ belongs to, or None for tests that may include every layer."""
    parts = path.split("/")
    if len(parts) < 3 or parts[1] in FREE_TESTS:
        return None
    name = LIBRARY_LAYER.get(parts[1], parts[1])
    return name if name in RANK else None


def may_see(layer, target):
    return layer == target or RANK[target] < RANK[layer]


def may_use_cuda(path):
    if path.startswith(("engine/device/cuda/", "ndarray/cuda/", "operators/cuda/", "optim/cuda/")):
        return True
    if path.startswith(("tests/comm/nccl/", "tests/cuda/")):
        return True
    if path.startswith(("tests/", "benchmarks/")):
        return path.endswith((".cu", ".cuh")) or "/device/cuda/" in path
    return path.startswith("comm/nccl/")


class Checker:
    def __init__(self, root):
        self.root = root
        self.problems = []
        self.files = sorted(self.walk())
        self.known = set(self.files)

    def walk(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders if f not in SKIP_FOLDERS]
            for name in names:
                if name.endswith(SOURCE + SCRIPT) or name == "CMakeLists.txt":
                    yield os.path.relpath(os.path.join(folder, name), self.root).replace(os.sep, "/")

    def report(self, path, line, text):
        self.problems.append(f"{path}:{line}: {text}")

    def check(self):
        for path in self.files:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                lines = file.read().splitlines()
            if len(lines) > MAX_LINES:
                self.report(path, len(lines), f"{len(lines)} lines, the limit is {MAX_LINES}")
            if path.endswith(SOURCE):
                self.check_source(path, lines)
            elif path.endswith("CMakeLists.txt"):
                self.check_links(path, "\n".join(lines))
        return self.problems

    def check_source(self, path, lines):
        umbrella = path.startswith("include/mx/")
        for number, line in enumerate(lines, 1):
            include = INCLUDE.match(line)
            if include:
                self.check_include(path, number, include.group(1), include.group(2))
                continue
            condition = CONDITION.match(line)
            if condition and ABOUT_CUDA.search(condition.group(1)) and not may_use_cuda(path):
                self.report(path, number, "the preprocessor decides on CUDA here; link a stub instead")
            if umbrella and line.strip() and not line.startswith(("//", "#pragma once")):
                self.report(path, number, "include/mx/ only includes")

    def check_include(self, path, number, quoted, angled):
        if angled:
            if CUDA_HEADER.match(angled) and not may_use_cuda(path):
                self.report(path, number, f"<{angled}> is a CUDA header")
            if angled.startswith("mx/") and layer_of(path) in RANK and not path.startswith(("examples/", "mxrun/")):
                self.report(path, number, f"<{angled}> is for users; include the header itself")
            return
        if CUDA_HEADER.match(quoted) and not may_use_cuda(path):
            self.report(path, number, f'"{quoted}" is a CUDA header')
            return
        if quoted in GENERATED:
            self.check_direction(path, number, quoted)
            return
        if quoted not in self.known and "include/" + quoted not in self.known:
            self.report(path, number, f'"{quoted}" does not exist; includes are written from the root')
            return
        self.check_direction(path, number, quoted)

    def check_direction(self, path, number, target):
        target_layer = layer_of(target)
        layer = layer_of(path) or (tested_layer(path) if path.startswith("tests/") else None)
        if layer and target_layer and not may_see(layer, target_layer):
            self.report(path, number, f'layer {layer} may not include "{target}" of layer {target_layer}')
        if layer_of(path) and target.startswith(("tests/", "benchmarks/")):
            self.report(path, number, f'"{target}" belongs to the tests')
        backend = backend_of(target)
        if backend and backend != backend_of(path):
            folders = ("ndarray/cuda/", "operators/cuda/", "optim/cuda/", "comm/nccl/")
            with_cuda = backend == "cuda" and path.startswith(folders)
            if path != "engine/device/registry.cc" and not with_cuda and not path.startswith("tests/"):
                self.report(path, number, f'"{target}" is a concrete backend; only engine/device/registry.cc sees it')

    def check_links(self, path, text):
        text = re.sub(r"#.*", lambda m: " " * len(m.group()), text)
        for command in COMMAND.finditer(text):
            kind, name, arguments = command.groups()
            if kind == "library":
                layer = LIBRARY_LAYER.get(name, name)
            else:
                layer = tested_layer(path)
            if layer not in RANK:
                continue
            for target in re.findall(r"\bmx::(\w+)", arguments):
                target_layer = LIBRARY_LAYER.get(target, target)
                if target_layer not in RANK or not may_see(layer, target_layer):
                    line = text.count("\n", 0, command.start()) + 1
                    self.report(path, line, f"{name} of layer {layer} may not link mx::{target}")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    checker = Checker(os.path.abspath(root))
    problems = checker.check()
    for problem in problems:
        print(problem)
    if not checker.files:
        print(f"no source files under {root}")
        return 1
    print(f"{len(checker.files)} files checked, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
