"""Floating-point operations of one training step, and what a GPU could do in a second.

GPT and BERT: 6 N + 12 L H Q T for each token (Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B), N being the
parameters that are in a product (position, segment and untied embeddings are only looked up), L blocks, H heads of Q
values, T tokens; the full T x T for causal attention too, as there. ResNet: 6 for each multiply-add of the forward pass
(2 forward, 4 backward) in convolutions and the last layer, counted below. Recomputation counts nothing: it is overhead.
"""


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


def parameters(kind, v):
    if kind == "resnet":
        return sum(a * b * k * k + 2 * b for a, b, k, _ in resnet_shapes(v)) + 2049 * v["classes"]
    h, wide = v["hidden"], v.get("feed_forward", 4 * v["hidden"])
    block = 4 * h * h + 4 * h + 2 * h * wide + wide + h + 4 * h  # products with biases, two norms
    tables = (v["vocabulary"] + v["positions"]) * h
    if kind == "gpt":
        return tables + v["blocks"] * block + 2 * h
    return tables + 2 * h + 2 * h + v["blocks"] * block + h * h + h + 2 * h + v["vocabulary"]


def step(kind, v):
    """(FLOP of one step, the formula in words)"""
    if kind == "resnet":
        products = sum(a * b * k * k * s * s for a, b, k, s in resnet_shapes(v)) + 2048 * v["classes"]
        return 6 * products * v["batch"], f"6 FLOP for each of {products / 1e9:.3f} G multiply-adds per image"
    looked_up = v["positions"] * v["hidden"] + (2 * v["hidden"] if kind == "bert" else 0)
    n = parameters(kind, v) - looked_up
    per_token = 6 * n + 12 * v["blocks"] * v["hidden"] * v["tokens"]
    return per_token * v["batch"] * v["tokens"], f"6 N + 12 L H Q T = {per_token / 1e9:.3f} GFLOP per token, N = {n}"


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
