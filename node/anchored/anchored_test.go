package anchored

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	rules "github.com/starling-network/starling/verify/audit"
	scores "github.com/starling-network/starling/verify/reputation"
)

var quiet = slog.New(slog.DiscardHandler)

var genesis = market.Genesis{
	Network: "anchored", Symbol: "STAR", Chain: sign.Hash{1}, SlotMillis: 400, Decimals: 9, IntervalSlots: 150, AuditSlots: 100,
	Simulated: true,
}

const (
	present = market.Slot(10_000_000)
	coin    = market.Amount(1_000_000_000)
)

// ledger is a chain that stands at one slot. It has the memos of final transactions.
type ledger struct{ memos map[chain.TxID][]byte }

func (ledger) Slot(context.Context) (market.Slot, error) { return present, nil }
func (ledger) Tip(context.Context) (chain.Tip, error) {
	return chain.Tip{Confirmed: present, Final: present}, nil
}
func (ledger) Balance(context.Context, sign.Key) (market.Amount, error) { return 0, nil }

// memoLedger is a ledger that has memos.
type memoLedger struct{ ledger }

func (l memoLedger) Memo(_ context.Context, id chain.TxID) ([]byte, market.Slot, error) {
	m, ok := l.memos[id]
	if !ok {
		return nil, 0, chain.ErrNotFound
	}
	return m, present - 100, nil
}

// anchors are the anchors of final transactions.
type anchors map[chain.TxID]account.Anchored

func (a anchors) read(ctx context.Context, id chain.TxID) (chain.Commitment, error) {
	return proof.AnchorIn(ctx, a, id)
}

func (a anchors) AnchorIn(_ context.Context, id chain.TxID) (account.Anchored, error) {
	x, ok := a[id]
	if !ok {
		return x, chain.ErrNotFound
	}
	return x, nil
}

// jobs are those of one buyer.
type jobs struct {
	open     []record.Job
	anchored []record.Anchored
	accounts map[string][]record.LeaseAccount
}

func (j jobs) Open() []record.Job          { return j.open }
func (j jobs) Anchored() []record.Anchored { return j.anchored }
func (j jobs) Receipts(_ context.Context, job string) ([]record.LeaseAccount, error) {
	a, ok := j.accounts[job]
	if !ok {
		return nil, errors.New("no such job")
	}
	return a, nil
}

// audits are records of other peers.
type audits struct {
	anchored []sign.Hash
	record   rules.Record
	in       chain.Inclusion
	err      error
}

func (a audits) Anchored(most int) []sign.Hash { return a.anchored[:min(most, len(a.anchored))] }
func (a audits) Passed(context.Context, sign.Key, sign.Hash) (rules.Record, chain.Inclusion, error) {
	return a.record, a.in, a.err
}

