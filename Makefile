# make demo    five peers, one order, a trained model, paid on a local Solana
# make test    every test, with the heavier tiers; installs what they need
# make check   formatting, vet, staticcheck, tidy go.mod, fresh generated code
# make bench   speed of a network of 20 peers, of clusters and of the cores, and what idle peers cost, beside the targets
# make fuzz    fuzz targets in turn, changed packages first, for FUZZBUDGET seconds in all
# make build   bin/starling and bin/starling-guard, the part of it that containers have, both static; and what talks to NVIDIA's driver
#              for it: bin/starling-cuda, which proves GPUs, and with a C compiler bin/starling-nvml, which finds them
# make proto   generated code from the schemas
# make idl     the on-chain program's interface for wallets, explorers and generators of clients

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

# One setting for build, vet and tests, and for the programs that tests build, so that they share the build cache, with other checkouts
# too: no cgo, so that the binary is static, and no path of this machine in it.
export CGO_ENABLED ?= 0
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath

STATICCHECK_VERSION := v0.8.2
BUF_VERSION := v1.73.0
PROTOC_GEN_GO_VERSION := v1.36.12
VERSITYGW_VERSION := v1.8.0

# Each tool is built with its own go.mod (`go install pkg@version`): their requirements do not mix with ours or each other's.
TOOLS := $(CURDIR)/bin/.tools
STATICCHECK := $(TOOLS)/staticcheck-$(STATICCHECK_VERSION)/staticcheck
BUF := $(TOOLS)/buf-$(BUF_VERSION)/buf
PROTOC_GEN_GO := $(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
VERSITYGW := $(TOOLS)/versitygw-$(VERSITYGW_VERSION)/versitygw

PKG ?= ./...
TESTFLAGS ?=
# Packages whose tests take minutes begin first; those that mostly wait, for containers, blocks and audits, are beside those that compute.
LONG := ./testnet/images ./testnet/cluster/scenario ./testnet/engine/scenario ./testnet ./testnet/harness ./node/runtime/docker \
	./testnet/hostile ./cmd/internal/cli/livecmd ./chain/program ./testnet/natlab/scenario ./testnet/engine/members ./testnet/hardware
# The engines whose real clusters are tried; with CLUSTER= none are, and no images are made for them.
CLUSTER ?= ray
TESTTIMEOUT ?= 40m
BENCHFLAGS ?=
FUZZBUDGET ?= 300
DEMOFLAGS ?=

.PHONY: build demo test check check-fmt check-vet check-staticcheck check-tidy check-proto check-idl bench fuzz proto idl s3 clean

# The program is a copy of the linker's file: the linker writes through a memory map, and of the large pieces that this leaves in the
# page cache a process has 10 MB more resident than of a copy, or of the same file after the next boot.
build:
	go build -ldflags='-s -w' -o bin/starling ./cmd/starling
	@cp bin/starling bin/starling.copy && mv -f bin/starling.copy bin/starling
	CGO_ENABLED=0 go build -ldflags='-s -w' -o bin/starling-guard ./cmd/starling-guard
	CGO_ENABLED=0 go build -o bin/starling-cuda ./cmd/starling-cuda
	@if ! command -v cc >/dev/null; then echo "no C compiler: bin/starling-nvml is not built, so NVIDIA GPUs are not found" >&2; \
	elif ! CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" go build -tags nvml -o bin/starling-nvml ./cmd/starling-nvml; then \
		echo "bin/starling-nvml cannot be built with this C compiler, so NVIDIA GPUs are not found" >&2; fi

demo: deps-node build
	bin/starling testnet demo $(DEMOFLAGS)

# Each test is run, whatever Go's cache says: it does not know of the programs that tests build and start.
test: deps-node deps-cc deps-engine deps-nat deps-rust $(VERSITYGW)
	STARLING_S3=$(VERSITYGW) STARLING_CLUSTER=$(CLUSTER) STARLING_LOCALNET=1 STARLING_DOCKER=1 STARLING_NETNS=1 .ci/test -p 4 -count=1 -vet=off -ldflags='-s -w' \
		-timeout $(TESTTIMEOUT) $(TESTFLAGS) $(if $(filter ./...,$(PKG)),$(LONG)) $(PKG)

check: check-fmt check-vet check-staticcheck check-tidy check-proto check-idl

check-fmt:
	@unformatted=$$(gofmt -l $$(find . -name '*.go' -not -path './bin/*' -not -path './.git/*' -not -path '*/node_modules/*')); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi

check-vet:
	go vet $(PKG)

check-staticcheck: $(STATICCHECK)
	$(STATICCHECK) $(PKG)

check-tidy:
	go mod tidy -diff
	go mod verify

check-proto: $(BUF) $(PROTOC_GEN_GO)
	BUF=$(BUF) PATH=$(dir $(PROTOC_GEN_GO)):$$PATH .ci/proto check

proto: $(BUF) $(PROTOC_GEN_GO)
	BUF=$(BUF) PATH=$(dir $(PROTOC_GEN_GO)):$$PATH .ci/proto write

check-idl:
	go run ./chain/program/idl -check

idl:
	go run ./chain/program/idl

# It runs those Go benchmarks itself that have a target; `go test -bench . ./pkg` runs any.
bench: deps-node deps-engine build
	bin/starling testnet bench $(BENCHFLAGS)

fuzz:
	.ci/fuzz $(FUZZBUDGET)

deps-%:
	@.ci/deps $*

# s3 installs the S3 server of the tests.
s3: $(VERSITYGW)

clean:
	rm -rf bin testnet/out

$(STATICCHECK):
	GOBIN=$(@D) go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

$(BUF):
	GOBIN=$(@D) go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)

$(PROTOC_GEN_GO):
	GOBIN=$(@D) go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)

$(VERSITYGW):
	GOBIN=$(@D) go install -ldflags='-s -w' github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)
