package testnetcmd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/sim"
	"github.com/starling-network/starling/testnet/sim/audits"
	"github.com/starling-network/starling/testnet/sim/play"
)

// genesis is a network that audits every hour.
var genesis = market.Genesis{Network: "box", Chain: sign.Hash{1}, Mint: sign.Key{9}, Program: sign.Key{7}, Escrow: sign.Key{8},
	Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 150, AuditSlots: 900, AuditOneIn: 10}

// testnetOf writes the file of a testnet that a process holds; zero is this one.
func testnetOf(t *testing.T, pid int, g market.Genesis, peers ...*testnet.Peer) string {
	t.Helper()
	dir := t.TempDir()
	n := testnet.Network{Dir: dir, PID: pid, RPC: "http://127.0.0.1:8899", Genesis: g, Peers: peers, Ready: true}
	if pid == 0 {
		n.PID = os.Getpid()
		stat, err := os.ReadFile("/proc/self/stat")
		if err != nil {
			t.Skipf("whether a testnet runs is read from /proc: %v", err)
		}
		if _, err := fmt.Sscan(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19], &n.Started); err != nil {
			t.Fatal(err)
		}
	}
	writeJSON(t, filepath.Join(dir, "testnet.json"), n)
	return dir
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// peerOf is a peer with an API that answers each request with a body; if empty, no peer runs.
func peerOf(t *testing.T, name, body string) *testnet.Peer {
	t.Helper()
	p := &testnet.Peer{Name: name, Home: t.TempDir(), PID: 7}
	if body != "" {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		t.Cleanup(s.Close)
		writeJSON(t, filepath.Join(p.Home, config.FileAPI), api.Endpoint{URL: s.URL, Token: "token"})
	}
	return p
}

func infoOf(t *testing.T, info api.NodeInfo) string {
	t.Helper()
	b, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The status shows how to join and a line for each peer, even if the peer is down or its answer is malformed.
func TestStatus(t *testing.T) {
	t.Parallel()
	key := sign.Key{4}
	seller := peerOf(t, "peer-1", infoOf(t, api.NodeInfo{Key: key, Genesis: genesis, Balance: 1_500_000, Peers: 3, Units: 4,
		FreeUnits: 1, Jobs: 2, Addrs: []string{"/ip4/127.0.0.1/tcp/1/p2p/x", "second"}, Started: time.Now().Add(-time.Hour)}))
	dir := testnetOf(t, 0, genesis, seller, peerOf(t, "peer-2", ""), peerOf(t, "peer-3", `{"peers": -`),
		peerOf(t, "buyer-1", infoOf(t, api.NodeInfo{Key: sign.Key{5}, Genesis: genesis, Peers: 3})))
	run(t, "status", "--dir", dir).Want(t, cli.ExitOK, `^PEER +STATE +KEY +PEERS +UNITS FREE +JOBS +BALANCE +UP FOR +HOME$`,
		`^peer-1 +up +`+key.Short()+` +3 +1 of 4 +2 +1\.50 STAR +1h0m\d+s +`+seller.Home+`$`, `^peer-2 +down +/`, `^peer-3 +down +/`,
		`^buyer-1 +up +`+sign.Key{5}.Short()+` +3 +- +0 +0\.00 STAR `, `^network +box`,
		`^genesis +`+filepath.Join(seller.Home, config.FileGenesis)+`$`, `^join by +/ip4/127\.0\.0\.1/tcp/1/p2p/x$`,
		`^chain +http://127\.0\.0\.1:8899$`, `^program +`+genesis.Program.String()+`$`, `^audits +every 1h0m0s$`)

	var shown struct {
		Dir   string
		Peers []testnetPeer
	}
	r := run(t, "status", "--dir", dir, "-o", "json").Want(t, cli.ExitOK)
	if err := json.Unmarshal([]byte(r.Out), &shown); err != nil {
		t.Fatal(err)
	}
	if shown.Dir != dir || len(shown.Peers) != 4 || !shown.Peers[0].Up || shown.Peers[0].Balance != "1.50 STAR" ||
		shown.Peers[1].Up || !strings.Contains(shown.Peers[1].Error, "no peer is running here") ||
		shown.Peers[2].Up || !strings.Contains(shown.Peers[2].Error, "reading the answer to GET /v1/node") {
		t.Errorf("got %+v", shown)
	}
}

// A free network has no chain, no program and no audits; without its first peer there is no address to join by.
func TestStatusFree(t *testing.T) {
	t.Parallel()
	g := market.Genesis{Network: "box", Chain: sign.Hash{1}, Symbol: "FREE", SlotMillis: 400, IntervalSlots: 150, Free: true}
	dir := testnetOf(t, 0, g, peerOf(t, "peer-1", ""))
	r := run(t, "status", "--dir", dir).Want(t, cli.ExitOK, `^chain +none, a free network$`, `^peer-1 +down`)
	for _, absent := range []string{"program", "audits", "join by", "127.0.0.1"} {
		if strings.Contains(r.Out, absent) {
			t.Errorf("%q is in\n%s", absent, r.Out)
		}
	}
	run(t, "status", "--dir", testnetOf(t, 0, g)).Want(t, cli.ExitOK, `^PEER `, `^network +box`)
}

// Another process under the number of one that held a testnet is not taken for it, and none of its are ended.
func TestStatusOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{-1, os.Getpid(), 1 << 30} {
		dir := testnetOf(t, pid, genesis)
		run(t, "status", "--dir", dir).Want(t, cli.ExitUnreachable, `^starling: no testnet runs in `+dir)
		run(t, "down", "--dir", dir).Want(t, cli.ExitOK)
	}
}

