package proof_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/verify"
)

// again signs a lease's core, and nothing below it, after a change.
func again(t *testing.T, l *proof.Lease, provider, buyer string) {
	t.Helper()
	d := prooftest.Genesis().Domain()
	var errs [2]error
	l.Lease.ProviderSig, errs[0] = l.Lease.Core.Sign(d, prooftest.Key(provider))
	l.Lease.BuyerSig, errs[1] = l.Lease.Core.Sign(d, prooftest.Key(buyer))
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
}

// voucher signs a lease's voucher again after a change.
func voucher(t *testing.T, l *proof.Lease, change func(v *verify.Voucher)) {
	t.Helper()
	v := l.Voucher.Voucher
	change(&v)
	s, err := verify.SignVoucher(prooftest.Genesis().Domain(), v, l.Keys, prooftest.Key("buyer"))
	if err != nil {
		t.Fatal(err)
	}
	l.Voucher = &s
}

// Receipts of a job prove its cost: by lease and in all.
func TestReceipts(t *testing.T) {
	t.Parallel()
	f, err := proof.Check(prooftest.Receipts(), prooftest.Genesis())
	if err != nil {
		t.Fatal(err)
	}
	v := f.Detail.(*proof.Verdict)
	if v.Receipts != 6 || v.Owed != 60_000 || len(v.Leases) != 2 || v.Buyer != prooftest.Key("buyer").Key() {
		t.Errorf("%+v", v)
	}
	for rank, l := range v.Leases {
		if l.Rank != uint32(rank) || l.Slots != 30 || l.Earned != 30_000 || l.Owed != l.Earned || !l.Final {
			t.Errorf("rank %d: %+v", rank, l)
		}
	}
	if v.Root != chain.RootOf(prooftest.Receipts().Hashes()) {
		t.Error("the root is not that of all receipts")
	}
	want := []sign.Key{prooftest.Key("buyer").Key(), prooftest.Key("provider").Key(), prooftest.Key("second").Key()}
	if !slices.Equal(f.Subjects, want) {
		t.Errorf("subjects %v, want %v", f.Subjects, want)
	}
	p, err := proof.New(prooftest.Receipts())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Receipts(); err != nil || r.Hash() != prooftest.Receipts().Hash() {
		t.Errorf("opened %+v, %v", r, err)
	}
	if p, err = proof.New(prooftest.Audit()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Receipts(); !errors.Is(err, proof.ErrKind) {
		t.Errorf("receipts of an audit: %v", err)
	}
}

// A job that runs has a voucher ahead of its receipts, and leases may have none of either.
func TestReceiptsOfRunningJob(t *testing.T) {
	t.Parallel()
	p := prooftest.Receipts()
	l := &p.Leases[0]
	l.Receipts = l.Receipts[:2]
	voucher(t, l, func(v *verify.Voucher) { v.Flags, v.Cumulative, v.Horizon = 0, 30_000, 40 })
	p.Leases[1].Receipts, p.Leases[1].Voucher = nil, nil
	f, err := proof.Check(p, prooftest.Genesis())
	if err != nil {
		t.Fatal(err)
	}
	v := f.Detail.(*proof.Verdict)
	if v.Owed != 30_000 || v.Leases[0].Earned != 20_000 || v.Leases[0].Final || v.Leases[1].Receipts != 0 {
		t.Errorf("%+v", v)
	}
	if said := text(f); !strings.Contains(said, "ok, no final receipt") {
		t.Error(said)
	}
}

// Each part of a job's receipts is held by a rule: whoever changes one, or leaves one out, breaks it.
func TestForgedReceipts(t *testing.T) {
	t.Parallel()
	type receipts = proof.Receipts
	first := func(p *receipts) *proof.Lease { return &p.Leases[0] }
	receipt := func(p *receipts) *verify.Receipt { return &p.Leases[0].Receipts[1] }
	for name, c := range map[string]struct {
		rule  verify.Rule
		forge func(p *receipts)
	}{
		"amount":           {verify.RuleAmount, func(p *receipts) { receipt(p).Amount++ }},
		"cumulative":       {verify.RuleCumulative, func(p *receipts) { receipt(p).Cumulative++ }},
		"slots before":     {verify.RuleFrom, func(p *receipts) { receipt(p).From-- }},
		"slots after":      {verify.RuleCumulative, func(p *receipts) { receipt(p).To++ }},
		"no slots":         {verify.RuleTo, func(p *receipts) { receipt(p).To = receipt(p).From }},
		"CPU time":         {verify.RuleProvider, func(p *receipts) { receipt(p).CPUMillis++ }},
		"output":           {verify.RuleProvider, func(p *receipts) { receipt(p).Output[0]++ }},
		"number":           {verify.RuleSeq, func(p *receipts) { receipt(p).Seq++ }},
		"predecessor":      {verify.RulePrev, func(p *receipts) { receipt(p).Prev[0]++ }},
		"provider":         {verify.RuleParties, func(p *receipts) { receipt(p).Provider = prooftest.Key("x").Key() }},
		"units":            {verify.RuleUnits, func(p *receipts) { receipt(p).Units++ }},
		"epoch":            {verify.RuleRankEpoch, func(p *receipts) { receipt(p).RankEpoch++ }},
		"version":          {verify.RuleLease, func(p *receipts) { receipt(p).Version++ }},
		"final too early":  {verify.RuleProvider, func(p *receipts) { receipt(p).Flags |= verify.ReceiptFinal }},
		"provider's name":  {verify.RuleProvider, func(p *receipts) { receipt(p).ProviderSig[3]++ }},
		"buyer's name":     {verify.RuleBuyer, func(p *receipts) { receipt(p).BuyerSig[3]++ }},
		"other lease's":    {verify.RuleLease, func(p *receipts) { *receipt(p) = p.Leases[1].Receipts[1] }},
		"one twice":        {verify.RuleSeq, func(p *receipts) { first(p).Receipts[1] = first(p).Receipts[0] }},
		"first is gone":    {verify.RuleSeq, func(p *receipts) { first(p).Receipts = first(p).Receipts[1:] }},
		"last is gone":     {proof.RuleOwed, func(p *receipts) { first(p).Receipts = first(p).Receipts[:2] }},
		"all are gone":     {proof.RuleOwed, func(p *receipts) { first(p).Receipts = nil }},
		"rate":             {proof.RuleSigned, func(p *receipts) { first(p).Lease.Core.Rate++ }},
		"cap":              {proof.RuleSigned, func(p *receipts) { first(p).Lease.Core.Cap++ }},
		"payout":           {proof.RuleSigned, func(p *receipts) { first(p).Lease.Core.Payout = sign.Key{9} }},
		"lease, provider":  {proof.RuleSigned, func(p *receipts) { first(p).Lease.ProviderSig[0]++ }},
		"lease, buyer":     {proof.RuleSigned, func(p *receipts) { first(p).Lease.BuyerSig[0]++ }},
		"other key set":    {verify.RuleKeySet, func(p *receipts) { first(p).Keys.Keys[0] = prooftest.Key("x").Key() }},
		"empty key set":    {verify.RuleKeySet, func(p *receipts) { first(p).Keys = market.KeySet{} }},
		"threshold":        {verify.RuleKeySet, func(p *receipts) { first(p).Keys.Threshold = 2 }},
		"voucher's amount": {verify.RuleSignature, func(p *receipts) { first(p).Voucher.Cumulative++ }},
		"voucher's seq":    {verify.RuleSeq, func(p *receipts) { first(p).Voucher.Seq = 0 }},
		"voucher's escrow": {verify.RuleDomain, func(p *receipts) { first(p).Voucher.Escrow = sign.Key{} }},
		"voucher's end":    {verify.RuleHorizon, func(p *receipts) { first(p).Voucher.Horizon = 9011 }},
		"voucher over cap": {verify.RuleCap, func(p *receipts) { first(p).Voucher.Cumulative = math.MaxUint64 }},
		"unsigned voucher": {verify.RuleThreshold, func(p *receipts) { first(p).Voucher.Sigs = nil }},
		"other's voucher":  {verify.RuleLease, func(p *receipts) { first(p).Voucher = p.Leases[1].Voucher }},
		"no voucher":       {proof.RuleOwed, func(p *receipts) { first(p).Voucher = nil }},
		"voucher, less":    {proof.RuleOwed, func(p *receipts) { voucher(t, first(p), func(v *verify.Voucher) { v.Cumulative-- }) }},
		"voucher, more":    {proof.RuleOwed, func(p *receipts) { voucher(t, first(p), func(v *verify.Voucher) { v.Cumulative++ }) }},
		"not final":        {proof.RuleOwed, func(p *receipts) { voucher(t, first(p), func(v *verify.Voucher) { v.Flags = 0 }) }},
		"lease twice":      {proof.RuleOrder, func(p *receipts) { p.Leases = append(p.Leases, p.Leases[1]) }},
		"another order":    {proof.RuleOrder, func(p *receipts) { slices.Reverse(p.Leases) }},
		"two buyers": {proof.RuleBuyer, func(p *receipts) {
			l := &p.Leases[1]
			l.Lease.Core.Buyer = prooftest.Key("other").Key()
			again(t, l, "second", "other")
		}},
		"another unit": {verify.RuleLease, func(p *receipts) {
			first(p).Lease.Core.UnitsRoot[0]++
			again(t, first(p), "provider", "buyer")
		}},
	} {
		p := prooftest.Receipts()
		c.forge(&p)
		if _, err := proof.Check(p, prooftest.Genesis()); !brokenBy(err, c.rule) {
			t.Errorf("%s: %v, want rule %s broken", name, err, c.rule)
		}
	}
}

// Receipts of leases whose sum is no amount are refused, not wrapped around.
func TestReceiptsOverflow(t *testing.T) {
	t.Parallel()
	p := prooftest.Receipts()
	for i := range p.Leases {
		l := &p.Leases[i]
		l.Receipts, l.Lease.Core.Cap = nil, math.MaxUint64
		again(t, l, []string{"provider", "second"}[i], "buyer")
		voucher(t, l, func(v *verify.Voucher) {
			v.Lease, v.Flags, v.Cumulative = l.Lease.Core.ID(), 0, math.MaxUint64
		})
	}
	if _, err := proof.Check(p, prooftest.Genesis()); !brokenBy(err, proof.RuleSum) {
		t.Error(err)
	}
}
