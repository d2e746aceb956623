#!/usr/bin/env python3
"""Checks that the tests over all layers cover every layer. Usage: every_layer_test.py SOURCE_DIR

Every class in nn/*.h and nn/generation/*.h that ModuleOf, or a template over it, is told about (`class X : public ...<X`) must be named
in tests/nn/layers.h or, if it takes other inputs than one array of floating-point numbers, in one of OTHERS.
"""

import glob
import os
import re
import sys


OTHERS = ["call_arguments_test.cc", "loss_test.cc", "more_losses_test.cc", "embedding_test.cc",
          "graph_test.cc", "transformer_test.cc", "generation_test.cc"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    root = sys.argv[1]
    cases = [read(os.path.join(root, "tests/nn", name)) for name in ["layers.h", *OTHERS]]
    found, missing = 0, []
    headers = [path for folder in ("nn", "nn/generation") for path in glob.glob(os.path.join(root, folder, "*.h"))]
    for header in sorted(headers):
        for name in re.findall(r"^class (\w+) : public \w+<\1\b", read(header), re.MULTILINE):
            found += 1
            if not any(re.search(rf"\bnn::{name}\b", text) for text in cases):
                missing.append(f"{os.path.basename(header)}: {name}")
    print("\n".join(missing) if missing else f"{found} modules, all of them tested")
    return 1 if missing or found < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
