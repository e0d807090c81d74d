#!/usr/bin/env bash
# Hostile tenants on real peers of a free network. Containers and modules fill disks with bytes, files, removed and sparse
# files, wait for the disk, exhaust the limits of a user, and fork. Images have a name, realm, redirect or address inside the
# provider's network. Honest jobs beside them succeed, and no container or file is left. The script starts its own engine and
# registry and removes them. Needs root, Linux, and docker.io, runc, iptables and iproute2.
#
#   testnet/scenarios/box.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-engine build
exec go run ./testnet/engine/cmd -tenants "$@"
