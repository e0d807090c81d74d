"""Trains a network whose layers are split over all ranks (tensor parallelism), and compares it with one process.

Each rank has a part of the hidden units: the columns of the first layer and the rows of the second. Its part of the
output is added to that of the others, and each rank changes its own weights only.

    torchrun ... tensor.py [--steps N]
"""

import argparse

import torch
import torch.distributed as dist

WIDTH = 240  # hidden units, divisible by every number of ranks up to 6


def weights():
    g = torch.Generator().manual_seed(7)
    return [torch.randn(16, WIDTH, generator=g) / 4, torch.randn(WIDTH, 1, generator=g) / 16]


def batch(step):
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(1000 + step))
    return x, torch.sin(x.sum(dim=1, keepdim=True))


class Sum(torch.autograd.Function):
    """The sum of all ranks' tensors. Its gradient is that of each part."""

    @staticmethod
    def forward(ctx, part):
        total = part.clone()
        if dist.is_initialized():
            dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def train(steps, part, total=Sum.apply):
    first, second = (w.clone().requires_grad_() for w in (weights()[0][:, part], weights()[1][part]))
    optimizer = torch.optim.SGD([first, second], lr=0.05, momentum=0.9)
    for step in range(steps):
        x, y = batch(step)
        loss = torch.nn.functional.mse_loss(total(torch.tanh(x @ first) @ second), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
part = slice(rank * WIDTH // size, (rank + 1) * WIDTH // size)
loss = train(steps, part)
alone = train(steps, slice(0, WIDTH), total=lambda part: part)
assert abs(loss - alone) < 1e-3 * max(1, alone), (loss, alone)
print(f"rank {rank} of {size} has units {part.start} to {part.stop}: loss {loss:.5f}, same as one process", flush=True)
dist.barrier()
dist.destroy_process_group()
