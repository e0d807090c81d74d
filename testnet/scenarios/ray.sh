#!/usr/bin/env bash
# A Ray cluster of real peers behind emulated NATs, with a container engine for each, bought and used by the command line. Ray
# sees all nodes, tasks and actors run on each, 120 MB move between them, and `ray job submit` works through a forwarded port. A
# peer, a container and an engine are lost and replaced during a job. Ray comes from PyPI, in an image that is made locally and
# cached. Needs root, Linux, Debian's packages docker.io, runc, iptables, iproute2 and nftables, and /dev/net/tun.
#
#   testnet/scenarios/ray.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine deps-nat build
exec go run ./testnet/cluster/cmd -engine ray-all "$@"
