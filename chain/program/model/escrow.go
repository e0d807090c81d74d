package model

import (
	"bytes"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// escrows are the calls that open, fill and close an escrow.
type escrows struct{ *tx }

// openEscrow: the deposit is in the vault before anything else. The slot of opening is part of the address and must be
// recent, and the escrow stays longer than that, so the address never returns.
func (t escrows) openEscrow(c program.OpenEscrow) error {
	n, ok := find(t.tx, t.Networks, c.Network)
	t.no(ok && (int(c.MintIndex) >= len(n.Params.Mints) || n.Params.Mints[c.MintIndex].Mint != c.Mint), program.ErrMint)
	t.no(!lawful(c.Keys), program.ErrKeySet)
	t.no(len(c.Standbys) > account.MaxStandbys, program.ErrStandby)
	t.no(c.Opened > t.now || t.now-c.Opened > account.OpeningSlots, program.ErrOpened)
	t.no(c.Deadline <= t.now || c.Deadline-c.Opened > account.MaxEscrowSlots, program.ErrDeadline)
	t.no(c.Deposit == 0, program.ErrAmount)
	t.no(c.RefundOwner.IsZero(), program.ErrTokenOwner)
	at, bump := svm.FindAddress(t.Program, account.EscrowSeeds(c.Network, c.Buyer, sign.Hash(c.Order), c.Opened)...)
	t.create(c.Escrow, at)
	vault, vaultBump := svm.FindAddress(t.Program, account.VaultSeeds(c.Escrow)...)
	t.create(c.Vault, vault)
	from := t.Tokens[c.Source]
	t.no(from.Mint != c.Mint || from.Owner != c.Authority || from.Amount < c.Deposit, ErrToken)
	if err := t.refused(); err != nil {
		return err
	}
	t.open(c.Payer, c.Vault, c.Mint, c.Escrow)
	t.moved(c.Source, c.Vault, c.Deposit)
	t.Escrows[c.Escrow] = account.Escrow{
		Bump: bump, VaultBump: vaultBump, State: account.EscrowOpen, MintIndex: c.MintIndex, Network: c.Network,
		Buyer: c.Buyer, Order: c.Order, Mint: c.Mint, Vault: c.Vault, RefundOwner: c.RefundOwner, Referrer: c.Referrer,
		RentPayer: c.Payer, Opened: c.Opened, Deadline: c.Deadline, Deposited: c.Deposit, Keys: c.Keys,
		Standbys: slices.Clone(c.Standbys),
	}
	t.pay(c.Payer, account.EscrowSize(len(c.Keys.Keys), len(c.Standbys)))
	return nil
}

// lawful: 1 to 5 keys, strictly ascending, a threshold that they can reach. (That they can sign, they show by signing.)
func lawful(ks market.KeySet) bool {
	for i := 1; i < len(ks.Keys); i++ {
		if bytes.Compare(ks.Keys[i-1][:], ks.Keys[i][:]) >= 0 {
			return false
		}
	}
	return len(ks.Keys) <= account.MaxVoucherKeys && ks.Threshold > 0 && int(ks.Threshold) <= len(ks.Keys)
}

// openOne reads an escrow that still pays.
func (t escrows) openOne(at sign.Key) (account.Escrow, bool) {
	e, ok := find(t.tx, t.Escrows, at)
	t.no(ok && e.State != account.EscrowOpen, program.ErrRefunded)
	return e, ok
}

// free is the vault's balance beyond its debts.
func (t escrows) free(e account.Escrow) uint64 {
	return t.Tokens[e.Vault].Amount - e.Outstanding - e.Fee
}

// signedBy notes that fewer voucher keys are there than must, or others, or out of order.
func (t escrows) signedBy(e account.Escrow, keys []sign.Key) {
	next := 0
	for _, k := range keys {
		i := slices.Index(e.Keys.Keys[next:], k)
		if i < 0 {
			t.no(true, program.ErrThreshold)
			return
		}
		next += i + 1
	}
	t.no(len(keys) < int(e.Keys.Threshold), program.ErrThreshold)
}

// addTranche: the buyer sets a part of the free money aside.
func (t escrows) addTranche(c program.AddTranche) error {
	e, ok := t.openOne(c.Escrow)
	if !ok {
		return t.refused()
	}
	t.no(c.Buyer != e.Buyer, program.ErrAddress)
	return t.setAside(e, account.Tranche{By: account.ByBuyer, Escrow: c.Escrow, RentPayer: c.Payer},
		opening{c.Tranche, c.Vault, c.Index, c.Root})
}

type opening struct {
	tranche, vault sign.Key
	index          uint16
	root           tranche.Root
}

// setAside opens a tranche of an escrow: the next one, before the deadline, within the free money.
func (t escrows) setAside(e account.Escrow, n account.Tranche, o opening) error {
	t.no(o.index != e.Tranches, program.ErrLeaf)
	t.no(e.Tranches == 1<<16-1, program.ErrOverflow)
	t.no(t.now >= e.Deadline, program.ErrDeadline)
	t.no(o.root.Count == 0 || o.root.Count > account.MaxLeaves, program.ErrIndex)
	t.no(o.vault != e.Vault, program.ErrAddress)
	t.no(uint64(o.root.Sum) > t.free(e), program.ErrAmount)
	at, bump := svm.FindAddress(t.Program, account.TrancheSeeds(n.Escrow, o.index)...)
	t.create(o.tranche, at)
	if err := t.refused(); err != nil {
		return err
	}
	n.Bump, n.Index, n.Opened, n.Root = bump, o.index, t.now, o.root.Hash
	n.Sum, n.Outstanding = uint64(o.root.Sum), uint64(o.root.Sum)
	n.Leaves = make([]account.LeafState, o.root.Count)
	t.Tranches[at] = n
	e.Tranches++
	e.Outstanding += n.Sum
	t.Escrows[n.Escrow] = e
	t.pay(n.RentPayer, account.TrancheSize(len(n.Leaves)))
	return nil
}

// addStandbyTranche: the voucher keys set money aside without the buyer: only for the buyer's standbys, at most at the
// buyer's price, within the buyer's budget, and only for future slots.
func (t escrows) addStandbyTranche(c program.AddStandbyTranche) error {
	e, ok := t.openOne(c.Escrow)
	if !ok {
		return t.refused()
	}
	t.signedBy(e, c.Signers)
	t.no(len(c.Leaves) == 0 || len(c.Leaves) > program.MaxStandbyLeaves, program.ErrIndex)
	e.Standbys = slices.Clone(e.Standbys)
	leaves := make([]tranche.Leaf, len(c.Leaves))
	for i, l := range c.Leaves {
		if int(l.Standby) >= len(e.Standbys) {
			t.no(true, program.ErrStandby)
			return t.refused()
		}
		s := &e.Standbys[l.Standby]
		t.no(l.Start >= l.End, program.ErrLeaf)
		t.no(l.Start+account.OpeningSlots < l.Start, program.ErrOverflow)
		past := uint64(l.Start)+account.OpeningSlots < t.now
		t.no(past || uint64(l.End) > e.Deadline || l.Rate > s.MaxRate || l.Cap > s.Budget, program.ErrStandby)
		s.Budget -= min(l.Cap, s.Budget)
		leaves[i] = tranche.Leaf{Version: tranche.LeafVersion, Index: uint16(i), Provider: s.Provider, Lease: l.Lease,
			Payout: s.Payout, Rate: l.Rate, Cap: l.Cap, Start: l.Start, End: l.End}
	}
	root, ok := rootOf(leaves)
	if t.no(!ok, program.ErrOverflow); !ok || len(leaves) == 0 {
		return t.refused()
	}
	return t.setAside(e, account.Tranche{By: account.ByKeys, Escrow: c.Escrow, RentPayer: c.Payer},
		opening{c.Tranche, c.Vault, c.Index, root})
}

// rootOf is the root over at most 4 leaves; ok is false when their caps do not fit 64 bits together. (tranche.Build
// also refuses a lease that stands twice. The program does not: a key set that signs two leaves for one lease lets it
// be paid by both.)
func rootOf(leaves []tranche.Leaf) (root tranche.Root, ok bool) {
	type node struct {
		hash sign.Hash
		sum  uint64
	}
	var level []node
	for _, l := range leaves {
		b := l.Marshal()
		level = append(level, node{sign.Sum([]byte{0x10}, b[:]), uint64(l.Cap)})
	}
	for len(level) > 1 {
		var up []node
		for i := 0; i < len(level); i += 2 {
			if i+1 == len(level) {
				up = append(up, level[i])
				continue
			}
			l, r := level[i], level[i+1]
			if l.sum+r.sum < l.sum {
				return root, false
			}
			up = append(up, node{sign.Sum([]byte{0x11}, l.hash[:], le64(l.sum), r.hash[:], le64(r.sum)), l.sum + r.sum})
		}
		level = up
	}
	if len(level) == 0 {
		return root, true
	}
	count := uint16(len(leaves))
	hash := sign.Sum([]byte{0x12, byte(count), byte(count >> 8)}, le64(level[0].sum), level[0].hash[:])
	return tranche.Root{Hash: hash, Sum: market.Amount(level[0].sum), Count: count}, true
}

func le64(v uint64) []byte {
	return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24), byte(v >> 32), byte(v >> 40), byte(v >> 48),
		byte(v >> 56)}
}

