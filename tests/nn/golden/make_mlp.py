#!/usr/bin/env python3
"""Writes mlp.safetensors and mlp.txt: the weights of a small model with the names and layouts that PyTorch gives

    class Block(nn.Module):                       # fc1 and fc2: nn.Linear(4, 4); x + fc2(relu(fc1(x)))
    nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Block(), nn.Linear(4, 2, bias=False))

as safetensors.torch.save_file writes them, and the outputs of the model for five inputs. Uses only the standard
library: this script assembles the bytes, and the forward pass is plain loops. All numbers are small multiples of 1/8,
so float32 represents every step exactly.
"""

import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))


def numbers(count, step):
    """Returns multiples of 1/8 between -1 and 1, so irregular that a transposition would be detected."""
    return [((i * step * 7 + i * i * 3 + step) % 17 - 8) / 8 for i in range(count)]


SHAPES = {
    "0.weight": (4, 3),
    "0.bias": (4,),
    "2.fc1.weight": (4, 4),
    "2.fc1.bias": (4,),
    "2.fc2.weight": (4, 4),
    "2.fc2.bias": (4,),
    "3.weight": (2, 4),
}
WEIGHTS = {}
for place, (name, shape) in enumerate(SHAPES.items()):
    count = 1
    for size in shape:
        count *= size
    WEIGHTS[name] = numbers(count, place + 2)
INPUTS = [numbers(3, 11 + row) for row in range(5)]


def linear(x, name):
    rows, columns = SHAPES[name + ".weight"]
    weight, bias = WEIGHTS[name + ".weight"], WEIGHTS.get(name + ".bias", [0] * rows)
    return [sum(weight[r * columns + c] * x[c] for c in range(columns)) + bias[r] for r in range(rows)]


def relu(x):
    return [max(value, 0) for value in x]


def model(x):
    x = relu(linear(x, "0"))
    x = [a + b for a, b in zip(x, linear(relu(linear(x, "2.fc1")), "2.fc2"))]
    return linear(x, "3")


def write_safetensors(path):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(WEIGHTS):
        raw = struct.pack(f"<{len(WEIGHTS[name])}f", *WEIGHTS[name])
        header[name] = {"dtype": "F32", "shape": list(SHAPES[name]), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    write_safetensors(os.path.join(HERE, "mlp.safetensors"))
    with open(os.path.join(HERE, "mlp.txt"), "w", encoding="utf-8") as file:
        for x in INPUTS:
            y = model(x)
            assert all(struct.unpack("<f", struct.pack("<f", value))[0] == value for value in y)
            file.write(" ".join(str(float(value)) for value in x + y) + "\n")


if __name__ == "__main__":
    main()
