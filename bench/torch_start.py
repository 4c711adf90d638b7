#!/usr/bin/env python3
"""Seconds until a Llama of 32 layers trains under a budget, in a fresh process each.

    bench/torch_start.py [--layers N]

A first process finds the least budget and what keeping everything takes; the budget is halfway between. Then one process
starts with an empty CKPT_TORCH_CACHE, and two more with what it left there. Prints a table: the first forward, two whole
steps, and what of these is Dynamo, tracing (AOTAutograd), measuring, planning, rewriting, saving, loading.

In the environment of scripts/pytorch-venv models, with ckpt_torch installed or in PYTHONPATH.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

PHASES = ("dynamo", "tracing", "measuring", "planning", "rewriting", "saving", "loading")


def one(layers, budget):
    """Trains two steps; a dict of seconds and of the plan."""
    import torch
    import transformers

    import ckpt_torch
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=1000, num_hidden_layers=layers, hidden_size=256, intermediate_size=688, num_attention_heads=4,
        num_key_value_heads=4, use_cache=False))
    words = torch.randint(3, 1000, (4, 256))
    run = torch.compile(model, backend=ckpt_torch.backend, options={"budget": budget, "infeasible": "least", "quiet": True})
    seconds = dict.fromkeys(PHASES, 0)
    start = time.monotonic()
    for step in range(2):
        loss = run(input_ids=words, labels=words).loss
        if step == 0:
            seconds["first forward"] = time.monotonic() - start
        for phase, taken in ckpt_torch.report(run).seconds.items():
            if phase in PHASES:
                seconds[phase] += taken
        loss.backward()
        model.zero_grad()
    seconds["two steps"] = time.monotonic() - start
    seconds["dynamo"] = sum(torch._dynamo.utils.compilation_time_metrics.get("_compile.compile_inner", ()))
    report = ckpt_torch.report(run)
    return {"seconds": seconds, "ops": len(report._step.graph["ops"]), "peak": report.predicted_peak_bytes,
            "keep_all": report.keep_all_peak_bytes, "overhead": report.overhead}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--budget", help=argparse.SUPPRESS)  # this is one of the processes
    chosen = parser.parse_args()
    if chosen.budget:
        print(json.dumps(one(chosen.layers, chosen.budget)))
        return

    def process(folder, budget):
        done = subprocess.run([sys.executable, __file__, "--layers", str(chosen.layers), "--budget", budget], check=True,
                              env={**os.environ, "CKPT_TORCH_CACHE": folder}, stdout=subprocess.PIPE, encoding="utf-8")
        return json.loads(done.stdout.splitlines()[-1])
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as folder:
        least = process(first, "1B")
        budget = (least["peak"] + least["keep_all"]) // 2
        rows = {"cold": process(folder, f"{budget}B"), "warm": process(folder, f"{budget}B"),
                "warm again": process(folder, f"{budget}B")}
    some = rows["warm"]
    print(f"{chosen.layers} layers, {some['ops']} ops, {budget / 1e6:.0f} MB between {least['peak'] / 1e6:.0f} and "
          f"{least['keep_all'] / 1e6:.0f}, time {100 * some['overhead']:+.1f} %\n")
    print("| s | first forward | two steps |", " | ".join(PHASES), "|")
    print("|---" * (3 + len(PHASES)) + "|")
    for name, row in rows.items():
        print(f"| {name} |", " | ".join(f"{row['seconds'][k]:.1f}" for k in ("first forward", "two steps", *PHASES)), "|")


if __name__ == "__main__":
    main()
