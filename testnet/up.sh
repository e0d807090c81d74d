#!/usr/bin/env bash
# A local network: builds starling if it must, and passes its arguments on.
#
#   testnet/up.sh [-n 5] [--buyers 1] [--free] [--dir DIR]   start it in the background
#   testnet/up.sh status|down [--dir DIR]                                    look at it, stop it
set -euo pipefail
cd "$(dirname "$0")/.."
make --silent deps-node build
case "${1-}" in
status | down)
	verb=$1
	shift
	;;
*) verb=up ;;
esac
exec bin/starling testnet "$verb" "$@"
