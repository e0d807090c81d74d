"""Passes a growing list round all ranks of an MPI job, sums an array over all of them, and says what came of it.

    mpirun python3 ring.py
"""

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()

if rank == 0:
    world.send([(0, MPI.Get_processor_name())], dest=1 % size)
    seen = world.recv(source=size - 1)
    hosts = [host for _, host in seen]
    print("ring:", " -> ".join(f"{r}@{host}" for r, host in seen), flush=True)
    assert [r for r, _ in seen] == list(range(size)), seen
    assert len(set(hosts)) == size, "two ranks on one host"
else:
    seen = world.recv(source=rank - 1)
    world.send(seen + [(rank, MPI.Get_processor_name())], dest=(rank + 1) % size)

mine = numpy.arange(1 << 20, dtype=numpy.float64) + rank  # 8 MiB
total = numpy.empty_like(mine)
world.Allreduce(mine, total)
want = size * numpy.arange(1 << 20, dtype=numpy.float64) + size * (size - 1) / 2
assert numpy.array_equal(total, want), "the sums differ"
world.Barrier()
print(f"rank {rank} of {size}: sum {int(total.sum())}", flush=True)
