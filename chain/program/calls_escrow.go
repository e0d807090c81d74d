package program

import (
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// OpenEscrow opens an escrow and puts the deposit into its vault. All voucher keys sign it.
type OpenEscrow struct {
	Payer     sign.Key // of the rent, which comes back
	Buyer     sign.Key
	Source    sign.Key // token account
	Authority sign.Key // its owner or delegate
	Escrow    sign.Key // EscrowAddress
	Vault     sign.Key // VaultAddress
	Mint      sign.Key
	Network   sign.Key

	Order       market.OrderID
	Opened      uint64 // a slot of the last OpeningSlots
	Deadline    uint64 // slot
	Deposit     uint64
	Referrer    sign.Key // wallet; zero: none
	RefundOwner sign.Key // wallet
	MintIndex   uint8
	Keys        market.KeySet // signers of vouchers
	Standbys    []account.Standby
}

// Instruction implements Call.
func (c OpenEscrow) Instruction(program sign.Key) svm.Instruction {
	d := data{tagOpenEscrow}.Bytes(c.Order[:]...).U64(c.Opened).U64(c.Deadline).U64(c.Deposit).Key(c.Referrer).
		Key(c.RefundOwner)
	d = d.U8(c.MintIndex).U8(c.Keys.Threshold).U8(uint8(len(c.Standbys)))
	for _, s := range c.Standbys {
		d = d.Bytes(s.Marshal()...)
	}
	accounts := []svm.Meta{pays(c.Payer), signs(c.Buyer), writes(c.Source), signs(c.Authority), writes(c.Escrow),
		writes(c.Vault), reads(c.Mint), reads(c.Network), tokenProgram, systemProgram}
	return instruction(program, d, appendSigners(accounts, c.Keys.Keys)...)
}

// AddTranche sets a part of an escrow's free money aside for leases.
type AddTranche struct {
	Payer   sign.Key
	Buyer   sign.Key
	Escrow  sign.Key
	Vault   sign.Key
	Tranche sign.Key // TrancheAddress

	Index uint16 // the escrow's next
	Root  tranche.Root
}

// Instruction implements Call.
func (c AddTranche) Instruction(program sign.Key) svm.Instruction {
	root := c.Root.Marshal()
	return instruction(program, data{tagAddTranche}.U16(c.Index).Bytes(root[:]...),
		pays(c.Payer), signs(c.Buyer), writes(c.Escrow), reads(c.Vault), writes(c.Tranche), systemProgram)
}

// StandbyLeaf is a lease of one of an escrow's standbys; provider and payout are the standby's.
type StandbyLeaf struct {
	Standby uint8          `json:"standby"`
	Lease   market.LeaseID `json:"lease"`
	Rate    market.Rate    `json:"rate"`
	Cap     market.Amount  `json:"cap"`
	Start   market.Slot    `json:"start"`
	End     market.Slot    `json:"end"`
}

// Address is the escrow's address by the call's network, buyer, order and slot, for the program at an address.
func (c OpenEscrow) Address(program sign.Key) sign.Key {
	return account.EscrowAddress(program, c.Network, c.Buyer, sign.Hash(c.Order), c.Opened)
}

// MaxStandbyLeaves is the most leaves of one AddStandbyTranche.
const MaxStandbyLeaves = 4

// AddStandbyTranche sets a part of an escrow's free money aside for standbys, with signatures of the voucher keys.
type AddStandbyTranche struct {
	Payer   sign.Key
	Escrow  sign.Key
	Vault   sign.Key
	Tranche sign.Key
	Signers []sign.Key // voucher keys, ascending

	Index  uint16
	Leaves []StandbyLeaf // 1 to MaxStandbyLeaves
}

// Instruction implements Call.
func (c AddStandbyTranche) Instruction(program sign.Key) svm.Instruction {
	d := data{tagAddStandbyTranche}.U16(c.Index).U8(uint8(len(c.Leaves)))
	for _, l := range c.Leaves {
		d = d.U8(l.Standby).Bytes(l.Lease[:]...).Bytes(terms(l.Rate, l.Cap, l.Start, l.End)...)
	}
	accounts := []svm.Meta{pays(c.Payer), writes(c.Escrow), reads(c.Vault), writes(c.Tranche), systemProgram}
	return instruction(program, d, appendSigners(accounts, c.Signers)...)
}

// TopUp adds to the deposit of an open escrow. It is permissionless.
type TopUp struct {
	Escrow    sign.Key
	Vault     sign.Key
	Source    sign.Key
	Authority sign.Key // the source's owner or delegate
	Mint      sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c TopUp) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagTopUp}.U64(c.Amount),
		writes(c.Escrow), writes(c.Vault), writes(c.Source), signs(c.Authority), reads(c.Mint), tokenProgram)
}

