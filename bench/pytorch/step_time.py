"""Step time of ckpt-train beside PyTorch on this CPU: eager, compiled, and compiled in bfloat16, with the same number of
threads, in turns in one run; prints a table that grows by a network.

Usage: scripts/pytorch-venv models && .venv/bin/python bench/pytorch/step_time.py BIN_FOLDER [--rounds 5] [--steps 3]
       [--types float32,bfloat16] [NETWORK ...]
Networks (all of them where none is named): gpt2-124m (4 x 256 tokens), resnet50 (batch 8), vit-b-16 (batch 4), densenet-bc
(CIFAR, batch 64), unet (one image of 256 x 256), lstm (64 x 32 bytes, PyTorch's nn.LSTM), llama (8 blocks, 512 wide, 32,000
words, 4 x 256 tokens), sd-unet-block (the first residual and attention block of Stable Diffusion's U-Net, one image of
64 x 64, 320 channels).

A round times STEPS steps of each program; its figure is the median of its steps. Images are tried in both of PyTorch's memory
formats first and stay in the one that is faster in eager, compiled too. PyTorch's bfloat16 is autocast: parameters stay float32, as in ckpt. A ratio
is ckpt's time over the fastest PyTorch of that type in that round; shown are its median over the rounds and the extremes.
Limit is the least time of the step's layers at what this machine does at best (bench_kernels -l, measured first).
"""
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import networks

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FILES = {  # the file in models/ and its vars; None: networks.unet_block's
    "gpt2-124m": ("gpt2-124m", ["batch=4", "tokens=256"]),
    "resnet50": ("resnet50", ["batch=8"]),
    "vit-b-16": ("vit-b-16", ["batch=4"]),
    "densenet-bc": ("densenet-bc-100-12", ["batch=64"]),
    "unet": ("unet", ["batch=1"]),
    "lstm": ("lstm", ["batch=64"]),
    "llama": ("llama-3.2-1b", ["batch=4", "tokens=256", "hidden=512", "blocks=8", "heads=8", "kv_heads=4", "feed_forward=1536",
                               "vocabulary=32000"]),
    "sd-unet-block": (None, ["batch=1"]),
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin")
parser.add_argument("networks", nargs="*", metavar="NETWORK")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--types", default="float32,bfloat16")
args = parser.parse_intermixed_args()
for name in args.networks:
    if name not in FILES:
        parser.error(f"{name}: wanted {', '.join(FILES)}")
types = args.types.split(",")
threads = os.cpu_count()
torch.set_num_threads(threads)


class Theirs:
    """PyTorch, in one of its memory formats."""

    def __init__(self, name, channels_last, **how):
        self.step, self.channels_last = networks.step_of(name, channels_last=channels_last, **how), channels_last

    def median(self):
        self.step()
        times = []
        for _ in range(args.steps):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


class Ours:
    def __init__(self, name, dtype, folder):
        file, sets = FILES[name]
        self.options = [word for one in sets for word in ("--set", one)] + ["--threads", str(threads), "--dtype", dtype]
        self.folder, self.model = f"{folder}/{dtype}", f"{ROOT}/models/{file}.json" if file else f"{folder}/model.json"
        os.makedirs(self.folder)
        if file is None:
            with open(self.model, "w") as out:
                json.dump(networks.unet_block(ROOT), out)
        self.run("ckpt-profile", "-o", f"{self.folder}/profile.json")
        with open(f"{self.folder}/profile.json") as read:
            layers = json.load(read)["layers"]
        ours, theirs = sum(layer.get("parameter_bytes", 0) for layer in layers) // 4, networks.parameters(name)
        if ours != theirs:
            sys.exit(f"{name}: {ours} parameters in ckpt's network, {theirs} in PyTorch's")
        measured = ["--profile", f"{self.folder}/profile.json"]
        self.keep, kept = self.plan("keep", *measured, "--strategy", "keep-all")
        half = kept["static_bytes"] + (kept["peak_bytes"] - kept["static_bytes"]) // 2
        self.half, _ = self.plan("half", *measured, "--budget", str(half))
        self.limit = self.plan("limit", "--device", f"{folder}/../limits.json", "--strategy", "keep-all")[1]["time_ns"] / 1e9

    def run(self, program, *rest):
        return subprocess.run([f"{args.bin}/{program}", self.model, *self.options, *rest], check=True, capture_output=True,
                              text=True).stdout

    def plan(self, name, *how):
        file = f"{self.folder}/{name}.json"
        self.run("ckpt-plan", "-o", file, *how)
        with open(file) as made:
            return file, json.load(made)["summary"]

    def median(self, plan):
        out = self.run("ckpt-train", "--plan", plan, "--data", "synthetic", "--steps", str(args.steps + 1), "--json",
                       "--no-digest")
        return json.loads(out)["step_ns"] / 1e9


def spread(values, unit="", digits=2):
    values = sorted(values)
    return f"{statistics.median(values):.{digits}f}{unit} ({values[0]:.{digits}f}–{values[-1]:.{digits}f})"


def compare(name, dtype, folder):
    """The row of a network in a type."""
    ours = Ours(name, dtype, folder)
    half = dtype == "bfloat16"
    formats = (False, True) if networks.has_images(name) else (False,)
    eager = min((Theirs(name, last, bfloat16=half) for last in formats), key=lambda one: one.median() if len(formats) > 1 else 0)
    compiled = Theirs(name, eager.channels_last, compiled=True, bfloat16=half)
    order = ", channels last" if eager.channels_last else ""
    rounds = [(eager.median(), compiled.median(), ours.median(ours.keep), ours.median(ours.half)) for _ in range(args.rounds)]
    e, c, k, h = ([r[i] for r in rounds] for i in range(4))
    best = [min(pair) for pair in zip(e, c)]
    share = [f"{100 * ours.limit / statistics.median(times):.0f} %" for times in (k, best)]
    return " | ".join(["", name, dtype, f"{statistics.median(e):.3f} s{order}",
                       f"{statistics.median(c):.3f} s{order}", f"{statistics.median(k):.3f} s",
                       spread([a / b for a, b in zip(k, best)]), f"{statistics.median(h):.3f} s",
                       spread([a / b for a, b in zip(h, best)]), f"{ours.limit:.3f} s", *share, ""]).strip()


def main(work):
    with open(f"{work}/limits.json", "w") as out:
        out.write(subprocess.run([f"{args.bin}/bench_kernels", "-l"], check=True, capture_output=True, text=True).stdout)
    with open(f"{work}/limits.json") as read:
        limits = json.load(read)
    print(f"PyTorch {torch.__version__}, {threads} threads, {args.rounds} rounds of {args.steps} steps; at best "
          f"{limits['flop_per_s'] / 1e9:.0f} GFLOP/s float32, {limits['flop_per_s16'] / 1e9:.0f} bfloat16, "
          f"{limits['bytes_per_s'] / 1e9:.1f} GB/s\n")
    head = ["network", "type", "eager", "compiled", "ckpt, keep-all", "ratio", "ckpt, half of the activations", "ratio", "limit",
            "ckpt's share of it", "PyTorch's"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
    for name in args.networks or FILES:
        for dtype in types:
            folder = f"{work}/{name}"
            os.makedirs(folder, exist_ok=True)
            print(compare(name, dtype, folder), flush=True)
            gc.collect()
            torch.compiler.reset()


with tempfile.TemporaryDirectory() as folder:
    main(folder)
