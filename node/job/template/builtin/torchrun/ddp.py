"""Trains a small network with PyTorch's DistributedDataParallel on gloo and says what the loss is.

Every rank takes its part of one and the same batch at each step, so that the mean of their losses is what a single process
would see with the whole batch: `--alone` is that process. What was learned is kept on every node after each step; a group of
processes that is started again goes on from the newest that any of its ranks has.

    torchrun ... ddp.py [--steps N] [--pause SECONDS]      python3 ddp.py --alone [--steps N]
"""

import argparse
import io
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 96  # divisible by every number of ranks up to 4
KEPT = "/tmp/ddp-checkpoint.pt"


def batch(step):
    """Inputs (BATCH, 16) and targets (BATCH, 1) of a step, float32: the same on every rank."""
    g = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(BATCH, 16, generator=g)
    return x, torch.sin(x.sum(dim=1, keepdim=True))


def network():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


def newest(rank, size):
    """The newest checkpoint that any rank has, or None: the ranks agree on it before they go on."""
    mine = open(KEPT, "rb").read() if os.path.exists(KEPT) else b""
    step = torch.load(io.BytesIO(mine))["step"] if mine else 0
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(steps, torch.tensor([step]))
    best = max(range(size), key=lambda r: (steps[r].item(), -r))
    if steps[best].item() == 0:
        return None
    shared = [mine]
    dist.broadcast_object_list(shared, src=best)
    return torch.load(io.BytesIO(shared[0]))


def keep(step, net, optimizer):
    torch.save({"step": step, "net": net.state_dict(), "optimizer": optimizer.state_dict()}, KEPT + ".new")
    os.replace(KEPT + ".new", KEPT)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--pause", type=float, default=0)
    p.add_argument("--alone", action="store_true")
    o = p.parse_args()
    torch.set_num_threads(1)
    rank, size = 0, 1
    if not o.alone:
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    first, kept = 0, None if o.alone else newest(rank, size)
    if kept:
        first = kept["step"]
        net.load_state_dict(kept["net"])
        optimizer.load_state_dict(kept["optimizer"])
    print(f"rank {rank} of {size} begins at step {first}", flush=True)
    model = net if o.alone else DistributedDataParallel(net)
    loss = torch.zeros(())
    for step in range(first, o.steps):
        x, y = batch(step)
        part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        optimizer.zero_grad()
        own = torch.nn.functional.mse_loss(model(x[part]), y[part])
        own.backward()
        optimizer.step()
        loss = own.detach().clone()
        if not o.alone:
            dist.all_reduce(loss)
            loss /= size
            keep(step + 1, net, optimizer)
        if rank == 0:
            print(f"step {step + 1} loss {loss.item():.6f}", flush=True)
        time.sleep(o.pause)
    weights = sum(p.double().sum().item() for p in net.parameters())
    print(f"rank {rank} of {size} ends: loss {loss.item():.6f} weights {weights:.5f}", flush=True)
    if not o.alone:
        dist.barrier()
        dist.destroy_process_group()


main()
