#!/usr/bin/env python3
"""Writes recurrent.txt: outputs, states and gradients of PyTorch's recurrent layers and cells, in float64.

A line is "name shape = values": the shape as sizes with commas ("-" for none). tests/nn/recurrent_test.cc makes the
same inputs and parameters from the same formula. Made with PyTorch 2.15:

    python3 make_recurrent.py > recurrent.txt
"""
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_default_dtype(torch.float64)


def numbers(shape, step):
    n = 1
    for size in shape:
        n *= size
    return (((torch.arange(n) * 7919 + 13 * step) % 101) - 50).to(torch.float64).reshape(shape) / 32


def put(name, value):
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(repr(float(v)) for v in value.detach().reshape(-1)))


def fill(layer):
    for step, parameter in enumerate(layer.parameters()):
        with torch.no_grad():
            parameter.copy_(numbers(parameter.shape, 3 + step) / 2)


def finish(name, layer, outputs, leaves):
    """Backward from all outputs, then everything is written."""
    torch.autograd.backward(list(outputs.values()), [numbers(o.shape, 20 + i) for i, o in enumerate(outputs.values())])
    for key, value in {**outputs, **{"d" + k: leaf.grad for k, leaf in leaves.items()}}.items():
        put(name + "/" + key, value)
    for key, parameter in layer.named_parameters():
        put(name + "/d" + key, parameter.grad)


def run(name, layer, shape, batch, lengths=None, state=True):
    fill(layer)
    lstm = isinstance(layer, torch.nn.LSTM)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    of_state = (count, layer.hidden_size) if batch is None else (count, batch, layer.hidden_size)
    leaves = {"x": numbers(shape, 1).requires_grad_()}
    start = None
    if state:
        leaves["h0"] = numbers(of_state, 2).requires_grad_()
        if lstm:
            leaves["c0"] = numbers(of_state, 5).requires_grad_()
        start = (leaves["h0"], leaves["c0"]) if lstm else leaves["h0"]
    x = leaves["x"]
    if lengths:
        x = pack_padded_sequence(x, torch.tensor(lengths), batch_first=layer.batch_first, enforce_sorted=False)
    y, end = layer(x, start)
    if lengths:
        y, _ = pad_packed_sequence(y, batch_first=layer.batch_first, padding_value=0.5)
    outputs = {"y": y, "h": end[0], "c": end[1]} if lstm else {"y": y, "h": end}
    finish(name, layer, outputs, leaves)


def cell(name, layer, lstm=False, batch=(3,)):
    fill(layer)
    leaves = {"x": numbers(batch + (4,), 1).requires_grad_(), "h0": numbers(batch + (5,), 2).requires_grad_()}
    if lstm:
        leaves["c0"] = numbers(batch + (5,), 5).requires_grad_()
        h, c = layer(leaves["x"], (leaves["h0"], leaves["c0"]))
        outputs = {"h": h, "c": c}
    else:
        outputs = {"h": layer(leaves["x"], leaves["h0"])}
    finish(name, layer, outputs, leaves)


nn = torch.nn
for kind, options in [("RNN", {}), ("RNN relu", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {})]:
    make = getattr(nn, kind.split()[0])
    run(kind, make(4, 5, **options), (3, 2, 4), 2)
    run(kind + " from zeros", make(4, 5, bias=False, batch_first=True, **options), (2, 3, 4), 2, state=False)
    run(kind + " stacked", make(4, 3, num_layers=2, bidirectional=True, batch_first=True, **options), (2, 3, 4), 2)
    run(kind + " packed", make(4, 3, num_layers=2, bidirectional=True, **options), (4, 3, 4), 3, lengths=[2, 4, 1])
    run(kind + " of one sequence", make(4, 3, bidirectional=True, **options), (3, 4), None)
cell("RNNCell", nn.RNNCell(4, 5))
cell("RNNCell relu", nn.RNNCell(4, 5, bias=False, nonlinearity="relu"))
cell("GRUCell", nn.GRUCell(4, 5))
cell("GRUCell of one sample", nn.GRUCell(4, 5, bias=False), batch=())
cell("LSTMCell", nn.LSTMCell(4, 5), True)
cell("LSTMCell of one sample", nn.LSTMCell(4, 5), True, batch=())
