#!/usr/bin/env python3
"""The image networks and the speech network of models/, small, against torchvision and transformers (Stable Diffusion's U-Net
against the formulas below): the same random weights under the names layer.param, and the loss and every gradient of one step as near to float64's as float32 is.

The gradients come through the front door: SGD with a learning rate of 2^20 moves every weight by so much that what is
exported, less what went in, is the gradient rounded to float32. Batch norm's running statistics are compared too.

Usage: scripts/pytorch-venv models && .venv/bin/python tests/programs/torch_networks.py SOURCE_DIR BIN_DIR WORK_DIR [NAME...]
"""
import json
import os
import re
import subprocess
import sys

import torch
import torch.nn.functional as F
import torchvision
import transformers
from safetensors.torch import load_file, save_file
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.efficientnet import EfficientNet, MBConvConfig

RATE = 2.0**20
# As in test_families.c: float32 against float64, with a factor of ten. A gradient's error is relative to the largest of its
# tensor; the floor, relative to the largest of all, is for sums that cancel. A deep network with batch norm enlarges
# rounding, so it may be by LIKE times as far off as PyTorch itself in float32.
LOSS_BOUND, GRADIENT_BOUND, FLOOR, LIKE = 4e-6, 4e-5, 1e-2, 4
BATCH, CLASSES = 4, 7


def rows(*pairs):
    """A function that renames by the first pattern that matches the whole name."""
    table = [(re.compile(old), new) for old, new in pairs]

    def rename(name):
        for pattern, new in table:
            found = pattern.fullmatch(name)
            if found:
                return new(*found.groups()) if callable(new) else found.expand(new)
        return None
    return rename


def stage(number):
    """Of torchvision's features: 1, 3, 5, 7 are stages, 2, 4, 6 lie before stages 2, 3, 4."""
    return (int(number) + 1) // 2


def image_batch(size):
    return {"image": torch.randn(BATCH, 3, size, size), "labels": torch.arange(BATCH, dtype=torch.int32) % CLASSES}


def classified(model, batch):
    return F.cross_entropy(model(batch["image"]), batch["labels"].long())


