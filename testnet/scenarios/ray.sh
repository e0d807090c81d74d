#!/usr/bin/env bash
# A Ray cluster of real peers behind emulated NATs, one container engine for each, bought and used by the command line: Ray
# sees all nodes, tasks and actors run on each, 120 MB move between them, `ray job submit` works through a forwarded port, and
# a peer, a container and an engine are lost and replaced in the middle of a job. Ray comes from PyPI, in an image that is made
# here and kept in the user's cache. Needs root, Linux, Debian's packages docker.io, runc, iptables, iproute2 and nftables, and
# /dev/net/tun.
#
#   testnet/scenarios/ray.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine deps-nat build
exec go run ./testnet/cluster/cmd -engine ray-all "$@"
