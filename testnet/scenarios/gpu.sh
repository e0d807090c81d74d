#!/usr/bin/env bash
# Compares an NVIDIA GPU with the definition of the audits' challenges and measures it through the components of a peer, within ten
# minutes: the self-test of starling-cuda; products, fills and walks by memory size; comparisons over the whole memory; two helpers on
# one card; an audit beside a computing program; killed, cancelled and refused helpers; and a CUDA program in a container by
# `starling run --gpus 1`, if Docker has NVIDIA's hook (otherwise the program runs outside a container, and the report notes it).
# Writes testnet/out/gpu.json and the card's row in verify/BENCHMARKS.md. Fails if a result differs or nothing could be measured.
# Needs Linux, NVIDIA's driver, a C compiler, and a GPU without other users.
#
#   testnet/scenarios/gpu.sh [-uuid GPU-…]    -uuid selects the GPU or MIG slice; default the first sellable one
#   testnet/scenarios/gpu.sh -small           without a GPU: small sizes on the PTX interpreter; does not measure hardware
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-cc build
for a in "$@"; do
	if [ "$a" = -small ] || [ "$a" = --small ]; then
		dir=$(mktemp -d)
		trap 'rm -rf "$dir"' EXIT
		cp bin/starling "$dir/starling"
		go build -o "$dir/starling-cuda" ./node/device/cuda/cudatest/interpreter
		go run ./testnet/hardware/cmd -starling "$dir/starling" -uuid GPU-00010203-0405-0607-0809-0a0b0c0d0e0f "$@"
		exit
	fi
done
go run ./testnet/hardware/cmd -benchmarks verify/BENCHMARKS.md "$@"
