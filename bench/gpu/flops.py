"""Floating-point operations of a training step, and the peak rate of a GPU.

One formula for all networks: 6 for each multiply-add of a matrix product or a convolution (2 forward, 2 for the gradient
of what went in, 2 for the weight's; the first convolution has no use for the former: 4), and 12 D for each pair of a
query and a key in attention with D values a head (4 D forward, 8 D backward; FlashAttention-2, Dao 2023,
arXiv:2307.08691, section 4.1), causal pairs above the diagonal not counted. Not counted either: recomputation, attention's
own included, because it is overhead; biases, norms, activation functions, losses, the optimizer. The formula of PaLM's
appendix B (arXiv:2204.02311) counts all T x T pairs: 7 % more for GPT-2 124M at 1024 tokens.

    python3 bench/gpu/flops.py --check BIN    # against the FLOP of the op table, as ckpt-plan adds them up
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def resnet_shapes(v):
    """(in channels, out channels, kernel, output side) of every convolution."""
    side = (v["size"] + 1) // 2
    yield 3, 64, 7, side
    side, inside = (side + 1) // 2, 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            after = (side + 1) // 2 if i == 0 and stride == 2 else side
            yield inside, width, 1, side
            yield width, width, 3, after
            yield width, 4 * width, 1, after
            if i == 0:
                yield inside, 4 * width, 1, after
            side, inside = after, 4 * width


def linear_shapes(kind, v):
    """(in, out, has a bias) of every product of GPT and BERT, for each token."""
    h, wide = v["hidden"], v.get("feed_forward", 4 * v["hidden"])
    for _ in range(v["blocks"]):
        yield from ((h, 3 * h, True), (h, h, True), (h, wide, True), (wide, h, True))
    if kind == "bert":
        yield h, h, True
    yield h, v["vocabulary"], kind == "bert"


def parameters(kind, v):
    """Of the network; the output's weight is the embedding's."""
    if kind == "resnet":
        return sum(a * b * k * k + 2 * b for a, b, k, _ in resnet_shapes(v)) + 2049 * v["classes"]
    h = v["hidden"]
    products = sum(a * b + (b if bias else 0) for a, b, bias in linear_shapes(kind, v))
    norms = (2 * v["blocks"] + (1 if kind == "gpt" else 2)) * 2 * h
    return products + norms + (v["positions"] + (2 if kind == "bert" else 0)) * h


def products(kind, v):
    """FLOP of all matrix products and convolutions in a step."""
    if kind == "resnet":
        adds = [a * b * k * k * side * side for a, b, k, side in resnet_shapes(v)]
        return v["batch"] * (6 * (sum(adds) + 2048 * v["classes"]) - 2 * adds[0])
    return 6 * v["batch"] * v["tokens"] * sum(a * b for a, b, _ in linear_shapes(kind, v))


def pairs(kind, v):
    """Pairs of a query and a key, of all heads and blocks."""
    if kind == "resnet":
        return 0
    t = v["tokens"]
    return v["batch"] * v["blocks"] * v["heads"] * (t * (t + 1) // 2 if kind == "gpt" else t * t)


def attention(kind, v):
    return 0 if kind == "resnet" else 12 * (v["hidden"] // v["heads"]) * pairs(kind, v)


def step(kind, v):
    """(FLOP of one step, as text)"""
    flop, what = products(kind, v) + attention(kind, v), "image" if kind == "resnet" else "token"
    each = flop / v["batch"] / (1 if kind == "resnet" else v["tokens"])
    return flop, f"{each / 1e9:.4g} GFLOP per {what}"


def peak(gpu):
    """({dtype: FLOP/s}, source) of a GPU's name: dense tensor cores for bfloat16, plain cores for float32; None: unknown."""
    for name, bf16, fp32, source in (
            ("H200", 989e12, 67e12, "NVIDIA H200 datasheet (SXM)"), ("H100 PCIe", 756e12, 51e12, "NVIDIA H100 datasheet (PCIe)"),
            ("H100 NVL", 835e12, 60e12, "NVIDIA H100 datasheet (NVL)"), ("H100", 989e12, 67e12, "NVIDIA H100 datasheet (SXM)"),
            ("A100", 312e12, 19.5e12, "NVIDIA A100 datasheet")):
        if name in gpu:
            return (dict(bfloat16=bf16, float32=fp32),
                    f"{bf16 / 1e12:.0f} TFLOP/s bfloat16 dense, {fp32 / 1e12:g} float32, {source}")
    return None, "unknown for this device"


