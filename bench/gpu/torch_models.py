"""GPT-2, BERT-large and ResNet-50 as PyTorch users write them: the layers, parameter counts and optimizers of
models/*.json. Attention is scaled_dot_product_attention (flash attention on a GPU). The first `net.blocks.recomputed`
blocks run under torch.utils.checkpoint. Losses use float32 logits, as with autocast, and as ckpt's sums do."""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
from networks import Bottleneck  # noqa: E402 (the folder of the CPU's comparison)


class Blocks(nn.Module):
    """A sequence of blocks. The first ones are recomputed in backward, because their activations are kept longest."""

    def __init__(self, blocks):
        super().__init__()
        self.list, self.recomputed = nn.ModuleList(blocks), 0

    def forward(self, x):
        for i, block in enumerate(self.list):
            if i < self.recomputed:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x


def attend(qkv, heads, causal, dropout):
    b, t, h = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (y.view(b, t, heads, -1).transpose(1, 2) for y in qkv.split(h, dim=2))
    a = F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)
    return a.transpose(1, 2).reshape(b, t, h)


class GPT2Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.proj(attend(self.qkv(self.ln1(x)), self.heads, True, 0.0))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.embed, self.position = nn.Embedding(v["vocabulary"], v["hidden"]), nn.Embedding(v["positions"], v["hidden"])
        self.blocks = Blocks(GPT2Block(v["hidden"], v["heads"]) for _ in range(v["blocks"]))
        self.lnf = nn.LayerNorm(v["hidden"])
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.blocks(self.embed(ids) + self.position.weight[: ids.shape[1]])
        logits = F.linear(self.lnf(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class BertBlock(nn.Module):
    def __init__(self, hidden, heads, feed_forward):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.out = nn.Linear(hidden, feed_forward), nn.Linear(feed_forward, hidden)
        self.ln1, self.ln2 = nn.LayerNorm(hidden, 1e-12), nn.LayerNorm(hidden, 1e-12)

    def forward(self, x):
        a = self.proj(attend(self.qkv(x), self.heads, False, 0.1))
        x = self.ln1(F.dropout(a, 0.1) + x)
        return self.ln2(F.dropout(self.out(F.gelu(self.fc(x))), 0.1) + x)


class Bert(nn.Module):
    def __init__(self, v):
        super().__init__()
        hidden = v["hidden"]
        self.embed, self.segment = nn.Embedding(v["vocabulary"], hidden), nn.Embedding(2, hidden)
        self.position, self.ln = nn.Embedding(v["positions"], hidden), nn.LayerNorm(hidden, 1e-12)
        self.blocks = Blocks(BertBlock(hidden, v["heads"], v["feed_forward"]) for _ in range(v["blocks"]))
        self.head_fc, self.head_ln = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, 1e-12)
        self.bias = nn.Parameter(torch.zeros(v["vocabulary"]))
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids, segments, targets):
        x = self.embed(ids) + self.segment(segments) + self.position.weight[: ids.shape[1]]
        x = self.blocks(F.dropout(self.ln(x), 0.1))
        x = self.head_ln(F.gelu(self.head_fc(x)))
        return F.cross_entropy(F.linear(x, self.embed.weight, self.bias).flatten(0, 1).float(), targets.flatten())


class ResNet50(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, inside = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(inside, width, stride if i == 0 else 1))
                inside = 4 * width
        self.blocks, self.fc = Blocks(blocks), nn.Linear(2048, v["classes"])

    def forward(self, images, targets):
        return F.cross_entropy(self.fc(self.blocks(self.stem(images)).mean(dim=(2, 3))).float(), targets)


def lowered(net):
    """`net` in bfloat16, except batch norms, whose parameters and statistics stay float32, as in ckpt."""
    for module in net.modules():
        for name, p in module.named_parameters(recurse=False):
            if not isinstance(module, nn.BatchNorm2d):
                p.data = p.data.to(torch.bfloat16)
    return net


def make(kind, v, device):
    """(network, batch, optimizer) of models/<name>.json with variables `v`; weights float32."""
    torch.manual_seed(1)
    make_net = {"gpt": GPT2, "bert": Bert, "resnet": ResNet50}[kind]
    with torch.device(device):
        net = make_net(v)
        if kind == "resnet":
            net = net.to(memory_format=torch.channels_last)
            batch = (torch.randn(v["batch"], 3, v["size"], v["size"]).to(memory_format=torch.channels_last),
                     torch.randint(0, v["classes"], (v["batch"],)))
        else:
            tokens, rows = (v["batch"], v["tokens"]), v["vocabulary"]
            batch = (torch.randint(0, rows, tokens), torch.randint(0, rows, tokens))
            if kind == "bert":
                batch = (batch[0], torch.randint(0, 2, tokens), batch[1])
    if kind == "resnet":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4, fused=True)
    else:  # weight decay as models/*.json: on matrices, not on biases and norms
        decay = {"gpt": 0.1, "bert": 0.01}[kind]
        groups = [{"params": [p for p in net.parameters() if p.dim() >= 2], "weight_decay": decay},
                  {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95 if kind == "gpt" else 0.999), fused=True)
    return net, batch, optimizer
