#!/usr/bin/env bash
# Ten honest peers and one attacker with a hundred keys, which does at once all that strangers can do over the network, for two
# minutes: silent handshakes, mute streams and callers, floods of connections, DHT records, gossip, orders, holds, circuits and
# questions. Honest jobs run meanwhile. Shown are what became of them, how long their orders took with and without the attack,
# the memory of every peer, and what is left afterwards. Real peer processes in network namespaces, a local Solana. Needs root, Linux, iproute2 and
# nftables.
#
#   testnet/scenarios/hostile.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-nat build
exec go run ./testnet/hostile/cmd "$@"
