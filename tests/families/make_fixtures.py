#!/usr/bin/env python3
"""Writes tests/families/<name>/: a tiny network of each family as transformers saves it (config.json, model.safetensors), a
batch (batch.safetensors), and what transformers makes of them in float64 (its norms, rotary tables and softmax in float32):
the losses of three AdamW steps (losses.txt) and every gradient of the first (gradients.safetensors).
tests/executor/run/test_families.c trains the same.

Usage: scripts/pytorch-venv && .venv/bin/python tests/families/make_fixtures.py [NAME...]
"""
import copy
import json
import os
import shutil
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
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


def masked_batch():
    """Row 1 has two tokens of padding. Id 0 is padding's, whose embedding transformers does not train."""
    mask = torch.ones(BATCH, TOKENS, dtype=torch.int64)
    mask[1, 4:] = 0
    targets = tokens(2)
    targets[0, 1] = targets[1, 4:] = -100
    return {"ids": tokens(1, VOCABULARY - 1) + 1, "segments": tokens(3, 2), "mask": mask, "targets": targets}


def masked(model, batch):
    logits = model(input_ids=batch["ids"], token_type_ids=batch["segments"], attention_mask=batch["mask"]).logits
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), ignore_index=-100)


def translated_batch():
    batch = masked_batch()
    return {"ids": batch["ids"], "mask": batch["mask"], "decoder_ids": tokens(4), "targets": batch["targets"]}


def translated(model, batch):
    logits = model(input_ids=batch["ids"], attention_mask=batch["mask"], decoder_input_ids=batch["decoder_ids"], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), ignore_index=-100)


def image_batch():
    image = ((torch.arange(BATCH * 3 * 64) * 7919 + 13) % 2003).double().reshape(BATCH, 3, 8, 8) / 2003 - 0.5
    return {"image": image.float().double(), "labels": tokens(3, 5, (BATCH,))}


def classified(model, batch):
    return F.cross_entropy(model(pixel_values=batch["image"]).logits, batch["labels"])


def encoder(**options):
    return dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20, initializer_range=0.3,
                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **options)


def llama(**options):
    return dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=32, initializer_range=0.3, **options)


def gpt2(**options):
    return transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=8, n_embd=12, n_layer=2, n_head=3, initializer_range=0.3,
                                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **options)


def rope(kind, **options):
    return dict(rope_parameters=dict(rope_theta=1000.0, rope_type=kind, **options))


NETWORKS = {
    "gpt2": lambda: (transformers.GPT2LMHeadModel(gpt2()), language_batch(), causal),
    "bert": lambda: (transformers.BertForMaskedLM(transformers.BertConfig(**encoder(
        vocab_size=VOCABULARY, max_position_embeddings=8))), masked_batch(), masked),
    "vit": lambda: (transformers.ViTForImageClassification(transformers.ViTConfig(**encoder(
        image_size=8, patch_size=4, num_labels=5))), image_batch(), classified),
    "t5": lambda: (transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=12, d_kv=4, d_ff=20, num_layers=2, num_decoder_layers=1, num_heads=3, relative_attention_num_buckets=8,
        relative_attention_max_distance=16, dropout_rate=0.0, feed_forward_proj="gated-gelu")), translated_batch(), translated),
    "mixtral": lambda: (transformers.MixtralForCausalLM(transformers.MixtralConfig(**{
        **llama(num_local_experts=4, head_dim=4), "intermediate_size": 8})), language_batch(), causal),
    "llama": lambda: (transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama(
        attention_bias=True, mlp_bias=True, **rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                   original_max_position_embeddings=16)))), language_batch(), causal),
    "mistral": lambda: (transformers.MistralForCausalLM(transformers.MistralConfig(**llama(
        sliding_window=3, head_dim=6, **rope("linear", factor=2.0)))), language_batch(), causal),
    "qwen2": lambda: (transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**llama(
        tie_word_embeddings=True, use_sliding_window=True, sliding_window=2, max_window_layers=1))), language_batch(), causal),
    "qwen3": lambda: (transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**llama(head_dim=6))), language_batch(), causal),
}


def write(name):
    torch.manual_seed(1)
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    model, batch, loss_of = NETWORKS[name]()
    for one in model.parameters():  # biases and norms too are none that could be left out unseen
        if one.dim() == 1:
            one.data += 0.1 * torch.randn_like(one)
    model.config._attn_implementation = model.config._experts_implementation = "eager"
    model.save_pretrained(folder)
    if name == "qwen2":  # as it was published: which layers have a window follows from max_window_layers
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        del config["layer_types"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(config, indent=2) + "\n")
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    shadow = copy.deepcopy(model)
    model = model.double().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if step == 0:
            with torch.no_grad():  # saved as weights are, so that they have the same names and layouts
                for one, other in zip(shadow.parameters(), model.parameters(), strict=True):
                    one.copy_(torch.zeros_like(other) if other.grad is None else other.grad)
            with tempfile.TemporaryDirectory() as other:
                shadow.save_pretrained(other)
                shutil.copy(os.path.join(other, "model.safetensors"), os.path.join(folder, "gradients.safetensors"))
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
