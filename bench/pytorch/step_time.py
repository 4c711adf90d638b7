"""Step time of ckpt-train against PyTorch on this CPU, in turns in one run, same thread count; prints ratios.

Usage: scripts/pytorch-venv models && .venv/bin/python bench/pytorch/step_time.py BIN_FOLDER [--rounds 5] [--steps 5]
       [NETWORK ...]
NETWORK: gpt2-124m (1 x 256 tokens), resnet50 (batch 4), llama (8 blocks, 512 wide, 4 x 256 tokens, 32,000 words), vit-b-16
(batch 4), sd-unet-block (the first residual and attention block of Stable Diffusion's U-Net, one image of 64 x 64, 320
channels); all of them where none is named. PyTorch runs eagerly, images in the better of its two memory formats.
A round times STEPS steps of each; the figure of a round is the median of its steps, the reported ratio the median
over rounds of ckpt / PyTorch, with the smallest and largest.
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
NETWORKS = {  # the file in models/ and its vars; None: networks.unet_block's
    "gpt2-124m": ("gpt2-124m", ["batch=1", "tokens=256"]),
    "resnet50": ("resnet50", ["batch=4"]),
    "llama": ("llama-3.2-1b", ["batch=4", "tokens=256", "hidden=512", "blocks=8", "heads=8", "kv_heads=4", "feed_forward=1536",
                               "vocabulary=32000"]),
    "vit-b-16": ("vit-b-16", ["batch=4"]),
    "sd-unet-block": (None, ["batch=1"]),
}
IMAGES = ("resnet50", "vit-b-16", "sd-unet-block")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin")
parser.add_argument("networks", nargs="*", metavar="NETWORK")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_intermixed_args()
for name in args.networks:
    if name not in NETWORKS:
        parser.error(f"{name}: wanted {', '.join(NETWORKS)}")
threads = os.cpu_count()
torch.set_num_threads(threads)


def torch_median(step):
    step()
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class Ours:
    def __init__(self, name, folder):
        file, sets = NETWORKS[name]
        self.options = [word for one in sets for word in ("--set", one)] + ["--threads", str(threads)]
        self.folder, self.model = folder, f"{ROOT}/models/{file}.json" if file else f"{folder}/model.json"
        if file is None:
            with open(self.model, "w") as out:
                json.dump(networks.unet_block(ROOT), out)
        self.run("ckpt-profile", "-o", f"{folder}/profile.json")
        with open(f"{folder}/profile.json") as read:
            layers = json.load(read)["layers"]
        ours, theirs = sum(layer.get("parameter_bytes", 0) for layer in layers) // 4, networks.parameters(name)
        if ours != theirs:
            sys.exit(f"{name}: {ours} parameters in ckpt's network, {theirs} in PyTorch's")

    def run(self, program, *rest):
        return subprocess.run([f"{args.bin}/{program}", self.model, *self.options, *rest], check=True, capture_output=True,
                              text=True).stdout

    def plan(self, name, *how):
        file = f"{self.folder}/{name}.json"
        self.run("ckpt-plan", "--profile", f"{self.folder}/profile.json", "-o", file, *how)
        with open(file) as made:
            return file, json.load(made)["summary"]

    def median(self, plan):
        out = self.run("ckpt-train", "--plan", plan, "--data", "synthetic", "--steps", str(args.steps + 1), "--json",
                       "--no-digest")
        return json.loads(out)["step_ns"] / 1e9


def compare(name, folder):
    """The row of a network."""
    ours = Ours(name, folder)
    keep, s = ours.plan("keep", "--strategy", "keep-all")
    half, _ = ours.plan("half", "--budget", str(s["static_bytes"] + (s["peak_bytes"] - s["static_bytes"]) // 2))
    steps = [networks.step_of(name)] + ([networks.step_of(name, channels_last=True)] if name in IMAGES else [])
    rows = [(min(torch_median(step) for step in steps), ours.median(keep), ours.median(half)) for _ in range(args.rounds)]
    columns = [f"{statistics.median(r[0] for r in rows):.3f} s"]
    for k in (1, 2):
        ratios = sorted(r[k] / r[0] for r in rows)
        columns += [f"{statistics.median(r[k] for r in rows):.3f} s",
                    f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"]
    return f"| {name} | " + " | ".join(columns) + " |"


print(f"PyTorch {torch.__version__}, {threads} threads, {args.rounds} rounds of {args.steps} steps")
print("| network | PyTorch | ckpt, keep-all | ratio (min–max) | ckpt, half of keep-all's activations | ratio (min–max) |")
print("|---|---|---|---|---|---|", flush=True)
for name in args.networks or NETWORKS:
    with tempfile.TemporaryDirectory() as folder:
        print(compare(name, folder), flush=True)
    gc.collect()
