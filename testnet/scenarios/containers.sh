#!/usr/bin/env bash
# Containers on a network of real peers, bought by the command line: a job file with a private image, secrets, inputs, outputs
# and a health check; exec, cp, port-forward, pause; killed providers and container engines; and hostile or wrong input, each
# with its error. The script starts its own engines, registry and local Solana and removes them; it does not touch this
# machine's engine. Needs root, Linux, and docker.io, runc, iptables and iproute2.
#
#   testnet/scenarios/containers.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-cc deps-engine build
exec go run ./testnet/engine/cmd "$@"
