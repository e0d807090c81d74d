// Package guardian keeps a detached job going when its owner is away. A job names a few guardians, peers that have
// everything to supervise it. A majority of them signs the vouchers of its leases, and a majority appoints its
// supervisor.
//
// [Service] is a guardian's side: one for each peer. [Panel] is the other side: the supervisor's, and that of peers
// that ask about the job. A guardian signs by the rules of [Ward], a value without time and network; every decision is
// in the journal before it leaves the peer. PROTOCOL.md beside this file has the permissions of each peer and the
// possible losses.
//
// The package knows nothing of a job's work: a supervisor's data about it travels as bytes.
package guardian

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/sealed"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

var (
	// ErrSuperseded says that another peer supervises the job under a higher epoch; errors.As a *Superseded gives the
	// proof.
	ErrSuperseded = errors.New("another peer supervises the job now")
	// ErrMinority says that too few guardians answered, or that too few agreed.
	ErrMinority = errors.New("too few guardians agree")
	// ErrCharter says that a job cannot have these guardians.
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
	CodeUnknown    = "unknown-job"    // it does not guard the job, or the asker has no part in it
	CodePolicy     = "policy"         // it does not want the job
	CodeFull       = "full"           // it guards as much as it can
	CodeOther      = "other-content"  // it was engaged for something else under the same job
	CodeFetching   = "fetching"       // it has not all files yet: ask again
	CodeSuperseded = "superseded"     // another peer supervises under a higher epoch
	CodeNotYours   = "not-supervisor" // the asker does not supervise the job
	CodeGrant      = "grant"          // the epoch cannot be granted to the asker
	CodeAlive      = "alive"          // the present supervisor does its work
	CodeOver       = "over"           // the job is over
	CodeVoucher    = "voucher"        // it would pay more than was earned, or is not of this job
	CodeWitness    = "witness"        // the transaction is none that a guardian signs
	CodeClock      = "clock"          // the guardian does not know the slot
)

// Bounds of one job.
const (
	// MaxGuardians of a job. A network with escrows has program.MaxVoucherKeys at the most.
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

	maxKept     = 32 << 20 // bytes of records and payers of a job
	maxReceipts = 1 << 17  // of a job; of later ones the newest alone is kept, in the payer
	maxAddrs    = 16       // of one peer
	maxAddr     = 256      // bytes
	maxEscrows  = 256      // of a job
	maxAhead    = 1024     // epochs
	pageBytes   = 2 << 20  // of leases, or receipts, in one answer
)

// Charter is a job's owner and guardians.
type Charter struct {
	Job   sign.Hash     `json:"job"` // hash of the job's terms: market.LeaseCore.Terms
	Owner sign.Key      `json:"owner"`
	Buyer sign.Key      `json:"buyer"` // the job's key: market.LeaseCore.Buyer
	Keys  market.KeySet `json:"keys"`  // of the guardians
}

// Check reports whether a network's job can have these guardians: ErrCharter.
func (c Charter) Check(g market.Genesis) error {
	if err := c.Keys.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrCharter, err)
	}
	most := MaxGuardians
	if !g.Program.IsZero() {
		most = min(most, program.MaxVoucherKeys)
	}
	switch n := len(c.Keys.Keys); {
	case n > most:
		return fmt.Errorf("%w: %d, at most %d", ErrCharter, n, most)
	case 2*int(c.Keys.Threshold) <= n:
		return fmt.Errorf("%w: %d of %d are no majority", ErrCharter, c.Keys.Threshold, n)
	case slices.Contains(c.Keys.Keys, c.Owner):
		return fmt.Errorf("%w: the owner cannot guard its own job", ErrCharter)
	case slices.Contains(c.Keys.Keys, c.Buyer) || c.Buyer == c.Owner:
		return fmt.Errorf("%w: the job's key is nobody else's", ErrCharter)
	}
	return nil
}

// Supervisor is the one peer that can supervise the job under an epoch: the owner under the first, then each guardian
// in the order of their keys, then the owner again. So no two peers ever supervise under one epoch, whatever guardians
// sign.
func (c Charter) Supervisor(epoch uint64) sign.Key {
	if i := (epoch - 1) % uint64(len(c.Keys.Keys)+1); i > 0 {
		return c.Keys.Keys[i-1]
	}
	return c.Owner
}

// NextEpoch is the first epoch after one under which a peer can supervise; 0 if there is none.
func (c Charter) NextEpoch(k sign.Key, after uint64) uint64 {
	for e := after + 1; e <= after+uint64(len(c.Keys.Keys)+1); e++ {
		if c.Supervisor(e) == k {
			return e
		}
	}
	return 0
}

// turn is the number of guardians before a peer when the supervisor under an epoch falls silent.
func (c Charter) turn(k sign.Key, epoch uint64) int {
	n := 0
	for e := epoch + 1; c.Supervisor(e) != k && n < len(c.Keys.Keys); e++ {
		if c.Supervisor(e) != c.Owner {
			n++
		}
	}
	return n
}

// has reports whether a peer has a part in the job.
func (c Charter) has(k sign.Key) bool { return k == c.Owner || slices.Contains(c.Keys.Keys, k) }

