// Package guardian continues a detached job when its owner is away. A job names a few guardians, peers that have all
// data to supervise it. A majority of them signs the vouchers of its leases, and a majority appoints its supervisor.
//
// The package has the messages between a job's supervisor and its guardians, and [Panel], which sends them to all
// guardians:
//
//	charter.go     a job's owner, key and guardians, and its supervisor under each epoch
//	engagement.go  the constant data of a job that each guardian receives
//	word.go        states and leases, signed by the supervisor that left them
//	lease.go       the checks of a lease and its voucher
//	panel.go       requests to all guardians: engage, beat, have vouchers and transactions signed, read, take over
//
// Package wards below has the guardian's side, and package rules the vouchers that a guardian signs. PROTOCOL.md beside
// this file has the permissions of each peer and the possible losses. None of these packages reads a job's work: a
// supervisor's data about it is opaque bytes.
package guardian

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
)

var (
	// ErrSuperseded is returned if another peer supervises the job under a higher epoch. errors.As with *Superseded
	// returns the proof.
	ErrSuperseded = errors.New("another peer supervises the job now")
	// ErrMinority is returned if too few guardians answered or agreed.
	ErrMinority = errors.New("too few guardians agree")
	// ErrCharter is returned for guardians that the job cannot have.
	ErrCharter = errors.New("guardians")
)

// Superseded is ErrSuperseded with the grant that proves it.
type Superseded struct {
	Epoch uint64
	Grant []byte // verify.SignedSupervisionGrant
}

func (s *Superseded) Error() string { return fmt.Sprintf("%v, under epoch %d", ErrSuperseded, s.Epoch) }

// Unwrap makes it ErrSuperseded.
func (s *Superseded) Unwrap() error { return ErrSuperseded }

// Codes of a guardian's refusals.
const (
	CodeUnknown    = "unknown-job"    // it does not guard the job, or the sender has no part in it
	CodePolicy     = "policy"         // the job violates its policy
	CodeFull       = "full"           // it guards as much as it can
	CodeOther      = "other-content"  // it was engaged with other content for the same job
	CodeFetching   = "fetching"       // it does not have all files yet: retry
	CodeSuperseded = "superseded"     // another peer supervises under a higher epoch
	CodeNotYours   = "not-supervisor" // the asker does not supervise the job
	CodeGrant      = "grant"          // the epoch cannot be granted to the asker
	CodeAlive      = "alive"          // the present supervisor does its work
	CodeOver       = "over"           // the job has ended
	CodeVoucher    = "voucher"        // it pays more than was earned, or is of another job
	CodeWitness    = "witness"        // guardians do not sign such a transaction
	CodeClock      = "clock"          // the guardian's slot is unknown
)

// Bounds of one job.
const (
	// MaxGuardians of a job. A network with escrows has at most program.MaxVoucherKeys.
	MaxGuardians = 7
	// MaxFile bounds the constant data of a job, in bytes.
	MaxFile = 1 << 20
	// MaxState is the most bytes of a job's state.
	MaxState = 1 << 20
	// MaxRecord bounds the data of one lease beside its payer, in bytes.
	MaxRecord = 128 << 10
	// MaxLeases a job may have had.
	MaxLeases = 1024
	// MaxFiles of a job, and of its state.
	MaxFiles = 1024

	// MaxReceipts of a job. Of later ones the newest alone is kept, in the payer.
	MaxReceipts = 1 << 17

	maxAddrs = 16  // of one peer
	maxAddr  = 256 // bytes
)

// Timing is when things are due. It follows from the network's metering interval: a provider works unpaid for an
// interval and two seconds, and within that another guardian must have taken over.
type Timing struct {
	Beat   time.Duration // between a supervisor's beats
	Silent time.Duration // time without a beat after which a supervisor is silent
	Turn   time.Duration // interval between the guardians' requests for the job
}

// TimingOf a network.
func TimingOf(g market.Genesis) Timing {
	interval := time.Duration(g.IntervalSlots*g.SlotMillis) * time.Millisecond
	return Timing{
		Beat:   max(interval/8, 250*time.Millisecond),
		Silent: max(interval/2, 1500*time.Millisecond),
		Turn:   max(interval/4, 500*time.Millisecond),
	}
}

// Local is this peer's own guardian service, which answers a Panel without a stream.
type Local interface {
	// Answer answers the request of a peer.
	Answer(ctx context.Context, from sign.Key, req *nodepb.GuardRequest) (*nodepb.GuardReply, error)
	// Jobs returns the jobs that this peer guards, not yet dismissed, in no order.
	Jobs() []Charter
}

// Taken is a job that a guardian supervises from now on.
type Taken struct {
	Charter
	Key    sign.Private // the job's
	File   []byte       // as the owner engaged it
	Files  []File       // likewise; all are here
	Until  time.Time
	State  *State  // newest; nil if the owner never sent one
	Leases []Lease // newest of each
	// Panel speaks to the guardians under the granted epoch. The new supervisor closes it.
	Panel *Panel
}

// Refuse returns a guardian's refusal with one of the codes above, and its reason.
func Refuse(code, format string, args ...any) error {
	return stream.Refuse(code, fmt.Sprintf(format, args...))
}

// Refused reports whether a guardian declined with that code.
func Refused(err error, code string) bool {
	var r *stream.Refused
	return errors.As(err, &r) && r.Code == code
}

func malformed(format string, args ...any) error {
	return &stream.Malformed{Reason: fmt.Sprintf(format, args...)}
}
