#!/usr/bin/env bash
# Peers behind home routers, symmetric NATs and firewalls find and work for each other: hole punching, relays, a worker that
# only dials out, a job with a changing path. The script uses its own network namespaces and local Solana and removes them; it
# does not touch this machine's rules and interfaces. Needs root, Linux, and the programs ip and nft.
#
#   testnet/scenarios/nat.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-nat build
exec go run ./testnet/natlab/cmd "$@"
