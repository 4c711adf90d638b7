"""Losses, gradients, buffers, parameters and the generator after 5 steps are eager's, under any budget."""

import os

import pytest
import torch
from steps import LEAST, Random, check, loss_of
from torch import nn
from torch.nn import functional as F


class Of(nn.Module):
    """A module of modules and a function of them."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.parts = nn.ModuleDict(modules)
        self.function = forward

    def forward(self, *x):
        return self.function(self.parts, *x)


def mlp(*more):
    return nn.Sequential(nn.Linear(16, 32), *more, nn.Linear(32, 8))


def tied():
    model = Of(lambda m, x: m["out"](torch.tanh(m["middle"](m["embed"](x)))), embed=nn.Embedding(20, 16),
               middle=nn.Linear(16, 16), out=nn.Linear(16, 20, bias=False))
    model.parts["out"].weight = model.parts["embed"].weight
    return model


def frozen():
    model = mlp(nn.GELU(), nn.Linear(32, 32), nn.GELU())
    for p in model[2].parameters():
        p.requires_grad_(False)
    return model


def partly_no_grad(m, x):
    with torch.no_grad():
        mean = m["a"](x).mean()
    return m["b"](m["a"](x) - mean)


class Counter(nn.Module):
    """Its own state changes with every step."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x):
        y = self.linear(x + self.seen).tanh()
        self.seen.mul_(0.9).add_(y.detach().mean(0))
        return F.gelu(y * self.seen)


X = torch.randn(32, 16, generator=torch.Generator().manual_seed(5))
IMAGE = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(5))
WORDS = torch.randint(0, 20, (4, 10), generator=torch.Generator().manual_seed(5))
CASES = {
    "dropout": lambda: (mlp(nn.Dropout(0.3), nn.GELU(), nn.Dropout(0.1)), (X,)),
    "batch norm": lambda: (mlp(nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()), (X,)),
    "dropout and batch norm": lambda: (mlp(nn.BatchNorm1d(32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 32), nn.Dropout(0.5),
                                           nn.BatchNorm1d(32)), (X,)),
    "dropout of features": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout2d(0.4), nn.ReLU(), nn.Conv2d(8, 8, 3)), (IMAGE,)),
    "random numbers": lambda: (Of(lambda m, x: m["b"]((m["a"](x) + 0.1 * torch.randn_like(x)).sigmoid() * torch.rand(16, device=x.device)),
                                  a=nn.Linear(16, 16), b=nn.Linear(16, 16)), (X,)),
    "attention with dropout": lambda: (nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True), (X.view(2, 16, 16),)),
    "tied weights": lambda: (tied(), (WORDS,)),
    "frozen layer": lambda: (frozen(), (X,)),
    "one module twice": lambda: (Of(lambda m, x: m["a"](m["a"](x).relu()), a=nn.Linear(16, 16)), (X,)),
    "views and in place": lambda: (Of(lambda m, x: m["a"](x).view(-1, 4).t().contiguous().mul_(2).t().reshape(32, 16).relu_(),
                                      a=nn.Linear(16, 16)), (X,)),
    "channels last": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(
        memory_format=torch.channels_last), (IMAGE.to(memory_format=torch.channels_last),)),
    "not contiguous": lambda: (mlp(nn.GELU()), (torch.randn(16, 32, generator=torch.Generator().manual_seed(1)).t(),)),
    "part without gradients": lambda: (Of(partly_no_grad, a=nn.Linear(16, 16), b=nn.Linear(16, 4)), (X,)),
    "outputs that are activations": lambda: (Of(lambda m, x: (lambda h: {"h": h, "y": [m["b"](h), h.relu()]})(m["a"](x)),
                                                a=nn.Linear(16, 16), b=nn.Linear(16, 4)), (X,)),
    "complex": lambda: (Of(lambda m, x: torch.fft.rfft(m["a"](x)) * torch.complex(m["b"](x)[:, :9], m["a"](x)[:, :9]),
                           a=nn.Linear(16, 16), b=nn.Linear(16, 16)), (X,)),
    "integers and booleans": lambda: (Of(lambda m, x, k: torch.where(x > 0, m["a"](x), x)[k % 32] * (k.unsqueeze(1) + 1),
                                         a=nn.Linear(16, 16)), (X, torch.arange(7))),
    "state that changes": lambda: (Counter(), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    check(model, inputs)


def test_eval_mode():
    torch.manual_seed(0)
    check(mlp(nn.BatchNorm1d(32), nn.Dropout(0.3), nn.GELU()).eval(), (X,))


def test_autocast():
    torch.manual_seed(0)
    check(mlp(nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32)), (X,), autocast=torch.bfloat16)


def test_scaled_gradients():
    torch.manual_seed(0)
    check(mlp(nn.GELU(), nn.Linear(32, 32)), (X,), scaler=True)


def test_accumulated_gradients():
    torch.manual_seed(0)
    check(mlp(nn.Dropout(0.1), nn.GELU(), nn.Linear(32, 32)), (X,), accumulate=2)


def test_no_gradients_wanted():
    torch.manual_seed(0)
    model = mlp(nn.GELU())
    wanted = model(X)
    with torch.no_grad():
        assert torch.equal(torch.compile(model, backend="ckpt", options={"budget": "1GB"})(X), wanted)


def test_scales_of_dropout_survive_their_inverse():
    """Backward knows a dropout by 1/(1-p) alone."""
    for i in range(1, 1000):
        keep = 1 - i / 1000
        assert torch.tensor(1 / (1 / keep), dtype=torch.float32) == torch.tensor(keep, dtype=torch.float32)


FEW = os.environ.get("CKPT_TEST_ROUNDS") == "few"


@pytest.mark.parametrize("seed", range(12 if FEW else 200))
def test_random_modules(seed):
    torch.manual_seed(seed)
    check(Random(seed), (torch.randn(32, 24, requires_grad=seed % 3 == 0),),
          ("60%", LEAST) if FEW else ("100%", "80%", "60%", LEAST), steps=2, loss=loss_of)