// topUp: any key adds to the deposit.
func (t escrows) topUp(c program.TopUp) error {
	e, ok := t.openOne(c.Escrow)
	t.no(ok && c.Vault != e.Vault, program.ErrAddress)
	t.no(c.Source == c.Vault, program.ErrDuplicate)
	t.no(c.Amount == 0, program.ErrAmount)
	t.no(ok && c.Mint != e.Mint, program.ErrMint)
	t.move(c.Source, c.Vault, c.Mint, c.Authority, c.Amount)
	t.sum(e.Deposited, c.Amount)
	if err := t.refused(); err != nil {
		return err
	}
	t.moved(c.Source, c.Vault, c.Amount)
	e.Deposited += c.Amount
	t.Escrows[c.Escrow] = e
	return nil
}

// closeTranche closes a tranche without outstanding money, and returns its rent.
func (t escrows) closeTranche(c program.CloseTranche) error {
	e, okE := find(t.tx, t.Escrows, c.Escrow)
	n, okN := find(t.tx, t.Tranches, c.Tranche)
	t.no(okN && n.Escrow != c.Escrow, program.ErrAddress)
	t.no(okN && n.RentPayer != c.RentPayer, program.ErrAddress)
	t.no(okE && okN && e.State == account.EscrowOpen && n.Outstanding > 0, program.ErrOutstanding)
	if err := t.refused(); err != nil {
		return err
	}
	delete(t.Tranches, c.Tranche)
	e.Closed++
	t.Escrows[c.Escrow] = e
	t.repay(n.RentPayer, account.TrancheSize(len(n.Leaves)))
	return nil
}

