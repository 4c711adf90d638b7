#!/usr/bin/env python3
"""Writes tests/families/<name>/: a tiny network of each family as transformers saves it (config.json, model.safetensors), a
batch (batch.safetensors), and what transformers makes of them in float64 (its norms, rotary tables and softmax in float32):
the losses of three AdamW steps (losses.txt) and every gradient of the first (gradients.safetensors).
tests/executor/run/test_families.c trains the same.

Usage: scripts/pytorch-venv && .venv/bin/python tests/families/make_fixtures.py [NAME...]
"""
import os
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, TOKENS, VOCABULARY, STEPS, RATE = 2, 6, 29, 3, 0.01


def tokens(salt, limit=VOCABULARY, shape=(BATCH, TOKENS)):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 31 + salt * 17 + 5) % limit).reshape(shape)


def causal(model, batch):
    """Targets are given, not shifted out of the ids: what ckpt's data sources do."""
    logits = model(input_ids=batch["ids"], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


def language_batch():
    return {"ids": tokens(1), "targets": tokens(2)}


def llama(**options):
    return dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=32, initializer_range=0.3, **options)


def gpt2(**options):
    return transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=8, n_embd=12, n_layer=2, n_head=3, initializer_range=0.3,
                                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **options)


NETWORKS = {
    "gpt2": lambda: (transformers.GPT2LMHeadModel(gpt2()), language_batch(), causal),
}


def write(name):
    torch.manual_seed(1)
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    model, batch, loss_of = NETWORKS[name]()
    for one in model.parameters():  # biases and norms too are none that could be left out unseen
        if one.dim() == 1:
            one.data += 0.1 * torch.randn_like(one)
    model.config._attn_implementation = "eager"
    model.save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    model = model.double().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if step == 0:
            saved = set(safe_open(os.path.join(folder, "model.safetensors"), "pt").keys())
            gradients = {key: torch.zeros_like(one) if one.grad is None else one.grad for key, one in model.named_parameters()}
            assert set(gradients) == saved, set(gradients) ^ saved
            save_file({key: one.float().contiguous() for key, one in gradients.items()},
                      os.path.join(folder, "gradients.safetensors"))
        optimizer.step()
        losses.append(loss.item())
    save_file({key: one.float() if one.is_floating_point() else one.int() for key, one in batch.items()},
              os.path.join(folder, "batch.safetensors"))
    with open(os.path.join(folder, "losses.txt"), "w", encoding="utf-8") as file:
        file.writelines(f"{loss!r}\n" for loss in losses)
    print(name, losses, sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)), "bytes")


if __name__ == "__main__":
    for one in sys.argv[1:] or NETWORKS:
        write(one)
