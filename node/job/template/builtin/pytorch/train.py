"""Learns the sine of a sum with PyTorch, on a GPU if there is one, and keeps the weights in /out: train.py [--steps N]"""

import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
steps = parser.parse_args().steps
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
first = loss = None
for step in range(steps):
    x = torch.randn(256, 4, device=device)
    loss = torch.nn.functional.mse_loss(net(x), torch.sin(x.sum(dim=1, keepdim=True)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = first or loss.item()
    if step % 100 == 0:
        print(f"step {step} on {device}: loss {loss.item():.4f}", flush=True)
os.makedirs("/out", exist_ok=True)
torch.save(net.state_dict(), "/out/weights.pt")
assert loss.item() < first / 2, (first, loss.item())
print(f"learned: loss {first:.4f} -> {loss.item():.4f} on {device}", flush=True)
