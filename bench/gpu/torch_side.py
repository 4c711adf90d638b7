"""The PyTorch half of bench.py: one network, one optimizer, and several ways to run a step of them."""
import gc
import statistics
import time

import torch
import torch._dynamo
import torch._functorch.config as functorch_config

import torch_models


def version():
    return f"PyTorch {torch.__version__}"


def memory_bytes(device):
    return torch.cuda.get_device_properties(device).total_memory if torch.cuda.is_available() else None


class Variant:
    def __init__(self, side, name, compiled, every, budget):
        self.side, self.name, self.compiled, self.every, self.budget = side, name, compiled, every, budget
        self.times, self.error, self.peak, self.loss, self.call, self.warm_s = [], None, None, None, None, None

    def step(self):
        side = self.side
        side.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(side.type, dtype=torch.bfloat16, enabled=side.job.dtype == "bfloat16"):
            loss = self.call(*side.batch)
        loss.backward()
        side.optimizer.step()
        return loss

    def warm_up(self):
        """Compiles, lets the allocator and cuDNN settle, then takes the peak of one step."""
        side, begun = self.side, time.time()
        functorch_config.activation_memory_budget = 1.0 if self.budget is None else self.budget
        self.call = side.net
        if self.compiled:
            # A function of its own: compiled code is kept by function, and the budget is no part of the key.
            names = {"net": side.net}
            exec("def step(*batch):\n    return net(*batch)\n", names)
            self.call = torch.compile(names["step"])
        for _ in range(3):
            self.loss = self.step().item()
        side.wait()
        if side.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self.step()
            side.wait()
            self.peak = torch.cuda.max_memory_allocated()
        self.warm_s = time.time() - begun

    def step_times(self, steps):
        side = self.side
        side.net.blocks.every = self.every
        if self.call is None:
            self.warm_up()
        times = []
        for _ in range(steps):
            side.wait()
            begun = time.perf_counter()
            self.step()
            side.wait()
            times.append(time.perf_counter() - begun)
        if side.type == "cuda":
            side.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()  # ckpt's turn may come next
        return statistics.median(times)

    def row(self):
        return dict(peak_bytes=self.peak, warm_up_s=self.warm_s, loss=self.loss)


class Side:
    """Holds network and optimizer; `with` frees them, so that the next network finds the memory empty."""

    def __init__(self, job, table, args):
        self.job, self.type = job, "cpu" if args.device == "cpu" else "cuda"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self.variants, self.net = [], None
        try:
            self.net, self.batch, self.optimizer = torch_models.make(job.kind, job.vars, args.device)
        except Exception as error:  # noqa: BLE001: e.g. no memory
            job.notes.append(f"PyTorch: {error}".splitlines()[0])
            return
        count = sum(p.numel() for p in self.net.parameters())
        assert count == job.params, f"PyTorch's {job.name} has {count} parameters, ours {job.params}"
        self.variants = [Variant(self, name, *how) for name, how in table.items()]

    def wait(self):
        if self.type == "cuda":
            torch.cuda.synchronize()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for v in self.variants:
            v.call = None
        self.net = self.batch = self.optimizer = None
        torch._dynamo.reset()
        gc.collect()
        if self.type == "cuda":
            torch.cuda.empty_cache()
