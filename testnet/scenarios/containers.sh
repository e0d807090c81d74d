#!/usr/bin/env bash
# Containers on a network of real peers, bought by the command line: a job file with a private image, secrets, inputs, outputs
# and a health check; exec, cp, port-forward, pause; providers and container engines that are killed in the middle; and what
# hostile or mistaken users bring, each with the error that they get. Engines, registry and a local Solana are started for it
# and gone at the end; no engine of this machine is touched. Needs root, Linux, and docker.io, runc, iptables and iproute2.
#
#   testnet/scenarios/containers.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine build
exec go run ./testnet/engine/cmd "$@"
