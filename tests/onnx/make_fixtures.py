#!/usr/bin/env python3
"""Writes tests/onnx/NAME/: model.onnx (random weights, PyTorch's exporter), batch.safetensors, and what PyTorch says of them
in float64: loss.txt, gradients.safetensors. Needs torch, safetensors and onnx; nothing at test time does.

    .venv/bin/python -m pip install onnx && .venv/bin/python tests/onnx/make_fixtures.py"""
import os
import sys
import warnings

import onnx
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
warnings.simplefilter("ignore")


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = F.hardswish(x + F.relu6(self.bn2(self.conv2(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Encoder(nn.Module):
    """Attention as its formula, layer norms, a table of positions, both kinds of gelu."""

    def __init__(self, width=12, heads=3):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(17, width)
        self.pos = nn.Parameter(torch.randn(1, 6, width) / 4)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, 20), nn.Linear(20, width)
        self.head = nn.Linear(width, 17, bias=False)

    def split(self, x):
        b, t, c = x.shape
        return x.reshape(b, t, self.heads, c // self.heads).transpose(1, 2)

    def forward(self, ids):
        x = self.embed(ids) + self.pos
        y = self.ln1(x)
        q, k, v = self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y))
        scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + self.proj(y)
        x = x + self.fc2(F.gelu(self.fc1(self.ln2(x))))
        return self.head(F.gelu(x, approximate="tanh"))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 7, batch_first=True)
        self.gru = nn.GRU(7, 6, batch_first=True)
        self.out = nn.Linear(6, 1)

    def forward(self, x):
        y, _ = self.lstm(x)
        y, last = self.gru(F.layer_norm(torch.tanh(y), (7,)))
        return self.out(F.elu(y[:, -1]) * last[0])


class Next(nn.Module):
    """ConvNeXt's block, with its patches, and an enlarged map of classes."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, stride=2)
        self.dw = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.ln = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.rand(width))
        self.up = nn.ConvTranspose2d(width, 6, 2, stride=2)
        self.last = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        x = self.stem(x)
        y = self.ln(self.dw(x).permute(0, 2, 3, 1))
        y = self.gamma * self.fc2(F.gelu(self.fc1(y)))
        x = x + y.permute(0, 3, 1, 2)
        x = F.leaky_relu(self.up(x), 0.1)
        x = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2, mode="nearest") + x
        return self.last(F.pad(x, (1, 0, 0, 0))[:, :, :, 1:])


class Sequence(nn.Module):
    """Convolutions over sequences, group norm, and what moves elements."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 3, padding=1)
        self.gn = nn.GroupNorm(2, 6)
        self.back = nn.ConvTranspose1d(6, 4, 2, stride=2)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        y = F.silu(self.gn(self.conv(x)))
        y = self.back(F.max_pool1d(y, 3, 2, ceil_mode=True))
        a, b = y.split([3, 1], 1)
        y = torch.cat((b, a), 1) - torch.cumsum(x, 2) / 3
        y = torch.cat((y.mean(2), y.amax(2)), 1)
        return self.fc(F.softplus(y) ** 2)


NETWORKS = {
    "mlp": (nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.Sigmoid(), nn.Linear(9, 4)), (6,), "eval"),
    "residual": (Residual(), (3, 12, 12), "train"),
    "frozen": (Residual(), (3, 12, 12), "eval"),
    "encoder": (Encoder(), "ids", "eval"),
    "encoder17": (Encoder(), "ids", "train"),
    "recurrent": (Recurrent(), (4, 5), "eval"),
    "convnext": (Next(), (3, 8, 8), "eval"),
    "sequence": (Sequence(), (4, 8), "eval"),
}


def names_of(model, graph):
    """Our names: recurrent layers have one layer, a parameter of its own is a layer, and one that the exporter has changed
    has the name that it gave it."""
    for name, param in model.named_parameters():
        yield (name.replace("_l0", "") if "_l0" in name else name if "." in name else name + ".weight"), param
    for tensor in graph.initializer:
        values = torch.tensor(onnx.numpy_helper.to_array(tensor))
        for param in model.parameters():
            if tensor.name.startswith(("onnx::Mul", "onnx::Add")) and torch.equal(values.flatten(), param.float().flatten()):
                yield tensor.name.replace("::", "__") + ".weight", param


def make(name):
    torch.manual_seed(sorted(NETWORKS).index(name) + 1)
    model, shape, mode = NETWORKS[name]
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
        if isinstance(module, (nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    x = torch.randint(17, (2, 6)) if shape == "ids" else torch.randn(2, *shape)
    model.train(mode == "train")
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    training = torch.onnx.TrainingMode.TRAINING if mode == "train" else torch.onnx.TrainingMode.EVAL
    state = {key: value.clone() for key, value in model.state_dict().items()}
    torch.onnx.export(model, (x,), os.path.join(folder, "model.onnx"), dynamo=False, training=training,
                      input_names=["x"], output_names=["y"], opset_version=17 if name == "encoder17" else 14,
                      do_constant_folding=False if mode == "train" or name == "frozen" else True,
                      dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    model.load_state_dict(state)
    model.train(mode == "train").double()
    y = model(x if shape == "ids" else x.double())
    batch = {"x": x.int() if shape == "ids" else x}
    if y.shape[1 if y.dim() == 4 else -1] > 1:
        classes = 1 if y.dim() == 4 else y.dim() - 1
        sizes = [size for d, size in enumerate(y.shape) if d != classes]
        batch["labels"] = torch.randint(y.shape[classes], sizes).int()
        loss = F.cross_entropy(y.movedim(classes, 1), batch["labels"].long())
    else:
        batch["target"] = torch.randn(y.shape)
        loss = F.mse_loss(y, batch["target"].double())
    loss.backward()
    save_file(batch, os.path.join(folder, "batch.safetensors"))
    graph = onnx.load(os.path.join(folder, "model.onnx")).graph
    save_file({key: param.grad.float().clone() for key, param in names_of(model, graph)},
              os.path.join(folder, "gradients.safetensors"))
    with open(os.path.join(folder, "loss.txt"), "w") as file:
        file.write(f"{loss.item():.17g}\n")


for chosen in sys.argv[1:] or NETWORKS:
    make(chosen)
