#!/usr/bin/env python3
"""Writes grid_sample.txt: outputs and gradients of PyTorch's grid_sample and affine_grid, in float64.

A line is "name shape = values". tests/nn/grid_sample_test.cc makes the same inputs from the same formula.

    python3 make_grid_sample.py > grid_sample.txt
"""
import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)


def numbers(shape, step):
    n = 1
    for size in shape:
        n *= size
    return (((torch.arange(n) * 7919 + 13 * step) % 101) - 50).to(torch.float64).reshape(shape) / 32


def put(name, value):
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(repr(float(v)) for v in value.detach().reshape(-1)))


def main():
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border"):
            for corners in (False, True):
                x = numbers((2, 3, 4, 5), 1).requires_grad_()
                # No position is exactly at a pixel or at an edge, where there is no derivative.
                grid = (numbers((2, 3, 2, 2), 2) * 0.97).requires_grad_()
                y = F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)
                y.backward(numbers(y.shape, 3))
                name = f"{mode} {padding} {corners}"
                put(name + " y", y)
                put(name + " dx", x.grad)
                put(name + " dgrid", grid.grad)
    for corners in (False, True):
        theta = numbers((2, 2, 3), 4).requires_grad_()
        grid = F.affine_grid(theta, (2, 3, 4, 5), align_corners=corners)
        grid.backward(numbers(grid.shape, 5))
        put(f"affine {corners} y", grid)
        put(f"affine {corners} dtheta", theta.grad)


if __name__ == "__main__":
    main()
