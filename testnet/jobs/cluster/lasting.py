"""A Ray job whose tasks are tried again when their node is lost: it counts to TASKS, each on any node, and prints the sum.

    lasting.py TASKS [SECONDS of each]
"""

import socket
import sys
import time

import ray

tasks, each = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
ray.init(address="auto", log_to_driver=False)


@ray.remote(num_cpus=0.5, max_retries=-1, scheduling_strategy="SPREAD")
def work(i):
    time.sleep(each)
    return i, socket.gethostname()


left, done, hosts = [work.remote(i) for i in range(tasks)], 0, {}
while left:
    ready, left = ray.wait(left)
    for i, host in ray.get(ready):
        done += i
        hosts[host] = hosts.get(host, 0) + 1
    print(f"left {len(left)}", flush=True)
print(f"sum {done} on {' '.join(sorted(hosts))}", flush=True)
assert done == tasks * (tasks - 1) // 2
