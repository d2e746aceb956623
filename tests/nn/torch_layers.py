"""Writes what PyTorch's layers hold and compute, in float64: for the test of the same name, which runs it.

"cases.txt" has a line for each layer: its name and the shape of its input ("2,3"), or "-" if the layer has an entry in
CALLS. All cases go into one file, layers.safetensors. The names of a layer's arrays begin with its name and a slash. They
are the state dictionary, under "state."; the inputs in0, in1, ..; the outputs out0, ..; a cotangent for each output, g0, ..;
the gradients of the inputs, d0, .., and of the parameters, under "grad."; the buffers after the call, under "after."; and
whether the layer is in training mode. Random numbers come from the seed in the environment variable SEED. Layers without a
counterpart in PyTorch have no arrays.

A test compares with golden/layers.safetensors where PyTorch is not installed. To write that file anew, run the test where
PyTorch is installed, with MX_GOLDEN set to the path of the new file.
"""
import json
import os
import struct

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_default_dtype(torch.float64)
TYPES = {torch.float64: "F64", torch.int64: "I64", torch.bool: "BOOL"}


def save(path, arrays):
    header, data = {}, b""
    for name, value in arrays.items():
        value = value.detach().contiguous()
        begin, data = len(data), data + value.numpy().tobytes()
        header[name] = {"dtype": TYPES[value.dtype], "shape": list(value.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class ResultsOf(nn.Module):
    """The results of a recurrent layer without its state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class StateOf(nn.Module):
    """The state after one step; of an LSTM the sum of both."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = self.cell(x)
        return state[0] + state[1] if isinstance(state, tuple) else state


class Residual(nn.Module):
    def __init__(self, body, shortcut=None):
        super().__init__()
        self.body = body
        if shortcut is not None:
            self.shortcut = shortcut

    def forward(self, x):
        return self.body(x) + (self.shortcut(x) if hasattr(self, "shortcut") else x)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(4, 2, dim_feedforward=3, batch_first=True, **options)


# What layer_cases() of tests/nn/layers.h has, in PyTorch's words; a layer whose name alone says everything has no line.
LAYERS = {
    "Linear": lambda: nn.Linear(6, 5),
    "Linear of rank 3": lambda: nn.Linear(6, 5),
    "Linear without bias": lambda: nn.Linear(6, 5, bias=False),
    "Linear with weight_norm": lambda: weight_norm(nn.Linear(6, 5)),
    "Linear with weight_norm of all": lambda: weight_norm(nn.Linear(6, 5), dim=None),
    "Linear with spectral_norm": lambda: spectral_norm(nn.Linear(6, 5)),
    "Linear with both": lambda: spectral_norm(weight_norm(nn.Linear(6, 5)), "bias"),
    "Conv2d with weight_norm": lambda: weight_norm(nn.Conv2d(2, 3, 2), dim=1),
    "ConvTranspose1d with spectral_norm": lambda: spectral_norm(nn.ConvTranspose1d(2, 3, 3), n_power_iterations=2),
    "GRU with weight_norm": lambda: ResultsOf(weight_norm(nn.GRU(3, 4, batch_first=True), "weight_hh_l0")),
    "Unflatten": lambda: nn.Unflatten(1, (2, 3)),
    "Sequential": lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), Block(4)),
    "Sequential of nothing": nn.Sequential,
    "Residual": lambda: Residual(nn.Linear(6, 6)),
    "Residual with a shortcut": lambda: Residual(nn.Linear(6, 3), nn.Linear(6, 3)),
    "Hardtanh": lambda: nn.Hardtanh(-0.5, 0.75),
    "LeakyReLU": lambda: nn.LeakyReLU(0.2),
    "PReLU by channel": lambda: nn.PReLU(6, 0.125),
    "ELU": lambda: nn.ELU(1.5),
    "CELU": lambda: nn.CELU(1.5),
    "GELU with tanh": lambda: nn.GELU("tanh"),
    "Softplus": lambda: nn.Softplus(2),
    "Softmax": lambda: nn.Softmax(-1),
    "Softmax of the first": lambda: nn.Softmax(0),
    "LogSoftmax": lambda: nn.LogSoftmax(-1),
    "Threshold": lambda: nn.Threshold(0.25, -2),
    "Softmin": lambda: nn.Softmin(-1),
    "BatchNorm1d": lambda: nn.BatchNorm1d(6),
    "BatchNorm2d": lambda: nn.BatchNorm2d(3),
    "BatchNorm3d": lambda: nn.BatchNorm3d(2),
    "SyncBatchNorm": lambda: nn.BatchNorm2d(3),  # PyTorch's own needs a GPU
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(3, affine=True),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(2, track_running_stats=True),
    "InstanceNorm3d": lambda: nn.InstanceNorm3d(2),
    "LayerNorm": lambda: nn.LayerNorm(6),
    "RMSNorm": lambda: nn.RMSNorm(6),
    "GroupNorm": lambda: nn.GroupNorm(2, 6),
    "LocalResponseNorm": lambda: nn.LocalResponseNorm(3),
    "Unfold": lambda: nn.Unfold((2, 3), dilation=(2, 1), padding=1, stride=(1, 2)),
    "Fold": lambda: nn.Fold((4, 5), 2, padding=1, stride=(2, 1)),
    "Conv1d": lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1),
    "Conv2d": lambda: nn.Conv2d(2, 4, (3, 2), padding=(1, 0), groups=2),
    "Conv2d same": lambda: nn.Conv2d(2, 3, 2, padding="same", bias=False),
    "Conv2d reflect": lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"),
    "Conv3d": lambda: nn.Conv3d(1, 2, 2, dilation=(1, 2, 1)),
    "ConvTranspose1d": lambda: nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1),
    "ConvTranspose2d": lambda: nn.ConvTranspose2d(2, 4, 3, padding=1, groups=2),
    "ConvTranspose3d": lambda: nn.ConvTranspose3d(1, 2, 2, stride=2, bias=False),
    "MaxPool1d": lambda: nn.MaxPool1d(2),
    "MaxPool2d": lambda: nn.MaxPool2d((3, 2), stride=2, padding=1),
    "MaxPool3d": lambda: nn.MaxPool3d(2),
    "AvgPool1d": lambda: nn.AvgPool1d(3, stride=1, padding=1),
    "AvgPool2d": lambda: nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False),
    "AvgPool3d": lambda: nn.AvgPool3d(2),
    "AdaptiveAvgPool1d": lambda: nn.AdaptiveAvgPool1d(3),
    "AdaptiveAvgPool2d": lambda: nn.AdaptiveAvgPool2d((2, 3)),
    "AdaptiveAvgPool3d": lambda: nn.AdaptiveAvgPool3d(1),
    "AdaptiveMaxPool1d": lambda: nn.AdaptiveMaxPool1d(3),
    "AdaptiveMaxPool2d": lambda: nn.AdaptiveMaxPool2d((2, 3)),
    "AdaptiveMaxPool3d": lambda: nn.AdaptiveMaxPool3d(1),
    "GlobalAvgPool": lambda: nn.AdaptiveAvgPool2d(1),
    "GlobalMaxPool": lambda: nn.AdaptiveMaxPool2d(1),
    "Upsample": lambda: nn.Upsample(size=5, mode="linear"),
    "PixelShuffle": lambda: nn.PixelShuffle(2),
    "PixelUnshuffle": lambda: nn.PixelUnshuffle(2),
    "ZeroPad2d": lambda: nn.ZeroPad2d(1),
    "ConstantPad2d": lambda: nn.ConstantPad2d((1, 0, 2, 1), 0.5),
    "ReflectionPad2d": lambda: nn.ReflectionPad2d((1, 1, 2, 0)),
    "ReplicationPad2d": lambda: nn.ReplicationPad2d((2, 1, 1, 0)),
    "TransformerEncoderLayer": lambda: encoder_layer(),
    "TransformerEncoderLayer that normalises first":
        lambda: encoder_layer(dropout=0, activation="gelu", norm_first=True),
    "TransformerEncoder": lambda: nn.TransformerEncoder(encoder_layer(dropout=0), 2, nn.LayerNorm(4)),
    "RNN": lambda: ResultsOf(nn.RNN(3, 4, nonlinearity="relu", batch_first=True)),
    "LSTM stacked": lambda: ResultsOf(nn.LSTM(3, 2, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)),
    "GRU": lambda: ResultsOf(nn.GRU(3, 4, batch_first=True)),
    "RNNCell": lambda: StateOf(nn.RNNCell(6, 4)),
    "LSTMCell": lambda: StateOf(nn.LSTMCell(6, 4)),
    "GRUCell": lambda: StateOf(nn.GRUCell(6, 4, bias=False)),
}
# Layers that PyTorch does not have.
OURS_ONLY = ["MixtureOfExperts", "SinusoidalPositions", "LearnedPositions", "RotaryEmbedding"]


