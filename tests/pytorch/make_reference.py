#!/usr/bin/env python3
"""Writes tiny-*.reference.json: losses of three training steps and the first step's gradients, computed by PyTorch
in float64 from the formulas below, for the networks in tiny-*.model.json. tests/executor/run/test_pytorch.c trains the same
networks with our executor from the same starting values and compares.

Usage: scripts/pytorch-venv && .venv/bin/python tests/pytorch/make_reference.py
Starting values need no file: element i of parameter number p (in layer order) is value(i, p) scaled; see value().
"""
import json
import os
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 3


def value(count, salt):
    """Numbers in [-0.5, 0.5) that C and Python agree on to the last bit: one integer formula, one division."""
    i = torch.arange(count, dtype=torch.int64)
    return (((i * 7919 + salt * 104729 + 13) % 2003).to(torch.float64) / 2003.0 - 0.5).float().double()


def tokens(count, salt, limit):
    i = torch.arange(count, dtype=torch.int64)
    return (i * 31 + salt * 17 + 5) % limit


class Net:
    """Parameters in layer order, each starting at value(...) * 0.4, norm weights at 1 + that."""

    def __init__(self):
        self.params, self.salt, self.stats = {}, 0, {}

    def param(self, name, *shape, one=False):
        if name not in self.params:
            count = 1
            for n in shape:
                count *= n
            # 0.4 as a float32, and the product rounded to float32: what the C side computes
            start = (value(count, self.salt).float() * torch.tensor(0.4)).reshape(shape)
            start = start + 1 if one else start
            self.salt += 1
            self.params[name] = start.double().requires_grad_()
        return self.params[name]


