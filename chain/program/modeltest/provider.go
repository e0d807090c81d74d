package modeltest

import (
	"bytes"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// providerCalls makes the calls about networks, registrations, stake, receipts and anchors of a world.
type providerCalls struct{ *World }

// networks are made, ruled and given pools.
func (w providerCalls) networks() (program.Call, []svm.Signed) {
	at, n, ok := pick(w.World, w.Networks)
	if !ok {
		return nil, nil
	}
	authority := n.Authority
	if authority.IsZero() {
		authority = w.person() // a key without a private half: it cannot sign
	}
	switch w.choice(8) {
	case 0:
		return program.SetAuthority{Authority: authority, Network: at, New: sign.Key{}}, nil
	case 1, 2:
		return program.SetAuthority{Authority: authority, Network: at, New: w.person()}, nil
	case 3, 4:
		i := w.choice(len(n.Params.Mints))
		mint := n.Params.Mints[i].Mint
		return program.InitPool{Payer: w.person(), Network: at, Mint: mint,
			Pool: account.PoolAddress(w.Program, at, mint), Index: uint8(i)}, nil
	}
	p := w.params(one(w.World, []string{"ruled", "third", "fourth"}), w.person(), w.person())
	switch w.choice(15) {
	case 7:
		p.Votes.LockSlots = 0
	case 8:
		p.Votes.VotingSlots = 0
	case 9:
		p.Votes.EpochsOfMonth = ^uint32(0)
		p.Votes.EpochSlots = 1 << 62
	case 0:
		p.EvidenceSlots = p.UnbondingSlots
	case 1:
		p.ResponseSlots = 0
	case 2:
		p.Mints[0].BurnBps, p.Mints[0].PoolBps = account.MinBurnBps-1, 5001
	case 3:
		p.Mints[1].FeeBps = account.MaxFeeBps + 1
	case 4:
		p.Mints[1].Mint = p.Mints[0].Mint
	case 5:
		p.Mints[1].Decimals++
	case 6:
		p.Mints = p.Mints[:1]
	}
	return program.InitNetwork{Payer: w.person(), Network: account.NetworkAddress(w.Program, p), Params: p}, nil
}

func (w *World) registration(network, peer, owner sign.Key) program.Register {
	at := account.ProviderAddress(w.Program, network, peer)
	return program.Register{Payer: owner, Owner: owner, Peer: peer, Network: network, Provider: at,
		Vault: account.StakeAddress(w.Program, at), Mint: w.Networks[network].Params.StakeMint, Payout: owner,
		Inventory: sign.Hash{1}}
}

func (w providerCalls) register() (program.Call, []svm.Signed) {
	network, _, ok := pick(w.World, w.Networks)
	if !ok {
		return nil, nil
	}
	return w.registration(network, w.person(), w.person()), nil
}

func (w providerCalls) update() (program.Call, []svm.Signed) {
	at, p, ok := pick(w.World, w.Providers)
	if !ok {
		return nil, nil
	}
	c := program.Update{Signer: one(w.World, []sign.Key{p.Owner, p.Peer, p.Owner}), Provider: at}
	which := w.choice(8)
	if payout := w.person(); which&1 != 0 {
		c.Payout = &payout
	}
	if inventory := w.next(); which&2 != 0 {
		c.Inventory = &inventory
	}
	if owner := w.person(); which&4 != 0 {
		c.Owner = &owner
	}
	return c, nil
}

func (w *World) stakeOf(at, who sign.Key, amount uint64) program.Stake {
	mint := w.Mints[1]
	return program.Stake{Authority: who, Source: Account(who, mint), Provider: at,
		Vault: account.StakeAddress(w.Program, at), Mint: mint, Amount: amount}
}

func (w providerCalls) stake() (program.Call, []svm.Signed) {
	at, _, ok := pick(w.World, w.Providers)
	if !ok {
		return nil, nil
	}
	return w.stakeOf(at, w.person(), w.amount(10_000)), nil
}

func (w providerCalls) requestUnstake() (program.Call, []svm.Signed) {
	at, p, ok := pick(w.World, w.Providers)
	if !ok {
		return nil, nil
	}
	return program.RequestUnstake{Owner: p.Owner, Network: p.Network, Provider: at, Amount: w.amount(p.Stake + 1)}, nil
}

func (w providerCalls) withdraw() (program.Call, []svm.Signed) {
	at, p, ok := pick(w.World, w.Providers)
	if !ok || p.Unbonding == 0 && !w.oneIn(5) {
		return nil, nil
	}
	return program.Withdraw{Owner: p.Owner, Provider: at, Vault: account.StakeAddress(w.Program, at),
		Destination: Account(w.person(), w.Mints[1]), Mint: w.Mints[1]}, nil
}

// Two sets of units with one in common: unit 2.
var unitSets = [][]market.UnitID{{{1}, {2}, {3}}, {{2}, {4}}}

// staked returns a provider, preferably with stake.
func (w *World) staked() (at sign.Key, p account.Provider, ok bool) {
	with := map[sign.Key]account.Provider{}
	for k, p := range w.Providers {
		if p.Stake+p.Unbonding > 0 {
			with[k] = p
		}
	}
	if len(with) == 0 || w.oneIn(5) {
		with = w.Providers
	}
	return pick(w, with)
}

func (w providerCalls) attest() (program.Call, []svm.Signed) {
	_, p, ok := w.staked()
	if !ok {
		return nil, nil
	}
	units := one(w.World, unitSets)
	by := p.Peer
	to := w.Slot - w.upTo(3)
	switch w.choice(8) {
	case 0:
		to = w.Slot + w.upTo(2)
	case 1:
		to = w.Slot - w.upTo(evidence+5)
	}
	core := verify.ReceiptCore{
		Version: verify.ReceiptVersion, Units: uint16(len(units)), Lease: market.LeaseID{byte(w.upTo(3))}, Seq: 1,
		Provider: by, Buyer: w.people[w.upTo(2)].Key(), UnitsRoot: market.UnitsRoot(units),
		From: market.Slot(to - w.upTo(90)), To: market.Slot(to), Cumulative: amountOf(w.amount(3000)),
	}
	if w.oneIn(15) {
		core.Version = 2
	}
	if w.oneIn(2) {
		core.Flags, core.Output = verify.ReceiptFinal, sign.Hash{byte(w.choice(2))}
	}
	reporter := w.people[w.upTo(1)].Key()
	layout := core.Marshal()
	keys := []sign.Key{core.Provider, core.Buyer}
	switch w.choice(20) {
	case 0:
		keys = keys[:1]
	case 1:
		slices.Reverse(keys)
	case 2:
		keys[1] = w.person()
	}
	return program.Attest{Reporter: reporter, Network: p.Network,
			Attested: program.AttestedAddress(w.Program, p.Network, reporter, core.Hash())},
		[]svm.Signed{w.sign(p.Network, sign.TagReceipt, layout[:], keys)}
}

// slash: any two receipts that were shown; now and then there is a conflict among them, and then it is more likely
// taken.
func (w providerCalls) slash() (program.Call, []svm.Signed) {
	at, p, ok := w.staked()
	if !ok || len(w.Attested) < 2 {
		return nil, nil
	}
	keys := sorted(w.Attested)
	var found [][2]sign.Key
	for _, a := range keys {
		for _, b := range keys {
			x, y := w.Attested[a].Core, w.Attested[b].Core
			if x.Provider == y.Provider && p.Peer == x.Provider && bytes.Compare(x.Lease[:], y.Lease[:]) < 0 &&
				max(x.From, y.From) < min(x.To, y.To) {
				found = append(found, [2]sign.Key{a, b})
			}
		}
	}
	pair := [2]sign.Key{one(w.World, keys), one(w.World, keys)}
	if len(found) > 0 && !w.oneIn(6) {
		pair = one(w.World, found)
	} else if !w.oneIn(3) {
		return nil, nil
	}
	a, b := w.Attested[pair[0]], w.Attested[pair[1]]
	mint := w.Mints[1]
	c := program.Slash{Network: p.Network, Provider: at, Vault: account.StakeAddress(w.Program, at), Mint: mint,
		A: pair[0], B: pair[1], VictimA: Account(a.Core.Buyer, mint), VictimB: Account(b.Core.Buyer, mint),
		Reporter: Account(a.Reporter, mint), Unit: market.UnitID{2}}
	c.InA, c.InB = w.unitProof(a.Core), w.unitProof(b.Core)
	return c, nil
}

func (w providerCalls) unitProof(core verify.ReceiptCore) market.UnitProof {
	for _, units := range unitSets {
		if market.UnitsRoot(units) == core.UnitsRoot {
			p, err := market.ProveUnit(units, market.UnitID{2})
			if err != nil {
				w.t.Fatal(err)
			}
			return p
		}
	}
	return market.UnitProof{}
}

func (w providerCalls) closeAttested() (program.Call, []svm.Signed) {
	at, a, ok := pick(w.World, w.Attested)
	if !ok || !w.oneIn(4) {
		return nil, nil
	}
	return program.CloseAttested{Reporter: a.Reporter, Attested: at}, nil
}

func (w providerCalls) drawPool() (program.Call, []svm.Signed) {
	at, p, ok := w.staked()
	n := w.Networks[p.Network]
	if !ok || n.Authority.IsZero() {
		return nil, nil
	}
	for _, mint := range w.Mints {
		pool := account.PoolAddress(w.Program, p.Network, mint)
		if w.Tokens[pool].Amount > 0 || w.oneIn(10) {
			return program.DrawPool{Authority: n.Authority, Network: p.Network, Pool: pool, Mint: mint, Provider: at,
				Destination: Account(p.Payout, mint), Amount: w.amount(w.Tokens[pool].Amount + 1)}, nil
		}
	}
	return nil, nil
}

func (w providerCalls) anchor() (program.Call, []svm.Signed) {
	n := int(w.between(1, 9))
	var receipts [][]byte
	for range n {
		h := w.next()
		receipts = append(receipts, h[:])
	}
	c := program.Anchor{Authority: w.person(), Root: merkle.Root(receipts), Count: uint64(n)}
	c.Anchor = account.AnchorAddress(w.Program, c.Authority, c.Root)
	w.roots[c.Anchor] = batch{receipts}
	return c, nil
}

func (w providerCalls) prove() (program.Call, []svm.Signed) {
	at, _, ok := pick(w.World, w.Anchors)
	if !ok {
		return nil, nil
	}
	receipts := w.roots[at].receipts
	i := int(w.upTo(uint64(len(receipts) - 1)))
	path, err := merkle.New(receipts).Prove(i)
	if err != nil {
		w.t.Fatal(err)
	}
	return program.Prove{Anchor: at, Receipt: sign.Hash(receipts[i]), Index: uint64(i), Path: path}, nil
}

func (w providerCalls) closeAnchor() (program.Call, []svm.Signed) {
	at, a, ok := pick(w.World, w.Anchors)
	if !ok || !w.oneIn(3) {
		return nil, nil
	}
	return program.CloseAnchor{Authority: a.Authority, Anchor: at}, nil
}