def packed(layer, x, h, c=None):
    rows = pack_padded_sequence(x, torch.tensor([2, 4, 1]), enforce_sorted=False)
    y, end = layer(rows, h if c is None else (h, c))
    return (pad_packed_sequence(y)[0], *(end if isinstance(end, tuple) else (end,)))


def with_state(layer, x, h, c=None):
    y, end = layer(x, h if c is None else (h, c))
    return (y, *(end if isinstance(end, tuple) else (end,)))


def later(size):
    """True where a key comes after the query."""
    return torch.ones(size, size, dtype=torch.bool).triu(1)


PADDING = torch.tensor([[False, False, False], [False, False, True]])
NUMBERS = torch.tensor([[1, 4, 0], [4, 4, 6]])

# Layers with several inputs: how the layer is made, its inputs (shapes, or numbers), how it is called.
CALLS = {
    "Bilinear": (lambda: nn.Bilinear(3, 4, 5), [(2, 3), (2, 4)], lambda m, a, b: (m(a, b),)),
    "Embedding": (lambda: nn.Embedding(7, 3, padding_idx=6), [NUMBERS], lambda m, i: (m(i),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 3), [NUMBERS], lambda m, i: (m(i),)),
    "RNN with state": (lambda: nn.RNN(3, 5), [(4, 2, 3), (1, 2, 5)], with_state),
    "GRU with state": (lambda: nn.GRU(3, 5, 2, bidirectional=True), [(4, 2, 3), (4, 2, 5)], with_state),
    "LSTM with state": (lambda: nn.LSTM(3, 5, 2), [(4, 2, 3), (2, 2, 5), (2, 2, 5)], with_state),
    "LSTM packed": (lambda: nn.LSTM(3, 5, bidirectional=True), [(4, 3, 3), (2, 3, 5), (2, 3, 5)], packed),
    "GRU packed": (lambda: nn.GRU(3, 5), [(4, 3, 3), (1, 3, 5)], packed),
    "LSTMCell with state": (lambda: nn.LSTMCell(3, 5), [(2, 3), (2, 5), (2, 5)], lambda m, x, h, c: m(x, (h, c))),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2, batch_first=True), [(2, 3, 4)] * 3,
                           lambda m, q, k, v: m(q, k, v, key_padding_mask=PADDING)),
    "MultiheadAttention causal": (lambda: nn.MultiheadAttention(4, 2, bias=False), [(3, 2, 4)] * 3,
                                  lambda m, q, k, v: (m(q, k, v, need_weights=False, attn_mask=later(3))[0],)),
    "MultiheadAttention of other widths": (
        lambda: nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True, add_zero_attn=True),
        [(3, 2, 4), (6, 2, 3), (6, 2, 5)], lambda m, q, k, v: m(q, k, v, average_attn_weights=False)),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(4, 2, 3, dropout=0), [(3, 2, 4), (5, 2, 4)],
                                lambda m, t, s: (m(t, s, tgt_mask=later(3)),)),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 3, dropout=0, norm_first=True), 2), [(3, 2, 4), (5, 2, 4)],
        lambda m, t, s: (m(t, s),)),
    "Transformer": (lambda: nn.Transformer(4, 2, 1, 2, 3, dropout=0, batch_first=True), [(2, 3, 4), (2, 5, 4)],
                    lambda m, s, t: (m(s, t, src_key_padding_mask=PADDING, memory_key_padding_mask=PADDING,
                                       tgt_mask=later(5)),)),
}


