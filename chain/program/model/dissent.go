package model

import (
	"github.com/starling-network/starling/chain/program"
)

// slashDissent: who signed a result that is false, as more than two thirds computed, loses everything. Half burns at least; the buyer
// comes first with what it had paid, the reporter gets at most a quarter of the rest, and what is left burns too.
func (t *tx) slashDissent(c program.SlashDissent) error {
	p, okP := find(t, t.Providers, c.Provider)
	n, okN := t.networkOf(p, okP, c.Network)
	b, okB := find(t, t.Ballots, c.Ballot)
	a, okA := find(t, t.Attested, c.Attested)
	t.no(okB && b.Done, program.ErrOver)
	t.no(okP && c.Vault != program.StakeAddress(t.Program, c.Provider), program.ErrAddress)
	if !okP || !okN || !okB || !okA {
		return t.refused()
	}
	t.no(b.Network != c.Network || a.Network != c.Network, program.ErrOtherNetwork)
	t.no(!p.AnswersFor(a.Core.Provider), program.ErrNotItsKey)
	t.no(!a.Core.Final(), program.ErrReceipt)
	t.no(b.Subject != program.SubjectDissent || b.Dissent.Receipt != a.Core.Hash(), program.ErrSubject)
	t.no(b.Subject == program.SubjectDissent && b.Dissent.Output == a.Core.Output, program.ErrNoLie)
	t.no(!b.Carried(), program.ErrNotCarried)
	to := uint64(a.Core.To)
	t.no(to > t.now, program.ErrNotOver)
	t.no(add(to, n.Params.EvidenceSlots) < t.now, program.ErrTooOld)
	t.no(to <= p.Slashed, program.ErrSlashedBefore)
	total := t.sum(p.Stake, p.Unbonding)
	t.no(total == 0, program.ErrNothingStaked)
	t.mint(c.Mint)
	t.no(t.Tokens[c.Vault].Mint != c.Mint, ErrToken)
	t.payee(c.Victim, c.Mint, a.Core.Buyer)
	t.payee(c.Reporter, c.Mint, a.Reporter)
	if err := t.refused(); err != nil {
		return err
	}
	s := program.TakenFor(total, uint64(a.Core.Cumulative), 0)
	t.moved(c.Vault, c.Victim, s.VictimA)
	t.moved(c.Vault, c.Reporter, s.Reporter)
	t.burned(c.Vault, s.Burned)
	t.unbonded(p.Network, p.Bonded)
	p.Stake, p.Bonded, p.Unbonding, p.Ready, p.Slashed, p.WasSlashed = 0, 0, 0, 0, t.now, true
	b.Done = true
	t.Providers[c.Provider], t.Ballots[c.Ballot] = p, b
	return nil
}