class TinyGpt(Net):
    B, T, H, heads, rows, blocks = 2, 7, 12, 3, 11, 2

    def inputs(self):
        n = self.B * self.T
        return tokens(n, 1, self.rows).reshape(self.B, self.T), tokens(n, 2, self.rows).reshape(self.B, self.T)

    def linear(self, x, name, out, bias=True):
        return F.linear(x, self.param(name + ".weight", out, x.shape[-1]), self.param(name + ".bias", out) if bias else None)

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.param(name + ".weight", x.shape[-1], one=True),
                            self.param(name + ".bias", x.shape[-1]))

    def loss(self, ids, targets):
        table = self.param("embed.weight", self.rows, self.H)
        x = F.embedding(ids, table) + self.param("position.weight", self.T, self.H)
        for b in range(self.blocks):
            h = f"h.{b}."
            q, k, v = self.linear(self.norm(x, h + "ln1"), h + "qkv", 3 * self.H).split(self.H, dim=-1)
            q, k, v = (t.reshape(self.B, self.T, self.heads, -1).transpose(1, 2) for t in (q, k, v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(self.B, self.T, self.H)
            x = x + self.linear(a, h + "proj", self.H)
            f = F.gelu(self.linear(self.norm(x, h + "ln2"), h + "fc", 4 * self.H), approximate="tanh")
            x = x + self.linear(f, h + "out", self.H)
        logits = F.linear(self.norm(x, "lnf"), table)
        return F.cross_entropy(logits.reshape(-1, self.rows), targets.reshape(-1))

    def optimizer(self):
        # Weight decay on matrices only, as ckpt does it.
        matrices = [p for n, p in self.params.items() if p.dim() > 1]
        others = [p for n, p in self.params.items() if p.dim() == 1]
        return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=0.01)


class TinyResnet(Net):
    B, S, W = 3, 9, 4

    def inputs(self):
        return value(self.B * 3 * self.S * self.S, 100).reshape(self.B, 3, self.S, self.S), tokens(self.B, 3, 5)

    def conv(self, x, name, out, size, bias=True, groups=1, **how):
        return F.conv2d(x, self.param(name + ".weight", out, x.shape[1] // groups, size, size),
                        self.param(name + ".bias", out) if bias else None, groups=groups, **how)

    def norm(self, x, name):
        c = x.shape[1]
        mean, var = self.stats.setdefault(name, (torch.zeros(c, dtype=torch.float64), torch.ones(c, dtype=torch.float64)))
        return F.batch_norm(x, mean, var, self.param(name + ".weight", c, one=True), self.param(name + ".bias", c),
                            training=True, momentum=0.1)

    def loss(self, images, targets):
        w = self.W
        x = F.relu(self.norm(self.conv(images, "stem", w, 3, bias=False, padding=1), "bn0"))
        pool = F.max_pool2d(x, 3, 2, 1)
        x = F.relu(self.norm(self.conv(pool, "a1", 2 * w, 3, bias=False, stride=2, padding=1), "bn1"))
        x = self.norm(self.conv(x, "a2", 2 * w, 3, groups=2, padding=1), "bn2")
        x = F.relu(x + self.conv(pool, "short", 2 * w, 1, stride=2))
        x = x.mean(dim=(2, 3))
        return F.cross_entropy(F.linear(x, self.param("fc.weight", 5, 2 * w), self.param("fc.bias", 5)), targets)

    def optimizer(self):
        return torch.optim.SGD(self.params.values(), lr=0.05, momentum=0.9, nesterov=True)


class TinyMix(TinyResnet):
    B, S, W = 2, 8, 3

    def inputs(self):
        return value(self.B * 2 * self.S * self.S, 200).reshape(self.B, 2, self.S, self.S), value(self.B * 4, 201).reshape(self.B, 4)

    def loss(self, images, wanted):
        w = self.W
        g1 = F.gelu(self.conv(images, "c1", w, 3, padding=1))
        x = torch.sigmoid(self.conv(F.avg_pool2d(g1, 2), "c2", 2 * w, 3, padding=1))
        x = torch.cat([F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), g1], dim=1)
        a, b = torch.tanh(self.conv(x, "c3", 4, 1)).split(2, dim=1)
        x = (a * b).flatten(1)
        x = F.linear(x, self.param("x.weight", 6, x.shape[1]), self.param("x.bias", 6))
        wi, wh = self.param("cell1.weight_ih", 16, 6), self.param("cell1.weight_hh", 16, 4)
        bi, bh = self.param("cell1.bias_ih", 16), self.param("cell1.bias_hh", 16)

        def cell(x, h, c):
            i, f, g, o = (F.linear(x, wi, bi) + F.linear(h, wh, bh)).split(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

        zero = torch.zeros(self.B, 4, dtype=torch.float64)
        h, c = cell(x, zero, zero)
        h, c = cell(x, h, c)
        return F.mse_loss(F.softmax(h, dim=-1), wanted)

    def optimizer(self):
        return torch.optim.Adam(self.params.values(), lr=0.02)


for name, kind in (("tiny-gpt", TinyGpt), ("tiny-resnet", TinyResnet), ("tiny-mix", TinyMix)):
    net = kind()
    batch = net.inputs()
    net.loss(*batch)  # makes the parameters
    net.stats.clear()
    optimizer, losses, gradients = net.optimizer(), [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = net.loss(*batch)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {n: [float(f"{g:.7g}") for g in p.grad.flatten().tolist()] for n, p in net.params.items()}
        optimizer.step()
    stats = {f"{n}.{k}": [float(f"{v:.8g}") for v in t.tolist()] for n, pair in net.stats.items()
             for k, t in zip(("running_mean", "running_var"), pair)}
    with open(os.path.join(HERE, name + ".reference.json"), "w") as out:
        out.write('{ "made_with": "PyTorch %s, float64",\n  "losses": %s,\n  "gradients": {\n' % (torch.__version__.split("+")[0], json.dumps(losses)))
        out.write(",\n".join(f'    "{n}": {json.dumps(g)}' for n, g in gradients.items()))
        out.write('\n  },\n  "statistics": {\n')
        out.write(",\n".join(f'    "{n}": {json.dumps(v)}' for n, v in stats.items()))
        out.write("\n  } }\n")
    print(name, losses, sum(p.numel() for p in net.params.values()))
