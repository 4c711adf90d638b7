#!/usr/bin/env python3
"""pip install ./python, then this: a small transformer trained in 60 % of the memory it would take, and a picture of it."""
import sys

import torch

import ckpt_torch

layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True)
model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters())
model = torch.compile(model, backend="ckpt", options={"budget": "60%", "optimizer": optimizer})
x, y = torch.randn(16, 64, 64), torch.randint(0, 8, (16, 64))
for step in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x).transpose(1, 2), y)
    loss.backward()
    optimizer.step()
report = ckpt_torch.report(model)
print(report)
report.save(sys.argv[1] if len(sys.argv) > 1 else "plan")  # memory.svg is the picture, what the programs take is beside it
