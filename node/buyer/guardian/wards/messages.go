package wards

import (
	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/verify"
)

// event is an event of a ward.
type event interface{ event() }

// by is the sender of a request, and the epoch that it claims.
type by struct {
	from  sign.Key
	epoch uint64
}

type (
	resumed struct{}
	ticked  struct{}

	// Requests of peers.
	engaged   struct{ ward Ward } // by the owner, perhaps again
	dismissed struct{ by }
	learned   struct { // a proof of a higher epoch
		epoch uint64
		grant []byte
	}
	beaten struct {
		by
		state *guardian.SignedState // optional
	}
	vouched struct {
		by
		lease guardian.SignedLease
	}
	witnessed struct {
		by
		message []byte
	}
	requested struct { // the command under epoch
		by
		slot market.Slot
	}
	earnedWage struct {
		by
		voucher verify.Voucher
	}

	// Results of calls.
	looked   struct{ err error } // if nil, the wage is on chain
	arranged struct {
		of    *guardian.SignedState // at the call
		tried bool                  // files were to be brought
		ok    bool                  // all files of the job and of this state are stored
		whole bool                  // and all spare files that it has room for
		spare []cid.Cid             // those of them that are stored
	}
	merged struct {
		why      purpose
		standing guardian.Standing
		err      error
	}
	tookOver struct {
		standing guardian.Standing
	}
	takenUp struct {
		epoch uint64
		err   error
	}
	erased struct{ err error }
)

func (resumed) event()    {}
func (ticked) event()     {}
func (engaged) event()    {}
func (dismissed) event()  {}
func (learned) event()    {}
func (beaten) event()     {}
func (vouched) event()    {}
func (witnessed) event()  {}
func (requested) event()  {}
func (earnedWage) event() {}
func (looked) event()     {}
func (arranged) event()   {}
func (merged) event()     {}
func (tookOver) event()   {}
func (takenUp) event()    {}
func (erased) event()     {}

// purpose is the reason for a request to the other guardians.
type purpose uint8

const (
	refreshing purpose = iota // after a restart this guardian requests the messages that it missed
	judging                   // a voucher is overdue: perhaps only this guardian missed it
	resuming                  // this guardian supervises now, by the newest data
)

// effect is an effect of a ward.
type effect interface{ effect() }

type (
	// Records to write.
	putWard   struct{}
	putState  struct{}
	putLease  struct{ id market.LeaseID }
	putSigned struct { // a receipt with both signatures
		receipt verify.Receipt
	}
	removeWard struct{}

	// signText answers with this peer's signature of a text, and signGrant also with the standing.
	signText  struct{ text []byte }
	signGrant struct {
		text []byte
		w    guarded
	}

	// superseded reports another supervisor. If lost, this peer was the one before.
	superseded struct {
		epoch uint64
		by    sign.Key
		lost  bool
	}
	warn struct {
		text string
		err  error
	}

	// Calls.
	look struct { // check the chain for the wage
		ward  Ward
		state []byte
	}
	arrange struct { // drop files, then bring those of the job and the state
		ward  Ward
		state *guardian.SignedState
		stale []guardian.File
		bring bool
	}
	merge struct { // read the standing from the other guardians
		ward Ward
		why  purpose
	}
	takeOver struct{ ward Ward } // request the job from the guardians
	takeUp   struct {
		ward  Ward
		taken guardian.Taken // without a panel
	}
	erase struct{} // remove all records beside the ward
)

func (putWard) effect()    {}
func (putState) effect()   {}
func (putLease) effect()   {}
func (putSigned) effect()  {}
func (removeWard) effect() {}
func (signText) effect()   {}
func (signGrant) effect()  {}
func (superseded) effect() {}
func (warn) effect()       {}
func (look) effect()       {}
func (arrange) effect()    {}
func (merge) effect()      {}
func (takeOver) effect()   {}
func (takeUp) effect()     {}
func (erase) effect()      {}
