"""Training a few steps, in eager and under plans, and what must not differ."""

import copy
import os
import random

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import ckpt_torch

DEVICE = torch.device(os.environ.get("CKPT_TEST_DEVICE", "cpu"))  # "cuda": the tests of bits run on a card
LEAST = "1%"  # of keep-all's peak: with infeasible=least, the least budget there is


def loss_of(out):
    """Some number that depends on everything that a model gave."""
    total = 0
    for i, x in enumerate(tree_leaves(out)):
        if isinstance(x, torch.Tensor) and x.requires_grad:
            x = torch.view_as_real(x) if x.is_complex() else x
            total = total + (x.float() * torch.linspace(0.5, 1.5, x.numel(), device=x.device).view(x.shape)).mean() * (i + 1)
    return total


def train(model, run, inputs, steps=5, loss=loss_of, accumulate=1, scaler=None, autocast=None):
    """What `steps` steps of `run`, which is `model` or compiled from it, leave: losses, gradients, state, generator."""
    torch.manual_seed(11)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=bool(scaler))
    losses = []
    for step in range(steps * accumulate):
        with torch.autocast(DEVICE.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            value = loss(run(*inputs))
        losses.append(value.item())
        scaler.scale(value).backward()
        if step % accumulate == accumulate - 1:
            scaler.step(optimizer)
            scaler.update()
            gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            optimizer.zero_grad()
        del value
    return {"losses": losses, "gradients": gradients, "state": [x.clone() for x in model.state_dict().values()],
            "generators": [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if DEVICE.type == "cuda" else [])}


def differences(a, b):
    """The names of what differs in two answers of train()."""
    def same(x, y):
        return (x is None) == (y is None) and (x is None or torch.equal(x, y) or (x != x).equal(y != y))
    found = [] if a["losses"] == b["losses"] else ["losses"]
    return found + [k for k in ("gradients", "state", "generators") if not all(map(same, a[k], b[k]))]


def compiled(model, budget, **options):
    return torch.compile(model, backend=ckpt_torch.backend,
                         options={"budget": budget, "infeasible": "least", "quiet": True, **options})


def check(model, inputs, budgets=("100%", "70%", LEAST), reference="eager", **how):
    """Trains a copy of the model under each budget; all must be as eager. Gives the reports."""
    model, inputs = model.to(DEVICE), tree_map(lambda x: x.to(DEVICE).detach().requires_grad_(x.requires_grad), inputs)
    eager = copy.deepcopy(model)
    wanted = train(eager, torch.compile(eager, backend=reference) if reference else eager, inputs, **how)
    reports = []
    for budget in budgets:
        torch._dynamo.reset()
        mine = copy.deepcopy(model)
        run = compiled(mine, budget)
        found = differences(wanted, train(mine, run, inputs, **how))
        assert not found, f"budget {budget}: {found}"
        reports.append(ckpt_torch.report(run))
    return reports


class Random(nn.Module):
    """A small network made of a seed: branches, views, in-place ops, dropout, shared weights, several outputs."""

    def __init__(self, seed, width=24):
        super().__init__()
        draw = random.Random(seed)
        self.plan, self.blocks, self.width = [], nn.ModuleList(), width
        live = 1
        for _ in range(draw.randint(3, 10)):
            kind = draw.choice(["linear", "shared", "norm", "batch", "act", "inplace", "dropout", "view", "chunk", "add",
                                "mul", "attention", "conv", "detached", "pool"])
            module = {"linear": lambda: nn.Linear(width, width), "norm": lambda: nn.LayerNorm(width),
                      "batch": lambda: nn.BatchNorm1d(width), "dropout": lambda: nn.Dropout(draw.choice([0.1, 0.5])),
                      "act": lambda: draw.choice([nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Softplus()]),
                      "conv": lambda: nn.Conv1d(1, 1, 3, padding=1)}.get(kind, nn.Identity)()
            self.blocks.append(module)
            self.plan.append((kind, draw.randrange(live), draw.randrange(live), draw.random()))
            live += 1
        self.shared = nn.Linear(width, width)
        self.outputs = sorted(draw.sample(range(live), min(live, draw.randint(1, 3))) + [live - 1])

    def forward(self, x):
        values = [self.shared(x)]
        for module, (kind, i, j, p) in zip(self.blocks, self.plan):
            a, b = values[i], values[j]
            if kind == "shared":
                y = self.shared(a)
            elif kind == "inplace":
                y = (a * p).add_(b).relu_()
            elif kind == "view":
                y = a.view(-1, 2, self.width // 2).transpose(1, 2).reshape(-1, self.width).contiguous()
            elif kind == "chunk":
                left, right = a.chunk(2, -1)
                y = torch.cat([right * left.sigmoid(), left], -1)
            elif kind == "add":
                y = a + b
            elif kind == "mul":
                y = a * b.tanh()
            elif kind == "attention":
                h = a.view(1, -1, 2, self.width // 2).transpose(1, 2)
                y = nn.functional.scaled_dot_product_attention(h, h, h, dropout_p=0.2 if p < 0.5 else 0.0)
                y = y.transpose(1, 2).reshape(-1, self.width)
            elif kind == "conv":
                y = module(a.unsqueeze(1)).squeeze(1)
            elif kind == "detached":
                with torch.no_grad():
                    scale = a.abs().mean()
                y = a * scale
            elif kind == "pool":
                y = a.unfold(-1, 2, 2).max(-1).values.repeat(1, 2)
            else:
                y = module(a)
            values.append(y)
        return {"out": values[self.outputs[-1]], "more": [values[i] for i in self.outputs[:-1]]}
