"""Trains a network of which each rank has some layers (pipeline parallelism), and compares it with one process.

A batch is cut into parts. Activations go forward from rank to rank, part after part, and gradients come back, so that
the ranks work on different parts at the same time.

    torchrun ... stages.py [--steps N]
"""

import argparse

import torch
import torch.distributed as dist

WIDTH, BATCH, PARTS = 32, 64, 4


def layers(size):
    """One layer for each rank, the same on all ranks."""
    torch.manual_seed(7)
    first = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(size - 1)]
    return first + [torch.nn.Linear(WIDTH, 1)]


def batch(step):
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1000 + step))
    return x, torch.sin(x[:, :4].sum(dim=1, keepdim=True))


def optimizer(net):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def pipeline(steps, rank, size):
    """Returns the loss of the last step, on the last rank."""
    net, total = layers(size)[rank], 0.0
    opt = optimizer(net)
    for step in range(steps):
        x, y = (t.chunk(PARTS) for t in batch(step))
        went, came, total = [], [], 0.0
        for part in range(PARTS):  # forward
            if rank == 0:
                inside = x[part]
            else:
                inside = torch.empty(BATCH // PARTS, WIDTH)
                dist.recv(inside, rank - 1)
                inside.requires_grad_()
            outside = net(inside)
            if rank < size - 1:
                dist.send(outside.detach(), rank + 1)
            else:
                outside = torch.nn.functional.mse_loss(outside, y[part]) / PARTS
                total += outside.item()
            came.append(inside)
            went.append(outside)
        opt.zero_grad()
        for part in range(PARTS):  # backward
            if rank == size - 1:
                went[part].backward()
            else:
                gradient = torch.empty_like(went[part])
                dist.recv(gradient, rank + 1)
                went[part].backward(gradient)
            if rank > 0:
                dist.send(came[part].grad, rank - 1)
        opt.step()
    return total


def alone(steps, size):
    net = torch.nn.Sequential(*layers(size))
    opt = optimizer(net)
    for step in range(steps):
        x, y = batch(step)
        loss = torch.nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
loss = pipeline(steps, rank, size)
if rank == size - 1:
    want = alone(steps, size)
    assert abs(loss - want) < 1e-3 * max(1, want), (loss, want)
    print(f"{size} stages: loss {loss:.5f}, same as one process", flush=True)
dist.barrier()
dist.destroy_process_group()
