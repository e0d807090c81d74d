#!/usr/bin/env bash
# A Dask cluster of real peers behind emulated NATs, with a container engine for each, bought and used by the command line. A
# Client on its head and a Client of the buyer, through a forwarded port, spread a graph over all members and move 50 MB
# between them. Dask comes from PyPI, in an image that is made locally and cached. Has the requirements of ray.sh.
#
#   testnet/scenarios/dask.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine deps-nat build
exec go run ./testnet/cluster/cmd -engine dask "$@"
