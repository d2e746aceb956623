#!/usr/bin/env python3
"""Writes losses.txt: losses, activations and embeddings of PyTorch with their gradients, in float64.

A line is "name shape = values": the shape as sizes with commas ("-" for none). tests/nn/more_losses_test.cc and
tests/nn/embedding_test.cc make the same inputs from the same formula. Made with PyTorch 2.15:

    python3 make_losses.py > losses.txt
"""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
nn = torch.nn


def numbers(shape, step):
    n = 1
    for size in shape:
        n *= size
    return (((torch.arange(n) * 7919 + 13 * step) % 101) - 50).to(torch.float64).reshape(shape) / 32


def put(name, value):
    shape = ",".join(map(str, value.shape)) or "-"
    print(name, shape, "=", " ".join(repr(float(v)) for v in value.detach().reshape(-1)))


def run(name, f, *inputs):
    """Prints f's result, and the gradients of its sum times numbers(.., 7)."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = f(*leaves)
    y.backward(numbers(y.shape, 7))
    put(name, y)
    for i, leaf in enumerate(leaves):
        put(f"{name}/d{i}", leaf.grad)


x, t = numbers((4, 5), 1), numbers((4, 5), 2)
positive, signs = t.abs() * 2, torch.where(t > 0, 1.0, -1.0)
weight = numbers((5,), 3).abs() + 0.5
lists = torch.tensor([[3, 0, -1, 1, 2], [4, -1, 0, 0, 0], [-1, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
labels = torch.tensor([0, 3, 4, 1])
for r in ["none", "mean", "sum"]:
    run(f"poisson/{r}", lambda a, b: F.poisson_nll_loss(a, b, reduction=r), x, positive)
    run(f"poisson full/{r}", lambda a: F.poisson_nll_loss(a, positive, full=True, reduction=r), x)
    run(f"poisson of rates/{r}", lambda a: F.poisson_nll_loss(a, positive, log_input=False, eps=0.25, reduction=r), x.abs())
    run(f"gaussian/{r}", lambda a, b, v: F.gaussian_nll_loss(a, b, v, reduction=r), x, t, positive)
    run(f"gaussian full/{r}", lambda a, b, v: F.gaussian_nll_loss(a, b, v, full=True, eps=0.5, reduction=r), x, t, positive[:, 0])
    run(f"multilabel margin/{r}", lambda a: F.multilabel_margin_loss(a, lists, reduction=r), x)
    run(f"multi margin/{r}", lambda a: F.multi_margin_loss(a, labels, reduction=r), x)
    run(f"multi margin of squares/{r}", lambda a: F.multi_margin_loss(a, labels, p=2, margin=0.5, weight=weight, reduction=r), x)
    run(f"multilabel soft margin/{r}", lambda a: F.multilabel_soft_margin_loss(a, torch.sigmoid(t), reduction=r), x)
    run(f"multilabel soft margin weighted/{r}", lambda a: F.multilabel_soft_margin_loss(a, torch.sigmoid(t), weight=weight, reduction=r), x)
    run(f"soft margin/{r}", lambda a: F.soft_margin_loss(a, signs, reduction=r), x)
    run(f"triplet with distance/{r}", lambda a, b, c: F.triplet_margin_with_distance_loss(a, b, c, distance_function=lambda p, q: (p - q).abs().sum(-1), margin=0.75, swap=True, reduction=r), x, t, numbers((4, 5), 5))
    run(f"ctc/{r}", lambda a: F.ctc_loss(F.log_softmax(a, 2), torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([6, 4]), torch.tensor([3, 2]), reduction=r), numbers((6, 2, 4), 4))
    run(f"ctc with infinities/{r}", lambda a: F.ctc_loss(F.log_softmax(a, 2), torch.tensor([2, 2, 2, 1]), torch.tensor([3, 6]), torch.tensor([3, 1]), blank=3, zero_infinity=True, reduction=r), numbers((6, 2, 4), 4))
run("multilabel margin of one", lambda a: F.multilabel_margin_loss(a, lists[0]), x[0])
run("multi margin of one", lambda a: F.multi_margin_loss(a, labels[0]), x[0])
run("pairwise distance", lambda a, b: nn.PairwiseDistance(p=3, keepdim=True)(a, b), x, t)
run("cosine similarity", lambda a, b: nn.CosineSimilarity(dim=0)(a, b), x, t)

run("Tanhshrink", nn.Tanhshrink(), x)
run("Softshrink", nn.Softshrink(0.75), x)
run("Hardshrink", nn.Hardshrink(0.75), x)
run("Threshold", nn.Threshold(0.25, -3.0), x)
run("Softmin", nn.Softmin(dim=1), x)
run("Softmax2d", nn.Softmax2d(), numbers((2, 3, 2, 2), 1))
run("RReLU", nn.RReLU(0.25, 0.5).eval(), x)

table, indices = numbers((6, 3), 1), torch.tensor([[1, 4, 0], [4, 4, 5]])
run("Embedding", lambda w: F.embedding(indices, w), table)
run("Embedding with padding", lambda w: F.embedding(indices, w, padding_idx=4), table)
run("Embedding with a largest norm", lambda w: F.embedding(indices, w.clone(), max_norm=1.0), table)
offsets = torch.tensor([0, 2, 2])
for mode in ["sum", "mean", "max"]:
    run(f"EmbeddingBag/{mode}", lambda w: F.embedding_bag(indices, w, mode=mode), table)
    run(f"EmbeddingBag with padding/{mode}", lambda w: F.embedding_bag(torch.tensor([[1, 4, 0], [4, 4, 4]]), w, mode=mode, padding_idx=4), table)
    if mode != "max":
        run(f"EmbeddingBag with offsets/{mode}", lambda w: F.embedding_bag(indices.reshape(-1), w, offsets, mode=mode), table)
        run(f"EmbeddingBag with offsets and padding/{mode}", lambda w: F.embedding_bag(indices.reshape(-1), w, offsets, mode=mode, padding_idx=4), table)
run("Bilinear", F.bilinear, numbers((2, 3, 4), 1), numbers((2, 3, 2), 2), numbers((3, 4, 2), 3), numbers((3,), 4))
