package marketcmd_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/marketcmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
)

var commands = []func(*cli.App) *cobra.Command{marketcmd.NewOffers, marketcmd.NewProvider}

// audited is the network with audits.
func audited() market.Genesis {
	g := clitest.Network
	g.AuditSlots, g.AuditOneIn = 1000, 1
	return g
}

// lines are the first words of the lines below a table's head, up to an empty line.
func lines(out, head string) (first []string) {
	_, below, _ := strings.Cut(out, head)
	for line := range strings.Lines(below[strings.Index(below, "\n")+1:]) {
		words := strings.Fields(line)
		if len(words) == 0 {
			break
		}
		first = append(first, words[0])
	}
	return first
}

// The cheapest offer stands first, and of equal ones the order does not depend on which was found first.
func TestOffersOrder(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b, c := sign.Key{1}, sign.Key{2}, sign.Key{3}
	all := []api.OfferInfo{
		{Provider: c, Class: "cpu", Price: 9, Expires: now}, {Provider: b, Class: "cpu", Price: 10, Expires: now},
		{Provider: a, Class: "cpu", Price: 10, Expires: now}, {Provider: sign.Key{4}, Class: "cpu", Price: 1 << 63, Expires: now},
	}
	want := []string{c.Short(), a.Short(), b.Short(), sign.Key{4}.Short()}
	if a.String() > b.String() {
		want[1], want[2] = want[2], want[1]
	}
	for range 2 {
		p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers": all})
		r := p.CLI(t, "offers").Want(t, cli.ExitOK, `^PROVIDER +CLASS `, ` 9223372036854\.775808 STAR `)
		if got := lines(r.Out, "PROVIDER"); !slices.Equal(got, want) {
			t.Errorf("got the order %v, want %v", got, want)
		}
		slices.Reverse(all)
	}
}

// A provider's texts are one cell each, whatever is in them, and a missing text is a dash.
func TestOffersTable(t *testing.T) {
	t.Parallel()
	hostile := api.OfferInfo{Provider: sign.Key{1}, Class: "gpu/h100", Model: "H100\x1b[2J\nPROVIDER\tyes", Region: "eu\u009b1m",
		Free: 1, Total: 4294967295, Price: 1_500_000, Runtimes: []string{"container", "wasm\r"}, Egress: market.EgressInternet,
		PerUnit: market.Resources{MilliCPU: 1000, MemoryMiB: 2048, DiskMiB: 10, VRAMMiB: 81920}, Answered: true, RTT: 3.14159,
		Simulated: true, Expires: time.Now().Add(-time.Hour), Proven: 3, Checked: 2, Doubt: "none",
		Ready: images.Ready{{1}, {2}}}
	plain := api.OfferInfo{Provider: sign.Key{2}, Class: "gpu/l40s", Price: 2_000_000, Expires: time.Now().Add(90*time.Minute - time.Second)}
	p := clitest.NewAnswering(t, commands, audited(), clitest.Answers{"GET /v1/offers": []api.OfferInfo{plain, hostile}})
	r := p.CLI(t, "offers", "--class", "gpu").Want(t, cli.ExitOK,
		`^`+sign.Key{1}.Short()+` +gpu/h100 +H100 \[2J PROVIDER yes \(simulated\) +eu 1m +1/4294967295 +1000m CPU 2048MiB mem 10MiB `+
			`disk 81920MiB VRAM +1\.50 STAR +3\.1ms +yes +in 0s +2/3 +container,wasm +internet +2$`,
		`^`+sign.Key{2}.Short()+` +gpu/l40s +- +0/0 +0m CPU 0MiB mem 0MiB disk +2\.00 STAR +- +no +in 89m +0/0 as gpu +none +0$`)
	if n := strings.Count(r.Out, "\n"); n != 3 || strings.ContainsAny(r.Out, "\x1b\r\u009b") {
		t.Errorf("%d lines, want 3 without control characters: %q", n, r.Out)
	}
	if asked := p.Asked(); !slices.Equal(asked, []string{"GET /v1/offers?class=gpu"}) {
		t.Errorf("asked for %q", asked)
	}
	unaudited := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers": []api.OfferInfo{plain}})
	unaudited.CLI(t, "offers").Want(t, cli.ExitOK, `EXPIRES +RUNS +OUTSIDE +IMAGES$`).Not(t, `PROVEN`)
}