// Claim pays a provider the amount due under a voucher. VoucherSigned must be in the same transaction. It is
// permissionless.
type Claim struct {
	Escrow      sign.Key
	Tranche     sign.Key
	Vault       sign.Key
	Destination sign.Key // TokenAccount of the leaf's payout; another of its if it signs
	Mint        sign.Key
	Network     sign.Key
	Payee       sign.Key // the leaf's payout, if it signs; zero: does not

	Ed    uint8        // number of the precompile's instruction in the transaction
	Leaf  tranche.Leaf // its lease is the voucher's, its payout the destination's owner: neither is sent
	Proof tranche.Proof
}

// Instruction implements Call.
func (c Claim) Instruction(program sign.Key) svm.Instruction {
	d := data{tagClaim, c.Ed}.U16(c.Leaf.Index).Key(c.Leaf.Provider).Bytes(leafTerms(c.Leaf)...).
		Bytes(c.Proof.Marshal()...)
	accounts := []svm.Meta{writes(c.Escrow), writes(c.Tranche), writes(c.Vault), writes(c.Destination), reads(c.Mint),
		reads(c.Network), tokenProgram, instructionsSysvar}
	return instruction(program, d, appendPayee(accounts, c.Payee)...)
}

// VoucherSigned is the signature instruction that Claim needs beside it.
func VoucherSigned(d sign.Domain, v verify.SignedVoucher) svm.Signed {
	layout := v.Voucher.Marshal()
	s := svm.Signed{Message: d.Preimage(sign.TagVoucher, layout[:])}
	for _, sig := range v.Sigs {
		s.Keys = append(s.Keys, v.Set.Keys[sig.Index])
		s.Signatures = append(s.Signatures, sig.Signature)
	}
	return s
}

// RetireBegin begins to retire a leaf: its provider has the network's response slots left to claim.
type RetireBegin struct {
	Escrow  sign.Key
	Tranche sign.Key
	Network sign.Key
	Signers []sign.Key // the buyer, or voucher keys, ascending

	Index uint16
}

// Modes of retire.
const (
	retireBegin  = 0
	retireFinish = 1
	retireFinal  = 2
)

// Instruction implements Call.
func (c RetireBegin) Instruction(program sign.Key) svm.Instruction {
	accounts := []svm.Meta{writes(c.Escrow), writes(c.Tranche), reads(c.Network)}
	return instruction(program, data{tagRetire, retireBegin}.U16(c.Index), appendSigners(accounts, c.Signers)...)
}

// RetireFinish frees the unclaimed rest of a leaf after its window. It is permissionless.
type RetireFinish struct {
	Escrow  sign.Key
	Tranche sign.Key

	Leaf  tranche.Leaf
	Proof tranche.Proof
}

// Instruction implements Call.
func (c RetireFinish) Instruction(program sign.Key) svm.Instruction {
	d := data{tagRetire, retireFinish}.U16(c.Leaf.Index).Key(c.Leaf.Provider).Bytes(c.Leaf.Lease[:]...).
		Key(c.Leaf.Payout)
	return instruction(program, d.Bytes(leafTerms(c.Leaf)...).Bytes(c.Proof.Marshal()...),
		writes(c.Escrow), writes(c.Tranche))
}

