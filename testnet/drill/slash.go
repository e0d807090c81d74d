package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/testnet"
)

// The peers of the demonstration, by number: one provider in two processes, two buyers, and a third peer, which neither
// sells nor buys.
const (
	slashSeller = iota
	slashTwin
	slashBuyerA
	slashBuyerB
	slashThird
)

const (
	slashTime     = 5 * time.Minute
	slashInterval = 300 // slots; longer than the sale, so that each buyer's last receipt covers all its payments
	slashSale     = 20  // slots in which both buyers run at the same time
	slashStake    = "250"
	slashPrice    = "360" // per unit-hour
)

// Slash starts a provider that runs as two processes and sells its only unit in both. Two buyers that each reach one of
// them rent it at the same time and get receipts. A third peer, which traded with neither, finds both receipts in the
// DHT and submits the proof. The provider is slashed, and the buyers are refunded. Slash writes slash.json, and returns
// an error if any of these steps fails.
func Slash(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, slashTime)
	defer cancel()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	s := &slash{out: o.Out, dir: dir, report: &SlashReport{Seconds: map[string]float64{}}}
	began := time.Now()
	if err := testnet.Timed(s.report.Seconds, "network", func() error { return s.start(ctx, o) }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.net.Stop()) }()
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{"stake", s.stake}, {"sell", s.sell}, {"prove", s.prove}, {"slash", s.submit}, {"check", s.check}} {
		if err := testnet.Timed(s.report.Seconds, part.name, func() error { return part.do(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	s.report.Seconds["total"] = testnet.Seconds(time.Since(began))
	path := filepath.Join(dir, "slash.json")
	if err := testnet.WriteReport(path, s.report); err != nil {
		return err
	}
	s.say("\nDone in %.0f s. The output is in %s", s.report.Seconds["total"], path)
	return nil
}

// slash is a running demonstration of Slash.
type slash struct {
	out    io.Writer
	dir    string
	net    *testnet.Network
	report *SlashReport
	jobs   [2]record.Job
	file   string // path of the proof
}

func (s *slash) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// start starts the network.
func (s *slash) start(ctx context.Context, o Options) (err error) {
	s.say("Starling: the fate of a provider that sells one unit twice")
	s.say("\n1. The network: one provider in two processes with one key, two buyers, and a third peer")
	s.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(s.dir, "slash"), Providers: 2, Buyers: 3, Units: 1, RPC: o.RPC, Binary: o.Binary,
		Interval: slashInterval, Connected: 1, Price: func(int) string { return slashPrice },
		Twin: map[int]int{slashTwin: slashSeller},
		Links: map[int][]int{slashSeller: {}, slashTwin: {}, slashBuyerA: {slashSeller}, slashBuyerB: {slashTwin},
			slashThird: {slashBuyerA, slashBuyerB}},
		Refuse: map[int][]int{slashSeller: {slashBuyerB}, slashTwin: {slashBuyerA}},
		// it announces both processes to all peers: by then each buyer is connected to its own process
		Late: []int{slashThird},
		Say:  func(format string, args ...any) { s.say("   "+format, args...) },
	})
	if err != nil {
		return err
	}
	for _, p := range s.net.Peers {
		s.report.Peers = append(s.report.Peers, testnet.ReportOf(p))
	}
	peers := s.net.Peers
	for _, p := range peers[slashBuyerA : slashBuyerB+1] {
		c, err := p.Client()
		if err == nil {
			err = testnet.WaitOffers(ctx, c, 1)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	s.say("   %s and %s are provider %s: %s reaches only the first, %s only the second",
		peers[slashSeller].Name, peers[slashTwin].Name, peers[slashSeller].Key.Short(), peers[slashBuyerA].Name,
		peers[slashBuyerB].Name)
	third := peers[slashThird]
	if err := third.Launch(); err != nil {
		return err
	}
	if _, err := third.Ready(ctx, 2); err != nil {
		return err
	}
	s.report.Peers[slashThird].PID = third.PID
	s.say("   %s is connected to the two buyers and takes part in the DHT", third.Name)
	return nil
}

// starling runs a command in the home of a peer, as its user would, and reads the JSON that it prints; into may be nil.
func (s *slash) starling(ctx context.Context, p *testnet.Peer, into any, args ...string) error {
	return testnet.Command(ctx, s.say, p.Binary(), p.Home, into, args...)
}

// staked reads the provider's stake.
func (s *slash) staked(ctx context.Context) (market.Amount, error) {
	var status struct {
		Stake market.Amount `json:"stake"`
	}
	err := s.starling(ctx, s.net.Peers[slashSeller], &status, "stake", "status")
	return status.Stake, err
}

// stake registers the provider and adds its stake.
func (s *slash) stake(ctx context.Context) (err error) {
	s.say("\n2. The provider registers and adds stake")
	seller := s.net.Peers[slashSeller]
	if err := s.starling(ctx, seller, nil, "stake", "register"); err != nil {
		return err
	}
	if err := s.starling(ctx, seller, nil, "stake", "add", slashStake); err != nil {
		return err
	}
	s.report.StakeBefore, err = s.staked(ctx)
	return err
}

// sell has both buyers rent the same unit at the same time, and stops both jobs.
func (s *slash) sell(ctx context.Context) error {
	s.say("\n3. Both buyers rent the same unit at the same time")
	buyers := [2]*testnet.Peer{s.net.Peers[slashBuyerA], s.net.Peers[slashBuyerB]}
	var clients [2]*api.Client
	for i, p := range buyers {
		c, err := p.Client()
		if err == nil {
			s.jobs[i], err = s.rent(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		clients[i] = c
	}
	for i, c := range clients {
		if err := waitRunning(ctx, c, s.jobs[i].ID); err != nil {
			return fmt.Errorf("%s: %w", buyers[i].Name, err)
		}
		s.say("   %s: job %s runs on %s", buyers[i].Name, s.jobs[i].ID, s.net.Peers[slashSeller].Key.Short())
	}
	if err := s.pass(ctx, slashSale); err != nil {
		return err
	}
	for i, c := range clients {
		if err := api.StopJob.Send(ctx, c, api.ByID{ID: s.jobs[i].ID}); err != nil {
			return fmt.Errorf("%s: %w", buyers[i].Name, err)
		}
	}
	for i, c := range clients {
		if err := s.end(ctx, buyers[i], c, i); err != nil {
			return fmt.Errorf("%s: %w", buyers[i].Name, err)
		}
	}
	return nil
}

// rent submits a job that waits until it is stopped.
func (s *slash) rent(ctx context.Context, c *api.Client) (record.Job, error) {
	const module = "wait.wasm"
	b, err := api.PutBlob.Call(ctx, c, api.Upload{Data: bytes.NewReader(testnet.Sleep(slashTime))})
	if err != nil {
		return record.Job{}, err
	}
	return c.Submit(ctx, job.Job{
		Name: "wait", Runtime: job.RuntimeWasm, Module: module, Count: 1,
		Resources: job.Resources{Class: "cpu", Units: 1}, Timeouts: job.Timeouts{Queue: time.Minute, Run: slashTime},
		Payment: job.Payment{MaxPrice: 500_000_000, Budget: 200_000_000, Decimals: s.net.Genesis.Decimals},
		Blobs:   map[string]job.Blob{module: b.Source()},
	}, job.Values{}, "slash")
}

// waitRunning waits until the job's only rank runs.
func waitRunning(ctx context.Context, c *api.Client, id string) error {
	for {
		j, err := api.GetJob.Call(ctx, c, api.ByID{ID: id})
		switch {
		case err != nil:
			return err
		case j.State.Ended():
			return fmt.Errorf("the job %s before it ran: %s", j.State, j.Reason)
		case len(j.Ranks) == 1 && j.Ranks[0].State == record.RankRunning:
			return nil
		}
		if err := pause(ctx, "the job does not run"); err != nil {
			return err
		}
	}
}

// pause waits a moment. At the end of ctx it returns an error with the given text.
func pause(ctx context.Context, what string) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// pass waits until slots slots have passed.
func (s *slash) pass(ctx context.Context, slots market.Slot) error {
	l, err := s.net.Ledger()
	if err != nil {
		return err
	}
	from, err := l.Slot(ctx)
	for now := from; err == nil && now < from+slots; now, err = l.Slot(ctx) {
		if err := pause(ctx, "the chain makes no blocks"); err != nil {
			return err
		}
	}
	return err
}

// end waits until the stopped job of buyer i has ended, and reads its debt from its receipts.
func (s *slash) end(ctx context.Context, p *testnet.Peer, c *api.Client, i int) error {
	id := s.jobs[i].ID
	if err := c.Events(ctx, id, nil, nil); err != nil {
		return err
	}
	var err error
	if s.jobs[i], err = api.GetJob.Call(ctx, c, api.ByID{ID: id}); err != nil {
		return err
	}
	accounts, err := api.JobReceipts.Call(ctx, c, api.ByID{ID: id})
	if err != nil {
		return err
	}
	if len(accounts) != 1 || len(accounts[0].Receipts) == 0 {
		return fmt.Errorf("job %s has %d leases, and no receipt", id, len(accounts))
	}
	a := accounts[0]
	r := a.Receipts[len(a.Receipts)-1]
	v := &s.report.Buyers[i]
	*v = Victim{Name: p.Name, Key: p.Key.String(), Lease: a.Lease.String(), Receipts: len(a.Receipts),
		From: a.Receipts[0].From, To: r.To, Loss: r.Cumulative}
	s.say("   %s: stopped; receipt of slots %d to %d, signed by both, over %s",
		p.Name, v.From, v.To, s.net.Genesis.FormatAmount(v.Loss))
	return nil
}

// prove waits until the third peer has found both receipts, and writes its proof into a file.
func (s *slash) prove(ctx context.Context) error {
	third := s.net.Peers[slashThird]
	s.say("\n4. %s reads the DHT", third.Name)
	c, err := third.Client()
	if err != nil {
		return err
	}
	var kept []proof.Entry
	for len(kept) == 0 {
		if kept, err = api.ListProofs.Call(ctx, c, api.ByKind{Kind: proof.KindDoubleSale}); err != nil {
			return err
		}
		if err := pause(ctx, third.Name+" found no proof"); err != nil {
			return err
		}
	}
	k := kept[0]
	s.file = filepath.Join(s.dir, "double-sale.json")
	if err := s.starling(ctx, third, nil, "proof", "export", k.Hash.String(), s.file); err != nil {
		return err
	}
	var d proof.DoubleSaleDetail
	f := proof.Finding{Detail: &d}
	if err := s.starling(ctx, third, &f, "proof", "check", s.file); err != nil {
		return err
	}
	s.report.Evidence, s.report.Provider, s.report.Unit = f.Hash.String(), d.Provider.String(), d.Unit.String()
	s.report.From, s.report.To, s.report.Network, s.report.Found = d.From, d.To, f.Network, k.Found
	s.say("   it found proof %s: %s; slots %d to %d in both leases", k.Hash.Short(), k.Proves, d.From, d.To)
	return nil
}

// name returns the testnet's name of a peer.
func (s *slash) name(key sign.Key) string {
	for _, p := range s.net.Peers {
		if p.Key == key {
			return p.Name
		}
	}
	return key.String()
}