// receipt is one that both sides of a lease signed.
func receipt(t *testing.T, n byte, provider, buyer sign.Private) verify.Receipt {
	t.Helper()
	r := verify.Receipt{ReceiptCore: verify.ReceiptCore{
		Version: verify.ReceiptVersion, Units: 1, Lease: market.LeaseID{n, 1}, Seq: 1, Provider: provider.Key(), Buyer: buyer.Key(),
		From: present - 2000, To: present - 1900, Amount: coin, Cumulative: coin,
	}}
	r.Prev = sign.Hash(r.Lease)
	var err error
	if r.ProviderSig, err = r.Sign(genesis.Domain(), provider); err == nil {
		r.BuyerSig, err = r.Sign(genesis.Domain(), buyer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hostOf is a peer's host and key.
func hostOf(t *testing.T, n int) (*p2p.Host, sign.Private) {
	t.Helper()
	seed, err := p2p.SeedOf(p2ptest.Key(n))
	if err != nil {
		t.Fatal(err)
	}
	return p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(n), Network: genesis.Tag()}), sign.NewPrivate(seed)
}

func newRoom(t *testing.T, h *p2p.Host, key sign.Key, change func(*Config)) *Room {
	t.Helper()
	st := store.NewMemory()
	book, err := reputation.Open(t.Context(), reputation.Config{
		Genesis: genesis, Self: key, Store: st, Log: quiet, Slot: func() (market.Slot, error) { return present, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	clock := slots.New(ledger{}, genesis.SlotMillis, time.Hour, quiet)
	if err := clock.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Host: h, Genesis: genesis, Key: key, Store: st, Ledger: ledger{}, Slots: clock, Book: book, Buyer: jobs{},
		Busy: func() bool { return false }, Log: quiet,
	}
	change(&cfg)
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A peer shows the receipts that it anchored of the leases it bought, and a connected one reads them into its
// reputation: those of a void lease are not among the anchor's, and an anchor that is not on the chain counts nothing.
func TestReceiptsReachOthers(t *testing.T) {
	t.Parallel()
	ha, a := hostOf(t, 0)
	hb, b := hostOf(t, 1)
	provider := sign.NewPrivate([32]byte{9})
	good, void, lost := receipt(t, 1, provider, a), receipt(t, 2, provider, a), receipt(t, 3, provider, a)
	anchor := func(r verify.Receipt) account.Anchored {
		return account.Anchored{
			Authority: a.Key(), Root: chain.RootOf([]sign.Hash{r.SignedHash()}), Count: 1, Slot: uint64(present - 1700), // long ago: what is not there will not come
		}
	}
	shows := newRoom(t, ha, a.Key(), func(c *Config) {
		c.Anchor = anchors{"tx": anchor(good), "fork": anchor(lost)}.read
		c.Buyer = jobs{
			anchored: []record.Anchored{{Job: "j1", Tx: "tx"}, {Job: "j2", Tx: "fork"}},
			accounts: map[string][]record.LeaseAccount{
				"j1": {{Receipts: []verify.Receipt{good}}, {Receipts: []verify.Receipt{void}, Void: true}},
				"j2": {{Receipts: []verify.Receipt{lost}}},
			},
		}
	})
	if err := shows.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	reads := newRoom(t, hb, b.Key(), func(c *Config) { c.Anchor = anchors{"tx": anchor(good)}.read })
	if err := hb.Connect(t.Context(), peer.AddrInfo{ID: ha.ID(), Addrs: ha.Addrs()}); err != nil {
		t.Fatal(err)
	}
	if err := shows.shower.Turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := reads.reader.Turn(t.Context()); err != nil {
		t.Errorf("reading: %v", err)
	}
	facts, _ := reads.cfg.Book.Recent(provider.Key(), 8)
	if len(facts) != 1 || facts[0].Kind != scores.Kept.String() || facts[0].Tx != "tx" || facts[0].Value != coin {
		t.Errorf("facts %+v, want that of the anchored lease", facts)
	}
	if err := shows.Close(); err != nil {
		t.Error(err)
	}
	if page, err := (reputation.Asker{Host: hb, Tag: genesis.Tag()}).Ask(t.Context(), a.Key(), reputation.Mark{}); err == nil {
		t.Errorf("a closed room answers: %+v", page)
	}
}

// A room that was never started closes too.
func TestWithoutChain(t *testing.T) {
	t.Parallel()
	h, key := hostOf(t, 2)
	r := newRoom(t, h, key.Key(), func(*Config) {})
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := (own{r}).Receipts(t.Context(), "none"); err == nil {
		t.Error("the receipts of no job")
	}
}

// Reading waits while orders are in flight, of others or of this peer's user.
func TestBusy(t *testing.T) {
	t.Parallel()
	h, key := hostOf(t, 3)
	for _, c := range []struct {
		others bool
		state  record.State
		busy   bool
	}{{true, record.Running, true}, {false, record.Queued, true}, {false, record.Matching, true}, {false, record.Running, false}} {
		r := newRoom(t, h, key.Key(), func(cfg *Config) {
			cfg.Busy = func() bool { return c.others }
			cfg.Buyer = jobs{open: []record.Job{{State: c.state}}}
		})
		if r.busy() != c.busy {
			t.Errorf("orders of others %t, job %s: busy %t", c.others, c.state, r.busy())
		}
	}
}

// On a free network nothing is anchored, and the room rests.
func TestFreeNetworkRests(t *testing.T) {
	t.Parallel()
	h, key := hostOf(t, 5)
	for name, free := range map[string]bool{"a paying network": false, "a free network": true} {
		turns := 0
		r := newRoom(t, h, key.Key(), func(cfg *Config) {
			cfg.Genesis.Free = free
			cfg.Busy = func() bool { turns++; return true }
		})
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := r.Run(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if (turns == 0) != free {
			t.Errorf("%s: %d turns in a minute", name, turns)
		}
	}
}

// Of a record of another peer's audit, what breaks a rule is that peer's fault, unless peers may differ about it; and
// nothing counts before the chain has its anchor.
func TestRecords(t *testing.T) {
	t.Parallel()
	h, key := hostOf(t, 4)
	record := rules.Record{Answer: rules.Answer{Target: rules.Target{Window: 7}}}
	hash := record.Hash()
	anchor := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf([]sign.Hash{hash}), Count: 1}
	anchor.Ref = chain.RefOf(anchor.Root, 1)
	in := chain.Include(anchor, []sign.Hash{hash}, 0, "tx", present-100)
	broken := func(r rules.Rule) error { return fmt.Errorf("fetched: %w", &rules.RuleError{Rule: r}) }
	for name, c := range map[string]struct {
		audits
		ledger chain.Ledger
		want   error
	}{
		"holds":           {audits{record: record, in: in}, memoLedger{ledger{map[chain.TxID][]byte{"tx": anchor.Memo()}}}, nil},
		"not on chain":    {audits{record: record, in: in}, memoLedger{}, chain.ErrNotFound},
		"chain without":   {audits{record: record, in: in}, ledger{}, chain.ErrDown},
		"wrong beacon":    {audits{err: broken(rules.RuleBeacon)}, memoLedger{}, reputation.ErrRecord},
		"other committee": {audits{err: broken(rules.RuleCommittee)}, memoLedger{}, &rules.RuleError{Rule: rules.RuleCommittee}},
		"no answer":       {audits{err: context.DeadlineExceeded}, memoLedger{}, context.DeadlineExceeded},
	} {
		r := newRoom(t, h, key.Key(), func(cfg *Config) { cfg.Audits, cfg.Ledger = c.audits, c.ledger })
		got, err := (checks{r}).Checked(t.Context(), sign.Key{5}, hash)
		if rule, ok := c.want.(*rules.RuleError); ok {
			is, found := errors.AsType[*rules.RuleError](err)
			if !found || is.Rule != rule.Rule || errors.Is(err, reputation.ErrRecord) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		want := reputation.Checked{
			Provider: sign.Key{5}, Answer: record.Answer.Hash(), At: record.Answer.Window.First(genesis.AuditSlots), Tx: "tx",
		}
		if c.want == nil && got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
