package peercmd_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/peercmd"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/spend"
	book "github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/verify/reputation"
)

func answering(t *testing.T, all clitest.Answers) *clitest.Answering {
	t.Helper()
	return clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{peercmd.NewPeer}, clitest.Network, all)
}

// Peers are listed by key, each in one line, with the connection that carries new streams.
func TestPeers(t *testing.T) {
	t.Parallel()
	near, far := sign.NewPrivate([32]byte{1}).Key(), sign.NewPrivate([32]byte{2}).Key()
	all := []api.PeerInfo{
		{Peer: "12D3far", Key: far, RTT: 81.6, Agent: "evil\x1b[2J\nKEY\tPATH", Conns: []api.ConnInfo{{Path: "relayed", Direction: "out", Via: "12D3KooWrelayrelay", Addr: "/p2p-circuit"},
			{Path: "direct"}}, Reputation: api.Reputation{Provider: api.Rating{Score: 123_456, Shunned: true}, Buyer: api.Rating{Newcomer: true, Score: 9, Shunned: true}}},
		{Peer: "12D3near", Key: near, Reputation: api.Reputation{Provider: api.Rating{Score: 1_000_000}, Buyer: api.Rating{}}},
	}
	p := answering(t, clitest.Answers{"GET /v1/peers": all})
	r := p.CLI(t, "peer", "ls").Want(t, cli.ExitOK, `^KEY +PATH +DIR +RTT +SELLS +BUYS +AGENT +PEER +VIA +ADDRESS$`,
		`^`+far.Short()+` +relayed +out +82ms +0\.1235! +new +evil \[2J KEY PATH +12D3far +…layrelay +/p2p-circuit$`,
		`^`+near.Short()+` +- +- +- +1\.0000 +0\.0000 +12D3near +- *$`)
	if first := strings.Index(r.Out, near.Short()) < strings.Index(r.Out, far.Short()); first != (near.String() < far.String()) || strings.Count(r.Out, "\n") != 3 {
		t.Errorf("got\n%s", r.Out)
	}
	none := answering(t, clitest.Answers{"GET /v1/peers": []api.PeerInfo{}, "GET /v1/node": api.NodeInfo{}})
	none.CLI(t, "peer", "ls", "-o", "json").Want(t, cli.ExitOK, `^\[\]$`, `^warning: this peer is connected to no other`)
}

// A ping shows the way and its times, or ends with the reason of a peer without one.
func TestPing(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		result api.PingResult
		code   cli.ExitCode
		says   []string
	}{
		{api.PingResult{Peer: "12D3", Conn: api.ConnInfo{Path: "punched", Addr: "/a"}, RTTs: []float64{3, 1.23456, 2}}, cli.ExitOK,
			[]string{`^path +direct, through NATs with a relay's help$`, `^round trips +3$`, `^min +1\.23ms$`, `^avg +2\.08ms$`, `^max +3ms$`}},
		{api.PingResult{Peer: "12D3", Conn: api.ConnInfo{Path: "relayed", Via: "12D3relay", Limited: true}}, cli.ExitOK, []string{`^path +relayed via 12D3relay, with a low limit of data$`}},
		{api.PingResult{Problem: &api.Problem{Reason: "offline", Text: "it is away\x1b", Advice: "try later"}}, cli.ExitUnreachable,
			[]string{`^starling: it is away  \(offline\)$`, `^hint: try later$`}},
	} {
		p := answering(t, clitest.Answers{"POST /v1/ping": x.result})
		p.CLI(t, "peer", "ping", "-c", "3", "/ip4/1.2.3.4/tcp/1").Want(t, x.code, x.says...)
		if asked := p.Asked(); !slices.Equal(asked, []string{`POST /v1/ping {"peer":"/ip4/1.2.3.4/tcp/1","count":3}`}) {
			t.Errorf("asked for %q", asked)
		}
		p.CLI(t, "peer", "ping", "x", "-o", "json").Want(t, x.code, `^\{$`)
		p.Asked()
		for _, count := range []string{"0", "-1", "101", "many"} {
			p.CLI(t, "peer", "ping", "-c", count, "x").Want(t, cli.ExitUsage, `count`)
		}
		if asked := p.Asked(); len(asked) > 0 {
			t.Errorf("asked for %q", asked)
		}
	}
}

