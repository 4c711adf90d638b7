"""One training of DenseNet-BC-100 (k=12) or the 8-layer BERT in PyTorch on this CPU, for bench/published.py; prints JSON.

Usage: published.py densenet|bert keep|checkpoint --batch N --steps N --threads N [--memory]
Same layers, parameter counts and optimizers as models/densenet-bc-100-12.json and models/bert-8.json. checkpoint:
torch.utils.checkpoint (use_reentrant=False) around what the published implementations take: concatenation, norm, ReLU
and first convolution of each dense layer (github.com/csrhddlam/pytorch-checkpoint, cp_densenet.py); each BERT layer.
With RANK and WORLD_SIZE in the environment: DistributedDataParallel over gloo, N samples per rank.
--memory: two steps, the second under the profiler, which sees each allocation of a tensor; no times.
"""
import argparse
import json
import os
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class DenseLayer(nn.Module):
    def __init__(self, inside, growth, save):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inside), nn.BatchNorm2d(4 * growth)
        self.conv1 = nn.Conv2d(inside, 4 * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.save = save

    def bottleneck(self, *features):
        return self.conv1(F.relu(self.norm1(torch.cat(features, 1)), inplace=True))

    def forward(self, features):
        if self.save:
            y = checkpoint(self.bottleneck, *features, use_reentrant=False)
        else:
            y = self.bottleneck(*features)
        return self.conv2(F.relu(self.norm2(y), inplace=True))


class DenseNet(nn.Module):
    def __init__(self, save, growth=12, layers=16):
        super().__init__()
        width = 2 * growth
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks, self.ends = nn.ModuleList(), nn.ModuleList()
        for block in range(3):
            self.blocks.append(nn.ModuleList(DenseLayer(width + i * growth, growth, save) for i in range(layers)))
            width += layers * growth
            if block < 2:
                self.ends.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                               nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)))
                width //= 2
        self.norm, self.fc = nn.BatchNorm2d(width), nn.Linear(width, 10)

    def forward(self, images, labels):
        x = self.stem(images)
        for block, layers in enumerate(self.blocks):
            features = [x]
            for layer in layers:
                features.append(layer(features))
            x = torch.cat(features, 1)
            if block < 2:
                x = self.ends[block](x)
        return F.cross_entropy(self.fc(F.relu(self.norm(x), inplace=True).mean(dim=(2, 3))), labels)


class BertLayer(nn.Module):
    def __init__(self, hidden, heads, inside):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.out = nn.Linear(hidden, inside), nn.Linear(inside, hidden)
        self.ln1, self.ln2 = nn.LayerNorm(hidden, eps=1e-12), nn.LayerNorm(hidden, eps=1e-12)
        self.drop1, self.drop2 = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(h, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        x = self.ln1(x + self.drop1(self.proj(a.transpose(1, 2).reshape(b, t, h))))
        return self.ln2(x + self.drop2(self.out(F.gelu(self.fc(x)))))


class Bert(nn.Module):
    def __init__(self, save, layers=8, hidden=768, heads=16, inside=4096, positions=512, rows=30522):
        super().__init__()
        self.embed, self.segment = nn.Embedding(rows, hidden), nn.Embedding(2, hidden)
        self.position = nn.Embedding(positions, hidden)
        self.ln, self.drop = nn.LayerNorm(hidden, eps=1e-12), nn.Dropout(0.1)
        self.layers = nn.ModuleList(BertLayer(hidden, heads, inside) for _ in range(layers))
        self.head_fc, self.head_ln = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, eps=1e-12)
        self.head_bias, self.save = nn.Parameter(torch.zeros(rows)), save

    def forward(self, ids, segments, targets):
        x = self.embed(ids) + self.segment(segments) + self.position.weight[: ids.shape[1]]
        x = self.drop(self.ln(x))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.save else layer(x)
        x = self.head_ln(F.gelu(self.head_fc(x)))
        return F.cross_entropy(F.linear(x, self.embed.weight, self.head_bias).flatten(0, 1), targets.flatten())


def tensors_peak(step, held):
    """The most that tensors took in one step: what they held before it, and the profiler's running sum."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [(e.start_ns(), e.nbytes()) for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        now += size
        most = max(most, now)
    return held + most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=("densenet", "bert"))
    parser.add_argument("how", choices=("keep", "checkpoint"))
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    save = args.how == "checkpoint"
    if args.network == "densenet":
        net = DenseNet(save)
        batch = [torch.randn(args.batch, 3, 32, 32), torch.randint(0, 10, (args.batch,))]
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=True)
    else:
        net = Bert(save)
        batch = [torch.randint(0, rows, (args.batch, 512)) for rows in (30522, 2, 30522)]
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    parameters = sum(p.numel() for p in net.parameters())
    model = net
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(net)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(*batch).backward()
        optimizer.step()

    result = {"torch": torch.__version__, "parameters": parameters}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if args.memory:
        step()
        held = [*net.parameters(), *net.buffers(), *batch] + [p.grad for p in net.parameters() if p.grad is not None]
        held += [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
        result["tensors_peak_bytes"] = tensors_peak(step, sum(t.numel() * t.element_size() for t in held))
    else:
        times = []
        for _ in range(args.steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        result["step_ns"] = [int(1e9 * t) for t in times]
        result["process_before_bytes"] = before
        result["process_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(result))
    if "WORLD_SIZE" in os.environ:
        torch.distributed.destroy_process_group()


main()
