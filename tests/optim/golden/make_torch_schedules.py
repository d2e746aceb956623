"""Writes torch_schedules.txt: learning rates of torch.optim.lr_scheduler with a base rate of 0.8.

Usage: python make_torch_schedules.py > torch_schedules.txt. A line is "name : rates of steps 0, 1, ...".
"""

import torch
from torch.optim import lr_scheduler as s

CASES = {
    "onecycle": (100, lambda o: s.OneCycleLR(o, max_lr=0.5, total_steps=100, cycle_momentum=False)),
    "onecycle_linear": (60, lambda o: s.OneCycleLR(o, max_lr=0.5, total_steps=60, pct_start=0.4, anneal_strategy="linear",
                                                   div_factor=10, final_div_factor=100, cycle_momentum=False)),
    "onecycle_three": (80, lambda o: s.OneCycleLR(o, max_lr=0.5, total_steps=80, three_phase=True, cycle_momentum=False)),
    "cyclic": (60, lambda o: s.CyclicLR(o, base_lr=0.8, max_lr=2, step_size_up=7, step_size_down=5, cycle_momentum=False)),
    "cyclic2": (60, lambda o: s.CyclicLR(o, base_lr=0.8, max_lr=2, step_size_up=6, mode="triangular2", cycle_momentum=False)),
    "cyclic_exp": (60, lambda o: s.CyclicLR(o, base_lr=0.8, max_lr=2, step_size_up=6, mode="exp_range", gamma=0.97,
                                            cycle_momentum=False)),
    "restarts": (60, lambda o: s.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=2, eta_min=0.1)),
    "sequential": (40, lambda o: s.SequentialLR(o, [s.ExponentialLR(o, 0.9), s.StepLR(o, 4, 0.5), s.ExponentialLR(o, 0.8)],
                                                [10, 25])),
    "chained": (40, lambda o: s.ChainedScheduler([s.ExponentialLR(o, 0.95), s.StepLR(o, 8, 0.5)])),
    "lambda": (30, lambda o: s.LambdaLR(o, lambda t: 1 / (1 + t))),
}


def main():
    for name, (steps, make) in CASES.items():
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.8)
        schedule = make(optimizer)
        rates = []
        for _ in range(steps):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if len(rates) < steps:
                schedule.step()
        print(name, ":", " ".join(repr(rate) for rate in rates))


main()