def vit(_):
    model = torchvision.models.VisionTransformer(16, 4, 2, 4, 16, 24, num_classes=CLASSES)
    rename = rows(
        ("class_token", "class.weight"), (r"conv_proj\.(.*)", r"patches.\1"), (r"encoder\.pos_embedding", "pos.weight"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.ln_(\d)\.(.*)", r"block.\1.ln\2.\3"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.in_proj_(.*)", r"block.\1.qkv.\2"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.out_proj\.(.*)", r"block.\1.proj.\2"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.0\.(.*)", r"block.\1.fc.\2"),
        (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.3\.(.*)", r"block.\1.out.\2"),
        (r"encoder\.ln\.(.*)", r"ln.\1"), (r"heads\.head\.(.*)", r"head.\1"))
    return model, rename, image_batch(16), classified, dict(size=16, patch=4, hidden=16, blocks=2, heads=4, feed_forward=24)


def swin(_):
    model = torchvision.models.SwinTransformer([4, 4], 8, [2, 2, 6, 2], [1, 2, 4, 8], [2, 2], stochastic_depth_prob=0.0,
                                               num_classes=CLASSES)
    part = {"attn.relative_position_bias_table": "bias.weight", "attn.qkv": "qkv", "attn.proj": "proj", "norm1": "norm1",
            "norm2": "norm2", "mlp.0": "up", "mlp.3": "down"}
    rename = rows(
        (r"features\.0\.0\.(.*)", r"patch.\1"), (r"features\.0\.2\.(.*)", r"norm.\1"),
        (r"features\.(\d)\.reduction\.(.*)", lambda s, kind: f"reduce{stage(s) + 1}.{kind}"),
        (r"features\.(\d)\.norm\.(.*)", lambda s, kind: f"merge_norm{stage(s) + 1}.{kind}"),
        (r"features\.(\d)\.(\d)\.(attn\.relative_position_bias_table)", lambda s, i, of: f"stage{stage(s)}.{i}.{part[of]}"),
        (r"features\.(\d)\.(\d)\.(.*)\.(weight|bias)", lambda s, i, of, kind: f"stage{stage(s)}.{i}.{part[of]}.{kind}"),
        (r"norm\.(.*)", r"norm_last.\1"), (r"head\.(.*)", r"head.\1"))
    return model, rename, image_batch(64), classified, dict(size=64, window=2, width=8, heads=1, drop=0)


def convnext(_):
    depths, width = [3, 3, 9, 3], [8, 16, 32, 64, None]
    setting = [CNBlockConfig(width[i], width[i + 1], depths[i]) for i in range(4)]
    model = torchvision.models.ConvNeXt(setting, stochastic_depth_prob=0.0, num_classes=CLASSES)
    part = {"0": "filter", "2": "norm", "3": "up", "5": "down"}
    rename = rows(
        (r"features\.0\.0\.(.*)", r"patch.\1"), (r"features\.0\.1\.(.*)", r"patch_norm.\1"),
        (r"features\.(\d)\.(\d+)\.layer_scale", lambda s, i: f"stage{stage(s)}.{i}.gamma.weight"),
        (r"features\.(\d)\.(\d+)\.block\.(\d)\.(.*)", lambda s, i, of, kind: f"stage{stage(s)}.{i}.{part[of]}.{kind}"),
        (r"features\.(\d)\.0\.(.*)", lambda s, kind: f"down_norm{stage(s) + 1}.{kind}"),
        (r"features\.(\d)\.1\.(.*)", lambda s, kind: f"down{stage(s) + 1}.{kind}"),
        (r"classifier\.0\.(.*)", r"norm.\1"), (r"classifier\.2\.(.*)", r"head.\1"))
    return model, rename, image_batch(64), classified, dict(size=64, width=8, drop=0)


def efficientnet(_):
    shape = [(1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3),
             (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1)]  # of torchvision's efficientnet_b0, here 16 for 32
    setting = [MBConvConfig(expand, kernel, stride, one // 2, other // 2, layers, 1, 1) for expand, kernel, stride, one, other, layers in shape]
    for one, published in zip(setting, shape):
        one.input_channels, one.out_channels = published[3] // 2, published[4] // 2  # not rounded to multiples of 8
    model = EfficientNet(setting, dropout=0.0, stochastic_depth_prob=0.0, num_classes=CLASSES)
    names = [("expand", "bn1"), ("depthwise", "bn2"), None, ("project", "bn3")]

    def block(s, i, k, of, kind):
        at = int(k) + (s == "1")  # nothing to expand in stage 1
        return f"stage{s}_{i}.0.{of}.{kind}" if names[at] is None else f"stage{s}_{i}.0.{names[at][int(of)]}.{kind}"
    rename = rows(
        (r"features\.0\.0\.(.*)", r"conv1.\1"), (r"features\.0\.1\.(.*)", r"bn1.\1"), (r"features\.8\.0\.(.*)", r"conv2.\1"),
        (r"features\.8\.1\.(.*)", r"bn2.\1"), (r"features\.(\d)\.(\d)\.block\.(\d)\.(\w+)\.(.*)", block),
        (r"classifier\.1\.(.*)", r"fc.\1"))
    return model, rename, image_batch(64), classified, dict(size=64, width=16)


def whisper(_):
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=29, num_mel_bins=4, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_source_positions=6, max_target_positions=8,
        dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, attn_implementation="eager"))
    model.model.encoder.embed_positions.weight.requires_grad_(True)
    part = {"self_attn_layer_norm": "ln1", "fc1": "fc", "fc2": "out"}
    for to, attention in (("", "self_attn"), ("cross_", "encoder_attn")):
        part.update({f"{attention}.{one}_proj": to + {"out": "proj"}.get(one, one) for one in ("q", "k", "v", "out")})
    encoder = {**part, "final_layer_norm": "ln2"}
    decoder = {**part, "encoder_attn_layer_norm": "ln2", "final_layer_norm": "ln3"}
    rename = rows(
        (r"model\.encoder\.(conv\d\..*)", r"\1"), (r"model\.encoder\.embed_positions\.(.*)", r"enc_pos.\1"),
        (r"model\.encoder\.layers\.(\d)\.(.*)\.(.*)", lambda i, of, kind: f"enc.{i}.{encoder[of]}.{kind}"),
        (r"model\.encoder\.layer_norm\.(.*)", r"enc_ln.\1"), (r"model\.decoder\.embed_tokens\.(.*)", r"embed.\1"),
        (r"model\.decoder\.embed_positions\.(.*)", r"pos.\1"),
        (r"model\.decoder\.layers\.(\d)\.(.*)\.(.*)", lambda i, of, kind: f"dec.{i}.{decoder[of]}.{kind}"),
        (r"model\.decoder\.layer_norm\.(.*)", r"ln.\1"))
    batch = {"features": torch.randn(BATCH, 12, 4), "ids": torch.randint(1, 29, (BATCH, 8), dtype=torch.int32),
             "targets": torch.randint(1, 29, (BATCH, 8), dtype=torch.int32)}
    batch["targets"][1, 5:] = -100

    def loss_of(model, batch):
        logits = model(input_features=batch["features"].transpose(1, 2), decoder_input_ids=batch["ids"].long(), use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), batch["targets"].long().flatten(), ignore_index=-100)
    return model, rename, batch, loss_of, dict(frames=12, mels=4, tokens=8, positions=8, hidden=16, blocks=2, heads=4, feed_forward=24,
                                               vocabulary=29)