// CheckGrant asks whether grant proves that the job is supervised under the epoch: nothing proves the first.
func (c Charter) CheckGrant(d sign.Domain, epoch uint64, grant []byte) error {
	if epoch <= 1 {
		if epoch == 0 || len(grant) > 0 {
			return fmt.Errorf("%w: epoch %d with a grant of %d bytes", ErrCharter, epoch, len(grant))
		}
		return nil
	}
	g, err := verify.UnmarshalSignedSupervisionGrant(grant)
	if err != nil {
		return err
	}
	if g.Epoch != epoch || g.Supervisor != c.Supervisor(epoch) {
		return fmt.Errorf("%w: granted is epoch %d to %s", ErrCharter, g.Epoch, g.Supervisor.Short())
	}
	return g.Check(d, c.Job, c.Keys.Hash())
}

// SealedFor is the purpose under which the job's key is sealed to its guardians. network is the genesis tag.
func SealedFor(network string, job sign.Hash) sealed.Purpose {
	return sealed.Purpose{Network: network, What: "ward", ID: job.String()}
}

// Timing is when things are due. It follows from the network's metering interval: a provider works unpaid for an
// interval and two seconds, and within that another guardian must have taken over.
type Timing struct {
	Beat   time.Duration // between a supervisor's beats
	Silent time.Duration // a supervisor that was not heard for so long is silent
	Turn   time.Duration // then the guardians ask for the job one after the other, so far apart
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

// File is one that providers, or the owner, will ask for.
type File struct {
	CID  cid.Cid `json:"cid"`
	Size int64   `json:"size"` // bytes
}

func pbFiles(files []File) []*nodepb.GuardedFile {
	var out []*nodepb.GuardedFile
	for _, f := range files {
		out = append(out, &nodepb.GuardedFile{Cid: f.CID.Bytes(), Size: uint64(f.Size)})
	}
	return out
}

func filesOf(pb []*nodepb.GuardedFile) ([]File, error) {
	if len(pb) > MaxFiles {
		return nil, fmt.Errorf("%d files, at most %d", len(pb), MaxFiles)
	}
	var out []File
	for _, f := range pb {
		c, err := work.CID(&nodepb.Blob{Cid: f.GetCid()})
		if err != nil {
			return nil, err
		}
		if f.Size > 1<<50 {
			return nil, fmt.Errorf("a file of %d bytes", f.Size)
		}
		out = append(out, File{CID: c, Size: int64(f.Size)})
	}
	return out, nil
}

func bytesOf(lists ...[]File) (sum int64) {
	for _, files := range lists {
		for _, f := range files {
			sum += f.Size
		}
	}
	return sum
}

// Member is a guardian with its addresses and its wage.
type Member struct {
	Key   sign.Key          `json:"key"`
	Addrs []string          `json:"addrs"`
	Wage  *market.LeaseCore `json:"wage,omitempty"` // between the job's key and the guardian; nil: nothing
}

func checkAddrs(addrs []string) error {
	if len(addrs) > maxAddrs || slices.ContainsFunc(addrs, func(a string) bool { return len(a) > maxAddr }) {
		return fmt.Errorf("%d addresses, at most %d of %d bytes", len(addrs), maxAddrs, maxAddr)
	}
	return nil
}

func membersOf(pb []*nodepb.Guardian) ([]Member, error) {
	if len(pb) > MaxGuardians {
		return nil, fmt.Errorf("%d guardians, at most %d", len(pb), MaxGuardians)
	}
	var out []Member
	for _, g := range pb {
		if len(g.GetKey()) != sign.KeySize {
			return nil, fmt.Errorf("a guardian's key of %d bytes", len(g.GetKey()))
		}
		if err := checkAddrs(g.Addrs); err != nil {
			return nil, err
		}
		m := Member{Key: sign.Key(g.Key), Addrs: slices.Clone(g.Addrs)}
		if len(g.Wage) > 0 {
			core, err := market.UnmarshalLeaseCore(g.Wage)
			if err != nil {
				return nil, err
			}
			m.Wage = &core
		}
		out = append(out, m)
	}
	return out, nil
}

func pbMembers(members []Member) []*nodepb.Guardian {
	var out []*nodepb.Guardian
	for _, m := range members {
		g := &nodepb.Guardian{Key: m.Key[:], Addrs: m.Addrs}
		if m.Wage != nil {
			b := m.Wage.Marshal()
			g.Wage = b[:]
		}
		out = append(out, g)
	}
	return out
}

// keysOf is the key set of members, which are in the order of their keys.
func keysOf(threshold uint32, members []Member) (market.KeySet, error) {
	ks := market.KeySet{Threshold: uint8(min(threshold, 255))}
	for _, m := range members {
		ks.Keys = append(ks.Keys, m.Key)
	}
	return ks, ks.Validate()
}

func refuse(code, format string, args ...any) error {
	return stream.Refuse(code, fmt.Sprintf(format, args...))
}

func malformed(format string, args ...any) error {
	return &stream.Malformed{Reason: fmt.Sprintf(format, args...)}
}

// refused reports whether a guardian declined with that code.
func refused(err error, code string) bool {
	var r *stream.Refused
	return errors.As(err, &r) && r.Code == code
}

// sameFiles reports whether two lists name the same files.
func sameFiles(a, b []File) bool {
	return slices.EqualFunc(a, b, func(x, y File) bool {
		return x.Size == y.Size && bytes.Equal(x.CID.Bytes(), y.CID.Bytes())
	})
}
