#!/usr/bin/env bash
# PyTorch's torchrun and Debian's Open MPI on clusters of real peers behind emulated NATs, with a container engine for each:
# data-parallel training on gloo with the same loss as in one process, training that resumes after a member was killed, and a
# ring and an all-reduce of MPI, started without an sshd. The images are made locally from Debian's packages and cached. Has the
# requirements of ray.sh.
#
#   testnet/scenarios/torchrun.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine deps-nat build
exec go run ./testnet/cluster/cmd -engine torchrun,mpi "$@"
