#!/usr/bin/env python3
"""What packing weights costs: the part of a product's time that does not depend on its rows.

    bench/packing.py BIN [--rounds 5] [--threads N]

BIN: the folder of the programs. oneDNN copies the weights of a product into an order of its own at each run, which takes the
same time for few rows as for many. So a layer is timed alone with 64 to 1,024 rows, in turns, and a line through the least
times of each gives that part: its value at no rows. No copy that is kept, shared or made earlier can save more than that.
A layer's backward pass has two products; one of them packs weights, the other a gradient, which is new in every step.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

SHAPES = {"GPT-2 qkv": (768, 2304), "GPT-2 proj": (768, 768), "GPT-2 fc": (768, 3072), "GPT-2 out": (3072, 768),
          "Llama 3.2 1B up": (2048, 8192)}
ROWS = [64, 128, 256, 512, 1024]


def model(width, features, rows):
    return {"format": "ckpt-model/1", "name": "product", "dtype": "float32", "vars": {},
            "inputs": [{"name": "x", "shape": [rows, width], "dtype": "float32"},
                       {"name": "labels", "shape": [rows], "dtype": "int32"}],
            "layers": [{"name": "gain", "op": "layernorm"},
                       {"name": "fc", "op": "linear", "features": features, "bias": False},
                       {"name": "loss", "op": "cross_entropy", "in": ["fc", "labels"]}],
            "optimizer": {"name": "sgd", "lr": 0.01}}


def times(args, folder, shape, rows):
    """Least forward and backward time of the layer, ms."""
    (folder / "model.json").write_text(json.dumps(model(*shape, rows)))
    subprocess.run([f"{args.bin}/ckpt-profile", "--isolated", "--seconds", "0.3", *(["-t", args.threads] if args.threads else []),
                    "-o", folder / "profile.json", folder / "model.json"], check=True, capture_output=True)
    layers = json.loads((folder / "profile.json").read_text())["layers"]
    layer = next(one for one in layers if one["layer"] == "fc")
    return [min(layer[way]["samples_ns"]) / 1e6 for way in ("forward", "backward")]


def at_no_rows(found):
    """Of the least-squares line through the times at ROWS."""
    mean_rows, mean = sum(ROWS) / len(ROWS), sum(found) / len(found)
    slope = sum((r - mean_rows) * (t - mean) for r, t in zip(ROWS, found)) / sum((r - mean_rows) ** 2 for r in ROWS)
    return mean - slope * mean_rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads")
    args = parser.parse_args()
    print("| weights | direction | " + " | ".join(f"{rows} rows, ms" for rows in ROWS) + " | at no rows, ms | of 256 rows | of 1,024 |")
    print("|---" * (len(ROWS) + 5) + "|")
    with tempfile.TemporaryDirectory() as name:
        for layer, shape in SHAPES.items():
            rounds = [[times(args, Path(name), shape, rows) for rows in ROWS] for _ in range(args.rounds)]
            for way, direction in enumerate(("forward", "backward")):
                least = [min(one[k][way] for one in rounds) for k in range(len(ROWS))]
                rest = at_no_rows(least)
                print(f"| {layer}, {shape[0]} × {shape[1]} | {direction} | " + " | ".join(f"{t:.2f}" for t in least) +
                      f" | {rest:.2f} | {rest / least[2]:.1%} | {rest / least[4]:.1%} |", flush=True)


if __name__ == "__main__":
    main()
