#!/usr/bin/env python3
"""Compares the registers, the stack and the shared memory of every CUDA kernel with a table.

    scripts/cuda_resources.py BUILD            compares; exit status 1 for a difference that matters
    scripts/cuda_resources.py BUILD --update   writes the table, keeps its reasons

A kernel has a stack if it indexes an array of its own at run time, or if its registers do not suffice and are spilled. Both
cost time, so a stack is an error unless the table gives a reason for it. Registers may grow by a few, as
they do with every change of the source. The numbers are read from the object files, where ptxas has written them. Exit
status 77: there is nothing to compare, because the build has no CUDA or another compiler or architecture than the table."""

import pathlib
import re
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "operators/cuda/resources.txt"
CUDA_MACHINE = 190
REGISTERS, STACK = 0x2F, 0x12  # attributes of a kernel in the section .nv.info
MORE_REGISTERS = 8  # that a kernel may use before it has to be looked at
SKIPPED = 77


def text_at(data, offset):
    return data[offset : data.index(b"\0", offset)].decode()


def sections_of(elf):
    """Returns (name, offset, size, link) of the sections."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    start = headers[names][4]
    return [(text_at(elf, start + h[0]), h[4], h[5], h[6]) for h in headers]


def kernels_of(elf):
    """Returns {mangled name: [registers, stack, shared]} of a program for one architecture."""
    sections = sections_of(elf)
    by_name = {s[0]: s for s in sections}
    _, symbols, symbol_bytes, strings = by_name[".symtab"]
    names = [text_at(elf, sections[strings][1] + struct.unpack_from("<I", elf, symbols + at)[0])
             for at in range(0, symbol_bytes, 24)]
    kernels = {}
    _, at, size, _ = by_name[".nv.info"]
    end = at + size
    while at + 4 <= end:
        form, attribute, length = struct.unpack_from("<BBH", elf, at)
        if form == 4 and attribute in (REGISTERS, STACK):
            symbol, value = struct.unpack_from("<II", elf, at + 4)
            kernels.setdefault(names[symbol], [0, 0, 0])[(REGISTERS, STACK).index(attribute)] = value
        at += 4 + (length if form == 4 else 0)
    for name, values in kernels.items():
        if shared := by_name.get(".nv.shared." + name):
            values[2] = shared[2]
    return {name: values for name, values in kernels.items() if ".text." + name in by_name}


def plain_names(mangled):
    """Demangles; leaves out namespaces that are the same for all, and the parameters."""
    given = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    result = []
    for name in given.stdout.splitlines():
        name = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::", "", name)
        name = re.sub(r"^void ", "", name)
        depth, end = 0, len(name)
        for i, c in enumerate(name):
            if c == "<":
                depth += 1
            elif c == ">":
                depth -= 1
            elif c == "(" and depth == 0:
                end = i
                break
        result.append(re.sub(r"\(mx::[\w:]+\)|\((?:int|bool)\)", "", name[:end]).replace("mx::cuda::", ""))
    return result


def measured(build):
    """Returns {"file kernel": (registers, stack, shared)}."""
    result = {}
    for path in sorted(build.glob("*/CMakeFiles/mx_*_cuda.dir/**/*.cu.o")):
        data = path.read_bytes()
        source = path.relative_to(path.parents[2]).name.removesuffix(".o")
        for match in re.finditer(b"\x7fELF\x02\x01", data):
            elf = data[match.start() :]
            if struct.unpack_from("<H", elf, 18)[0] != CUDA_MACHINE:
                continue
            kernels = kernels_of(elf)
            for name, values in zip(plain_names(kernels), kernels.values()):
                if "cub::" in name or "thrust::" in name:  # NVIDIA's own
                    continue
                result[f"{source} {name}"] = tuple(values)
    return result


def compiler_of(build):
    cache = (build / "CMakeCache.txt").read_text()
    architectures = re.search(r"^CMAKE_CUDA_ARCHITECTURES:\w+=(.*)$", cache, re.M)
    nvcc = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.*)$", cache, re.M)
    if not architectures or not nvcc:
        return None
    text = subprocess.run([nvcc[1], "--version"], capture_output=True, text=True, check=True).stdout
    return f"nvcc {re.search(r'V([0-9.]+)', text)[1]} sm_{architectures[1]}"


def read_table():
    """Returns the compiler, and {kernel: (registers, stack, shared, reason)}."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    compiler, rows = "", {}
    for line in lines:
        if line.startswith("compiler: "):
            compiler = line[len("compiler: ") :]
        elif line and not line.startswith("#"):
            numbers, _, rest = line.strip().partition("  ")
            name, _, reason = rest.partition("  # ")
            rows[name.strip()] = (*map(int, numbers.split()), reason.strip())
    return compiler, rows


def write_table(compiler, kernels, reasons):
    lines = ["# Registers, bytes of stack and bytes of static shared memory of each kernel; scripts/cuda_resources.py writes and",
             "# compares them. A stack needs a reason behind the name.", f"compiler: {compiler}", ""]
    for name, (registers, stack, shared) in sorted(kernels.items()):
        reason = reasons.get(name, ("", "", "", ""))[3]
        lines.append(f"{registers} {stack} {shared}  {name}" + (f"  # {reason}" if reason else ""))
    TABLE.write_text("\n".join(lines) + "\n")


def differences(kernels, table):
    for name, (registers, stack, shared) in sorted(kernels.items()):
        if name not in table:
            yield f"{name}: not in the table (registers {registers}, stack {stack}, shared {shared})"
            continue
        old_registers, old_stack, old_shared, reason = table[name]
        if stack > old_stack:
            yield f"{name}: a stack of {stack} bytes, expected at most {old_stack}"
        if stack > 0 and not reason:
            yield f"{name}: a stack of {stack} bytes without a reason in the table"
        if registers > old_registers + MORE_REGISTERS:
            yield f"{name}: {registers} registers, expected at most {old_registers + MORE_REGISTERS}"
        if shared > old_shared:
            yield f"{name}: {shared} bytes of shared memory, expected at most {old_shared}"
    for name in sorted(set(table) - set(kernels)):
        yield f"{name}: in the table, but there is no such kernel"


def main():
    build = pathlib.Path(sys.argv[1])
    compiler = compiler_of(build)
    kernels = measured(build) if compiler else {}
    if not kernels:
        print(f"{build} has no CUDA kernels")
        return SKIPPED
    old_compiler, table = read_table()
    if "--update" in sys.argv:
        write_table(compiler, kernels, table)
        print(f"{len(kernels)} kernels in {TABLE}")
        return 0
    if compiler != old_compiler:
        print(f"the table is for {old_compiler}, the build has {compiler}")
        return SKIPPED
    problems = list(differences(kernels, table))
    for problem in problems:
        print(problem)
    print(f"{len(kernels)} kernels, {len(problems)} differences; update: scripts/cuda_resources.py {build} --update")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
