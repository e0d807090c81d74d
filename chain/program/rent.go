package program

import (
	"encoding/binary"

	"github.com/starling-network/starling/market/sign"
)

// Rent of an account: its least balance, in lamports, to stay on chain. All of it comes back when the account is
// closed.
const (
	rentPerByte  = 6960 // 3,480 lamports per byte and year, for two years
	rentOverhead = 128  // bytes that every account is charged beside its data
)

// Rent makes an account of so many bytes exempt, at the price that every cluster has.
func Rent(size int) uint64 { return (rentOverhead + uint64(size)) * rentPerByte }

// TokenSize is the length of a token account.
const TokenSize = 165

// EscrowRent is the rent of an open escrow with the key set and standbys: its account and its vault.
func EscrowRent(keys, standbys int) uint64 { return Rent(EscrowSize(keys, standbys)) + Rent(TokenSize) }

// TrancheRent is the rent of an open tranche with this number of leaves.
func TrancheRent(leaves int) uint64 { return Rent(TrancheSize(leaves)) }

// Where the instructions' data says how large an account will be.
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
func RentOf(program sign.Key, in Instruction) uint64 {
	if in.Program == TableProgram {
		return tableRentOf(in)
	}
	if in.Program != program || len(in.Data) == 0 {
		return 0
	}
	d := in.Data
	switch tag := d[0]; {
	case tag == tagInitNetwork && len(in.Accounts) >= initNetworkFixed:
		return Rent(NetworkSize(len(in.Accounts) - initNetworkFixed))
	case tag == tagInitPool, tag == tagInitEmission:
		return Rent(TokenSize)
	case tag == tagOpenEscrow && len(d) > openStandbysAt && len(in.Accounts) >= openFixed:
		return EscrowRent(len(in.Accounts)-openFixed, int(d[openStandbysAt]))
	case tag == tagAddTranche && len(d) >= trancheCountAt+2:
		return TrancheRent(int(binary.LittleEndian.Uint16(d[trancheCountAt:])))
	case tag == tagAddStandbyTranche && len(d) > standbyLeavesAt:
		return TrancheRent(int(d[standbyLeavesAt]))
	case tag == tagRegister:
		return Rent(ProviderSize) + Rent(TokenSize)
	case tag == tagAttest:
		return Rent(AttestedSize)
	case tag == tagState && len(d) > stateWhatAt:
		return Rent(StatedSize(Statement(d[stateWhatAt])))
	case tag == tagPropose:
		return Rent(BallotSize)
	case tag == tagVote:
		return Rent(VoteSize)
	case tag == tagAccept:
		return Rent(PayoutSize(1)) + Rent(TokenSize)
	case tag == tagAnchor:
		return Rent(AnchorSize)
	}
	return 0
}