def ops_of(layers):
    """{name of a layer without its block: op} of a model file."""
    found = {}
    for layer in layers:
        for name, op in (ops_of(layer["layers"]) if "repeat" in layer else {layer["name"]: layer["op"]}).items():
            assert found.setdefault(name, op) == op, f"{name} is {op} and {found[name]}"
    return found


def counted(program, name, change, folder):
    """({op: FLOP of a step}, variables): from the plan that keeps all, on a machine with a nanosecond per FLOP and free bytes."""
    with open(f"{folder}/counter.json", "w") as file:
        json.dump(dict(name="counter", gpu=True, flop_per_s=1e9, bytes_per_s=1e24, launch_ns=0), file)
    with open(f"{ROOT}/models/{name}.json") as file:
        model = json.load(file)
    subprocess.run([program, f"{ROOT}/models/{name}.json", "--device", f"{folder}/counter.json", "--strategy", "keep-all",
                    "--trace", f"{folder}/trace.json", "-o", f"{folder}/plan.json"] +
                   [x for k, n in change.items() for x in ("--set", f"{k}={n}")], check=True, stdout=subprocess.DEVNULL)
    ops, flop = ops_of(model["layers"]), {}
    with open(f"{folder}/trace.json") as file:
        for event in json.load(file)["events"]:
            op = event["phase"] if event["phase"] == "update" else ops[event["layer"].split(".")[-1]]
            flop[op] = flop.get(op, 0) + event["end_ns"] - event["start_ns"]
    return flop, dict(model["vars"], **change)


def check(bin_folder):
    """Checks that products, convolutions and attention are exact, and that nothing else is large."""
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, change in (("gpt2-124m", "gpt", dict(batch=3, tokens=1024)), ("gpt2-1.5b", "gpt", dict(batch=2, tokens=512)),
                                   ("gpt2-124m", "gpt", dict(batch=2, tokens=1024, vocabulary=50304)),
                                   ("bert-large", "bert", dict(batch=2, tokens=384)), ("resnet50", "resnet", dict(batch=8)),
                                   ("resnet50", "resnet", dict(batch=2, size=160, classes=10))):
            flop, v = counted(f"{bin_folder}/ckpt-plan", name, change, folder)
            rows = v["batch"] * v.get("tokens", 1)
            biases = v["classes"] if kind == "resnet" else sum(b for _, b, bias in linear_shapes(kind, v) if bias)
            found = flop.pop("linear") + flop.pop("conv2d", 0)
            wanted = products(kind, v) + 2 * rows * biases  # added forward, summed backward
            assert found == wanted, f"{name} {change}: products of {found} FLOP in the op table, {wanted} by the formula"
            if kind != "resnet":  # the op table also has the scores of backward, and 5 forward and backward for each probability
                found, again = flop.pop("attention"), (2 * (v["hidden"] // v["heads"]) + 10) * pairs(kind, v)
                wanted = attention(kind, v) + again
                assert found == wanted, f"{name} {change}: attention of {found} FLOP in the op table, {wanted} by the formula"
            total, other = step(kind, v)[0], sum(flop.values())
            assert 0 < other < 0.03 * total, f"{name} {change}: {other} FLOP of {total} in {flop}"
            print(f"{name} {change}: {total / 1e12:.3f} TFLOP a step as the op table has them, and {100 * other / total:.2f} % not counted")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--check":
        sys.exit("usage: flops.py --check BIN")
    check(sys.argv[2])
