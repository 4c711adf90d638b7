"""Measures the cost of recording by injection for a PyTorch training script, and checks that no loss changes.

    python3 bench/gpu/inject_overhead.py --bin build/cuda/bin --out OUT          # on the GPU
    python3 bench/gpu/inject_overhead.py --bin build/release/bin --out OUT --device cpu --tiny   # every path, no GPU

The script is this file with --train: a GPT of fixed seed that knows nothing of ckpt, with NVTX ranges around forward,
backward and update of each step. It runs alone and under `ckpt-profile -o trace.json --`, in turns, --runs times each
after one of each that is not counted. A run's figure is the median of its steps without the first five, each step waited
for. The losses of all runs must be the same bits. Overhead: the median over the pairs of (recorded / alone - 1), with
the smallest and largest. OUT gets inject.md, inject.json and the trace of the last run.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

WARM_UP = 5
SIZES = dict(blocks=12, hidden=768, heads=12, tokens=512, vocabulary=8192, batch=8)
TINY = dict(blocks=2, hidden=32, heads=2, tokens=16, vocabulary=61, batch=2)


def train(arguments):
    """The training script. Prints one line of JSON."""
    import torch
    from torch import nn

    size = TINY if arguments.tiny else SIZES
    gpu = arguments.device == "cuda"
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    if not gpu:
        torch.set_num_threads(1)

    class Block(nn.Module):
        def __init__(self, hidden, heads):
            super().__init__()
            self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
            self.heads = heads

        def forward(self, x):
            batch, tokens, hidden = x.shape
            q, k, v = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mask = torch.full((tokens, tokens), float("-inf"), device=x.device).triu(1)
            mixed = (q @ k.transpose(-2, -1) / (hidden // self.heads) ** 0.5 + mask).softmax(-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
            return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))

    class Network(nn.Module):
        def __init__(self, size):
            super().__init__()
            hidden = size["hidden"]
            self.token = nn.Embedding(size["vocabulary"], hidden)
            self.place = nn.Parameter(torch.randn(size["tokens"], hidden) * 0.02)
            self.blocks = nn.Sequential(*[Block(hidden, size["heads"]) for _ in range(size["blocks"])])
            self.head = nn.Linear(hidden, size["vocabulary"])

        def forward(self, x):
            return self.head(self.blocks(nn.functional.one_hot(x, self.token.num_embeddings).to(self.place.dtype) @
                                         self.token.weight + self.place))

    def in_range(name, work):
        if not gpu:
            return work()
        torch.cuda.nvtx.range_push(name)
        try:
            return work()
        finally:
            torch.cuda.nvtx.range_pop()

    network = Network(size).to(arguments.device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    data = torch.randint(size["vocabulary"], (size["batch"], size["tokens"] + 1))
    losses, seconds = [], []
    for _ in range(arguments.steps):
        begin = time.perf_counter()
        batch = data.to(arguments.device)
        wanted = nn.functional.one_hot(batch[:, 1:].reshape(-1), size["vocabulary"])
        scores = in_range("forward", lambda: network(batch[:, :-1])).view(-1, size["vocabulary"])
        # no gather and no scatter, whose backward is not deterministic on every device
        loss = -(scores.log_softmax(-1) * wanted).sum(-1).mean()
        optimizer.zero_grad()
        in_range("backward", loss.backward)
        in_range("update", optimizer.step)
        losses.append(loss.item().hex())  # waits for the device
        if gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    name = torch.cuda.get_device_name() if gpu else "CPU"
    print(json.dumps(dict(losses=losses, seconds=seconds, device=name, torch=torch.__version__)))


def run(arguments, recorded):
    """Runs the script once; returns its figures and the notes of ckpt-profile."""
    script = [sys.executable, os.path.abspath(__file__), "--train", "--device", arguments.device, "--steps",
              str(arguments.steps)] + (["--tiny"] if arguments.tiny else [])
    trace = os.path.join(arguments.out, "inject-trace.json")
    command = [os.path.join(arguments.bin, "ckpt-profile"), "-o", trace, "--"] if recorded else []
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")  # without it cuBLAS is not deterministic
    begin = time.perf_counter()
    done = subprocess.run(command + script, capture_output=True, text=True, env=environment)
    wall = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"{'recorded' if recorded else 'alone'}: exit {done.returncode}: {done.stderr[-2000:]}")
    figures = json.loads(done.stdout.splitlines()[-1])
    figures.update(wall=wall, step=statistics.median(figures["seconds"][WARM_UP:]),
                   told=[line for line in done.stderr.splitlines() if line.startswith("ckpt-profile:")])
    return figures


def percent(values):
    return f"{statistics.median(values):.1f} % ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", help="folder of ckpt-profile")
    parser.add_argument("--out", help="folder of the results")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--train", action="store_true", help="be the script")
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP or arguments.runs < 1:
        parser.error(f"wanted more than {WARM_UP} steps and at least one run")
    if arguments.train:
        return train(arguments)
    if not arguments.bin or not arguments.out:
        parser.error("--bin and --out are wanted")
    os.makedirs(arguments.out, exist_ok=True)
    pairs = []
    for i in range(arguments.runs + 1):  # who is first changes from pair to pair; the first pair is not counted
        found = {recorded: run(arguments, recorded) for recorded in ((False, True) if i % 2 == 0 else (True, False))}
        if found[True]["losses"] != found[False]["losses"] or (pairs and found[True]["losses"] != pairs[0][True]["losses"]):
            sys.exit("the losses of a run are others than those of the run before")
        pairs.append(found)
        if i > 0:
            lines = report(arguments, pairs)
    print("\n".join(lines) + "\n" + lines[3].strip("| "))


def report(arguments, pairs):
    """Writes the results so far to files, because more pairs may not follow."""
    counted = pairs[1:]
    step = [100 * (pair[True]["step"] / pair[False]["step"] - 1) for pair in counted]
    wall = [100 * (pair[True]["wall"] / pair[False]["wall"] - 1) for pair in counted]
    alone = statistics.median(pair[False]["step"] for pair in counted) * 1e3
    last = pairs[-1][True]
    nothing = any("nothing was recorded" in line for line in last["told"])
    lines = ["| what | figure |", "|---|---|",
             f"| step alone | {alone:.2f} ms |",
             f"| overhead of a step, {len(step)} pairs | {percent(step)} |",
             f"| overhead of the whole run, start and writing the trace with it | {percent(wall)} |",
             f"| losses | {len(last['losses'])} steps, the same bits in all {2 * len(pairs)} runs |",
             f"| recorded | {'nothing: these figures say nothing about recording' if nothing else last['told'][0]} |", "",
             f"{last['device']}, PyTorch {last['torch']}; `" + " ".join(sys.argv) + "`"]
    with open(os.path.join(arguments.out, "inject.md"), "w") as file:
        file.write("\n".join(lines) + "\n")
    with open(os.path.join(arguments.out, "inject.json"), "w") as file:
        json.dump(dict(recorded=not nothing, step_percent=step, wall_percent=wall,
                       pairs=[dict(alone=p[False], recorded=p[True]) for p in pairs]), file, indent=1)
    return lines


if __name__ == "__main__":
    main()
