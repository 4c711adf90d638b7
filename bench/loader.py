#!/usr/bin/env python3
"""Does the step wait for pictures? ResNet-50 on a folder of JPEG files of a photograph's size, with 0, 1 and 2 workers.

    bench/loader.py BIN [--pictures 64] [--steps 12] [--rounds 3] [--set VAR=N ...]

BIN: the folder of the programs. Needs PIL, which `scripts/pytorch-venv models` brings. The pictures are 500 x 375, smooth noise,
quality 90, in a folder that goes again.
Runs take turns: synthetic data, then the folder by so many workers. Waited: the part of all steps that passed before their
batch was there, as ckpt-train says it.
"""
import argparse
import json
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent


def pictures(folder, count):
    draw = random.Random(0)
    for number in range(count):
        place = folder / f"class{number % 4}"
        place.mkdir(exist_ok=True)
        small = Image.frombytes("RGB", (50, 38), draw.randbytes(50 * 38 * 3))
        small.resize((500, 375), Image.BICUBIC).save(place / f"{number}.jpg", quality=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    model = [ROOT / "models/resnet50.json"] + [word for one in args.set or ["batch=8"] for word in ("--set", one)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pictures").mkdir()
        pictures(folder / "pictures", args.pictures)
        plan = folder / "plan.json"
        subprocess.run([f"{args.bin}/ckpt-plan", "-t", "2", "--strategy", "keep-all", "-o", plan, *model], check=True, capture_output=True)
        ways = {"synthetic": ["synthetic"]}
        ways.update({f"{n} workers": [f"images:{folder}/pictures", "--workers", str(n)] for n in (0, 1, 2)})
        runs = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way, data in ways.items():
                done = subprocess.run([f"{args.bin}/ckpt-train", "--plan", plan, "--data", *data, "--steps", str(args.steps), "--json",
                                       "--no-digest", *model], check=True, capture_output=True, text=True)
                runs[way].append(json.loads(done.stdout))
    print("| data | step, median | waited, of all steps |")
    print("|---|---|---|")
    for way, found in runs.items():
        step = statistics.median(run["step_ns"] for run in found)
        waited = [run.get("waited_ns", 0) / (args.steps * run["step_ns"]) for run in found]
        print(f"| {way} | {step / 1e6:.0f} ms | {statistics.median(waited):.2%} ({min(waited):.2%} to {max(waited):.2%}) |")


if __name__ == "__main__":
    main()
