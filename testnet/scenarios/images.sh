#!/usr/bin/env bash
# Ordinary images on a free network of real peers: a program with a user, home and volume, packages that are installed while it runs,
# PostgreSQL, nginx, sshd, and with -all a Jupyter notebook. They are built by docker build from unchanged Dockerfiles, of Debian's packages
# and PyPI's; one provider's engine knows the OCI runtime starling, the other's does not, and each image runs on both. Engines and registry
# are started for it and gone at the end. Needs root, Linux, and docker.io, runc, iptables, iproute2 and debootstrap.
#
#   testnet/scenarios/images.sh [-all] [-keep]    -keep leaves the peers' homes and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-engine deps-debian build
exec go run ./testnet/engine/ordinary/cmd "$@"
