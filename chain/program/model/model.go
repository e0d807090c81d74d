// Package model is Starling's program on Solana, in Go: not its byte layouts, but its permissions, times and payments.
// It was written from the design, not from the program's source, and can be read as the specification. A test drives
// both through the same random instructions and compares them after each.
//
// State is all accounts of the program and the token accounts they move. Apply is one call. It is atomic: on an error
// it changes nothing. The error contains every broken rule (errors.Is finds each); the program stops at the first one,
// in an unspecified order. A call that breaks no rule succeeds.
package model

import (
	"errors"
	"maps"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

var (
	// ErrToken: the token program would refuse: not enough tokens, another mint, not the owner.
	ErrToken = errors.New("model: the token program refuses")
	// ErrSignature: the precompile would refuse: the transaction never runs.
	ErrSignature = errors.New("model: a signature is not good")
)

// Mint of the token program.
type Mint struct {
	Decimals uint8
	Supply   uint64
}

// State is the state on chain. Accounts are values; maps are by address.
type State struct {
	Program sign.Key

	Networks  map[sign.Key]account.Network
	Escrows   map[sign.Key]account.Escrow
	Tranches  map[sign.Key]account.Tranche
	Providers map[sign.Key]account.Provider
	Attested  map[sign.Key]program.Attested
	Anchors   map[sign.Key]account.Anchored
	Ballots   map[sign.Key]account.Ballot
	Votes     map[sign.Key]account.Vote
	Payouts   map[sign.Key]account.Payout
	Stated    map[sign.Key]program.Stated

	Tokens map[sign.Key]svm.Token // all token accounts
	Mints  map[sign.Key]Mint
	Tables map[sign.Key]Table // all lookup tables

	// Rent is the lamports that each payer paid for accounts, less refunds.
	Rent map[sign.Key]int64
}

// New returns a chain with only the program.
func New(at sign.Key) *State {
	return &State{
		Program: at, Networks: map[sign.Key]account.Network{}, Escrows: map[sign.Key]account.Escrow{},
		Tranches: map[sign.Key]account.Tranche{}, Providers: map[sign.Key]account.Provider{},
		Attested: map[sign.Key]program.Attested{}, Anchors: map[sign.Key]account.Anchored{},
		Ballots: map[sign.Key]account.Ballot{}, Votes: map[sign.Key]account.Vote{},
		Payouts: map[sign.Key]account.Payout{}, Stated: map[sign.Key]program.Stated{},
		Tokens: map[sign.Key]svm.Token{}, Mints: map[sign.Key]Mint{}, Tables: map[sign.Key]Table{},
		Rent: map[sign.Key]int64{},
	}
}

// Clone returns a copy that shares no mutable state with s.
func (s *State) Clone() *State {
	c := *s
	c.Networks, c.Escrows, c.Tranches = maps.Clone(s.Networks), maps.Clone(s.Escrows), maps.Clone(s.Tranches)
	c.Providers, c.Attested, c.Anchors = maps.Clone(s.Providers), maps.Clone(s.Attested), maps.Clone(s.Anchors)
	c.Ballots, c.Votes = maps.Clone(s.Ballots), maps.Clone(s.Votes)
	c.Payouts, c.Stated = maps.Clone(s.Payouts), maps.Clone(s.Stated)
	c.Tokens, c.Mints = maps.Clone(s.Tokens), maps.Clone(s.Mints)
	c.Tables, c.Rent = maps.Clone(s.Tables), maps.Clone(s.Rent)
	return &c
}

// Apply runs one call in a slot, in a transaction in which these signatures stand before it: number 0 first, the call
// last.
func (s *State) Apply(slot uint64, call program.Call, beside ...svm.Signed) error {
	for _, b := range beside {
		if !b.Verified() {
			return ErrSignature
		}
	}
	t := &tx{State: s, now: slot, beside: beside}
	switch c := call.(type) {
	case program.InitNetwork:
		return networks{t}.initNetwork(c)
	case program.SetAuthority:
		return networks{t}.setAuthority(c)
	case program.InitPool:
		return networks{t}.initPool(c)
	case program.Register:
		return providers{t}.register(c)
	case program.Update:
		return providers{t}.update(c)
	case program.Stake:
		return providers{t}.stake(c)
	case program.RequestUnstake:
		return providers{t}.requestUnstake(c)
	case program.Withdraw:
		return providers{t}.withdraw(c)
	case program.Attest:
		return evidence{t}.attest(c)
	case program.CloseAttested:
		return evidence{t}.closeAttested(c)
	case program.Slash:
		return evidence{t}.slash(c)
	case program.State:
		return audits{t}.state(c)
	case program.CloseStated:
		return audits{t}.closeStated(c)
	case program.SlashAudit:
		return audits{t}.slashAudit(c)
	case program.Anchor:
		return evidence{t}.anchor(c)
	case program.Prove:
		return evidence{t}.prove(c)
	case program.CloseAnchor:
		return evidence{t}.closeAnchor(c)
	case program.DrawPool:
		return networks{t}.drawPool(c)
	}
	return t.applyVote(call)
}

// applyVote is Apply for votes and their results.
func (t *tx) applyVote(call program.Call) error {
	switch c := call.(type) {
	case program.Bond:
		return votes{t}.bond(c)
	case program.Release:
		return votes{t}.release(c)
	case program.ProposeRules:
		return votes{t}.proposeRules(c)
	case program.ProposeRewards:
		return votes{t}.proposeRewards(c)
	case program.CastVote:
		return votes{t}.castVote(c)
	case program.CloseVote:
		return votes{t}.closeVote(c)
	case program.Enact:
		return votes{t}.enact(c)
	case program.CloseBallot:
		return votes{t}.closeBallot(c)
	case program.InitEmission:
		return payouts{t}.initEmission(c)
	case program.Accept:
		return payouts{t}.accept(c)
	case program.ClaimReward:
		return payouts{t}.claimReward(c)
	case program.ClosePayout:
		return payouts{t}.closePayout(c)
	}
	return t.applyEscrow(call)
}

// applyEscrow is Apply for calls about one escrow.
func (t *tx) applyEscrow(call program.Call) error {
	switch c := call.(type) {
	case program.OpenEscrow:
		return escrows{t}.openEscrow(c)
	case program.AddTranche:
		return escrows{t}.addTranche(c)
	case program.AddStandbyTranche:
		return escrows{t}.addStandbyTranche(c)
	case program.TopUp:
		return escrows{t}.topUp(c)
	case program.Claim:
		return claims{escrows{t}}.claim(c)
	case program.RetireBegin:
		return claims{escrows{t}}.retireBegin(c)
	case program.RetireFinish:
		return claims{escrows{t}}.retireFinish(c)
	case program.RetireFinal:
		return claims{escrows{t}}.retireFinal(c)
	case program.Refund:
		return claims{escrows{t}}.refund(c)
	case program.Sweep:
		return claims{escrows{t}}.sweep(c)
	case program.CloseTranche:
		return escrows{t}.closeTranche(c)
	case program.CloseEscrow:
		return escrows{t}.closeEscrow(c)
	}
	return program.ErrInstruction
}

// tx is one call in progress. Methods first collect the reasons to refuse it, and change the state only if there are
// none.
type tx struct {
	*State
	now    uint64
	beside []svm.Signed
	broken []error
}

// no notes a broken rule.
func (t *tx) no(when bool, rule error) {
	if when {
		t.broken = append(t.broken, rule)
	}
}

// refused is all that is broken.
func (t *tx) refused() error { return errors.Join(t.broken...) }

// occupied reports whether there is an account of the program, or a token account, at the address.
func (t *tx) occupied(at sign.Key) bool { return t.kind(at) != "" }

func (t *tx) kind(at sign.Key) string {
	for kind, there := range map[string]bool{
		"network": has(t.Networks, at), "escrow": has(t.Escrows, at), "tranche": has(t.Tranches, at),
		"provider": has(t.Providers, at), "attested": has(t.Attested, at), "anchor": has(t.Anchors, at),
		"ballot": has(t.Ballots, at), "vote": has(t.Votes, at), "payout": has(t.Payouts, at),
		"stated": has(t.Stated, at), "token": has(t.Tokens, at), "mint": has(t.Mints, at),
	} {
		if there {
			return kind
		}
	}
	return ""
}

func has[V any](m map[sign.Key]V, k sign.Key) bool {
	_, ok := m[k]
	return ok
}

// find reads an account of the program. If it is missing, ok is false, and the call's other rules do not apply.
func find[V any](t *tx, m map[sign.Key]V, at sign.Key) (v V, ok bool) {
	if v, ok = m[at]; ok {
		return v, true
	}
	switch t.kind(at) {
	case "", "token", "mint":
		t.no(true, program.ErrOwner)
	default:
		t.no(true, program.ErrKind)
	}
	return v, false
}

// create checks that a new account has the right address, and that none exists there.
func (t *tx) create(at, must sign.Key) {
	t.no(at != must, program.ErrAddress)
	t.no(t.occupied(at), program.ErrExists)
}

// pay books rent: lamports that come back are negative.
func (t *tx) pay(who sign.Key, size int) { t.Rent[who] += int64(svm.Rent(size)) }
func (t *tx) repay(who sign.Key, size int) {
	t.Rent[who] -= int64(svm.Rent(size))
}

// move adds the token program's reasons against a transfer by an owner.
func (t *tx) move(from, to, mint, owner sign.Key, amount uint64) {
	a, okA := t.Tokens[from]
	b, okB := t.Tokens[to]
	t.no(!okA || !okB || a.Mint != mint || b.Mint != mint || a.Owner != owner || a.Amount < amount, ErrToken)
}

// moved does it.
func (t *tx) moved(from, to sign.Key, amount uint64) {
	a := t.Tokens[from]
	a.Amount -= amount
	t.Tokens[from] = a
	b := t.Tokens[to]
	b.Amount += amount
	t.Tokens[to] = b
}

// burned destroys tokens.
func (t *tx) burned(from sign.Key, amount uint64) {
	a := t.Tokens[from]
	a.Amount -= amount
	t.Tokens[from] = a
	m := t.Mints[a.Mint]
	m.Supply -= amount
	t.Mints[a.Mint] = m
}

// holding reads a token account that receives a payment.
func (t *tx) holding(at sign.Key) (svm.Token, bool) {
	a, ok := t.Tokens[at]
	switch {
	case !ok && t.kind(at) == "mint":
		t.no(true, program.ErrKind)
	case !ok:
		t.no(true, program.ErrOwner)
	default:
		t.no(!a.Plain, program.ErrKind)
	}
	return a, ok
}

// payee adds the reasons against a payment into a token account: it must be of this mint and wallet.
func (t *tx) payee(at, mint, owner sign.Key) {
	a, ok := t.holding(at)
	t.no(ok && a.Mint != mint, program.ErrMint)
	t.no(ok && a.Owner != owner, program.ErrTokenOwner)
}

// known adds the reason against a payment into a wallet's token account that is not its associated one. The wallet's
// signature allows it.
func (t *tx) known(at, mint, owner, signer sign.Key) {
	t.no(at != svm.TokenAccount(owner, mint) && (signer.IsZero() || signer != owner), program.ErrAddress)
}

// sum adds, and records an overflow.
func (t *tx) sum(a, b uint64) uint64 {
	t.no(a+b < a, program.ErrOverflow)
	return a + b
}