// The lines of a score add up to it as they are shown, and each fact has its proof.
func TestShow(t *testing.T) {
	t.Parallel()
	key, rater := sign.NewPrivate([32]byte{1}).Key(), sign.NewPrivate([32]byte{2}).Key()
	facts := []book.Told{
		{Kind: "lease", Rater: rater, Value: 1_500_000, At: 7, ID: sign.Hash{5}, Source: book.Source{Receipt: sign.Hash{6}, Tx: "txtxtx"}},
		{Kind: "audit", At: 8, ID: sign.Hash{7}, Source: book.Source{Record: sign.Hash{8}}}, {Kind: "loss", Own: true, Rater: rater, At: 9},
	}
	for len(facts) < 45 {
		facts = append(facts, book.Told{Kind: "lease"})
	}
	p := answering(t, clitest.Answers{"GET /v1/node": api.NodeInfo{Genesis: clitest.Network}, "GET /v1/peers/{peer}": api.PeerReputation{
		Peer: "12D3", Key: key, Opinion: book.Opinion{Facts: facts, More: 3,
			Provider: reputation.Explanation{Score: reputation.Score{Millionths: 500_001, Good: 1_500_000, Bad: 7}, Shunned: true, Lines: []reputation.Line{
				{What: "leases kept", Rater: rater, Count: 2, Value: 2_000_000, Weight: 250_000, Evidence: 1_000_001, Adds: 600_001}, {What: "lost\x1b jobs", Own: true, Adds: -100_000}}},
			Buyer: reputation.Explanation{Newcomer: true, Shunned: true},
		}}})
	p.CLI(t, "peer", "show", key.String()).Want(t, cli.ExitOK, `^as \w+ +0\.5000 +shunned: more evidence against it than for it$`,
		`^\+0\.600001 +leases kept +`+rater.Short()+` +2 +2\.00 STAR +0\.2500 +1\.000001$`, `^-0\.100000 +lost  jobs +own +- +- +- +0\.000000$`,
		`^0\.500001 +lower 5 % bound of Beta\(0\.5 \+ 1\.500000, 0\.5 \+ 0\.000007\)$`, `^as \w+ +0\.0000 +a newcomer`,
		`^lease +\w+ +`+rater.Short()+` +1\.50 STAR +7 +\w+ +receipt `+sign.Hash{6}.String()+` +txtxtx$`,
		`^audit +\w+ +anybody's +- +8 +\w+ +record `+sign.Hash{8}.String()+` +- *$`, `^loss +\w+ +own +- +9 +\w+ +own receipts +- *$`, `^and 8 older$`)
	if asked := p.Asked(); !slices.Equal(asked, []string{"GET /v1/peers/" + key.String(), "GET /v1/node"}) {
		t.Errorf("asked for %q", asked)
	}
}

// The status begins with the problems, and --check fails for them alone.
func TestStatus(t *testing.T) {
	t.Parallel()
	code := svm.Deployed{Code: sign.Hash{3}, Authority: sign.NewPrivate([32]byte{9}).Key()}
	info := api.NodeInfo{Peer: "12D3", Key: sign.Key{1}, Owner: sign.Key{2}, Addrs: []string{"/first", "/second"}, Genesis: clitest.Network, Region: "eu",
		Program: &code, Slot: 77, ChainErr: "late\x1b", Balance: 1_500_000, Peers: 3, Units: 4, FreeUnits: 1, Jobs: 2, Version: "v1", Started: time.Now().Add(-time.Hour),
		Reach: api.Reach{State: "relayed", Text: "by a relay", Addrs: []api.ReachAddr{{Addr: "/b", State: "public", Mapped: true}, {Addr: "/a", State: "private"}},
			Relays: []string{"r1", "r2"}, Serving: &api.Serving{Circuits: 1, Opened: 5, Refused: 2}, Private: true},
		Problems: []api.Fault{{Service: "disk", Problem: "it is full", Remedy: "make room"}, {Service: "gpu", Problem: "it\x07 is hot", Remedy: "cool it"}}}
	p := answering(t, clitest.Answers{"GET /v1/node": &info})
	r := p.CLI(t, "peer", "status").Want(t, cli.ExitOK, `^PROBLEM +disk: it is full\n +make room *$`, `^PROBLEM +gpu: it  is hot$`, `^addresses +/first\n +/second$`,
		`^reachable +relayed: by a relay\n +private +/a\n +public, port mapped /b$`, `^relays +r1\n +r2$`, `^relaying +1 connections now, 5 in all, 2 refused$`,
		`^access +private network, by pre-shared key$`, `^chain +does not answer: late $`, `^program +code `+sign.Hash{3}.Short()+`, the genesis names none; one key can change it: `,
		`^balance +1\.50 STAR$`, `^units +1 of 4 free$`, `^running +for 60m, process 0$`)
	if !strings.HasPrefix(r.Out, "PROBLEM") {
		t.Errorf("the problems do not come first:\n%s", r.Out)
	}
	r = p.CLI(t, "peer", "status", "--check").Want(t, cli.ExitFailed, `^starling: disk: it is full; make room\ngpu: it  is hot; cool it$`)
	if r.Out != "" {
		t.Errorf("got %q", r.Out)
	}
	well := info
	well.Problems, well.ChainUp, well.ChainErr, well.Units = nil, true, "", 0
	well.Program = &svm.Deployed{}
	p = answering(t, clitest.Answers{"GET /v1/node": well})
	p.CLI(t, "peer", "status").Want(t, cli.ExitOK, `^health +all services are healthy$`, `^chain +answers$`, `^units +sells nothing$`, `, final$`)
	if r := p.CLI(t, "peer", "status", "--check").Want(t, cli.ExitOK); r.Out+r.Err != "" {
		t.Errorf("a healthy peer says %q", r.Out+r.Err)
	}
}

