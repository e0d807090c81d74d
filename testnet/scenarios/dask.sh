#!/usr/bin/env bash
# A Dask cluster of real peers behind emulated NATs, one container engine for each, bought and used by the command line: a Client
# on its head and one of the buyer's own, through a forwarded port, spread a graph over all members and move 50 MB between
# them. Dask comes from PyPI, in an image that is made here and kept in the user's cache. Needs what ray.sh needs.
#
#   testnet/scenarios/dask.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine deps-nat build
exec go run ./testnet/cluster/cmd -engine dask "$@"
