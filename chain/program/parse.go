package program

import (
	"bytes"
	"errors"
	"slices"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/tranche"
)

// ErrCall is returned for an instruction that is no call about an escrow, an anchor or an audit, or not in its form.
var ErrCall = errors.New("program: not a call about an escrow, an anchor or an audit")

// maxCallAccounts is more than any of these calls has.
const maxCallAccounts = 16

// ParseCall parses a call about an escrow, an anchor or an audit, of the program at an address. ed is the number of the
// signatures' instruction, -1 if none is needed. The result is encoded again as a check. The bytes must be equal, and
// every account must have at least the call's permissions (permissions of one instruction hold for its whole
// transaction). It returns ErrCall.
func ParseCall(at sign.Key, in svm.Instruction) (call Call, ed int, err error) {
	if in.Program != at || len(in.Data) == 0 || len(in.Accounts) > maxCallAccounts {
		return nil, 0, ErrCall
	}
	r := &layout{fields.Reader{Rest: in.Data[1:]}}
	k := make([]sign.Key, maxCallAccounts)
	for i, m := range in.Accounts {
		k[i] = m.Key
	}
	none := func(x sign.Key) sign.Key {
		if x == in.Program {
			return sign.Key{}
		}
		return x
	}
	ed = -1
	switch in.Data[0] {
	case tagOpenEscrow:
		call = parseOpenEscrow(in, r, k)
	case tagAddTranche:
		c := AddTranche{Payer: k[0], Buyer: k[1], Escrow: k[2], Vault: k[3], Tranche: k[4], Index: r.U16()}
		c.Root = tranche.Root{Hash: r.Hash(), Sum: market.Amount(r.U64()), Count: r.U16()}
		call = c
	case tagAddStandbyTranche:
		call = parseAddStandbyTranche(in, r, k)
	case tagTopUp:
		call = TopUp{Escrow: k[0], Vault: k[1], Source: k[2], Authority: k[3], Mint: k[4], Amount: r.U64()}
	case tagClaim:
		c := Claim{Escrow: k[0], Tranche: k[1], Vault: k[2], Destination: k[3], Mint: k[4], Network: k[5], Payee: k[8],
			Ed: r.U8()}
		c.Leaf.Index, c.Leaf.Provider = r.U16(), r.Key()
		r.terms(&c.Leaf)
		c.Proof = r.proof()
		call, ed = c, int(c.Ed)
	case tagRetire:
		call, ed = parseRetire(in, r, k)
	case tagRefund:
		call = Refund{Escrow: k[0], Vault: k[1], Destination: k[2], Mint: k[3], Network: k[4], Buyer: none(k[6]),
			Payee: k[7]}
	case tagSweep:
		call = Sweep{Escrow: k[0], Vault: k[1], Mint: k[2], Network: k[3], Pool: none(k[5]), Treasury: none(k[6]),
			Referrer: none(k[7])}
	case tagCloseTranche:
		call = CloseTranche{Escrow: k[0], Tranche: k[1], RentPayer: k[2]}
	case tagAnchor:
		c, ok := ParseAnchor(at, in)
		if !ok {
			return nil, 0, ErrCall
		}
		call = c
	case tagCloseAnchor:
		call = CloseAnchor{Authority: k[0], Anchor: k[1]}
	case tagState:
		c := State{Reporter: k[0], Network: k[1], Stated: k[2], Ed: r.U8(), What: Statement(r.U8())}
		call, ed = c, int(c.Ed)
	case tagCloseStated:
		call = CloseStated{Reporter: k[0], Stated: k[1]}
	case tagSlashAudit:
		c := SlashAudit{Network: k[0], Provider: k[1], Vault: k[2], Mint: k[3], A: k[4], Reporter: k[6],
			Kind: audit.Kind(r.U8())}
		if c.Kind == audit.TwoAnswers {
			c.B = k[5]
		} else {
			r.wrongValue(&c)
		}
		call = c
	case tagCloseEscrow:
		call = CloseEscrow{Escrow: k[0], Vault: k[1], Destination: k[2], Mint: k[3], RentPayer: k[5], Buyer: none(k[6]),
			Payee: k[7]}
	}
	if call == nil || !bytes.Equal(call.Instruction(in.Program).Data, in.Data) ||
		!slices.EqualFunc(call.Instruction(in.Program).Accounts, in.Accounts, serves) {
		return nil, 0, ErrCall
	}
	return call, ed, nil
}

