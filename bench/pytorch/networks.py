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


def conv_bn(inside, out):
    return [nn.Conv2d(inside, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]


class UNet(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        widths = [64, 128, 256, 512, 512]
        self.down = nn.ModuleList(nn.Sequential(*conv_bn(a, b), *conv_bn(b, b)) for a, b in zip([3] + widths, widths))
        self.up = nn.ModuleList(nn.Sequential(*conv_bn(2 * w, w), *conv_bn(w, max(w // 2, 64))) for w in widths[3::-1])
        self.out = nn.Conv2d(64, classes, 1)

    def forward(self, images, mask):
        kept, x = [], images
        for i, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for part, skip in zip(self.up, kept[3::-1]):
            x = part(torch.cat([skip, F.interpolate(x, scale_factor=2, mode="bilinear")], dim=1))
        return F.cross_entropy(self.out(x), mask)


class Dense(nn.Module):
    def __init__(self, inside, growth):
        super().__init__()
        self.new = nn.Sequential(
            nn.BatchNorm2d(inside), nn.ReLU(inplace=True), nn.Conv2d(inside, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False))

    def forward(self, x):
        return torch.cat([x, self.new(x)], dim=1)


class DenseNet(nn.Module):
    """DenseNet-BC for CIFAR: depth 100, growth 12."""

    def __init__(self, growth=12, layers=16, classes=10):
        super().__init__()
        width = 2 * growth
        parts = [nn.Conv2d(3, width, 3, 1, 1, bias=False)]
        for group in range(3):
            parts += [Dense(width + i * growth, growth) for i in range(layers)]
            width += layers * growth
            parts += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            if group < 2:
                parts += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
        self.body, self.fc = nn.Sequential(*parts), nn.Linear(width, classes)

    def forward(self, images, targets):
        return F.cross_entropy(self.fc(self.body(images).mean(dim=(2, 3))), targets)


class LSTM(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(256, hidden), nn.LSTM(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 256)

    def forward(self, ids, targets):
        return F.cross_entropy(self.head(self.lstm(self.embed(ids))[0]).flatten(0, 1), targets.flatten())


def adamw(net, lr, decay, beta2=0.999):
    return torch.optim.AdamW(net.parameters(), lr=lr, betas=(0.9, beta2), weight_decay=decay, fused=True)


def ids(batch, tokens, rows):
    return [torch.randint(0, rows, (batch, tokens)) for _ in range(2)]


def images(batch, size, classes):
    return [torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))]


def sgd(net, lr, nesterov=False):
    return torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4, nesterov=nesterov, fused=True)


def adam(net, lr):
    return torch.optim.Adam(net.parameters(), lr=lr, fused=True)


MAKERS = {  # name: (network, its batch, optimizer of a network)
    "gpt2-124m": (GPT2, lambda: ids(4, 256, 50257), lambda net: adamw(net, 6e-4, 0.1, 0.95)),
    "resnet50": (ResNet50, lambda: images(8, 224, 1000), lambda net: sgd(net, 0.002)),
    "vit-b-16": (ViT, lambda: images(4, 224, 1000), lambda net: adamw(net, 3e-4, 0.1)),
    "densenet-bc": (DenseNet, lambda: images(64, 32, 10), lambda net: sgd(net, 0.1, nesterov=True)),
    "unet": (UNet, lambda: [torch.randn(1, 3, 256, 256), torch.randint(0, 2, (1, 256, 256))], lambda net: adam(net, 1e-4)),
    "lstm": (LSTM, lambda: ids(64, 32, 256), lambda net: adam(net, 2e-3)),
    "llama": (Llama, lambda: ids(4, 256, 32000), lambda net: adamw(net, 3e-4, 0.1, 0.95)),
    "sd-unet-block": (UNetBlock, lambda: [torch.randn(1, 320, 64, 64), torch.randn(1, 1280), torch.randn(1, 77, 768),
                                          torch.randn(1, 320, 64, 64)], lambda net: adamw(net, 1e-4, 0.01)),
}


def make(name):
    """(network, batch, optimizer)"""
    torch.manual_seed(1)
    network, batch, optimizer = MAKERS[name]
    net = network()
    return net, batch(), optimizer(net)


def parameters(name):
    return sum(p.numel() for p in MAKERS[name][0]().parameters())


def has_images(name):
    return any(x.dim() == 4 for x in MAKERS[name][1]())


def step_of(name, channels_last=False, compiled=False, bfloat16=False):
    """A function that does one training step. `bfloat16`: PyTorch's autocast, so parameters stay float32, as in ckpt."""
    net, batch, optimizer = make(name)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
        batch = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in batch]
    if compiled:
        net = torch.compile(net, dynamic=False)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = net(*batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
