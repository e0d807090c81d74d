package program

import (
	"encoding/binary"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Offsets of the counts in the instructions' data that determine an account's size.
const (
	openStandbysAt   = 123 // OpenEscrow: number of standbys, u8
	openFixed        = 10  // accounts before the voucher keys
	trancheCountAt   = 43  // AddTranche: leaves, u16
	standbyLeavesAt  = 3   // AddStandbyTranche: leaves, u8
	initNetworkFixed = 4   // accounts before the mints
	stateWhatAt      = 2   // State: which statement, u8
)

// RentOf is the rent that a call of the program, or of the lookup tables', costs its payer, in lamports. It is 0 for a
// call that makes no account, and for bytes that are no call. Of Accept it is the least: the number of payees is in its
// ballot.
func RentOf(program sign.Key, in svm.Instruction) uint64 {
	if in.Program == svm.TableProgram {
		return svm.TableRentOf(in)
	}
	if in.Program != program || len(in.Data) == 0 {
		return 0
	}
	d := in.Data
	switch tag := d[0]; {
	case tag == tagInitNetwork && len(in.Accounts) >= initNetworkFixed:
		return svm.Rent(account.NetworkSize(len(in.Accounts) - initNetworkFixed))
	case tag == tagInitPool, tag == tagInitEmission:
		return svm.Rent(svm.TokenSize)
	case tag == tagOpenEscrow && len(d) > openStandbysAt && len(in.Accounts) >= openFixed:
		return account.EscrowRent(len(in.Accounts)-openFixed, int(d[openStandbysAt]))
	case tag == tagAddTranche && len(d) >= trancheCountAt+2:
		return account.TrancheRent(int(binary.LittleEndian.Uint16(d[trancheCountAt:])))
	case tag == tagAddStandbyTranche && len(d) > standbyLeavesAt:
		return account.TrancheRent(int(d[standbyLeavesAt]))
	case tag == tagRegister:
		return svm.Rent(account.ProviderSize) + svm.Rent(svm.TokenSize)
	case tag == tagAttest:
		return svm.Rent(AttestedSize)
	case tag == tagState && len(d) > stateWhatAt:
		return svm.Rent(StatedSize(Statement(d[stateWhatAt])))
	case tag == tagPropose:
		return svm.Rent(account.BallotSize)
	case tag == tagVote:
		return svm.Rent(account.VoteSize)
	case tag == tagAccept:
		return svm.Rent(account.PayoutSize(1)) + svm.Rent(svm.TokenSize)
	case tag == tagAnchor:
		return svm.Rent(account.AnchorSize)
	}
	return 0
}
