#!/usr/bin/env python3
"""Writes gpt2.safetensors, a small random checkpoint with the names and layouts of GPT-2's, and gpt2.txt, the
logits that PyTorch computes from it by GPT-2's formulas (tests/nn/generation_test.cc). Made with PyTorch 2.15:

    python3 make_gpt2.py
"""
import json
import os
import struct

import torch
import torch.nn.functional as F

VOCAB, POSITIONS, WIDTH, LAYERS, HEADS = 11, 8, 8, 2, 2
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])


def checkpoint():
    generator = torch.Generator().manual_seed(7)

    def normal(*shape):
        return torch.randn(shape, generator=generator) * 0.3

    arrays = {"wte.weight": normal(VOCAB, WIDTH), "wpe.weight": normal(POSITIONS, WIDTH)}
    for i in range(LAYERS):
        for norm in ("ln_1", "ln_2"):
            arrays[f"h.{i}.{norm}.weight"] = 1 + normal(WIDTH)
            arrays[f"h.{i}.{norm}.bias"] = normal(WIDTH)
        for part, rows, columns in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                    ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            arrays[f"h.{i}.{part}.weight"] = normal(rows, columns)
            arrays[f"h.{i}.{part}.bias"] = normal(columns)
        arrays[f"h.{i}.attn.bias"] = torch.tril(torch.ones(POSITIONS, POSITIONS)).view(1, 1, POSITIONS, POSITIONS)
    arrays["ln_f.weight"] = 1 + normal(WIDTH)
    arrays["ln_f.bias"] = normal(WIDTH)
    return arrays


def logits(w, tokens):
    length = tokens.shape[1]
    x = w["wte.weight"][tokens] + w["wpe.weight"][:length]
    hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    for i in range(LAYERS):
        def get(name):
            return w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"]

        def conv1d(a, name):
            weight, bias = get(name)
            return a @ weight + bias

        a = conv1d(F.layer_norm(x, (WIDTH,), *get("ln_1")), "attn.c_attn")
        q, k, v = (part.view(-1, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in a.split(WIDTH, -1))
        scores = (q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5).masked_fill(hidden, float("-inf"))
        a = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, length, WIDTH)
        x = x + conv1d(a, "attn.c_proj")
        a = F.gelu(conv1d(F.layer_norm(x, (WIDTH,), *get("ln_2")), "mlp.c_fc"), approximate="tanh")
        x = x + conv1d(a, "mlp.c_proj")
    return F.layer_norm(x, (WIDTH,), w["ln_f.weight"], w["ln_f.bias"]) @ w["wte.weight"].T


def write_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        raw = array.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


folder = os.path.dirname(os.path.abspath(__file__))
weights = checkpoint()
write_safetensors(os.path.join(folder, "gpt2.safetensors"), weights)
result = logits({name: array.double() for name, array in weights.items()}, TOKENS)
with open(os.path.join(folder, "gpt2.txt"), "w", encoding="utf-8") as file:
    shape = ",".join(map(str, result.shape))
    print("logits", shape, "=", " ".join(f"{float(v):.14g}" for v in result.reshape(-1)), file=file)