// Keys of the API: limits that could buy nothing are refused, and the token is shown once, alone on standard output.
func TestKeys(t *testing.T) {
	t.Parallel()
	p := answering(t, clitest.Answers{"POST /v1/keys": api.NewKey{Name: "ci", Token: "sk-1"}, "DELETE /v1/keys/{name}": http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		"GET /v1/keys": []spend.Key{{Name: "ci\x1b", Hash: sign.Hash{0xAB}, Limits: spend.Limits{PerDay: 3_000_000}, Created: time.Now().Add(-72 * time.Hour)}}})
	if r := p.CLI(t, "peer", "key", "add", "ci", "--per-day", "3", "--per-job", "0.5").Want(t, cli.ExitOK, `^the token is not shown again`); r.Out != "sk-1\n" {
		t.Errorf("got %q", r.Out)
	}
	if asked := p.Asked(); !slices.Equal(asked, []string{`POST /v1/keys {"name":"ci","limits":{"perJob":500000,"perDay":3000000}}`}) {
		t.Errorf("asked for %q", asked)
	}
	for _, args := range [][]string{{"--per-day", "0"}, {"--per-job", "0.0000001"}, {"--per-job", "-1"}, {"--per-day", "much"}, {"two"}} {
		p.CLI(t, append([]string{"peer", "key", "add", "ci"}, args...)...).Want(t, cli.ExitUsage, `^starling: `)
	}
	if asked := p.Asked(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
	p.CLI(t, "peer", "key", "ls").Want(t, cli.ExitOK, `^ci  +- +3\.00 STAR +3d +ab000000$`).Not(t, `sk-1`)
	p.CLI(t, "peer", "key", "rm", "a/b").Want(t, cli.ExitOK)
	if asked := p.Asked(); asked[len(asked)-1] != "DELETE /v1/keys/a%2Fb" {
		t.Errorf("asked for %q", asked)
	}
}

// A block has its roles and its reason; a peer is blocked and unblocked by its whole key.
func TestBlocks(t *testing.T) {
	t.Parallel()
	key := sign.NewPrivate([32]byte{1}).Key()
	entry := block.Entry{Peer: key, Roles: []block.Role{block.Buyer, block.Provider}, Reason: "lost\njobs", At: time.Now().Add(-time.Hour)}
	p := answering(t, clitest.Answers{"PUT /v1/blocks/{peer}": entry, "GET /v1/blocks": []block.Entry{entry}, "GET /v1/peers": []api.PeerInfo{},
		"DELETE /v1/blocks/{peer}": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })})
	p.CLI(t, "peer", "block", "add", key.String(), "--as", "provider", "--reason", "a b").Want(t, cli.ExitOK, `^`+key.String()+` is blocked; undo it with `)
	if asked := p.Asked(); len(asked) != 1 || !strings.HasPrefix(asked[0], "PUT /v1/blocks/"+key.String()+` {"peer":"`+key.String()+`","roles":["provider"],"reason":"a b"`) {
		t.Errorf("asked for %q", asked)
	}
	p.CLI(t, "peer", "block", "ls").Want(t, cli.ExitOK, `^`+key.String()+` +buyer provider +60m +lost jobs$`)
	p.CLI(t, "peer", "block", "rm", key.String()[:8]).Want(t, cli.ExitOK)
	if asked := p.Asked(); asked[len(asked)-1] != "DELETE /v1/blocks/"+key.String() {
		t.Errorf("asked for %q", asked)
	}
}
