package localnet_test

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	facts "github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/keep"
	"github.com/starling-network/starling/node/proof/slash"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	rules "github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// auditWindow is the length of a window of audits here, in slots: its first block is final after 31, before its first quarter ends.
const auditWindow = 128

// audited has a provider audited by one member before the blocks of this chain, small enough for a test, and show openings of which
// one is wrong. It returns the lies that the member found.
func audited(t *testing.T, g market.Genesis, l *solana.Ledger, provider, member sign.Private) []rules.Lie {
	t.Helper()
	sight, err := facts.NewPublic(facts.PublicConfig{
		Genesis: g, Slot: func() (market.Slot, error) { return l.Slot(context.Background()) }, Blocks: l,
		Roster: func(context.Context, rules.Window) (rules.Roster, error) {
			return rules.Roster{{Key: member.Key(), Owner: member.Key(), Weight: 1}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	plan := func(audit.Claim) (audit.Asked, error) {
		return audit.Asked{
			Shape: challenge.Shape{Rows: 64, Columns: 128, Depth: 128, Products: 2}, Walk: challenge.Walk{Cells: 512, Work: 2, Walkers: 40, Steps: 6},
			ProductLimit: time.Minute, WalkLimit: time.Minute,
		}, nil
	}
	found := &frauds{}
	m := audit.NewMember(audit.MemberConfig{
		Domain: g.Domain(), Key: member, WindowSlots: g.AuditSlots, Sight: sight, Plan: plan, Now: time.Now, Log: slog.New(slog.DiscardHandler), Results: found,
	})
	var answer rules.Answer
	lying := func(ctx context.Context, _ sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		req = proto.Clone(req).(*nodepb.AuditRequest)
		if a := req.GetArrived(); a != nil {
			if answer, err = rules.UnmarshalAnswer(a.Answer); err != nil {
				return nil, err
			}
		}
		if s := req.GetShow(); s != nil {
			opened, rest, err := challenge.UnmarshalOpened(s.Openings)
			if err != nil {
				return nil, err
			}
			for i := range opened.Openings {
				opened.Openings[i].Values = [challenge.LeafWords]int32{1}
			}
			shown := rules.Show(answer, opened.Openings)
			sig, err := shown.Sign(g.Domain(), provider)
			if err != nil {
				return nil, err
			}
			b := shown.Marshal()
			s.Openings, s.Signature, s.Shown = append(opened.Marshal(), rest...), sig[:], b[:]
		}
		return m.Answer(ctx, provider.Key(), req)
	}
	p := audit.NewProver(audit.ProverConfig{Domain: g.Domain(), Key: provider, WindowSlots: auditWindow, Sight: sight, Plan: plan, Call: lying, Log: slog.New(slog.DiscardHandler),
		Wait: func(ctx context.Context, slot market.Slot) error {
			for {
				_, now, err := sight.Window()
				if err != nil || now >= slot {
					return err
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(5 * time.Millisecond):
				}
			}
		}})
	units := []audit.Unit{{
		Claim: audit.Claim{ID: market.UnitID{1}, Class: "cpu", Resources: market.Resources{MilliCPU: 1000}}, Device: cpu.New(cpu.Config{Memory: 1 << 20, Threads: 1}),
	}}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) { // until a window's first block is final
		_, err := p.Audit(t.Context(), units)
		if lies := found.all(); len(lies) > 0 {
			return lies
		}
		if time.Now().After(end) {
			t.Fatalf("no lie was found: %v", err)
		}
	}
}

// frauds is the results of a member: the frauds that it found.
type frauds struct {
	mu   sync.Mutex
	lies []rules.Lie
}

func (*frauds) Judged(sign.Key, rules.Verdict) {}
func (*frauds) Refuse(rules.Refusal)           {}

func (f *frauds) KeepFraud(_ context.Context, l rules.Lie) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lies = append(f.lies, l)
	return nil
}

func (f *frauds) all() []rules.Lie {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lies)
}

// A provider that shows a wrong entry of its products in an audit loses its stake, by the peer that judged it: on the chain's own
// virtual machine, with nobody doing anything by hand; and who has the file alone can repeat the proof, and is told that it is done.
func TestLieTakesStake(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{SlotMillis: 100, Terms: func(p *account.Params) { p.AuditSlots = auditWindow }})
	g, err := net.EscrowGenesis(t.Context(), "lies", 10)
	if err != nil {
		t.Fatal(err)
	}
	g.AuditSlots, g.AuditOneIn = auditWindow, 1
	wallet := func(name string, tokens market.Amount) (sign.Private, *solana.Ledger) {
		k := sign.NewPrivate(sha256.Sum256([]byte(name)))
		if err := net.FundKey(t.Context(), k.Key(), tokens, 1_000_000_000); err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.ConfigOf([]string{net.URL()}, g, k))
		if err != nil {
			t.Fatal(err)
		}
		return k, l
	}
	liar, at := wallet("liar", staked)
	member, own := wallet("member", 0)
	provider := account.ProviderAddress(g.Program, g.Escrow, liar.Key())
	vault := account.StakeAddress(g.Program, provider)
	if _, err := at.Run(t.Context(), []svm.Instruction{
		program.Register{Payer: liar.Key(), Owner: liar.Key(), Peer: liar.Key(), Network: g.Escrow, Provider: provider, Vault: vault, Mint: g.Mint,
			Payout: liar.Key()}.Instruction(g.Program),
		program.Stake{Authority: liar.Key(), Source: svm.TokenAccount(liar.Key(), g.Mint), Provider: provider, Vault: vault, Mint: g.Mint, Amount: staked}.Instruction(g.Program),
	}); err != nil {
		t.Fatal(err)
	}
	lies := audited(t, g, own, liar, member)
	log, journal := slog.New(slog.DiscardHandler), store.NewMemory()
	proofs, err := keep.Open(t.Context(), keep.Config{
		Genesis: g, Journal: journal, Log: log, Kept: func(proof.Content) {},
		Standing: func(sign.Key) admit.Standing { return admit.Stranger },
	})
	if err != nil {
		t.Fatal(err)
	}
	accuser := slash.New(slash.Config{
		Genesis: g, Log: log, Proofs: proofs,
		Slot: func() (market.Slot, error) { return own.Slot(context.Background()) },
	})
	if fresh, err := proofs.Keep(t.Context(), proof.Fraud{Lie: lies[0]}, true); err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- accuser.Run(ctx, own, member.Key()) }()
	var kept proof.Entry
	for !kept.State.Over() || kept.State == "" {
		select {
		case <-ctx.Done():
			t.Fatalf("it was not taken: %+v", kept)
		case <-time.After(200 * time.Millisecond):
		}
		all := proofs.List(proof.KindFraud)
		if len(all) != 1 {
			t.Fatal(all)
		}
		kept = all[0]
	}
	cancel()
	<-done
	want := program.TakenFor(staked, 0, 0)
	if o := kept.Outcome; kept.State != proof.StateTaken || o.Taken != staked || o.Burned != want.Burned || o.Reward.Amount != want.Reporter {
		t.Fatalf("%+v: %+v", kept, o)
	}
	if p, _, err := own.Provider(t.Context(), liar.Key()); err != nil || p.Stake != 0 || !p.WasSlashed {
		t.Errorf("the liar has %+v, %v", p, err)
	}
	if has := balance(t, own, member.Key()); uint64(has) != want.Reporter {
		t.Errorf("the member has %d, %d were said", has, want.Reporter)
	}
	f, err := proof.Check(proof.Fraud{Lie: lies[0]}, g)
	if err != nil || f.Subjects[0] != liar.Key() {
		t.Fatalf("%+v: %v", f, err)
	}
	if out, err := slash.Submit(t.Context(), own, f, member.Key()); err != nil || !out.Already || len(out.Transactions) != 0 {
		t.Errorf("once more: %+v, %v", out, err)
	}
	t.Logf("taken %d, burned %d, the reporter got %d, in %d transactions", kept.Outcome.Taken, kept.Outcome.Burned, kept.Outcome.Reward.Amount, len(kept.Outcome.Transactions))
}