// closeEscrow: nothing outstanding, fees swept, tranches closed, and after any transaction that could open it again.
// Before the deadline of an unrefunded escrow only with the buyer's signature.
func (t escrows) closeEscrow(c program.CloseEscrow) error {
	e, ok := find(t.tx, t.Escrows, c.Escrow)
	if !ok {
		return t.refused()
	}
	t.no(c.Vault != e.Vault || c.RentPayer != e.RentPayer, program.ErrAddress)
	t.no(t.now <= e.Opened+account.OpeningSlots, program.ErrEarly)
	if e.State == account.EscrowOpen && t.now <= e.Deadline {
		t.no(c.Buyer.IsZero(), program.ErrEarly)
		t.no(!c.Buyer.IsZero() && c.Buyer != e.Buyer, program.ErrAddress)
	}
	t.no(e.Outstanding > 0 || e.Closed != e.Tranches, program.ErrOutstanding)
	t.no(e.Fee > 0, program.ErrFees)
	left := t.free(e)
	if left > 0 {
		t.payBack(e, c.Destination, c.Mint, c.Payee, left)
	}
	if err := t.refused(); err != nil {
		return err
	}
	if left > 0 {
		t.moved(e.Vault, c.Destination, left)
	}
	delete(t.Tokens, e.Vault)
	delete(t.Escrows, c.Escrow)
	t.repay(e.RentPayer, account.EscrowSize(len(e.Keys.Keys), len(e.Standbys)))
	t.repay(e.RentPayer, svm.TokenSize)
	return nil
}

// payBack adds the reasons against a payment from the vault to the refund owner.
func (t escrows) payBack(e account.Escrow, to, mint, payee sign.Key, amount uint64) {
	t.no(to == e.Vault, program.ErrDuplicate)
	t.no(mint != e.Mint, program.ErrMint)
	t.payee(to, mint, e.RefundOwner)
	t.known(to, mint, e.RefundOwner, payee)
	t.sum(e.Refunded, amount)
}
