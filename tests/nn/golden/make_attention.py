#!/usr/bin/env python3
"""Writes attention.txt: outputs and gradients of PyTorch's attention and Transformer layers, in float64.

A line is "name shape = values": the shape as sizes with commas ("-" for none). tests/nn/transformer_test.cc makes
the same inputs and parameters from the same formula. Made with PyTorch 2.15:

    python3 make_attention.py > attention.txt
"""
import torch

torch.set_default_dtype(torch.float64)
nn = torch.nn


def numbers(shape, step):
    n = 1
    for size in shape:
        n *= size
    return (((torch.arange(n) * 7919 + 13 * step) % 101) - 50).to(torch.float64).reshape(shape) / 32


def put(name, value):
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(f"{float(v):.14g}" for v in value.detach().reshape(-1)))


def run(name, module, shapes, call, gradients=True):
    """call(module, inputs) returns a list of results; the first one gets the gradient."""
    module.train()
    with torch.no_grad():
        for step, (key, parameter) in enumerate(module.named_parameters()):
            scale = 0.5 if parameter.dim() > 1 else 0.25
            parameter.copy_(numbers(parameter.shape, 3 + step) * scale + (1 if "norm" in key else 0))
    inputs = [numbers(shape, 1 + i).requires_grad_() for i, shape in enumerate(shapes)]
    results = call(module, *inputs)
    results[0].backward(numbers(results[0].shape, 7))
    for i, result in enumerate(results):
        if result is not None:
            put(f"{name}/y{i}", result)
    for i, x in enumerate(inputs):
        put(f"{name}/dx{i}", x.grad)
    if gradients:
        for key, parameter in module.named_parameters():
            put(f"{name}/d {key}", parameter.grad)


def causal(n):
    return torch.triu(torch.ones(n, n, dtype=torch.bool), 1)


padding = torch.tensor([[False, False, False, True], [False, False, False, False]])

MHA = nn.MultiheadAttention
run("attention", MHA(4, 2), [(3, 2, 4)], lambda m, x: m(x, x, x))
run("batch first", MHA(4, 2, batch_first=True), [(2, 3, 4), (2, 4, 4), (2, 4, 4)],
    lambda m, q, k, v: m(q, k, v, average_attn_weights=False))
run("fast", MHA(4, 2, batch_first=True), [(2, 4, 4)], lambda m, x: m(x, x, x, need_weights=False))
run("widths", MHA(4, 2, kdim=3, vdim=5, batch_first=True), [(2, 3, 4), (2, 4, 3), (2, 4, 5)],
    lambda m, q, k, v: m(q, k, v))
run("no bias", MHA(4, 1, bias=False), [(3, 2, 4)], lambda m, x: m(x, x, x))
run("more keys", MHA(4, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True), [(2, 4, 4)],
    lambda m, x: m(x, x, x, key_padding_mask=padding, attn_mask=causal(4)))
run("padding", MHA(4, 2, batch_first=True), [(2, 4, 4)], lambda m, x: m(x, x, x, key_padding_mask=padding))
run("causal", MHA(4, 2, batch_first=True), [(2, 4, 4)],
    lambda m, x: m(x, x, x, attn_mask=causal(4), is_causal=True, need_weights=False))
run("added", MHA(4, 2, batch_first=True), [(2, 4, 4)],
    lambda m, x: m(x, x, x, attn_mask=numbers((4, 4, 4), 2)))
run("one sequence", MHA(4, 2), [(3, 4)], lambda m, x: m(x, x, x))

small = dict(dim_feedforward=3, dropout=0.0)
Encoder, Decoder = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
run("encoder layer", Encoder(4, 2, **small), [(3, 2, 4)], lambda m, x: [m(x)])
run("encoder layer first", Encoder(4, 2, **small, activation="gelu", norm_first=True, batch_first=True), [(2, 4, 4)],
    lambda m, x: [m(x, src_mask=causal(4), src_key_padding_mask=padding)])
run("encoder layer no bias", Encoder(4, 2, **small, bias=False, batch_first=True, layer_norm_eps=1e-3), [(2, 4, 4)],
    lambda m, x: [m(x)])
run("decoder layer", Decoder(4, 2, **small), [(3, 2, 4), (4, 2, 4)],
    lambda m, x, y: [m(x, y, tgt_mask=causal(3), tgt_is_causal=True, memory_key_padding_mask=padding)])
run("decoder layer first", Decoder(4, 2, **small, norm_first=True, batch_first=True, activation="gelu"),
    [(2, 4, 4), (2, 3, 4)],
    lambda m, x, y: [m(x, y, tgt_key_padding_mask=padding, memory_mask=torch.eye(4, 3, dtype=torch.bool))])
run("encoder", nn.TransformerEncoder(Encoder(4, 2, **small), 2, nn.LayerNorm(4)), [(3, 2, 4)], lambda m, x: [m(x)],
    gradients=False)
run("decoder", nn.TransformerDecoder(Decoder(4, 2, **small), 2), [(3, 2, 4), (4, 2, 4)], lambda m, x, y: [m(x, y)],
    gradients=False)
run("transformer", nn.Transformer(4, 2, 2, 1, **small, batch_first=True), [(2, 4, 4), (2, 3, 4)],
    lambda m, x, y: [m(x, y, tgt_mask=nn.Transformer.generate_square_subsequent_mask(3),
                       src_key_padding_mask=padding, memory_key_padding_mask=padding)], gradients=False)