// wrongValue reads the fields of SlashAudit after its kind.
func (r *layout) wrongValue(c *SlashAudit) {
	c.Value, c.Index, c.Count = r.U8(), r.U16(), r.U16()
	// An error is not lost: the call is written again and compared, which refuses an invalid answer.
	c.Answer, _ = audit.UnmarshalAnswer(r.Take(audit.AnswerSize))
	c.Opened.Leaf = r.U32()
	for i := range c.Opened.Values {
		c.Opened.Values[i] = int32(r.U32())
	}
	for range r.U8() {
		c.Path = append(c.Path, r.Hash())
	}
}

// serves reports whether an account has the needed permissions.
func serves(need, m svm.Meta) bool {
	return m.Key == need.Key && (m.Signer || !need.Signer) && (m.Writable || !need.Writable)
}

func parseOpenEscrow(in svm.Instruction, r *layout, k []sign.Key) Call {
	c := OpenEscrow{Payer: k[0], Buyer: k[1], Source: k[2], Authority: k[3], Escrow: k[4], Vault: k[5], Mint: k[6],
		Network: k[7], Order: market.OrderID(r.Key()), Opened: r.U64(), Deadline: r.U64(), Deposit: r.U64(),
		Referrer: r.Key(), RefundOwner: r.Key(), MintIndex: r.U8()}
	c.Keys.Threshold = r.U8()
	for range r.U8() {
		c.Standbys = append(c.Standbys, account.Standby{Provider: r.Key(), Payout: r.Key(),
			MaxRate: market.Rate(r.U64()), Budget: market.Amount(r.U64())})
	}
	for _, m := range in.Accounts[min(10, len(in.Accounts)):] {
		c.Keys.Keys = append(c.Keys.Keys, m.Key)
	}
	return c
}

func parseAddStandbyTranche(in svm.Instruction, r *layout, k []sign.Key) Call {
	c := AddStandbyTranche{Payer: k[0], Escrow: k[1], Vault: k[2], Tranche: k[3], Index: r.U16()}
	for range r.U8() {
		l, which, lease := tranche.Leaf{}, r.U8(), market.LeaseID(r.Key())
		r.terms(&l)
		c.Leaves = append(c.Leaves, StandbyLeaf{Standby: which, Lease: lease, Rate: l.Rate, Cap: l.Cap,
			Start: l.Start, End: l.End})
	}
	for _, m := range in.Accounts[min(5, len(in.Accounts)):] {
		c.Signers = append(c.Signers, m.Key)
	}
	return c
}

func parseRetire(in svm.Instruction, r *layout, k []sign.Key) (Call, int) {
	switch r.U8() {
	case retireBegin:
		c := RetireBegin{Escrow: k[0], Tranche: k[1], Network: k[2], Index: r.U16()}
		for _, m := range in.Accounts[min(3, len(in.Accounts)):] {
			c.Signers = append(c.Signers, m.Key)
		}
		return c, -1
	case retireFinish:
		c := RetireFinish{Escrow: k[0], Tranche: k[1]}
		c.Leaf.Index, c.Leaf.Provider, c.Leaf.Lease, c.Leaf.Payout = r.U16(), r.Key(), market.LeaseID(r.Key()), r.Key()
		r.terms(&c.Leaf)
		c.Proof = r.proof()
		return c, -1
	case retireFinal:
		c := RetireFinal{Escrow: k[0], Tranche: k[1], Network: k[2], Ed: r.U8()}
		c.Leaf.Index, c.Leaf.Payout = r.U16(), r.Key()
		r.terms(&c.Leaf)
		c.Proof = r.proof()
		return c, int(c.Ed)
	}
	return nil, -1
}

// layout reads an instruction's data; ParseCall checks the result.
type layout struct{ fields.Reader }

func (r *layout) terms(l *tranche.Leaf) {
	l.Version = tranche.LeafVersion
	l.Rate, l.Cap = market.Rate(r.U64()), market.Amount(r.U64())
	l.Start, l.End = market.Slot(r.U64()), market.Slot(r.U64())
}

func (r *layout) proof() (p tranche.Proof) {
	p = tranche.Proof{}
	for range r.U8() {
		p = append(p, tranche.Sibling{Hash: r.Hash(), Sum: market.Amount(r.U64())})
	}
	return p
}
