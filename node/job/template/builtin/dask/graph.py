"""Uses a Dask cluster: a task on every worker, a graph of tasks spread over all of them, and an object that moves between them.

    graph.py WORKERS [ADDRESS of the scheduler]      prints JSON, and ends with an error when anything is not as it should be
"""

import hashlib
import json
import os
import socket
import sys
import time

from dask.distributed import Client

MEGABYTES = 50
NUMBERS = 240


def square(n):
    time.sleep(0.02)
    return n * n, socket.gethostname()


def add(parts):
    """The sum and the hosts of what square or add returned."""
    return sum(n for n, _ in parts), sorted({h for _, hs in parts for h in ([hs] if isinstance(hs, str) else hs)})


def digest(data):
    return hashlib.sha256(data).hexdigest(), len(data)


def main():
    want = int(sys.argv[1])
    client = Client(*sys.argv[2:3], timeout="60s")
    client.wait_for_workers(want, timeout=300)
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    assert len(workers) == want, f"{len(workers)} workers of {want}"
    tasks = [client.submit(socket.gethostname, workers=[w], pure=False).result(timeout=300) for w in workers]
    assert len(set(tasks)) == want, tasks

    squares = client.map(square, range(NUMBERS))
    sums = [client.submit(add, squares[i : i + 20]) for i in range(0, NUMBERS, 20)]
    total, hosts = client.submit(add, sums).result(timeout=300)
    assert total == sum(n * n for n in range(NUMBERS)), total
    assert hosts == sorted(tasks), f"the graph ran on {hosts}"

    size = MEGABYTES * 1_000_000
    data = client.submit(os.urandom, size, workers=workers[:1], pure=False)
    told = client.submit(digest, data, workers=workers[:1]).result(timeout=300)
    began = time.monotonic()
    for w in workers[1:]:
        got = client.submit(digest, data, workers=[w], pure=False).result(timeout=300)
        assert got == told and got[1] == size, (w, got, told)
    took = time.monotonic() - began
    print(json.dumps({"tasks": tasks, "actors": hosts, "bytes": size, "copies": want - 1, "seconds": round(took, 2)}), flush=True)


if __name__ == "__main__":
    main()
