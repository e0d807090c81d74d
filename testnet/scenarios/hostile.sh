#!/usr/bin/env bash
# Ten honest peers and one attacker with a hundred keys, which runs all attacks at once that are open to unknown peers, for two
# minutes: silent handshakes, mute streams and callers, floods of connections, DHT records, gossip, orders, holds, circuits and
# requests. Honest jobs run meanwhile. The output has their outcomes, the times of their orders with and without the attack, the
# memory of every peer, and the state afterwards. Real peer processes in network namespaces, a local Solana. Needs root, Linux,
# iproute2 and nftables.
#
#   testnet/scenarios/hostile.sh [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-node deps-nat build
exec go run ./testnet/hostile/cmd "$@"
