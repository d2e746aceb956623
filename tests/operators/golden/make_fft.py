#!/usr/bin/env python3
"""Writes fft.txt: the results of NumPy, SciPy and PyTorch for tests/operators/fft_op_test.cc.

The lines are those of make_numpy.py; complex numbers are pairs in a last dimension. Made with NumPy 2.4.6,
SciPy 1.17.1 and PyTorch 2.15.0:

    python3 make_fft.py > fft.txt
"""
import numpy as np
import scipy.signal
import torch


def numbers(*shape):
    n = int(np.prod(shape))
    return (((np.arange(n) * 7919 + 13) % 101) - 50).reshape(shape) / 8


def put(name, value):
    value = np.asarray(value)
    if np.iscomplexobj(value):
        value = np.stack([value.real, value.imag], -1)
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(repr(float(v)) for v in value.reshape(-1)))


def pairs(*shape):
    z = numbers(*shape, 2)
    return z[..., 0] + 1j * z[..., 1]


z, x = pairs(3, 4, 5), numbers(3, 4, 6)
for norm in ["backward", "forward", "ortho"]:
    put("fft/" + norm, np.fft.fft(z, norm=norm))
    put("ifft/" + norm, np.fft.ifft(z, axis=1, norm=norm))
    put("rfft/" + norm, np.fft.rfft(x, norm=norm))
    put("irfft/" + norm, np.fft.irfft(z, norm=norm))
    put("fftn/" + norm, np.fft.fftn(z, norm=norm))
    put("irfftn/" + norm, np.fft.irfftn(z, norm=norm))
put("fft/longer", np.fft.fft(z, 7, 1))
put("fft/shorter", np.fft.fft(z, 2, 0))
put("rfft/longer", np.fft.rfft(x, 9, 1))
put("irfft/odd", np.fft.irfft(z, 7))
put("irfft/shorter", np.fft.irfft(z, 4))
put("fft2", np.fft.fft2(z))
put("ifft2", np.fft.ifft2(z, axes=(0, 2)))
put("rfft2", np.fft.rfft2(x, s=(5, 4)))
put("irfft2", np.fft.irfft2(z))
put("rfftn", np.fft.rfftn(x, s=(2, 8), axes=(2, 0)))
put("ifftn", np.fft.ifftn(z, s=(3, 7), axes=(1, 2)))
for n in [1, 2, 5, 8]:
    put(f"fftfreq/{n}", np.fft.fftfreq(n, 0.25))
    put(f"rfftfreq/{n}", np.fft.rfftfreq(n, 0.25))
put("fftshift", np.fft.fftshift(x, (0, 1)))
put("ifftshift", np.fft.ifftshift(x, (0, 1)))
put("angle", np.angle(z))
for mode in ["full", "same", "valid"]:
    put("convolve/" + mode, scipy.signal.fftconvolve(x, numbers(1, 1, 3), mode, axes=-1))
for n in [1, 2, 7, 8]:
    for name, f in [("hann", np.hanning), ("hamming", np.hamming), ("blackman", np.blackman)]:
        put(f"{name}/{n}", f(n))
    put(f"hann/periodic/{n}", scipy.signal.windows.hann(n, sym=False))
signal = numbers(2, 40)
window = scipy.signal.windows.hann(8, sym=False)
for name, options in [
    ("plain", dict(n_fft=8, hop_length=3, window=torch.tensor(window))),
    ("normalized", dict(n_fft=8, window=torch.tensor(window), normalized=True)),
    ("edges", dict(n_fft=8, hop_length=8, window=torch.ones(8, dtype=torch.float64), center=False)),
]:
    y = torch.stft(torch.tensor(signal), return_complex=True, **options)
    put("stft/" + name, y.numpy())
    put("istft/" + name, torch.istft(y * y.abs(), **options).numpy())
