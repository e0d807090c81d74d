"""Uses a Ray cluster: tasks and actors on every node, and an object of more than 100 MB that moves between nodes.

    spread.py NODES [MEGABYTES]      run as a Ray job; prints JSON, and ends with an error when anything is not as it should be
"""

import hashlib
import json
import os
import socket
import sys
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

want = int(sys.argv[1])
size = int(sys.argv[2]) * 1_000_000 if len(sys.argv) > 2 else 120_000_000

ray.init(address="auto", log_to_driver=False)
nodes = sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: n["NodeManagerAddress"])
assert len(nodes) == want, f"{len(nodes)} nodes of {want}"


def on(node):
    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


@ray.remote(num_cpus=0.5)
def where():
    return socket.gethostname()


@ray.remote(num_cpus=0.5)
class Counter:
    def __init__(self):
        self.n = 0

    def add(self, k):
        self.n += k
        return self.n, socket.gethostname()


@ray.remote(num_cpus=0.5)
def make(n):
    block = os.urandom(1 << 20)
    data = (block * (n // len(block) + 1))[:n]
    return data, hashlib.sha256(data).hexdigest()


@ray.remote(num_cpus=0.5)
def digest(data):
    return hashlib.sha256(data).hexdigest(), len(data), socket.gethostname()


tasks = ray.get([where.options(scheduling_strategy=on(n)).remote() for n in nodes])
actors = [Counter.options(scheduling_strategy=on(n)).remote() for n in nodes]
for k in range(3):
    counts = ray.get([a.add.remote(k) for a in actors])
assert all(n == 3 for n, _ in counts), counts
assert len(set(tasks)) == want and [h for _, h in counts] == tasks, (tasks, counts)
for a in actors:
    ray.kill(a)

data, told = make.options(num_returns=2, scheduling_strategy=on(nodes[0])).remote(size)
told = ray.get(told)
began = time.monotonic()
for n in nodes[1:]:
    got, length, host = ray.get(digest.options(scheduling_strategy=on(n)).remote(data))
    assert got == told and length == size, (host, got, told, length)
took = time.monotonic() - began
print(json.dumps({"tasks": tasks, "actors": [h for _, h in counts], "bytes": size, "copies": len(nodes) - 1, "seconds": round(took, 2)}), flush=True)