// Arguments and flags are checked before anything is started or written.
func TestCommandsRefuse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	for line, says := range map[string]string{
		"bench --samples 0": `--samples: 0 is not at least 1`, "bench --only disk": `--only: "disk" is not a part of the benchmark; the parts are cores, `,
		"bench --only cores,": `--only: "" is not a part`, "bench now": `bench does not take "now"`, "bench --samples ten": `--samples`,
		"demo now": `demo does not take "now"`, "slash now": `slash does not take "now"`, "detach now": `detach does not take "now"`,
	} {
		run(t, append(strings.Fields(line), "--out", dir)...).Want(t, cli.ExitUsage, `^starling: .*`+says)
	}
	for line, says := range map[string]string{
		"sim --adversaries 0": `must be at least 1`, "sim --honest -5": `must be at least 1`, "sim --windows 0": `must be at least 1`,
		"sim --seed -1": `--seed`, "sim now": `sim does not take "now"`, "serve -n 0": `0 peers and 1 buyers`, "fund": `fund needs an argument`,
		"status now": `status does not take "now"`, "down now": `down does not take "now"`, "sleep": `"sleep" is not a command of starling testnet`,
	} {
		run(t, strings.Fields(line)...).Want(t, cli.ExitUsage, `^starling: .*`+says)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s was made: %v", dir, err)
	}
}

// Tokens are read with the decimals of the network that is there, and never rounded.
func TestFundRefuses(t *testing.T) {
	t.Parallel()
	dir := testnetOf(t, -1, genesis)
	for tokens, says := range map[string]string{"0.0000001": `7 decimals, the token has 6`, "-1": `not a decimal number`, "": `not a decimal number`,
		"18446744073709.551616": `too large`, "1e9": `not a decimal number`} {
		run(t, "fund", "--dir", dir, "--tokens="+tokens, sign.Key{3}.String()).Want(t, cli.ExitUsage, `^starling: --tokens: .*`+says)
	}
}

// report is a report of a simulation, with one line of each kind.
func report() sim.Report {
	return sim.Report{Options: play.Options{Seed: 77},
		Lines: []play.Line{
			{Kind: "renamed", Threat: 3, What: "a card sold as a better one", Caught: 0.9995, First: 0.5, Sold: 0.25, Delisted: 9, Records: 8},
			{Kind: "ghost", What: "no card", Limit: "not claimed", Caught: 0.1},
			{Kind: "honest", Honest: true, What: "noise", Audits: 1000, Delisted: 2},
			{Kind: "receipts", Honest: true, What: "figures", Audits: 500, Figures: []play.Figure{{}}},
		},
		Faults:  []sim.FaultLine{{Fault: "a flipped bit", Trials: 5, Withheld: 3, Harmless: 2}},
		Limits:  []audits.Shortfall{{Class: "gpu/h100", Made: 0.051, Products: 1.25, Walk: 0.5, Overhead: 0.00012}, {Class: "cpu", InOne: 3}},
		Capture: []audits.CaptureRow{{Share: 0.1, First: 0.000176, Block: 0.0257}},
		Targets: []play.Figure{{What: "caught", Value: 0.9995, Bound: 0.999, Least: true, Unit: "%", Of: "1000 peers"}, {What: "slashed", Value: 1, Bound: 0}},
		Seconds: 1.26}
}

// The table of a simulation: shares as percentages, limits beside their kinds, and a missed target as NO.
func TestSimTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	table := &cli.Table{}
	simTable(table, report())
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `KIND      THREAT  FIRST AUDIT  CAUGHT  SOLD    DELISTED          RECORDS  DESCRIPTION AND LIMIT
renamed   3       50.0 %       100.0 %  25.0 %  9                 8        a card sold as a better one
ghost     -       0.0 %        10.0 %   0.0 %   0                 0        no card; limit: not claimed
honest    -       -            -        0.0 %   2 of 1000 audits  0        noise
receipts  -       -            -        0.0 %   0 of 500 audits   0        figures

FAULT OF AN HONEST PEER  TRIALS  WITHHELD  HARMLESS  SLASHED
a flipped bit            5       3         2         0

MEMORY THAT CAN BE MISSING, AT MOST  MADE AGAIN  IN THE HOST  IDENTITIES AT ONCE  AUDIT TAKES  OF ITS TIME
gpu/h100                             5.1 %       0.0 %        not bounded         1.75 s       0.012 %
cpu                                  0.0 %       0.0 %        3                   0.00 s       0.000 %

COLLUDING STAKE  5 OF 7   5 OF 9  8 OF 11  8 OF 13  3 OF 7  4 OF 11
10.0 %           0.00018  0       0        0        0.026   0

TARGET   MEASURED  MUST BE   HOLDS  MEASURED OVER
caught   99.95 %   ≥ 99.9 %  yes    1000 peers
slashed  1         ≤ 0       NO     

audits of honest peers  1000
seed                    77
seconds                 1.3
`
	if got := squeezed(b.String()); got != squeezed(want) {
		t.Errorf("got\n%s\nwant\n%s", got, squeezed(want))
	}
}

// squeezed joins the words of each line by single spaces.
func squeezed(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
