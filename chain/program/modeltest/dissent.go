package modeltest

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// firstDissent is about a result of the first provider, which votes for it itself; nothing is taken yet.
func (w *World) firstDissent(network, provider sign.Key, do func(program.Call, ...program.Signed)) {
	w.Slot++ // for another address
	p, by := w.Providers[provider], w.people[0].Key()
	core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: market.LeaseID{9}, Seq: 1, Provider: p.Peer, Buyer: w.people[2].Key(),
		From: market.Slot(w.Slot - 2), To: market.Slot(w.Slot), Cumulative: 60, Output: sign.Hash{1}}
	layout := core.Marshal()
	do(program.Attest{Reporter: by, Network: network, Attested: program.AttestedAddress(w.Program, network, by, core.Hash())},
		w.signed(w.Networks[network].Params.Domain(w.Program), sign.TagReceipt, layout[:], core.Provider, core.Buyer))
	c := w.dissentOf(network, provider, program.Dissent{Receipt: core.Hash(), Output: sign.Hash{2}})
	do(c)
	do(program.CastVote{Payer: p.Owner, Signer: p.Peer, Provider: provider, Ballot: c.Ballot, Vote: program.VoteAddress(w.Program, sign.Hash(c.Ballot), provider), For: true})
}

// dissentOf opens a ballot on a false result.
func (w *World) dissentOf(network, provider sign.Key, d program.Dissent) program.ProposeDissent {
	p := w.Providers[provider]
	return program.ProposeDissent{Payer: p.Owner, Signer: one(w, []sign.Key{p.Owner, p.Peer}), Network: network, Provider: provider,
		Ballot: program.BallotAddress(w.Program, network, provider, w.Slot), Opened: w.Slot, Dissent: d}
}

func (w *World) proposeDissent() (program.Call, []program.Signed) {
	at, p, ok := w.bonded()
	_, a, shown := pick(w, w.Attested)
	if !ok || !shown {
		return nil, nil
	}
	return w.dissentOf(p.Network, at, program.Dissent{Receipt: a.Core.Hash(), Output: sign.Hash{byte(w.choice(3))}}), nil
}

func (w *World) slashDissent() (program.Call, []program.Signed) {
	ballot, b, ok := w.carried(program.SubjectDissent)
	if !ok {
		return nil, nil
	}
	about := map[sign.Key]program.Attested{}
	for k, a := range w.Attested {
		if a.Core.Hash() == b.Dissent.Receipt {
			about[k] = a
		}
	}
	if len(about) == 0 || w.oneIn(10) {
		about = w.Attested
	}
	shown, a, ok := pick(w, about)
	if !ok {
		return nil, nil
	}
	with := map[sign.Key]program.Provider{}
	for k, p := range w.Providers {
		if p.AnswersFor(a.Core.Provider) && p.Network == b.Network && p.Stake+p.Unbonding > 0 {
			with[k] = p
		}
	}
	if len(with) == 0 || w.oneIn(10) {
		with = w.Providers
	}
	at, p, ok := pick(w, with)
	if !ok {
		return nil, nil
	}
	mint := w.Mints[1]
	return program.SlashDissent{Network: p.Network, Provider: at, Vault: program.StakeAddress(w.Program, at), Mint: mint, Ballot: ballot, Attested: shown,
		Victim: Account(a.Core.Buyer, mint), Reporter: Account(a.Reporter, mint)}, nil
}
