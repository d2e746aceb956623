"""Writes torch.txt: parameters after 1,000 steps of the optimisers of torch.optim, in float64.

Usage: python make_torch.py > torch.txt

A line is "name option=value ... : w0 w1 ...". Names and options are those of make_optimizer(). Step t, from 1, has the
gradient sin(0.7 * (i + 1) + 0.13 * t) * (1 + 0.1 * i) + 0.05 * w[i]. Lines of "lbfgs" are the parameters after 5 steps
on the function sum(100 * (w[i + 1] - w[i]^2)^2 + (1 - w[i])^2) / 50.
"""

import math

import torch

START = [0.3, -1.2, 0.05, 2.0, -0.4]

CASES = [
    ("sgd", dict(lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)),
    ("adam", dict(lr=0.01, weight_decay=0.02, amsgrad=True)),
    ("adamw", dict(lr=0.01, weight_decay=0.1, amsgrad=True, maximize=True)),
    ("adamw", dict(lr=0.01, weight_decay=0.1)),
    ("adagrad", dict(lr=0.1, lr_decay=0.01, weight_decay=0.02, initial_accumulator_value=0.5)),
    ("adadelta", dict(lr=0.7, rho=0.95, eps=1e-4, weight_decay=0.02)),
    ("rmsprop", dict(lr=0.01)),
    ("rmsprop", dict(lr=0.002, alpha=0.95, eps=1e-3, weight_decay=0.02, momentum=0.8, centered=True)),
    ("adamax", dict(lr=0.01, weight_decay=0.02, maximize=True)),
    ("nadam", dict(lr=0.01, weight_decay=0.02, momentum_decay=0.01)),
    ("nadam", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    ("radam", dict(lr=0.01, weight_decay=0.02)),
    ("radam", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    ("rprop", dict(lr=0.01, eta_minus=0.4, eta_plus=1.3, step_min=1e-5, step_max=0.5)),
    ("asgd", dict(lr=0.05, lambd=1e-3, alpha=0.7, t0=100.0, weight_decay=0.02)),
]

CLASSES = {
    "sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad", "adadelta": "Adadelta", "rmsprop": "RMSprop",
    "adamax": "Adamax", "nadam": "NAdam", "radam": "RAdam", "rprop": "Rprop", "asgd": "ASGD",
}


def for_torch(options):
    options = dict(options)
    if "eta_minus" in options:
        options["etas"] = (options.pop("eta_minus"), options.pop("eta_plus"))
        options["step_sizes"] = (options.pop("step_min"), options.pop("step_max"))
    return options


def text(value):
    return str(value).lower() if isinstance(value, bool) else repr(float(value))


def line(name, options, w):
    shown = " ".join([name] + [f"{key}={text(value)}" for key, value in options.items()])
    print(shown, ":", " ".join(repr(x) for x in w.detach().tolist()))


def main():
    for name, options in CASES:
        w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
        optimizer = getattr(torch.optim, CLASSES[name])([w], **for_torch(options))
        for t in range(1, 1001):
            wave = torch.tensor([math.sin(0.7 * (i + 1) + 0.13 * t) * (1 + 0.1 * i) for i in range(len(START))],
                                dtype=torch.float64)
            w.grad = wave + 0.05 * w.detach()
            optimizer.step()
        line(name, options, w)
    for options in [dict(lr=0.5, max_iter=4), dict(lr=1.0, max_iter=6, history_size=2)]:
        w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([w], **options)

        def closure():
            optimizer.zero_grad()
            loss = (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum() / 50
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)
        line("lbfgs", options, w)


main()
