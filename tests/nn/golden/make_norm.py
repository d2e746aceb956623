#!/usr/bin/env python3
"""Writes norm.txt: outputs, gradients and running statistics of PyTorch's normalisation layers, in float64.

A line is "name shape = values": the shape as sizes with commas ("-" for none). tests/nn/norm_test.cc makes the
same inputs and parameters from the same formula. Made with PyTorch 2.15:

    python3 make_norm.py > norm.txt
"""
import torch

torch.set_default_dtype(torch.float64)


def numbers(shape, step):
    n = 1
    for size in shape:
        n *= size
    return (((torch.arange(n) * 7919 + 13 * step) % 101) - 50).to(torch.float64).reshape(shape) / 32


def put(name, value):
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(repr(float(v)) for v in value.detach().reshape(-1)))


def run(name, layer, shape, calls=1):
    for step, parameter in enumerate(layer.parameters()):
        with torch.no_grad():
            parameter.copy_(numbers(parameter.shape, 3 + step) + 1)
    for call in range(calls):
        x = numbers(shape, call + 1).requires_grad_()
        layer.zero_grad()
        y = layer(x)
        y.backward(numbers(y.shape, 7))
    put(name + "/y", y)
    put(name + "/dx", x.grad)
    for key, parameter in layer.named_parameters():
        put(name + "/d" + key, parameter.grad)
    for key, buffer in layer.named_buffers():
        put(name + "/" + key, buffer)
    layer.eval()
    put(name + "/eval", layer(numbers(shape, 1)))


nn = torch.nn
run("BatchNorm1d", nn.BatchNorm1d(3), (5, 3), 3)
run("BatchNorm1d of rank 3", nn.BatchNorm1d(3, eps=1e-3, momentum=None), (2, 3, 17), 3)
run("BatchNorm2d", nn.BatchNorm2d(2, momentum=0.25), (2, 2, 3, 2), 2)
run("BatchNorm2d without affine", nn.BatchNorm2d(2, affine=False), (2, 2, 3, 2), 2)
run("BatchNorm2d without statistics", nn.BatchNorm2d(2, track_running_stats=False), (2, 2, 3, 2))
run("BatchNorm3d", nn.BatchNorm3d(2), (2, 2, 2, 1, 3))
run("InstanceNorm1d", nn.InstanceNorm1d(3), (2, 3, 4))
run("InstanceNorm1d of one sample", nn.InstanceNorm1d(3, affine=True), (3, 4))
run("InstanceNorm2d", nn.InstanceNorm2d(2, affine=True, track_running_stats=True), (3, 2, 2, 3), 2)
run("InstanceNorm3d", nn.InstanceNorm3d(2, affine=True), (2, 2, 2, 3, 3))
run("LayerNorm", nn.LayerNorm(5), (2, 3, 5))
run("LayerNorm of two dimensions", nn.LayerNorm((3, 5), eps=1e-2), (2, 3, 5))
run("LayerNorm without bias", nn.LayerNorm(5, bias=False), (4, 5))
run("LayerNorm without affine", nn.LayerNorm(5, elementwise_affine=False), (4, 5))
run("RMSNorm", nn.RMSNorm(5), (2, 3, 5))
run("RMSNorm with eps", nn.RMSNorm((3, 5), eps=0.1), (2, 3, 5))
run("GroupNorm", nn.GroupNorm(2, 6), (2, 6, 3))
run("GroupNorm without affine", nn.GroupNorm(3, 6, affine=False), (2, 6))
run("LocalResponseNorm", nn.LocalResponseNorm(3, alpha=0.5, beta=0.5, k=2.0), (2, 5, 3))