def case_of(name, shape):
    if name in CALLS:
        make, inputs, call = CALLS[name]
        return make(), inputs, call
    make = LAYERS.get(name) or getattr(nn, name)
    return make(), [shape], lambda m, x: (m(x),)


def results(name, shape):
    """Returns the arrays of a case."""
    module, inputs, call = case_of(name, shape)
    # Random layers compute without randomness.
    module.train(not any(isinstance(m, (nn.modules.dropout._DropoutNd, nn.RReLU)) or getattr(m, "dropout", 0)
                         for m in module.modules()))
    if not module.training and name.startswith("Transformer"):
        torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 2)
    arrays = {"state." + key: value.clone() for key, value in module.state_dict().items()}
    leaves = [v.clone() if torch.is_tensor(v) else torch.randn(v).requires_grad_() for v in inputs]
    outputs = call(module, *leaves)
    gradients = [torch.randn(o.shape) for o in outputs]
    torch.autograd.backward(list(outputs), gradients)
    for kind, values in [("in", leaves), ("out", outputs), ("g", gradients), ("d", [leaf.grad for leaf in leaves])]:
        arrays.update({f"{kind}{i}": value for i, value in enumerate(values) if value is not None})
    arrays.update({"grad." + key: p.grad for key, p in module.named_parameters() if p.grad is not None})
    arrays["training"] = torch.tensor(module.training)
    arrays.update({"after." + key: value for key, value in module.named_buffers()})
    return arrays


def main():
    torch.manual_seed(int(os.environ["SEED"]))
    everything = {}
    with open("cases.txt", encoding="utf-8") as file:
        for line in file.read().splitlines():
            name, shape = line.split("\t")
            if name not in OURS_ONLY:
                arrays = results(name, None if shape == "-" else tuple(map(int, shape.split(","))))
                everything.update({f"{name}/{key}": value for key, value in arrays.items()})
    save("layers.safetensors", everything)


main()
