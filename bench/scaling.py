#!/usr/bin/env python3
"""What ckpt-plan predicts for several ranks: usage scaling.py BIN > docs/figures/scaling.md

Predictions of the simulator, from rooflines of a named device and a stated rate between ranks; nothing here was run on
several machines. Data parallel: every rank has the same batch, so the ideal is the time of one rank. Pipeline: the same
micro-batches on more stages; the ideal is the time of one rank divided by the stages."""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICE = "h200"


def plan(*options):
    """ckpt-plan's answer; None when no plan fits."""
    words = [BIN + "/ckpt-plan", "--device", DEVICE, "--json", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else None


def milliseconds(ns):
    return f"{ns / 1e6:.1f} ms"


def share(value):
    return f"{100 * value:.1f} %"


def data_parallel(model, settings, rate):
    """Rows of a table: ranks, time and efficiency without and with overlap, static bytes with and without sharding."""
    path = str(ROOT / "models" / f"{model}.json")
    alone = plan("--budget", "100%", *settings, path)
    print(f"\n`ckpt-plan --device {DEVICE} --budget 100% {' '.join(settings)} --replicas R --network {rate} [--overlap] "
          f"[--shard optimizer] models/{model}.json`\n")
    print("| ranks | step | of ideal | with `--overlap` | of ideal | static block | with `--shard optimizer` |")
    print("|---|---|---|---|---|---|---|")
    print(f"| 1 | {milliseconds(alone['time_ns'])} | | | | {alone['static_bytes'] / 1e9:.2f} GB | |")
    for ranks in (2, 4, 8, 16, 64):
        common = ["--budget", "200%", *settings, "--replicas", str(ranks), "--network", rate]
        plain = plan(*common, path)
        overlapped = plan(*common, "--overlap", path)
        sharded = plan(*common, "--shard", "optimizer", path)
        print(f"| {ranks} | {milliseconds(plain['time_ns'])} | {share(alone['time_ns'] / plain['time_ns'])} "
              f"| {milliseconds(overlapped['time_ns'])} | {share(alone['time_ns'] / overlapped['time_ns'])} "
              f"| {plain['static_bytes'] / 1e9:.2f} GB | {sharded['static_bytes'] / 1e9:.2f} GB |")


def pipeline(model, settings, rate):
    """Rows: stages and micro-batches, time of a step over all stages, bubbles, largest peak of a stage."""
    path = str(ROOT / "models" / f"{model}.json")
    print(f"\n`ckpt-plan --device {DEVICE} --budget 100% {' '.join(settings)} --pipeline-stages S --micro-batches M "
          f"--network {rate} models/{model}.json`\n")
    print("| stages | micro-batches | step | of ideal | idle in bubbles | of equal stages | largest peak of a stage |")
    print("|---|---|---|---|---|---|---|")
    for batches in (8, 32):
        common = ["--budget", "100%", *settings, "--micro-batches", str(batches)]
        alone = plan(*common, path)
        print(f"| 1 | {batches} | {milliseconds(alone['time_ns'])} | | | | {alone['peak_bytes'] / 1e9:.2f} GB |")
        for stages in (2, 4, 8):
            whole = plan(*common, "--network", rate, "--pipeline-stages", str(stages), path)
            time = whole["step_ns"]
            busy = sum(stage["time_ns"] for stage in whole["stages"])
            peak = max(stage["peak_bytes"] for stage in whole["stages"])
            print(f"| {stages} | {batches} | {milliseconds(time)} | {share(alone['time_ns'] / (stages * time))} "
                  f"| {share(1 - busy / (stages * time))} | {share((stages - 1) / (batches + stages - 1))} "
                  f"| {peak / 1e9:.2f} GB |")


def main():
    print("# Several ranks, predicted\n")
    print("What the simulator says; no run on several machines is behind it. Times are rooflines of one "
          f"`{DEVICE}` and a stated rate between ranks. Made by `bench/scaling.py build/release/bin > docs/figures/scaling.md`.")
    print("\n## Data parallel, the same batch on every rank")
    for rate in ("450GB/s", "25GB/s"):
        data_parallel("gpt2-124m", ["--set", "batch=8"], rate)
    print("\n## Pipeline stages, 1F1B")
    pipeline("bert-large", ["--set", "batch=4"], "450GB/s")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    BIN = sys.argv[1]
    main()