class StableDiffusion(torch.nn.Module):
    """Rombach et al. 2022 as diffusers' UNet2DConditionModel has it, in plain PyTorch. Parameters have ckpt's names, dots for
    which are colons, and come in shapes; of geglu's two halves the first is the gate."""

    def __init__(self, shapes, groups, heads):
        super().__init__()
        self.params = torch.nn.ParameterDict({key.replace(".", ":"): torch.nn.Parameter(torch.empty(shape)) for key, shape in shapes.items()})
        self.groups, self.heads = groups, heads

    def of(self, layer, kind="weight"):
        key = f"{layer}:{kind}".replace(".", ":")
        return self.params[key] if key in self.params else None

    def conv(self, x, layer, stride=1):
        return F.conv2d(x, self.of(layer), self.of(layer, "bias"), stride, self.of(layer).shape[-1] // 2)

    def linear(self, x, layer):
        return F.linear(x, self.of(layer), self.of(layer, "bias"))

    def layer_norm(self, x, layer):
        return F.layer_norm(x, x.shape[-1:], self.of(layer), self.of(layer, "bias"))

    def group_norm(self, x, layer, eps=1e-5):
        return F.group_norm(x, self.groups, self.of(layer), self.of(layer, "bias"), eps)

    def residual(self, x, time, block):
        y = self.conv(F.silu(self.group_norm(x, f"{block}.norm1")), f"{block}.conv1")
        y = y + self.linear(F.silu(time), f"{block}.time")[:, :, None, None]
        y = self.conv(F.silu(self.group_norm(y, f"{block}.norm2")), f"{block}.conv2")
        return y + (x if self.of(f"{block}.short") is None else self.conv(x, f"{block}.short"))

    def attend(self, x, to, block, kind):
        q, k, v = (self.linear(one, f"{block}.{kind}_{name}").unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for one, name in ((x, "q"), (to, "k"), (to, "v")))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return self.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), f"{block}.{kind}_proj")

    def transformer(self, x, context, block):
        y = self.conv(self.group_norm(x, f"{block}.norm", 1e-6), f"{block}.proj_in")
        t = y.flatten(2).transpose(1, 2)
        one = self.layer_norm(t, f"{block}.self_ln")
        t = t + self.attend(one, one, block, "self")
        t = t + self.attend(self.layer_norm(t, f"{block}.cross_ln"), context, block, "cross")
        gate, up = self.linear(self.layer_norm(t, f"{block}.ln"), f"{block}.fc").chunk(2, -1)
        t = t + self.linear(F.gelu(gate) * up, f"{block}.out")
        return x + self.conv(t.transpose(1, 2).reshape(y.shape), f"{block}.proj_out")

    def forward(self, x, step, context):
        channels = self.of("conv_in").shape[0]
        angle = step[:, None] * 10000 ** (-torch.arange(channels // 2, dtype=x.dtype) / (channels // 2))
        time = self.linear(F.silu(self.linear(torch.cat([angle.cos(), angle.sin()], 1), "time_fc1")), "time_fc2")
        x = self.conv(x, "conv_in")
        skip = [x]
        for level in range(4):
            for i in range(2):
                x = self.residual(x, time, f"down{level}_res{i}.0")
                if level < 3:
                    x = self.transformer(x, context, f"down{level}_att{i}.0")
                skip.append(x)
            if level < 3:
                x = self.conv(x, f"down{level}_conv", 2)
                skip.append(x)
        x = self.residual(x, time, "mid_res0.0")
        x = self.residual(self.transformer(x, context, "mid_att.0"), time, "mid_res1.0")
        for level in range(4):
            for i in range(3):
                x = self.residual(torch.cat([x, skip.pop()], 1), time, f"up{level}_res{i}.0")
                if level > 0:
                    x = self.transformer(x, context, f"up{level}_att{i}.0")
            if level < 3:
                x = self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"), f"up{level}_conv")
        return self.conv(F.silu(self.group_norm(x, "norm_out")), "conv_out")


def diffusion(shapes_of):
    sizes = dict(size=16, channels=16, words=5, text=12, heads=2, groups=4)
    batch = {"latent": torch.randn(BATCH, 4, 16, 16), "timestep": torch.tensor([3.0, 250.0, 600.0, 999.0]),
             "context": torch.randn(BATCH, 5, 12), "noise": torch.randn(BATCH, 4, 16, 16)}

    def loss_of(model, batch):
        return F.mse_loss(model(batch["latent"], batch["timestep"], batch["context"]), batch["noise"])
    model = StableDiffusion(shapes_of(sizes), sizes["groups"], sizes["heads"])
    return model, lambda name: name.removeprefix("params.").replace(":", "."), batch, loss_of, sizes


NETWORKS = {"vit-b-16": vit, "swin-t": swin, "convnext-t": convnext, "efficientnet-b0": efficientnet, "whisper-tiny": whisper,
            "sd-unet": diffusion}


def still(layers):
    """The same layers, no dropout."""
    for one in layers:
        still(one.get("layers", []))
        if one.get("op") in ("dropout", "drop_path"):
            one["p"] = 0.0


def check(source, programs, work, name):
    model_file, weights, data, plan = (os.path.join(work, f"{name}.{of}") for of in ("json", "safetensors", "batch.safetensors", "plan.json"))
    with open(os.path.join(source, "models", name + ".json"), encoding="utf-8") as file:
        network = json.load(file)
    network["optimizer"] = {"name": "sgd", "lr": RATE}
    network["vars"] |= {"batch": BATCH, **({"classes": CLASSES} if "classes" in network["vars"] else {})}
    still(network["layers"])

    def run(program, *arguments):
        done = subprocess.run([os.path.join(programs, program), *arguments, model_file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{program} {' '.join(arguments)}: {done.stdout} {done.stderr}"

    def shapes_of(sizes):
        network["vars"] |= sizes
        with open(model_file, "w", encoding="utf-8") as file:
            json.dump(network, file)
        run("ckpt-plan", "--threads=2", "--strategy=keep-all", "-o", plan)
        run("ckpt-train", "--plan", plan, "--steps=0", "--export", weights)
        return {key: one.shape for key, one in load_file(weights).items()}

    torch.manual_seed(1)
    model, rename, batch, loss_of, sizes = NETWORKS[name](shapes_of)
    shapes = shapes_of(sizes)
    for key, one in model.named_parameters():  # gates, biases and norms too are none that could be left out unseen
        one.data = torch.randn_like(one) * (0.1 if one.dim() == 1 or "scale" in key else (1.0 / one[0].numel()) ** 0.5)
        one.data += 1.0 if one.dim() == 1 and key.endswith("weight") or "scale" in key else 0.0
    names = {key: rename(key) for key in model.state_dict() if not re.search(r"num_batches|position_index|^proj_out\.", key)}
    missing = [key for key, ours in names.items() if ours is None]
    assert not missing, f"{name}: no name for {missing}"
    state = {key: one.clone() for key, one in model.state_dict().items()}
    assert sorted(shapes) == sorted(names.values()), f"{name}: {sorted(set(shapes) ^ set(names.values()))}"
    before = {ours: state[key].reshape(shapes[ours]).clone() for key, ours in names.items()}
    save_file(before, weights)
    save_file({key: one.contiguous() for key, one in batch.items()}, data)
    near = loss_of(model.train(), batch)
    near.backward()
    single = {names[key]: one.grad.double() for key, one in model.named_parameters()}
    model.load_state_dict(state)  # batch norm's statistics as they were
    model.zero_grad()
    model = model.double()
    loss = loss_of(model, {key: one.double() if one.is_floating_point() else one for key, one in batch.items()})
    loss.backward()
    wanted = {names[key]: one.grad for key, one in model.named_parameters()}
    moved = {names[key]: one for key, one in model.named_buffers() if key in names}
    largest = max(one.abs().max().item() for one in wanted.values())
    worst = 0.0
    for strategy in ("keep-all", "recompute-all"):
        out, log = (os.path.join(work, f"{name}.{strategy}.{of}") for of in ("safetensors", "csv"))
        run("ckpt-plan", "--threads=2", "--strategy", strategy, "-o", plan)
        run("ckpt-train", "--plan", plan, "--init", weights, "--data", "safetensors:" + data, "--steps=1", "--log", log, "--export", out)
        with open(log, encoding="utf-8") as file:
            found = float(file.read().splitlines()[1].split(",")[1])
        bound = LOSS_BOUND * abs(loss.item()) + LIKE * abs(near.item() - loss.item())
        assert abs(found - loss.item()) <= bound, f"{name}: loss {found}, PyTorch's {loss.item()}"
        after = load_file(out)
        for key, one in wanted.items():
            got = (before[key].double() - after[key].double()) / RATE
            bound = GRADIENT_BOUND * max(one.abs().max().item(), FLOOR * largest) + LIKE * (single[key] - one).abs().max().item()
            far = (got - one.reshape(got.shape)).abs().max().item()
            assert far <= bound, f"{name} by {strategy}: gradient {key} is {far:.3g} from PyTorch's, bound {bound:.3g}"
            worst = max(worst, far / bound)
        for key, one in moved.items():
            far = (after[key].double() - one).abs().max().item()
            assert far <= GRADIENT_BOUND * one.abs().max().item(), f"{name} by {strategy}: {key} is {far:.3g} from PyTorch's"
    print(f"{name}: {len(wanted)} gradients and the loss {loss.item():.6f} are PyTorch's, at most {worst:.2g} of their bound; {len(moved)} statistics")


if __name__ == "__main__":
    for chosen in sys.argv[4:] or NETWORKS:
        check(*sys.argv[1:4], chosen)
