#!/usr/bin/env bash
# An NVIDIA GPU, compared with the definition of what audits ask and measured through the programs that a peer uses, within ten minutes:
# starling-cuda's self-test; products, fills and walks against the size of memory; comparisons over all of it; two helpers on one card; an
# audit beside a program that computes; helpers that are killed, cancelled and refused; and a CUDA program in a container by
# `starling run --gpus 1`, where Docker has NVIDIA's hook (without it the same program runs outside a container, and the report says so).
# Writes testnet/out/gpu.json and the card's row in verify/BENCHMARKS.md. Fails when anything differs or nothing could be measured.
# Needs Linux, NVIDIA's driver, a C compiler, and a GPU that nothing else uses meanwhile.
#
#   testnet/scenarios/gpu.sh [-uuid GPU-…]    -uuid picks the GPU or MIG slice; else the first that can be sold
#   testnet/scenarios/gpu.sh -small           without a GPU: the same in small over the PTX interpreter; says nothing of hardware
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
