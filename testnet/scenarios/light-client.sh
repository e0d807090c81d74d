#!/usr/bin/env bash
# A laptop outside the network runs a job through one peer's address. During the job that peer is killed; the laptop continues
# through another, no program is lost and all providers are paid.
#
#   testnet/scenarios/light-client.sh [directory]     default: a temporary directory
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
GOCACHE=$(go env GOCACHE) # the laptop's cache is not Go's
export GOCACHE STARLING_HOME=$dir/laptop XDG_CACHE_HOME=${XDG_CACHE_HOME:-$dir/cache}
starling=$dir/starling
seconds=25 ranks=3

say() { printf '\n%s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
clean() {
	"$starling" client stop >/dev/null 2>&1 || true
	"$starling" testnet down --dir "$dir/net" >/dev/null 2>&1 || true
	[ -n "${follow:-}" ] && kill "$follow" 2>/dev/null
	true
}
trap clean EXIT
now() { date +%s%N; }
# value NAME reads the first "NAME: value" of YAML on standard input.
value() { sed -n "s/^ *$1: *\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" | head -n 1; }
# until_true SECONDS COMMAND... waits for a command to succeed.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

say "1. A network: three selling peers, three relays for light clients, a local Solana"
CGO_ENABLED=0 go build -trimpath -o "$starling" ./cmd/starling
GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go build -trimpath -o "$dir/hash.wasm" ./testnet/jobs/hash
"$starling" testnet up --dir "$dir/net" -n 3 --buyers 3
address=$("$starling" --home "$dir/net/buyer-1" peer status -o yaml | sed -n 's|^ *- *"\{0,1\}\(/ip4/127[^"]*/tcp/[^"]*\)"\{0,1\}$|\1|p' | head -n 1)
entry=${address##*/}
[ -n "$entry" ] || fail "no address of buyer-1"

say "2. The laptop starts with one address: $address"
export STARLING_PEER=$address
"$starling" wallet show
wallet=$("$starling" wallet show -o yaml | value owner)
"$starling" testnet fund --dir "$dir/net" --tokens 10 "$wallet"
both() { [ "$("$starling" client status | grep -cE '^(entry|standby) +12D3KooW')" -eq 2 ]; }
until_true 20 both || fail "no second entry peer was found"
"$starling" client status

say "3. A job on three providers without a connection to the laptop"
all() { [ "$("$starling" offers | grep -c ' yes ')" -eq 3 ]; }
until_true 30 all || fail "the offers of three providers were not found"
"$starling" run -n $ranks --max-price 0.5 --budget 2 --dry-run "$dir/hash.wasm" -- $seconds | tail -n 6
job=$("$starling" run -d --guardians 0 -n $ranks --max-price 0.5 --budget 2 --out /out "$dir/hash.wasm" -- $seconds)
"$starling" logs -f "$job" &
follow=$!
sixth() { [ "$("$starling" logs "$job" 2>/dev/null | grep -c 'second 6')" -eq $ranks ]; }
until_true 60 sixth || fail "the job does not run: $("$starling" why "$job" | tail -n 3)"
say "   connections of the laptop while it works:"
"$starling" peer ls

say "   3 MiB into a directory of the program and back, through the entry peer; a wasm program supports no exec"
head -c $((3 << 20)) /dev/urandom >"$dir/data"
"$starling" cp "$dir/data" "$job:/out/data"
"$starling" cp "$job:/out/data" "$dir/back"
cmp "$dir/data" "$dir/back" || fail "the copied file differs"
if "$starling" exec "$job" -- true; then fail "exec in a wasm program"; fi

say "4. Its entry peer, buyer-1, is killed with SIGKILL"
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' "$dir/net/buyer-1/api.json")
kill -KILL "$pid"
killed=$(now)
moved() { ! "$starling" client status | grep -q "$entry"; }
until_true 20 moved || fail "the laptop did not notice the dead entry peer"
echo "   noticed after $((($(now) - killed) / 1000000)) ms"
until_true 20 both || fail "no new standby was found"
echo "   two entry peers again after $((($(now) - killed) / 1000000)) ms"

say "5. The job continues through the second entry peer"
"$starling" wait "$job" >/dev/null || fail "the job did not succeed: $("$starling" status "$job")"
wait "$follow" || true
follow=

say "6. The result"
"$starling" status "$job"
say "   connections of the laptop: its entry peers, and circuits through them"
"$starling" client status
"$starling" peer ls
say "   what the providers earned, by their own account"
for i in 1 2 3; do "$starling" --peer= --home "$dir/net/peer-$i" provider leases | sed "s/^/   peer-$i  /"; done

"$starling" status "$job" -o yaml >"$dir/status.yaml"
[ "$(value state <"$dir/status.yaml")" = succeeded ] || fail "the job is $(value state <"$dir/status.yaml")"
[ "$(value owed <"$dir/status.yaml")" = "$(value paid <"$dir/status.yaml")" ] || fail "owed and paid differ"
[ "$(grep -c '^ *epoch: 1$' "$dir/status.yaml")" -eq $ranks ] || fail "a rank was lost and began again"
"$starling" client status | grep -q "$entry" && fail "the dead entry peer is still connected"
[ "$("$starling" peer ls | tail -n +2 | grep -vc ' relayed ')" -eq 2 ] || fail "the laptop has other direct connections than to its two entry peers"
say "OK: no program was lost, the laptop was connected to its entry peers alone, and everybody is paid."
