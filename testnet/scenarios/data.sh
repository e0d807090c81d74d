#!/usr/bin/env bash
# Inputs from everywhere on a free network of real peers: a web server, a model hub, IPFS, S3 and this computer; outputs to S3
# and to a directory; and four files of servers that lie, which are refused. The S3 server is a real one, versitygw, which make
# installs; the others are small ones of the test. All are on loopback. It needs neither root nor the internet.
#
#   testnet/scenarios/data.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
make --silent s3
exec go test -count=1 -v -run TestData ./testnet/data
