"""DistributedDataParallel and FSDP2 over gloo with two processes: the bits that they have in eager."""

import copy
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from steps import compiled, loss_of
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import ckpt_torch


def steps_of(model, run, rank):
    torch.manual_seed(3 + rank)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(run(torch.randn(16, 16))).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def rank_main(rank, port, outside):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    original = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
    eager = DistributedDataParallel(copy.deepcopy(original))
    wanted = steps_of(eager, eager, rank)
    if outside:  # compile what DDP wraps, or what wraps the model
        model = DistributedDataParallel(copy.deepcopy(original))
        run = compiled(model, "70%")
    else:
        model = DistributedDataParallel(compiled(copy.deepcopy(original), "70%"))
        run = model
    got = steps_of(model, run, rank)
    assert all(torch.equal(a, b) for a, b in zip(wanted, got)), "other bits than DDP's"
    dist.destroy_process_group()


def test_ddp_around_the_compiled_model():
    mp.spawn(rank_main, (29510 + os.getpid() % 1000, False), nprocs=2)


def test_compiled_ddp():
    mp.spawn(rank_main, (30610 + os.getpid() % 1000, True), nprocs=2)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.list = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        for layer in self.list:
            x = x + nn.functional.gelu(layer(x))
        return x


def fsdp_main(rank, port, own):
    """own: a module of this file, not one of torch.nn"""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    original = Blocks() if own else nn.Sequential(nn.Sequential(nn.Linear(16, 32), nn.GELU()), nn.Sequential(nn.Linear(32, 16), nn.GELU()))
    eager, model = copy.deepcopy(original), copy.deepcopy(original)
    for module in (eager, model):
        for part in module if not own else ():
            fully_shard(part)
        fully_shard(module)
    wanted = steps_of(eager, eager, rank)
    got = steps_of(model, ckpt_torch.auto_checkpoint(model, "90%", infeasible="least", quiet=True), rank)
    assert len([step for step in ckpt_torch._backend.steps if step()]) >= (1 if own else 2), "not every part was planned"
    assert all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(wanted, got)), "other bits than FSDP2's"
    dist.destroy_process_group()


def test_fsdp2():
    mp.spawn(fsdp_main, (31710 + os.getpid() % 1000, True), nprocs=2)


def test_fsdp2_of_modules_of_torch_alone():
    mp.spawn(fsdp_main, (32810 + os.getpid() % 1000, False), nprocs=2)


@pytest.mark.skipif(not hasattr(torch._dynamo.eval_frame, "_maybe_fire_backend_init"), reason="an older PyTorch tells the backend of no model")
def test_what_compile_is_given_gets_frames():
    sharded = nn.Linear(4, 4)
    sharded._is_fsdp_managed_module = True
    model = nn.Sequential(sharded, nn.Linear(4, 4))
    torch.compile(model, backend="ckpt", options={"budget": "100%", "quiet": True})
    assert "forward" in vars(sharded) and not any("forward" in vars(m) for m in (model, model[1]))
    x = torch.randn(2, 4)
    assert torch.equal(sharded(x), nn.functional.linear(x, sharded.weight, sharded.bias))
    other = copy.deepcopy(sharded)
    assert other.forward.__self__ is other
