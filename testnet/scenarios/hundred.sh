#!/usr/bin/env bash
# A hundred peers on one machine, and jobs with half as many ranks and with as many: each rank has its own provider, all
# succeed, and both sides sign every receipt. With --paid the network has a local Solana and the ranks are paid; by default it
# is a free network. It needs neither root nor the internet, and 40 MB of memory for each peer.
#
#   testnet/scenarios/hundred.sh [--paid] [-n PEERS] [directory]     default: 100 peers, a temporary directory
set -euo pipefail
cd "$(dirname "$0")/../.."

free=--free peers=100
while [ $# -gt 0 ]; do
	case $1 in
	--paid) free= ;;
	-n) peers=${2:?-n needs a number of peers}; shift ;;
	-*) echo "usage: $0 [--paid] [-n PEERS] [directory]" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done
[ "$peers" -ge 2 ] || { echo "-n: $peers peers, want at least 2" >&2; exit 2; }
dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
starling=$dir/starling

say() { printf '\n%s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
# value NAME reads the first "NAME: value" of YAML on standard input.
value() { sed -n "s/^ *$1: *\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" | head -n 1; }
# count NAME counts the entries of the list NAME in the YAML on standard input.
count() { awk -v key="$1:" '$0 == key { on = 1; next } /^[^ -]/ { on = 0 } on && /^ *- / { n++ } END { print n + 0 }'; }
clean() { "$starling" testnet down --dir "$dir/net" >/dev/null 2>&1 || true; }
trap clean EXIT

say "1. $peers selling peers, one buying peer"
go build -trimpath -o "$starling" ./cmd/starling
GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go build -trimpath -o "$dir/hash.wasm" ./testnet/jobs/hash
"$starling" testnet up --new --dir "$dir/net" -n "$peers" --units 1 $free
export STARLING_HOME=$dir/net/buyer-1

price=()
[ -n "$free" ] || price=(--max-price 0.5 --budget 20)
for ranks in $((peers / 2)) "$peers"; do
	say "2. A job of $ranks ranks"
	began=$(date +%s%N)
	job=$("$starling" run -d --guardians 0 -n "$ranks" "${price[@]}" "$dir/hash.wasm" -- 1)
	"$starling" wait "$job" >/dev/null || fail "the job did not succeed: $("$starling" why "$job" | tail -n 5)"
	took=$((($(date +%s%N) - began) / 1000000))
	"$starling" status "$job" -o yaml >"$dir/status.yaml"
	echo "   succeeded after $took ms; $(count orders <"$dir/status.yaml") orders, $(count lost <"$dir/status.yaml") providers lost"
	[ "$(value state <"$dir/status.yaml")" = succeeded ] || fail "the job is $(value state <"$dir/status.yaml")"
	[ "$(value owed <"$dir/status.yaml")" = "$(value paid <"$dir/status.yaml")" ] || fail "owed and paid differ"
	providers=$(sed -n 's/^ *provider: *//p' "$dir/status.yaml" | sort -u | wc -l)
	[ "$providers" -eq "$ranks" ] || fail "$ranks ranks on $providers providers"
done

say "Both jobs, of $((peers / 2)) and $peers ranks, succeeded."