// Nothing found is explained where the peer is alone, and nowhere else.
func TestOffersAlone(t *testing.T) {
	t.Parallel()
	for peers, alone := range map[int]bool{0: true, 1: false} {
		p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers": []api.OfferInfo{},
			"GET /v1/node": api.NodeInfo{Peers: peers}})
		r := p.CLI(t, "offers", "-o", "json").Want(t, cli.ExitOK, `^\[\]$`)
		if said := strings.Contains(r.Err, "warning: this peer is connected to no other"); said != alone {
			t.Errorf("with %d peers: %q", peers, r.Err)
		}
	}
}

func ownOffers() api.OwnOffers {
	return api.OwnOffers{State: "no fees", Reason: "the key holds 5 lamports", Hours: "22:00-06:00", Until: time.Now().Add(90*time.Minute + 30*time.Second),
		Leases: 2, Offers: []api.OwnOffer{
			{Class: "gpu/l40s", Model: "L40S", Units: 8, Free: 3, Leased: 4, Withdrawn: 1, Price: 2_500_000, Floor: 1_000_000, Seq: 7,
				Proven: 2, Runtimes: []string{"container"}, PerUnit: market.Resources{MilliCPU: 500, MemoryMiB: 1, DiskMiB: 2}},
			{Class: "cpu", Simulated: true, Units: 1, Free: 1}},
		Withdrawn: []api.WithdrawnUnit{{Class: "gpu/l40s", Serial: "GPU-1", Model: "L40S", Reason: "Xid 79: it fell\noff", Leased: true},
			{Class: "gpu/l40s", Serial: "GPU-2", Model: "L40S", Reason: "too hot"}}}
}

// The own offers: state with its remedy, when the hours end, each class, and why units are withdrawn.
func TestOwnOffers(t *testing.T) {
	t.Parallel()
	p := clitest.NewAnswering(t, commands, audited(), clitest.Answers{"GET /v1/offers/own": ownOffers()})
	p.CLI(t, "provider", "status").Want(t, cli.ExitOK, `^state +no fees$`,
		`^ +the key holds 5 lamports; send SOL to the peer's key \(starling peer status\)$`,
		`^hours +22:00-06:00, closes in 90m$`, `^leases +2$`,
		`^gpu/l40s +L40S +8 +3 +4 +1 +500m CPU 1MiB mem 2MiB disk +2\.50 STAR +1\.00 STAR +container +7 +2 as gpu$`,
		`^cpu +- \(simulated\) +1 +1 +0 +0 .* 0\.00 STAR +- +- +0 *$`,
		`^GPU-1 +gpu/l40s +L40S +yes +Xid 79: it fell off$`, `^GPU-2 +gpu/l40s +L40S +no +too hot$`)
	closed := ownOffers()
	closed.State, closed.Reason, closed.Withdrawn = "closed", "", nil
	p = clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers/own": closed})
	p.CLI(t, "provider", "status").Want(t, cli.ExitOK, `^hours +22:00-06:00, opens in 90m$`).Not(t, `send SOL`, `WITHDRAWN +CLASS`,
		`PROVEN`, ` as gpu`)
	closed.Until = time.Time{}
	p = clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers/own": closed})
	p.CLI(t, "provider", "status").Want(t, cli.ExitOK, `^hours +22:00-06:00$`)
}

