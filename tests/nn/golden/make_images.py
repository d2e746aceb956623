#!/usr/bin/env python3
"""Writes images.txt: what PyTorch's layers for images give for simple numbers. Needs torch.

Each line has the name of a case of tests/nn/convolution_layer_test.cc, then the output, then the gradients of
sum(output * w) with respect to the input and each parameter, where w are numbers of the output's shape. All
are computed in double.
"""

import os

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


def numbers(shape, step):
    count = 1
    for size in shape:
        count *= size
    values = [((i * step * 7 + i * i * 3 + step) % 17 - 8) / 8 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


CASES = [
    ("conv1d", nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 2, 7)),
    ("conv2d", nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), (2, 4, 5, 6)),
    ("conv2d_same", nn.Conv2d(2, 3, (2, 3), padding="same", dilation=(3, 1)), (2, 2, 5, 4)),
    ("conv2d_reflect", nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"), (2, 2, 4, 4)),
    ("conv2d_replicate", nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="replicate"), (2, 2, 4, 4)),
    ("conv2d_circular", nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="circular"), (2, 2, 4, 4)),
    ("conv3d", nn.Conv3d(2, 2, (2, 1, 3), padding=(0, 0, 1), bias=False), (1, 2, 3, 2, 4)),
    ("transpose1d", nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1, output_padding=1), (2, 2, 4)),
    ("transpose2d", nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), groups=2, dilation=(1, 2)), (2, 4, 3, 2)),
    ("transpose3d", nn.ConvTranspose3d(2, 1, 2, stride=(1, 2, 1)), (1, 2, 2, 2, 3)),
    ("max2d", nn.MaxPool2d((3, 2), stride=2, padding=1, ceil_mode=True), (2, 2, 6, 5)),
    ("max1d", nn.MaxPool1d(2, stride=3, dilation=2), (2, 2, 9)),
    ("avg2d", nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True), (2, 2, 6, 6)),
    ("avg2d_exclude", nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), (2, 2, 6, 6)),
    ("avg3d", nn.AvgPool3d(2, stride=1, divisor_override=3), (1, 2, 3, 3, 2)),
    ("adaptive_avg", nn.AdaptiveAvgPool2d((2, 3)), (2, 2, 5, 4)),
    ("adaptive_max", nn.AdaptiveMaxPool2d((2, 3)), (2, 2, 5, 4)),
    ("up_nearest", nn.Upsample(scale_factor=2.5, mode="nearest"), (1, 2, 3)),
    ("up_linear", nn.Upsample(size=7, mode="linear"), (1, 2, 3)),
    ("up_bilinear", nn.Upsample(scale_factor=(2, 1.5), mode="bilinear"), (1, 2, 3, 4)),
    ("up_bilinear_corners", nn.Upsample(size=(5, 2), mode="bilinear", align_corners=True), (1, 2, 3, 4)),
    ("up_bicubic", nn.Upsample(size=(5, 3), mode="bicubic"), (1, 2, 3, 4)),
    ("up_trilinear", nn.Upsample(scale_factor=2, mode="trilinear"), (1, 1, 2, 2, 3)),
    ("shuffle", nn.PixelShuffle(2), (1, 8, 2, 3)),
    ("unshuffle", nn.PixelUnshuffle(2), (1, 2, 4, 6)),
]


def main():
    with open(os.path.join(HERE, "images.txt"), "w", encoding="utf-8") as file:
        for name, layer, shape in CASES:
            layer = layer.double()
            with torch.no_grad():
                for i, parameter in enumerate(layer.parameters()):
                    parameter.copy_(numbers(parameter.shape, 3 + i))
            x = numbers(shape, 2).requires_grad_()
            y = layer(x)
            (y * numbers(y.shape, 5)).sum().backward()
            values = [y, x.grad] + [parameter.grad for parameter in layer.parameters()]
            text = " ".join(f"{v:.12g}" for value in values for v in value.detach().flatten().tolist())
            file.write(f"{name} {text}\n")


if __name__ == "__main__":
    main()
