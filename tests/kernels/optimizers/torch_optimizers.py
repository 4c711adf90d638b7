#!/usr/bin/env python3
"""Writes torch_optimizers.txt beside it: steps of torch.optim in double, for test_torch_optimizers.

Per case: optimizer, rows, columns, steps, hyperparameters in our order, then the parameter, the gradient of each step and
the parameter after the last. All inputs are float32 numbers. PyTorch's Muon casts to bfloat16 for its iterations; here it
sees float64 under that name. Usage: torch_optimizers.py, with PyTorch 2.9 or later."""
import os
import types

import torch
from torch.optim import _muon

_muon.torch = types.SimpleNamespace(**{**vars(torch), "bfloat16": torch.float64})

STEPS = 5
torch.manual_seed(1)


def sgd(lr, momentum, nesterov, decay):
    return lambda p: torch.optim.SGD(p, lr=lr, momentum=momentum, nesterov=bool(nesterov), weight_decay=decay)


def adam(lr, beta1, beta2, eps, decay):
    return lambda p: torch.optim.Adam(p, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)


def adamw(lr, beta1, beta2, eps, decay):
    return lambda p: torch.optim.AdamW(p, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)


def adafactor(lr, beta2_decay, eps1, eps2, d, decay):
    return lambda p: torch.optim.Adafactor(p, lr=lr, beta2_decay=beta2_decay, eps=(eps1, eps2), d=d, weight_decay=decay)


def muon(lr, momentum, nesterov, decay, eps, match_rms, *_):
    return lambda p: torch.optim.Muon(p, lr=lr, momentum=momentum, nesterov=bool(nesterov), weight_decay=decay, eps=eps,
                                      adjust_lr_fn="match_rms_adamw" if match_rms else "original")


CASES = [
    (sgd, (0.05, 0.9, 1, 0.1), (1, 7)),
    (sgd, (0.1, 0.9, 0, 0.01), (4, 3)),
    (adam, (0.01, 0.8, 0.95, 1e-6, 0.1), (1, 9)),
    (adamw, (0.001, 0.9, 0.999, 1e-8, 0.01), (5, 4)),
    (adamw, (0.01, 0.8, 0.95, 1e-6, 0.1), (1, 9)),
    (adafactor, (0.01, -0.8, 2.0**-23, 0.001, 1, 0), (6, 5)),
    (adafactor, (0.6, -0.5, 0.01, 0.01, 1, 0.1), (5, 8)),
    (adafactor, (0.01, -0.8, 2.0**-23, 0.001, 1, 0.1), (1, 11)),
    (muon, (0.001, 0.95, 1, 0.1, 1e-7, 0, 3e-4, 0.9, 0.95, 1e-8), (6, 5)),
    (muon, (0.02, 0.95, 1, 0.1, 1e-7, 0, 3e-4, 0.9, 0.95, 1e-8), (9, 4)),
    (muon, (0.02, 0.9, 0, 0.01, 1e-7, 1, 3e-4, 0.9, 0.95, 1e-8), (5, 9)),
]


def line(tensor):
    return " ".join(f"{x:.9g}" for x in tensor.flatten().tolist())


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_optimizers.txt"), "w") as out:
    for make, hyper, (rows, columns) in CASES:
        shape = (rows, columns) if rows > 1 else (columns,)
        start = torch.randn(shape, dtype=torch.float32)
        parameter = torch.nn.Parameter(start.double())
        optimizer = make(*hyper)([parameter])
        print(make.__name__, rows, columns, STEPS, len(hyper), *(f"{h:.17g}" for h in hyper), file=out)
        print(line(start), file=out)
        for _ in range(STEPS):
            gradient = torch.randn(shape, dtype=torch.float32) * torch.rand((), dtype=torch.float32)
            print(line(gradient), file=out)
            parameter.grad = gradient.double()
            optimizer.step()
        print(line(parameter.detach()), file=out)
