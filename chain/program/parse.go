package program

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/tranche"
)

// ErrCall: not a call about an escrow, an anchor or an audit, or not in its one form.
var ErrCall = errors.New("program: not a call about an escrow, an anchor or an audit")

// maxCallAccounts is more than any of these calls has.
const maxCallAccounts = 16

// ParseCall parses a call about an escrow, an anchor or an audit, of the program at an address. ed is the number of the
// signatures' instruction, -1 where none is needed. The result is written again to check it. The bytes must be equal,
// and every account must have at least the call's permissions (permissions of one instruction hold for its whole
// transaction). It returns ErrCall.
func ParseCall(at sign.Key, in Instruction) (call Call, ed int, err error) {
	if in.Program != at || len(in.Data) == 0 || len(in.Accounts) > maxCallAccounts {
		return nil, 0, ErrCall
	}
	r := &layout{b: in.Data[1:]}
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
		c := AddTranche{Payer: k[0], Buyer: k[1], Escrow: k[2], Vault: k[3], Tranche: k[4], Index: r.u16()}
		c.Root = tranche.Root{Hash: sign.Hash(r.key()), Sum: market.Amount(r.u64()), Count: r.u16()}
		call = c
	case tagAddStandbyTranche:
		call = parseAddStandbyTranche(in, r, k)
	case tagTopUp:
		call = TopUp{Escrow: k[0], Vault: k[1], Source: k[2], Authority: k[3], Mint: k[4], Amount: r.u64()}
	case tagClaim:
		c := Claim{Escrow: k[0], Tranche: k[1], Vault: k[2], Destination: k[3], Mint: k[4], Network: k[5], Payee: k[8],
			Ed: r.u8()}
		c.Leaf.Index, c.Leaf.Provider = r.u16(), r.key()
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
		c := State{Reporter: k[0], Network: k[1], Stated: k[2], Ed: r.u8(), What: Statement(r.u8())}
		call, ed = c, int(c.Ed)
	case tagCloseStated:
		call = CloseStated{Reporter: k[0], Stated: k[1]}
	case tagSlashAudit:
		c := SlashAudit{Network: k[0], Provider: k[1], Vault: k[2], Mint: k[3], A: k[4], Reporter: k[6],
			Kind: audit.Kind(r.u8())}
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
	c.Value, c.Index, c.Count = r.u8(), r.u16(), r.u16()
	c.Answer, _ = audit.UnmarshalAnswer(r.take(audit.AnswerSize)) // one that is none is not written again as it was
	c.Opened.Leaf = r.u32()
	for i := range c.Opened.Values {
		c.Opened.Values[i] = int32(r.u32())
	}
	for range r.u8() {
		c.Path = append(c.Path, sign.Hash(r.key()))
	}
}

// serves reports whether an account has the needed permissions.
func serves(need, m Meta) bool {
	return m.Key == need.Key && (m.Signer || !need.Signer) && (m.Writable || !need.Writable)
}

func parseOpenEscrow(in Instruction, r *layout, k []sign.Key) Call {
	c := OpenEscrow{Payer: k[0], Buyer: k[1], Source: k[2], Authority: k[3], Escrow: k[4], Vault: k[5], Mint: k[6],
		Network: k[7], Order: market.OrderID(r.key()), Opened: r.u64(), Deadline: r.u64(), Deposit: r.u64(),
		Referrer: r.key(), RefundOwner: r.key(), MintIndex: r.u8()}
	c.Keys.Threshold = r.u8()
	for range r.u8() {
		c.Standbys = append(c.Standbys, Standby{Provider: r.key(), Payout: r.key(), MaxRate: market.Rate(r.u64()),
			Budget: market.Amount(r.u64())})
	}
	for _, m := range in.Accounts[min(10, len(in.Accounts)):] {
		c.Keys.Keys = append(c.Keys.Keys, m.Key)
	}
	return c
}

func parseAddStandbyTranche(in Instruction, r *layout, k []sign.Key) Call {
	c := AddStandbyTranche{Payer: k[0], Escrow: k[1], Vault: k[2], Tranche: k[3], Index: r.u16()}
	for range r.u8() {
		l, which, lease := tranche.Leaf{}, r.u8(), market.LeaseID(r.key())
		r.terms(&l)
		c.Leaves = append(c.Leaves, StandbyLeaf{Standby: which, Lease: lease, Rate: l.Rate, Cap: l.Cap,
			Start: l.Start, End: l.End})
	}
	for _, m := range in.Accounts[min(5, len(in.Accounts)):] {
		c.Signers = append(c.Signers, m.Key)
	}
	return c
}

func parseRetire(in Instruction, r *layout, k []sign.Key) (Call, int) {
	switch r.u8() {
	case retireBegin:
		c := RetireBegin{Escrow: k[0], Tranche: k[1], Network: k[2], Index: r.u16()}
		for _, m := range in.Accounts[min(3, len(in.Accounts)):] {
			c.Signers = append(c.Signers, m.Key)
		}
		return c, -1
	case retireFinish:
		c := RetireFinish{Escrow: k[0], Tranche: k[1]}
		c.Leaf.Index, c.Leaf.Provider, c.Leaf.Lease, c.Leaf.Payout = r.u16(), r.key(), market.LeaseID(r.key()), r.key()
		r.terms(&c.Leaf)
		c.Proof = r.proof()
		return c, -1
	case retireFinal:
		c := RetireFinal{Escrow: k[0], Tranche: k[1], Network: k[2], Ed: r.u8()}
		c.Leaf.Index, c.Leaf.Payout = r.u16(), r.key()
		r.terms(&c.Leaf)
		c.Proof = r.proof()
		return c, int(c.Ed)
	}
	return nil, -1
}

// layout reads an instruction's data; ParseCall checks the result.
type layout struct{ b []byte }

func (r *layout) take(n int) []byte {
	out := make([]byte, n)
	r.b = r.b[copy(out, r.b):]
	return out
}
func (r *layout) u8() uint8     { return r.take(1)[0] }
func (r *layout) u16() uint16   { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *layout) u32() uint32   { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *layout) u64() uint64   { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *layout) key() sign.Key { return sign.Key(r.take(32)) }

func (r *layout) terms(l *tranche.Leaf) {
	l.Version = tranche.LeafVersion
	l.Rate, l.Cap = market.Rate(r.u64()), market.Amount(r.u64())
	l.Start, l.End = market.Slot(r.u64()), market.Slot(r.u64())
}

func (r *layout) proof() (p tranche.Proof) {
	p = tranche.Proof{}
	for range r.u8() {
		p = append(p, tranche.Sibling{Hash: sign.Hash(r.key()), Sum: market.Amount(r.u64())})
	}
	return p
}
