"""Networks as PyTorch users write them or take them from its libraries, for bench/pytorch/step_time.py: the same layers,
parameter counts and optimizers as the files in models/."""
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(h, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, h))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers=12, hidden=768, heads=12, positions=1024, rows=50257):
        super().__init__()
        self.embed, self.position = nn.Embedding(rows, hidden), nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(hidden)

    def forward(self, ids, targets):
        x = self.embed(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.lnf(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Sequential()
        if stride != 1 or inside != out:
            self.short = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.short(x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, inside = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(inside, width, stride if i == 0 else 1))
                inside = 4 * width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(2048, 1000)

    def forward(self, images, targets):
        return F.cross_entropy(self.fc(self.blocks(self.stem(images)).mean(dim=(2, 3))), targets)


class Residual(nn.Module):
    """The first residual block of a Stable Diffusion U-Net."""

    def __init__(self, channels, time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, channels)
        self.conv1, self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1), nn.Conv2d(channels, channels, 3, 1, 1)
        self.time = nn.Linear(time, channels)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Of `queries` to `context`, whose width may be another."""

    def __init__(self, channels, context, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(channels, channels, bias=False)
        self.k, self.v = nn.Linear(context, channels, bias=False), nn.Linear(context, channels, bias=False)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x, context):
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in (self.q(x), self.k(context), self.v(context)))
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class SpatialTransformer(nn.Module):
    """The block behind it: every point of the image attends to all points and to the words of the text."""

    def __init__(self, channels, text, heads):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(channels) for _ in range(3))
        self.itself, self.cross = Attention(channels, channels, heads), Attention(channels, text, heads)
        self.fc, self.out = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, image, context):
        y = self.proj_in(self.norm(image))
        x = y.flatten(2).transpose(1, 2)
        z = self.ln1(x)
        x = x + self.itself(z, z)
        x = x + self.cross(self.ln2(x), context)
        gate, value = self.fc(self.ln3(x)).chunk(2, dim=2)
        x = x + self.out(F.gelu(gate) * value)
        return image + self.proj_out(x.transpose(1, 2).reshape(y.shape))


class UNetBlock(nn.Module):
    def __init__(self, channels=320, text=768, heads=8):
        super().__init__()
        self.residual, self.transformer = Residual(channels, 4 * channels), SpatialTransformer(channels, text, heads)

    def forward(self, x, time, context, wanted):
        return F.mse_loss(self.transformer(self.residual(x, time), context), wanted)


def unet_block(root):
    """The same of models/sd-unet.json, as a model of its own."""
    with open(os.path.join(root, "models", "sd-unet.json")) as file:
        whole = json.load(file)
    image = ["batch", "channels", "size", "size"]
    layers = [layer for layer in whole["layers"] if layer["name"] in ("down0_res0", "down0_att0")]
    text = json.dumps(layers).replace('"conv_in"', '"image"').replace('"time_silu2"', '"time"')
    return {
        "format": whole["format"], "name": "sd-unet-block", "vars": whole["vars"], "dtype": "float32",
        "inputs": [{"name": "image", "shape": image, "dtype": "float32"},
                   {"name": "time", "shape": ["batch", "4*channels"], "dtype": "float32"},
                   {"name": "context", "shape": ["batch", "words", "text"], "dtype": "float32"},
                   {"name": "wanted", "shape": image, "dtype": "float32"}],
        "layers": json.loads(text) + [{"name": "loss", "op": "mse", "in": ["down0_att0.0.add_image", "wanted"]}],
        "optimizer": whole["optimizer"],
    }


class Llama(nn.Module):
    """Of the transformers library."""

    def __init__(self, rows=32000):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM
        self.net = LlamaForCausalLM(LlamaConfig(
            vocab_size=rows, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
            intermediate_size=1536, max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=True,
            rope_theta=500000.0, use_cache=False, attn_implementation="sdpa"))

    def forward(self, ids, targets):
        return F.cross_entropy(self.net(input_ids=ids).logits.flatten(0, 1), targets.flatten())


class ViT(nn.Module):
    """Of the torchvision library."""

    def __init__(self):
        super().__init__()
        import torchvision
        self.net = torchvision.models.vit_b_16()

    def forward(self, images, targets):
        return F.cross_entropy(self.net(images), targets)


def adamw(net, lr, decay, beta2=0.999):
    return torch.optim.AdamW(net.parameters(), lr=lr, betas=(0.9, beta2), weight_decay=decay, fused=True)


def make(name):
    """(network, batch, optimizer)"""
    torch.manual_seed(1)
    if name == "gpt2-124m":
        net = GPT2()
        return net, [torch.randint(0, 50257, (1, 256)) for _ in range(2)], adamw(net, 6e-4, 0.1, 0.95)
    if name == "llama":
        net = Llama()
        return net, [torch.randint(0, 32000, (4, 256)) for _ in range(2)], adamw(net, 3e-4, 0.1, 0.95)
    if name == "vit-b-16":
        net = ViT()
        return net, [torch.randn(4, 3, 224, 224), torch.randint(0, 1000, (4,))], adamw(net, 3e-4, 0.1)
    if name == "sd-unet-block":
        net = UNetBlock()
        return net, [torch.randn(1, 320, 64, 64), torch.randn(1, 1280), torch.randn(1, 77, 768),
                     torch.randn(1, 320, 64, 64)], adamw(net, 1e-4, 0.01)
    net = ResNet50()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4, fused=True)
    return net, [torch.randn(4, 3, 224, 224), torch.randint(0, 1000, (4,))], optimizer


def parameters(name):
    return sum(p.numel() for p in make(name)[0].parameters())


def step_of(name, channels_last=False):
    """A function that does one training step."""
    net, batch, optimizer = make(name)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
        batch = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in batch]

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = net(*batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
