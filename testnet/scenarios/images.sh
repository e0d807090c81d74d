#!/usr/bin/env bash
# Ordinary images on a free network of real peers: a program with a user, home and volume, packages installed at run time,
# PostgreSQL, nginx, sshd and ffmpeg, and with -all Blender and a Jupyter notebook. docker build builds them from unchanged
# Dockerfiles, with packages of Debian and PyPI, and docker run runs each first. One provider's engine has the OCI runtime
# starling, the other's does not, and each image runs on both. The script starts its own engines and registry, in their own
# network namespaces, and removes them. Needs root, Linux, and docker.io, runc, iptables, iproute2 and debootstrap.
#
# With -templates it builds the images of built-in templates from their Dockerfiles and makes their smoke runs. -record
# node/job/template/ran.txt records those that passed; starling job template ls shows them.
#
#   testnet/scenarios/images.sh [-all | -only NAME,NAME… | -templates all|NAME,NAME… [-record FILE]] [-keep]
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent deps-engine deps-debian build
exec go run ./testnet/engine/ordinary/cmd "$@"
