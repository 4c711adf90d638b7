"""Step time of ckpt-train against PyTorch on this CPU, in turns in one run, same thread count; prints ratios.

Usage: scripts/pytorch-venv && .venv/bin/python bench/pytorch/step_time.py BIN_FOLDER [ROUNDS [STEPS]]
A round times STEPS steps of each; the figure of a round is the median of its steps, the reported ratio the median
over rounds of ckpt / PyTorch, with the smallest and largest.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import networks

bin_folder, rounds, steps = sys.argv[1], int((sys.argv[2:3] or ["5"])[0]), int((sys.argv[3:4] or ["5"])[0])
threads = os.cpu_count()
torch.set_num_threads(threads)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def torch_median(step):
    step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ckpt_median(model, plan, flags):
    out = subprocess.run([f"{bin_folder}/ckpt-train", "--plan", plan, model, "--data", "synthetic", "--steps", str(steps + 1),
                          "--threads", str(threads), "--json"] + flags, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["step_ns"] / 1e9


print(f"PyTorch {torch.__version__}, {threads} threads, {rounds} rounds of {steps} steps")
print("| network | PyTorch | ckpt, keep-all | ratio (min–max) | ckpt, half of keep-all's activations | ratio (min–max) |")
print("|---|---|---|---|---|---|")
for name, flags in (("gpt2-124m", ["--set", "batch=1", "--set", "tokens=256"]), ("resnet50", ["--set", "batch=4"])):
    model = f"{root}/models/{name}.json"
    with tempfile.TemporaryDirectory() as folder:
        profile = f"{folder}/profile.json"
        subprocess.run([f"{bin_folder}/ckpt-profile", model, "-o", profile, "--threads", str(threads)] + flags, check=True)
        plans, keep = {}, None
        for kind in ("keep", "half"):
            plans[kind] = f"{folder}/{kind}.json"
            how = ["--strategy", "keep-all"]
            if kind == "half":
                s = keep["summary"]
                how = ["--budget", str(s["static_bytes"] + (s["peak_bytes"] - s["static_bytes"]) // 2)]
            subprocess.run([f"{bin_folder}/ckpt-plan", model, "--profile", profile, "-o", plans[kind], "--threads", str(threads)]
                           + how + flags, check=True, capture_output=True)
            keep = keep or json.load(open(plans[kind]))
        makes = [networks.make(name)[0]] + ([networks.make(name, channels_last=True)[0]] if name == "resnet50" else [])
        rows = []
        for _ in range(rounds):
            best = min(torch_median(step) for step in makes)  # PyTorch's better memory format
            rows.append((best, ckpt_median(model, plans["keep"], flags), ckpt_median(model, plans["half"], flags)))
    columns = [f"{statistics.median(r[0] for r in rows):.3f} s"]
    for k in (1, 2):
        ratios = sorted(r[k] / r[0] for r in rows)
        columns += [f"{statistics.median(r[k] for r in rows):.3f} s",
                    f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"]
    print(f"| {name} | " + " | ".join(columns) + " |", flush=True)