// RetireFinal immediately frees the amount that a provider's final receipt waives. FinalSigned must be in the same
// transaction.
type RetireFinal struct {
	Escrow  sign.Key
	Tranche sign.Key
	Network sign.Key

	Ed    uint8
	Leaf  tranche.Leaf // its lease and provider are the receipt's: neither is sent
	Proof tranche.Proof
}

// Instruction implements Call.
func (c RetireFinal) Instruction(program sign.Key) svm.Instruction {
	d := data{tagRetire, retireFinal, c.Ed}.U16(c.Leaf.Index).Key(c.Leaf.Payout).Bytes(leafTerms(c.Leaf)...).
		Bytes(c.Proof.Marshal()...)
	return instruction(program, d, writes(c.Escrow), writes(c.Tranche), reads(c.Network), instructionsSysvar)
}

// FinalSigned is the signature instruction that RetireFinal needs beside it: the provider's signature under its final
// receipt.
func FinalSigned(d sign.Domain, core verify.ReceiptCore, by sign.Signature) svm.Signed {
	layout := core.Marshal()
	return svm.Signed{Keys: []sign.Key{core.Provider}, Signatures: []sign.Signature{by},
		Message: d.Preimage(sign.TagReceipt, layout[:])}
}

// Refund pays back to the refund owner: the free money if the buyer signs, everything but fees after the deadline and
// the network's margin.
type Refund struct {
	Escrow      sign.Key
	Vault       sign.Key
	Destination sign.Key // TokenAccount of the refund owner; another of its if it signs
	Mint        sign.Key
	Network     sign.Key
	Buyer       sign.Key // zero: does not sign
	Payee       sign.Key // the refund owner, if it signs; zero: does not
}

// Instruction implements Call.
func (c Refund) Instruction(program sign.Key) svm.Instruction {
	accounts := []svm.Meta{writes(c.Escrow), writes(c.Vault), writes(c.Destination), reads(c.Mint), reads(c.Network),
		tokenProgram, optional(program, c.Buyer, signs)}
	return instruction(program, data{tagRefund}, appendPayee(accounts, c.Payee)...)
}

// Sweep splits an escrow's fees. It is permissionless.
type Sweep struct {
	Escrow   sign.Key
	Vault    sign.Key
	Mint     sign.Key
	Network  sign.Key
	Pool     sign.Key // zero: the network has no authority
	Treasury sign.Key // the treasury's token account; zero: there is none
	Referrer sign.Key // the referrer's token account; zero: there is none
}

// Instruction implements Call.
func (c Sweep) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagSweep},
		writes(c.Escrow), writes(c.Vault), writes(c.Mint), reads(c.Network), tokenProgram,
		optional(program, c.Pool, writes), optional(program, c.Treasury, writes), optional(program, c.Referrer, writes))
}

// CloseTranche closes a tranche without outstanding money, or of a refunded escrow. It is permissionless.
type CloseTranche struct {
	Escrow    sign.Key
	Tranche   sign.Key
	RentPayer sign.Key
}

// Instruction implements Call.
func (c CloseTranche) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagCloseTranche}, writes(c.Escrow), writes(c.Tranche), writes(c.RentPayer))
}

// CloseEscrow ends an escrow without outstanding money, after its fees are swept and its tranches closed.
type CloseEscrow struct {
	Escrow      sign.Key
	Vault       sign.Key
	Destination sign.Key // as in Refund; anything when the vault is empty
	Mint        sign.Key
	RentPayer   sign.Key
	Buyer       sign.Key // must sign before the deadline while it was not refunded; zero: does not
	Payee       sign.Key // the refund owner, if it signs; zero: does not
}

// Instruction implements Call.
func (c CloseEscrow) Instruction(program sign.Key) svm.Instruction {
	accounts := []svm.Meta{writes(c.Escrow), writes(c.Vault), writes(c.Destination), reads(c.Mint), tokenProgram,
		writes(c.RentPayer), optional(program, c.Buyer, signs)}
	return instruction(program, data{tagCloseEscrow}, appendPayee(accounts, c.Payee)...)
}
