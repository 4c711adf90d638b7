#!/usr/bin/env python3
"""Does training learn? A byte-level GPT on the licence texts that Debian installs, by ckpt-train under half of keep-all's peak and by
PyTorch with the same hyperparameters; and a convolutional network on handwritten digits.

    bench/learn.py text BIN FOLDER [--steps N]      both, into FOLDER/text.json; text that ckpt generates before and after
    bench/learn.py digits BIN FOLDER                the digits of scikit-learn, 1500 to learn and 297 held out
    bench/learn.py draw FOLDER/text.json PICTURE.svg

BIN: the folder of the programs. Needs `scripts/pytorch-venv models` (text) and scikit-learn (digits). Validation is on texts that
the training has not seen, all of them, in windows one behind the other. PyTorch starts from the weights that ckpt starts from;
batches and what dropout drops are drawn by each side's own generator.
"""

import argparse
import csv
import hashlib
import json
import math
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"batch": 16, "tokens": 128, "hidden": 128, "blocks": 4, "heads": 4, "vocabulary": 256}
LR, BETAS, DECAY, DROPOUT, THREADS = 1e-3, (0.9, 0.99), 0.1, 0.1, 2


def run(*command):
    print("$", " ".join(map(str, command)), flush=True)
    done = subprocess.run([str(part) for part in command], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    return done.stdout.decode(errors="replace")


def licences(folder):
    """Every tenth text, by the hash of its bytes, is for validation; no text is in both, nor twice."""
    texts = {}
    for path in sorted([*Path("/usr/share/common-licenses").iterdir(), *Path("/usr/share/doc").glob("*/copyright")]):
        if path.is_file():
            found = path.read_bytes()
            texts.setdefault(hashlib.sha256(found).hexdigest(), found)
    held = sorted(texts)[::10]
    parts = {"train": b"".join(texts[k] for k in sorted(texts) if k not in held), "validation": b"".join(texts[k] for k in held)}
    for name, text in parts.items():
        (folder / f"{name}.txt").write_bytes(text)
        (folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(text)}H", *text))
    print(f"{len(texts)} texts: {len(parts['train'])} bytes to learn, {len(parts['validation'])} held out")
    return parts


def by_ckpt(programs, folder, steps, every):
    model = ROOT / "models/byte-gpt.json"
    sizes = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]
    run(programs / "ckpt-plan", *sizes, "-t", THREADS, "--strategy", "keep-all", "-o", folder / "all.json", model)
    keep_all = json.loads((folder / "all.json").read_text())["summary"]["peak_bytes"]
    run(programs / "ckpt-plan", *sizes, "-t", THREADS, "--budget", keep_all // 2, "-o", folder / "plan.json", model)
    train = [programs / "ckpt-train", *sizes, "--plan", folder / "plan.json", "--data", f"text:{folder}/train.txt", model]
    run(*train, "--steps", 0, "--save", folder / "first.state", "--export", folder / "first.safetensors")
    say = ["--generate", 400, "--prompt", "The licence", "--temperature", 0.7, "--top-k", 40]
    before = run(*train, "--resume", folder / "first.state", *say)
    found = json.loads(run(*train, "--steps", steps, "--validate", f"tokens:{folder}/validation.bin", "--validate-every", every, "--log",
                           folder / "log.csv", "--save-best", folder / "best.state", "--tensorboard", folder / "events", "--json"))
    rows = list(csv.DictReader(open(folder / "log.csv")))
    return {"name": "ckpt", "keep_all_peak_bytes": keep_all, "peak_bytes": found["measured_peak_bytes"],
            "planned_peak_bytes": found["planned_peak_bytes"], "step_ns": found["step_ns"],
            "training": [[int(r["step"]), float(r["loss"])] for r in rows],
            "validation": [[int(r["step"]), float(r["validation"])] for r in rows if r["validation"]],
            "before": before, "after": run(*train, "--resume", folder / "best.state", *say)}


def by_pytorch(parts, start, steps, every):
    import torch
    from safetensors.torch import load_file
    from torch import nn
    from torch.nn import functional as F
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    hidden, heads, window, batch = (SIZES[k] for k in ("hidden", "heads", "tokens", "batch"))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.fc, self.out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (part.view(b, t, heads, c // heads).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
            x = x + F.dropout(self.proj(y), DROPOUT, self.training)
            return x + F.dropout(self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh")), DROPOUT, self.training)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.pos = nn.Embedding(SIZES["vocabulary"], hidden), nn.Embedding(window, hidden)
            self.h, self.ln = nn.ModuleList(Block() for _ in range(SIZES["blocks"])), nn.LayerNorm(hidden)

        def forward(self, ids, targets):
            x = F.dropout(self.embed(ids) + self.pos.weight, DROPOUT, self.training)
            for block in self.h:
                x = block(x)
            return F.cross_entropy((self.ln(x) @ self.embed.weight.T).flatten(0, 1), targets.flatten())

    model = Model()
    model.load_state_dict(load_file(start))
    matrices = [p for p in model.parameters() if p.ndim > 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                                   {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0}], lr=LR, betas=BETAS)
    train, held = (torch.tensor(list(parts[k]), dtype=torch.long) for k in ("train", "validation"))

    def windows(text, starts):
        return torch.stack([text[s:s + window] for s in starts]), torch.stack([text[s + 1:s + window + 1] for s in starts])

    def validate():
        model.eval()
        rows = (len(held) - 1) // window
        with torch.no_grad():
            losses = [model(*windows(held, [window * (batch * b + r) for r in range(batch)])).item() for b in range(rows // batch)]
        model.train()
        return sum(losses) / len(losses)

    training, validation, spent = [], [], []
    draw = random.Random(0)
    for step in range(1, steps + 1):
        ids = windows(train, [draw.randrange(len(train) - window) for _ in range(batch)])
        begun = time.perf_counter_ns()
        loss = model(*ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        training.append([step, loss.item()])
        spent.append(time.perf_counter_ns() - begun)
        if step % every == 0 or step == steps:
            validation.append([step, validate()])
            print(f"pytorch: step {step}  validation loss {validation[-1][1]:.4f}", flush=True)
    return {"name": "PyTorch", "step_ns": sorted(spent)[len(spent) // 2], "training": training, "validation": validation}


def text(options):
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    parts = licences(folder)
    every = max(options.steps // 20, 1)
    found = [by_ckpt(Path(options.bin), folder, options.steps, every), by_pytorch(parts, folder / "first.safetensors", options.steps, every)]
    (folder / "text.json").write_text(json.dumps(found) + "\n")
    for side in found:
        step, loss = min(side["validation"], key=lambda point: point[1])
        print(f"{side['name']}: lowest validation loss {loss:.4f} after {step} steps, {math.exp(loss):.2f} bytes of perplexity; "
              f"median step {side['step_ns'] / 1e6:.1f} ms")
    ours = found[0]
    print(f"ckpt's peak {ours['peak_bytes']} B (planned {ours['planned_peak_bytes']} B), "
          f"{ours['peak_bytes'] / ours['keep_all_peak_bytes']:.1%} of keep-all's {ours['keep_all_peak_bytes']} B")
    print(f"before:\n{ours['before']}\nafter:\n{ours['after']}")


def digits(options):
    from sklearn.datasets import load_digits
    import numpy
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = load_digits()
    images = (found.images / 8 - 1).astype(numpy.float32)[:, None]
    order = numpy.random.default_rng(0).permutation(len(images))
    for name, rows in ("train", order[:1500]), ("validation", order[1500:]):
        numpy.save(folder / f"{name}-image.npy", images[rows])
        numpy.save(folder / f"{name}-labels.npy", found.target[rows].astype(numpy.int64))
    programs, model = Path(options.bin), ["--set", "size=8", "--set", "batch=60", ROOT / "models/mnist-conv.json"]
    run(programs / "ckpt-plan", "-t", THREADS, "--strategy", "keep-all", "-o", folder / "all.json", *model)
    keep_all = json.loads((folder / "all.json").read_text())["summary"]["peak_bytes"]
    run(programs / "ckpt-plan", "-t", THREADS, "--budget", "100%", "-o", folder / "plan.json", *model)
    data = {name: f"arrays:image={folder}/{name}-image.npy,labels={folder}/{name}-labels.npy" for name in ("train", "validation")}
    done = json.loads(run(programs / "ckpt-train", "--plan", folder / "plan.json", "--data", data["train"], "--validate", data["validation"],
                          "--steps", options.steps, "--log", folder / "log.csv", "--save-best", folder / "best.state", "--json", *model))
    best = max(float(row["accuracy"]) for row in csv.DictReader(open(folder / "log.csv")) if row["accuracy"])
    print(f"last: {done['validation']['right']} of {done['validation']['counted']} right; best accuracy {best:.2%}; peak "
          f"{done['measured_peak_bytes']} B, keep-all's {keep_all} B")


def draw(options):
    from torch_rivals import COLOURS, Picture
    found = json.loads(Path(options.file).read_text())
    steps = max(step for side in found for step, _ in side["training"])
    losses = [loss for side in found for _, loss in side["training"]]
    picture = Picture(720, 330)
    at = picture.panel(48, 40, 650, 240, "Loss of a byte-level GPT on licence texts: while training (thin) and of held-out texts (thick)", "steps",
                       (0, steps), (0, math.ceil(max(losses))))
    for i, (side, colour) in enumerate(zip(found, (COLOURS["ckpt"], COLOURS["eager"]))):
        block = max(len(side["training"]) // 200, 1)
        means = [(sum(step for step, _ in part) / len(part), sum(loss for _, loss in part) / len(part))
                 for part in (side["training"][k:k + block] for k in range(0, len(side["training"]), block))]
        picture.line([at(*point) for point in means], colour, 0.8)
        picture.line([at(*point) for point in side["validation"]], colour, 7 - 5 * i)  # PyTorch's lies upon ckpt's
        lowest = min(loss for _, loss in side["validation"])
        words = f"{side['name']}: lowest held-out loss {lowest:.3f}"
        if "peak_bytes" in side:
            words += f", at {side['peak_bytes'] / side['keep_all_peak_bytes']:.0%} of keep-all's memory"
        picture.text(300, 70 + 16 * i, words, fill=colour)
    Path(options.picture).write_text("\n".join([*picture.lines, "</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    for name, function, steps in ("text", text, 2000), ("digits", digits, 1200):
        kind = kinds.add_parser(name)
        kind.add_argument("bin")
        kind.add_argument("folder")
        kind.add_argument("--steps", type=int, default=steps)
        kind.set_defaults(work=function)
    kind = kinds.add_parser("draw")
    kind.add_argument("file")
    kind.add_argument("picture")
    kind.set_defaults(work=draw)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
