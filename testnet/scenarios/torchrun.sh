#!/usr/bin/env bash
# PyTorch's torchrun and Debian's Open MPI on clusters of real peers behind emulated NATs, one container engine for each:
# data-parallel training on gloo whose loss is that of one process, training that goes on after a member was killed, and a ring
# and an all-reduce of MPI, started without an sshd. The images are made here of Debian's packages and kept in the user's
# cache. Needs what ray.sh needs.
#
#   testnet/scenarios/torchrun.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine deps-nat build
exec go run ./testnet/cluster/cmd -engine torchrun,mpi "$@"