// The operator's arguments reach the peer unchanged; invalid ones are not sent.
func TestOwnOffersRequests(t *testing.T) {
	t.Parallel()
	own := ownOffers()
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"POST /v1/offers/own/pause": own,
		"POST /v1/offers/own/drain": own, "POST /v1/offers/own/resume": own, "POST /v1/offers/own/price": own})
	for line, want := range map[string]string{
		"pause": "POST /v1/offers/own/pause", "drain": "POST /v1/offers/own/drain", "resume": `POST /v1/offers/own/resume {}`,
		"resume GPU-1 MIG-2":           `POST /v1/offers/own/resume {"devices":["GPU-1","MIG-2"]}`,
		"price cpu 0.08":               `POST /v1/offers/own/price {"class":"cpu","price":80000}`,
		"price gpu/h100 0":             `POST /v1/offers/own/price {"class":"gpu/h100","price":0}`,
		"price cpu 18446744073709.551": `POST /v1/offers/own/price {"class":"cpu","price":18446744073709551000}`,
	} {
		p.CLI(t, append([]string{"provider"}, strings.Fields(line)...)...).Want(t, cli.ExitOK, `^state +no fees$`)
		if asked := p.Asked(); !slices.Equal(asked, []string{want}) {
			t.Errorf("%s asked for %q, want %q", line, asked, want)
		}
	}
	for line, says := range map[string]string{
		"price cpu 0.0000001": `price: .*7 decimals, the token has 6`, "price cpu -1": `shorthand flag|decimal`, "price CPU 1": `class`,
		"price cpu": `price needs 2 arguments, not 1`, "price cpu 1 2": `price does not take "2"`, "price cpu 99999999999999": `price: .*too large`,
		"price ../cpu 1": `class`, "drain now": `drain does not take "now"`, "gpus --select vram>=": `vram`, "gpus --select ,": `is not a model`,
	} {
		p.CLI(t, append([]string{"provider"}, strings.Fields(line)...)...).Want(t, cli.ExitUsage, `^starling: .*(`+says+`)`)
		if asked := p.Asked(); len(asked) > 0 {
			t.Errorf("%s asked for %q", line, asked)
		}
	}
}

// A drain ends when no lease is left, and is an error once somebody sells again.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{
		"POST /v1/offers/own/drain": api.OwnOffers{State: "drained"}})
	p.CLI(t, "provider", "drain", "--wait").Want(t, cli.ExitOK, `^no lease is left: the peer can be stopped$`, `^state +drained$`)
	p = clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{
		"POST /v1/offers/own/drain": api.OwnOffers{State: "selling", Leases: 1}})
	p.CLI(t, "provider", "drain", "--wait").Want(t, cli.ExitFailed, `^starling: the peer is selling: the drain was ended$`)
}

// The leases with the sum of their earnings, and the claimed and the lost part of each.
func TestLeases(t *testing.T) {
	t.Parallel()
	escrow := sign.Key{9}
	sold := []api.SoldLease{
		{Lease: market.LeaseID{1}, Buyer: sign.Key{1}, State: "active", Units: 2, Class: "cpu", Simulated: true, Rank: 3, Receipts: 17, Earned: 1_000_000},
		{Lease: market.LeaseID{2}, Class: "gpu", State: "ended", Earned: 2_000_000, Escrow: escrow, Claimed: 1_500_000},
		{Lease: market.LeaseID{3}, Class: "gpu", State: "ended", Earned: 4_000_000, Escrow: escrow, Claimed: 1_000_000, Lost: 3_000_000, Unfunded: true},
		{Lease: market.LeaseID{4}, State: api.LeasePast, Units: 1, Earned: 3, Claimed: 3},
		{Class: "gpu", State: "hold", Escrow: escrow, Unfunded: true, Reason: strings.Repeat("r\n", 100)},
	}
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/leases": sold, "GET /v1/node": api.NodeInfo{
		Earnings: &api.Earnings{Earned: 6_000_000, Claimed: 2_500_000, Unclaimed: 500_000, Lost: 3_000_000, Wages: 1}}})
	p.CLI(t, "provider", "leases").Want(t, cli.ExitOK,
		`^`+market.LeaseID{1}.Short()+` +`+sign.Key{1}.Short()+` +3 +active +2 +cpu \(simulated\) +17 +1\.00 STAR +- *$`,
		`^`+market.LeaseID{2}.Short()+` .* 2\.00 STAR +1\.50 STAR *$`,
		`^`+market.LeaseID{3}.Short()+` .* 4\.00 STAR +1\.00 STAR, 3\.00 STAR lost *$`,
		`^`+market.LeaseID{4}.Short()+` .* past +1 +- +- +0\.000003 STAR +0\.000003 STAR *$`,
		`^- .* hold .* 0\.00 STAR +escrow not seen +(r ){29}r…$`, `^earned +7\.000003 STAR$`,
		`^from escrows +6\.00 STAR over all: 2\.50 STAR claimed, 0\.50 STAR not yet, 3\.00 STAR lost$`,
		`^of it wages +0\.000001 STAR claimed for guarding jobs$`)
	p = clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/leases": []api.SoldLease{}, "GET /v1/node": api.NodeInfo{}})
	p.CLI(t, "provider", "leases").Want(t, cli.ExitOK, `^earned +0\.00 STAR$`).Not(t, `escrows`, `wages`)
}

