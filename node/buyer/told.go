package buyer

import (
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/verify"
)

// What another supervisor says of a job carries its signature, and it may lie. What is here holds it to what this peer itself could
// have journalled, so that a lie costs no more than the work it is about.

// acceptStanding reads a job as another supervisor left it, of which this peer knows j; sure: from its journal. One that
// is no news is not validated.
func acceptStanding(j Job, sure bool, state []byte) (t Job, news bool, err error) {
	t, err = decodeStanding(j, state)
	if err != nil || sure && t.Detached.Epoch <= j.Detached.Epoch {
		return t, false, err // this peer said so itself, or has gone on since
	}
	t, err = validateStanding(j, t)
	return t, err == nil, err
}

func decodeStanding(j Job, state []byte) (Job, error) {
	var t Job
	if err := json.Unmarshal(state, &t); err != nil {
		return t, err
	}
	if d := t.Detached; d == nil || d.Terms != j.Detached.Terms || len(t.Ranks) != len(j.Ranks) {
		return t, errors.New("it is another one")
	}
	return t, nil
}

// validateStanding validates t, which another peer reports j to have become.
func validateStanding(j, t Job) (Job, error) {
	working := t.State == Queued || t.State == Matching || t.State == Running
	if !working && !t.State.Ended() && !(t.State == Settling && t.Outcome.Ended()) {
		return t, fmt.Errorf("it is %q, to end as %q", clip(string(t.State)), clip(string(t.Outcome)))
	}
	if t.Detached.Escrow == nil && !t.Started.IsZero() {
		return t, errors.New("it has begun, and has no escrow")
	}
	if t.Round < j.Round || t.Round > j.Spec.RoundCount() {
		return t, fmt.Errorf("it is in round %d of %d, %d are done", t.Round, j.Spec.RoundCount(), j.Round)
	}
	if t.Carry != nil && !sound(*t.Carry) {
		return t, errors.New("what its rounds carry is no file")
	}
	for i := range t.Ranks {
		k, was := &t.Ranks[i], j.Ranks[i]
		if k.Epoch == math.MaxUint32 {
			return t, fmt.Errorf("rank %d has its last lease", i)
		}
		k.Epoch = max(k.Epoch, was.Epoch)                                       // no two leases of a rank share one
		if t.Round == j.Round && was.State == RankDone && k.State != RankDone { // what is done is not done again
			was.Epoch = k.Epoch
			*k = was
			continue
		}
		switch k.State {
		case RankWaiting, RankLeased, RankRunning, RankDone, RankFailed:
		default:
			return t, fmt.Errorf("rank %d is %q", i, clip(string(k.State)))
		}
		if k.Restarts < 0 || k.Retries < 0 {
			return t, fmt.Errorf("rank %d had %d restarts and %d retries", i, k.Restarts, k.Retries)
		}
		bad := func(o Output) bool { return !fit(o.Path) || !sound(o.Blob) }
		if len(k.Outputs) > maxOutputs || slices.ContainsFunc(k.Outputs, bad) {
			return t, fmt.Errorf("what rank %d left is no list of files", i)
		}
		if k.Log != nil && !sound(*k.Log) {
			k.Log = nil
		}
		k.Reason, k.Detail, k.Route, k.Unextended, k.Live = clip(k.Reason), clip(k.Detail), clip(k.Route), clip(k.Unextended), Live{}
	}
	t.Reason = clip(t.Reason)
	spec := j.Spec // of which only this changes, when a job is made longer
	spec.Timeouts.Run, spec.Payment.Budget = t.Spec.Timeouts.Run, t.Spec.Payment.Budget
	if err := spec.Check(); err != nil {
		return t, err
	}
	t.Spec = spec
	return t, nil
}

// sound reports whether a blob can be the name of a file.
func sound(f Blob) bool {
	_, err := cid.Parse(f.CID)
	return err == nil && f.Size >= 0
}

// recordOf reads what another supervisor kept of a lease.
func (b *Buyer) recordOf(h guardian.Lease) (leaseRecord, error) {
	var rec leaseRecord
	if err := json.Unmarshal(h.Record, &rec); err != nil {
		return rec, err
	}
	units, err := market.SortUnits(rec.Units)
	if err != nil || market.UnitsRoot(units) != h.Signed.Core.UnitsRoot {
		return rec, errors.New("its units are not those that were signed")
	}
	if m := rec.Member; m != nil {
		first, err := market.UnmarshalLease(m.Lease)
		if err == nil {
			err = market.CheckMember(b.domain, first, m.Hold, m.Key)
		}
		if id := first.Core.ID(); err == nil && id != h.ID() && id != rec.Root {
			err = errors.New("it is not the first lease of its line")
		}
		if err != nil {
			return rec, fmt.Errorf("its place in the cluster: %w", err)
		}
	}
	if v, err := verify.UnmarshalSignedVoucher(rec.Voucher); err != nil || v.Check(b.domain, h.Signed.Core) != nil {
		rec.Voucher = nil // the guardians sign it again
	}
	rec.Units, rec.Reason, rec.Route = units, clip(rec.Reason), clip(rec.Route)
	return rec, nil
}

// idOf is an id for a job whose own is taken here.
func idOf(terms sign.Hash) string {
	return "j" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(terms[:10]))
}
