package deposit

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// calls makes the instructions about the escrow.
type calls struct {
	terms
	opened    uint64   // slot in the address; 0: none was chosen
	at, vault sign.Key // which it makes
}

// named chooses the slot in the address. (Addresses take long to find.)
func (a calls) named(opened uint64) calls {
	a.opened, a.at = opened, a.net.Escrow(a.deal.Buyer, a.deal.Order, opened)
	a.vault = account.VaultAddress(a.net.Program, a.at)
	return a
}

// payer is the ledger's key, which pays rent.
func (a *calls) payer() sign.Key {
	if a.hires() {
		return a.hirer
	}
	return a.deal.Buyer
}

func (a *calls) tranche(k uint16) sign.Key { return account.TrancheAddress(a.net.Program, a.at, k) }

func (a *calls) open(deposit market.Amount, deadline market.Slot) svm.Instruction {
	return program.OpenEscrow{Payer: a.deal.Buyer, Buyer: a.deal.Buyer, Source: a.deal.Source, Authority: a.deal.Buyer,
		Escrow: a.at, Vault: a.vault, Mint: a.net.Mint, Network: a.net.Address(), Order: a.deal.Order, Opened: a.opened,
		Deadline: uint64(deadline), Deposit: uint64(deposit), Referrer: a.deal.Referrer,
		RefundOwner: a.deal.RefundOwner, MintIndex: a.net.MintIndex(), Keys: a.deal.Keys,
		Standbys: a.deal.Standbys}.Instruction(a.net.Program)
}

func (a *calls) topUp(amount market.Amount) svm.Instruction {
	return program.TopUp{Escrow: a.at, Vault: a.vault, Source: a.deal.Source, Authority: a.deal.Buyer, Mint: a.net.Mint,
		Amount: uint64(amount)}.Instruction(a.net.Program)
}

func (a *calls) addTranche(index uint16, root tranche.Root) svm.Instruction {
	return program.AddTranche{Payer: a.deal.Buyer, Buyer: a.deal.Buyer, Escrow: a.at, Vault: a.vault,
		Index: index, Root: root, Tranche: a.tranche(index)}.Instruction(a.net.Program)
}

func (a *calls) addStandbys(index uint16, signers []sign.Key, leaves []program.StandbyLeaf) svm.Instruction {
	return program.AddStandbyTranche{Payer: a.hirer, Escrow: a.at, Vault: a.vault, Tranche: a.tranche(index),
		Signers: signers, Index: index, Leaves: leaves}.Instruction(a.net.Program)
}

func (a *calls) retireBegin(k, leaf uint16, fails uint8) svm.Instruction {
	return program.RetireBegin{Escrow: a.at, Tranche: a.tranche(k), Network: a.net.Address(),
		Signers: a.retirers(fails), Index: leaf}.Instruction(a.net.Program)
}

func (a *calls) retireFinish(k uint16, leaf tranche.Leaf, proof tranche.Proof) svm.Instruction {
	return program.RetireFinish{Escrow: a.at, Tranche: a.tranche(k), Leaf: leaf,
		Proof: proof}.Instruction(a.net.Program)
}

// retireFinal is preceded by the check of the receipt's signature.
func (a *calls) retireFinal(
	k uint16, leaf tranche.Leaf, proof tranche.Proof, final finalReceipt,
) []svm.Instruction {
	return []svm.Instruction{program.FinalSigned(a.net.Domain(), final.core, final.by).Instruction(),
		program.RetireFinal{Escrow: a.at, Tranche: a.tranche(k), Network: a.net.Address(), Leaf: leaf,
			Proof: proof}.Instruction(a.net.Program)}
}

func (a *calls) closeTranche(k uint16, rentPayer sign.Key) svm.Instruction {
	return program.CloseTranche{Escrow: a.at, Tranche: a.tranche(k), RentPayer: rentPayer}.Instruction(a.net.Program)
}

// refund pays the free amount to a wallet. Buyer is zero if the refund needs no signature of the buyer.
func (a *calls) refund(owner, buyer sign.Key) svm.Instruction {
	return program.Refund{Escrow: a.at, Vault: a.vault, Destination: svm.TokenAccount(owner, a.net.Mint),
		Mint: a.net.Mint, Network: a.net.Address(), Buyer: buyer}.Instruction(a.net.Program)
}

func (a *calls) closeEscrow(rentPayer sign.Key) svm.Instruction {
	return program.CloseEscrow{Escrow: a.at, Vault: a.vault,
		Destination: svm.TokenAccount(a.deal.RefundOwner, a.net.Mint), Mint: a.net.Mint, RentPayer: rentPayer,
		Buyer: a.deal.Buyer}.Instruction(a.net.Program)
}

// openToken opens a wallet's token account if an attempt failed before: perhaps it is missing.
func (a *calls) openToken(wallet sign.Key, fails uint8) []svm.Instruction {
	if fails == 0 {
		return nil
	}
	return []svm.Instruction{svm.OpenTokenAccount(a.payer(), wallet, a.net.Mint)}
}

// sweep splits the fees. After a failure, receiving accounts may be missing. Or the network's authority was removed,
// and with it the pool of a network without votes; every second try assumes that.
func (a *calls) sweep(e account.Escrow, fails uint8) (out []svm.Instruction) {
	call := program.Sweep{Escrow: a.at, Vault: a.vault, Mint: a.net.Mint, Network: a.net.Address()}
	if a.net.Account.Params.Votes.On() || !a.net.Account.Authority.IsZero() && fails%2 == 0 {
		call.Pool = account.PoolAddress(a.net.Program, a.net.Address(), a.net.Mint)
	}
	share := func(wallet sign.Key) sign.Key {
		if wallet.IsZero() {
			return sign.Key{}
		}
		out = append(out, a.openToken(wallet, fails)...)
		return svm.TokenAccount(wallet, a.net.Mint)
	}
	call.Treasury, call.Referrer = share(a.net.Account.Params.Treasury), share(e.Referrer)
	return append(out, call.Instruction(a.net.Program))
}