// The supervisor of a guarded job is named; a job that is over has none, even if this peer was it.
func TestGuarded(t *testing.T) {
	t.Parallel()
	owner, other := sign.Key{1}, sign.Key{2}
	until := time.Date(2026, 3, 2, 1, 2, 3, 0, time.UTC)
	job := func(n byte, change func(*api.GuardedJob)) api.GuardedJob {
		j := api.GuardedJob{Job: sign.Hash{n}, Owner: owner, Guardians: []sign.Key{other, {3}}, Epoch: 4, Supervisor: other, Until: until}
		change(&j)
		return j
	}
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/guarded": []api.GuardedJob{
		job(1, func(j *api.GuardedJob) {}), job(2, func(j *api.GuardedJob) { j.Mine = true }),
		job(3, func(j *api.GuardedJob) { j.Supervisor = owner }), job(4, func(j *api.GuardedJob) { j.Mine, j.Over = true, true })}})
	r := p.CLI(t, "provider", "guarded").Want(t, cli.ExitOK)
	for n, by := range map[byte]string{1: other.Short(), 2: "this peer", 3: "its owner", 4: "none: job over"} {
		r.Want(t, cli.ExitOK, `^`+sign.Hash{n}.Short()+` +`+owner.Short()+` +2 +4 +`+by+` +2026-03-02 01:02:03$`)
	}
	p = clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/guarded": []api.GuardedJob{}})
	p.CLI(t, "provider", "guarded").Want(t, cli.ExitOK, `^none$`)
}

// A refusal or a malformed answer of the peer ends each command with its code and without half a table.
func TestMarketFails(t *testing.T) {
	t.Parallel()
	refusal := &api.Error{Status: http.StatusConflict, Code: "conflict", Message: "this peer\x1b sells nothing", Hint: "set provide\n.enabled"}
	cut := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[{"provider":`)) })
	for _, x := range []struct {
		answer any
		code   cli.ExitCode
		says   string
	}{
		{refusal, cli.ExitUsage, `^starling: this peer  sells nothing\nhint: set provide \.enabled$`},
		{cut, cli.ExitFailed, `^starling: reading the answer to (GET|POST) /v1/[a-z/]+: unexpected EOF$`},
		{map[string]int{"state": 7}, cli.ExitFailed, `^starling: reading the answer to .* cannot unmarshal`},
	} {
		p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers": x.answer, "GET /v1/leases": x.answer,
			"GET /v1/guarded": x.answer, "GET /v1/offers/own": x.answer, "POST /v1/offers/own/drain": x.answer})
		for _, line := range []string{"offers", "provider leases", "provider guarded", "provider status", "provider drain --wait"} {
			if r := p.CLI(t, strings.Fields(line)...).Want(t, x.code, x.says); r.Out != "" {
				t.Errorf("%s printed %q", line, r.Out)
			}
		}
	}
}

// Simulated devices are for simulated networks, and need a peer.
func TestGpusMock(t *testing.T) {
	t.Parallel()
	none := clitest.NewHome(t.TempDir(), commands)
	none.CLI(t, "provider", "gpus", "--mock", "dgxh100").Want(t, cli.ExitUsage, `no peer was set up in `, `^hint: starling init`)
	g := clitest.Network
	g.Simulated, g.Mint = false, sign.Key{9}
	real := clitest.NewAnswering(t, commands, g, nil)
	real.CLI(t, "provider", "gpus", "--mock", "dgxh100").Want(t, cli.ExitUsage, `simulated`)
	mocked := clitest.NewAnswering(t, commands, clitest.Network, nil)
	mocked.CLI(t, "provider", "gpus", "--mock", "abacus").Want(t, cli.ExitUsage, `abacus`)
}
