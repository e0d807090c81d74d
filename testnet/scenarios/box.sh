#!/usr/bin/env bash
# Hostile tenants on real peers of a free network: containers and modules that fill disks with bytes, files, removed and sparse files, wait
# for the disk, use up what a user may have, fork, and images whose name, realm, redirect or address lead inside the provider's
# network. Honest jobs beside them end well, and nothing is left behind. Engine and registry are started for it and gone at the end.
# Needs root, Linux, and docker.io, runc, iptables and iproute2.
#
#   testnet/scenarios/box.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-engine build
exec go run ./testnet/engine/cmd -tenants "$@"
