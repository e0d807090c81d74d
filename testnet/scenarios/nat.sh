#!/usr/bin/env bash
# Peers behind home routers, symmetric NATs and firewalls find and work for each other: hole punching, relays, a worker that
# only dials out, a job whose path changes while it runs. Network namespaces and a local Solana, all gone at the end; no rule
# or interface of this machine is touched. Needs root, Linux, and the programs ip and nft.
#
#   testnet/scenarios/nat.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-nat build
exec go run ./testnet/natlab/cmd "$@"
