#!/usr/bin/env python3
"""Networks of torchvision and Hugging Face, from configurations, for the two comparisons of the PyTorch backend.

    bench/torch_models.py [MODEL...]     trains each for 3 steps in eager and under budgets; prints a table of what differs
                                         (nothing), what was predicted and what was measured

In the environment of scripts/pytorch-venv models, with ckpt_torch installed or in PYTHONPATH.
"""

import copy
import sys
import warnings

import torch
from torch.nn import functional as F


def vision(name, size, batch=4, **arguments):
    def make():
        import torchvision
        model = getattr(torchvision.models, name)(**arguments)
        images, labels = torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))
        return model, (images, labels), lambda run: F.cross_entropy(run(images), labels)
    return make


def text(kind, config, batch=8, length=128, **arguments):
    def make():
        import transformers
        config_of = getattr(transformers, config)(vocab_size=arguments.pop("vocab_size", 1000), **arguments)
        model = getattr(transformers, kind)(config_of)
        if kind == "GPT2LMHeadModel":
            model.loss_type = "ForCausalLM"  # else it logs a warning, which breaks the graph
        words = torch.randint(3, config_of.vocab_size, (batch, length))
        return model, (words,), lambda run: run(input_ids=words, labels=words).loss
    return make


def vit():
    import transformers
    model = transformers.ViTForImageClassification(transformers.ViTConfig(
        num_hidden_layers=4, hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=64, hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1, num_labels=10, problem_type="single_label_classification"))
    images, labels = torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,))
    return model, (images, labels), lambda run: run(pixel_values=images, labels=labels).loss


def whisper():
    import transformers
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        encoder_layers=2, decoder_layers=2, d_model=128, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=256,
        decoder_ffn_dim=256, vocab_size=1000, max_source_positions=100, max_target_positions=64, dropout=0.1, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, use_cache=False))
    sound, words = torch.randn(2, 80, 200), torch.randint(3, 1000, (2, 32))
    return model, (sound, words), lambda run: run(input_features=sound, labels=words).loss


def unet():
    from torch import nn

    def twice(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1),
                             nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    class UNet(nn.Module):
        def __init__(self, widths=(16, 32, 64, 128)):
            super().__init__()
            self.down = nn.ModuleList(twice(i, o) for i, o in zip((3, *widths), widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in zip(widths, widths[1:]))
            self.merge = nn.ModuleList(twice(2 * i, i) for i in widths[:-1])
            self.out = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x):
            kept = []
            for i, block in enumerate(self.down):
                x = block(x if i == 0 else F.max_pool2d(x, 2))
                kept.append(x)
            for up, merge, skip in zip(reversed(self.up), reversed(self.merge), reversed(kept[:-1])):
                x = merge(torch.cat([up(x), skip], 1))
            return self.out(x)
    images, labels = torch.randn(2, 3, 96, 96), torch.randint(0, 2, (2, 96, 96))
    return UNet(), (images, labels), lambda run: F.cross_entropy(run(images), labels)


LLAMA = {"num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 688, "num_attention_heads": 4, "use_cache": False}
SMALL = {
    "resnet50": vision("resnet50", 64, 16), "vgg16_bn": vision("vgg16_bn", 32, 64), "densenet121": vision("densenet121", 64),
    "mobilenet_v3": vision("mobilenet_v3_large", 96), "efficientnet_b0": vision("efficientnet_b0", 96),
    "convnext_tiny": vision("convnext_tiny", 64, 8), "swin_t": vision("swin_t", 64, 8), "vit_b_16": vision("vit_b_16", 64, 32, image_size=64),
    "unet": unet,
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", n_layer=4, n_embd=256, n_head=4, use_cache=False),
    "bert": text("BertForMaskedLM", "BertConfig", num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024),
    "llama": text("LlamaForCausalLM", "LlamaConfig", **LLAMA, num_key_value_heads=4),
    "qwen3": text("Qwen3ForCausalLM", "Qwen3Config", **LLAMA, num_key_value_heads=2, head_dim=64),
    "t5": text("T5ForConditionalGeneration", "T5Config", batch=8, length=64, num_layers=3, d_model=256, d_ff=512, num_heads=4, d_kv=64, use_cache=False,
               decoder_start_token_id=0),
    "vit": vit, "whisper": whisper,
}
LARGE = {
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", batch=4, length=256, n_layer=6, n_embd=512, n_head=8, vocab_size=8000, use_cache=False),
    "bert": text("BertForMaskedLM", "BertConfig", batch=4, length=256, num_hidden_layers=6, hidden_size=512, num_attention_heads=8,
                 intermediate_size=2048, vocab_size=8000),
    "resnet50": vision("resnet50", 160, 8), "swin_t": vision("swin_t", 112, 8), "densenet121": vision("densenet121", 128, 8), "unet": unet,
    "llama": text("LlamaForCausalLM", "LlamaConfig", batch=4, length=256, num_hidden_layers=6, hidden_size=512, intermediate_size=1376,
                  num_attention_heads=8, num_key_value_heads=8, vocab_size=8000, use_cache=False),
}


def train(model, run, loss, steps=3):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(run)
        value.backward()
        optimizer.step()
        losses.append(value.item())
        del value
    return [torch.tensor(losses), torch.get_rng_state(), *model.state_dict().values(),
            *(p.grad for p in model.parameters() if p.grad is not None)]


def main():
    import ckpt_torch
    warnings.filterwarnings("ignore")
    torch._dynamo.config.recompile_limit = 100
    print("| model | ops | budget | same bits | predicted MB | of keep-all | measured | time (planned) |\n"
          "|---|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or SMALL:
        torch.manual_seed(0)
        original, _, loss = SMALL[name]()
        original.train()
        eager = copy.deepcopy(original)
        wanted = train(eager, torch.compile(eager, backend="eager"), loss)
        found = {}
        for share in 1, 0, 0.75, 0.5, 0.25:
            torch._dynamo.reset()
            model = copy.deepcopy(original)
            budget = {1: "100%", 0: "1%"}.get(share) or f"{found[0] + int(share * (found[1] - found[0]))}B"
            run = torch.compile(model, backend=ckpt_torch.backend, options={"budget": budget, "infeasible": "least", "quiet": True})
            same = all(torch.equal(a, b) for a, b in zip(wanted, train(model, run, loss)))
            report = ckpt_torch.report(run)
            found[share] = report.predicted_peak_bytes
            print(f"| {name} | {len(report._step.graph['ops'])} | { {1: 'keep-all', 0: 'least'}.get(share) or f'{share:.0%} between'} "
                  f"| {'yes' if same else 'NO'} | {report.predicted_peak_bytes / 1e6:.2f} "
                  f"| {report.predicted_peak_bytes / found[1]:.1%} | {report.measured_peak_bytes / report.predicted_peak_bytes - 1:+.2%} "
                  f"| {report.overhead:+.1%} |", flush=True)


if __name__ == "__main__":
    main()
