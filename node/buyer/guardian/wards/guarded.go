package wards

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
)

// guarded is a Ward with its other records in the journal, and with data that a restart forgets. Its methods need the
// lock.
type guarded struct {
	*guard
	mu sync.Mutex
	Ward
	state    *guardian.SignedState
	leases   map[market.LeaseID]*guardian.SignedLease
	bytes    int // of the leases
	receipts int

	key       *sign.Private // the job's, once opened
	heard     time.Time     // of the supervisor
	asked     time.Time     // when this peer last tried to take over
	granted   time.Time     // when it granted the job to another peer that has not beaten yet
	starving  time.Time     // since when it is certain that the supervisor does not pay; zero: it does
	busy      bool          // the keeper works on it
	refreshed bool          // the other guardians were polled
	taken     bool          // TakeUp was called for the epoch
	fetching  bool
	fetched   chan struct{} // closed when the last fetch ended
	complete  bool          // all files are stored, also the state's
	tried     time.Time     // when the last fetch ended
	looked    time.Time     // time of the last check for its wage
}

// answer answers a request of a peer that has a part in the job.
func (w *guarded) answer(ctx context.Context, from sign.Key, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	if err := w.learn(ctx, req.Epoch, req.Grant); err != nil {
		return nil, err
	}
	switch op := req.Op.(type) {
	case *nodepb.GuardRequest_Beat_:
		return w.beat(ctx, from, req.Epoch, op.Beat.GetState())
	case *nodepb.GuardRequest_Voucher_:
		return w.voucher(ctx, from, req.Epoch, op.Voucher.GetLease())
	case *nodepb.GuardRequest_Witness_:
		return w.witness(ctx, from, req.Epoch, op.Witness.GetMessage())
	case *nodepb.GuardRequest_GrantTo:
		return w.grant(from, op.GrantTo)
	case *nodepb.GuardRequest_Read_:
		return w.read(op.Read.GetAfter())
	case *nodepb.GuardRequest_Receipts_:
		return w.receiptsOf(ctx, op.Receipts)
	case *nodepb.GuardRequest_Wage_:
		return w.wage(from, op.Wage.GetVoucher())
	case *nodepb.GuardRequest_Dismiss_:
		return w.dismiss(ctx, from)
	}
	return nil, malformed("empty request")
}

// learn accepts a proof of a higher epoch: the earlier supervisor then supervises no more.
func (w *guarded) learn(ctx context.Context, epoch uint64, grant []byte) error {
	if w.Dismissed {
		return nil
	}
	next, changed, err := w.Learn(w.domain, epoch, grant)
	if err != nil || !changed {
		return err
	}
	if err := w.write(ctx, next); err != nil {
		return err
	}
	mine := w.Supervisor(w.Epoch) == w.self && next.Supervisor(next.Epoch) != w.self
	w.Ward, w.heard, w.granted, w.taken, w.starving = next, time.Now(), time.Time{}, false, time.Time{}
	w.cfg.Log.Info("a job has another supervisor",
		"job", w.Job.Short(), "epoch", w.Epoch, "supervisor", w.Supervisor(w.Epoch).Short())
	if mine {
		w.supervisor.Yield(w.Job, w.Epoch)
	}
	return nil
}

// beat processes the supervisor's heartbeat.
func (w *guarded) beat(
	ctx context.Context, from sign.Key, epoch uint64, pb *nodepb.GuardedState,
) (*nodepb.GuardReply, error) {
	if err := w.Commands(from, epoch); err != nil {
		return nil, err
	}
	if pb != nil {
		st, err := w.ReadState(w.domain, pb)
		if err != nil {
			return nil, malformed("state: %v", err)
		}
		if st.Epoch != epoch {
			return nil, malformed("state of epoch %d under %d", st.Epoch, epoch)
		}
		if err := w.keepState(ctx, st); err != nil {
			return nil, err
		}
	}
	w.heard, w.granted = time.Now(), time.Time{}
	return done(), nil
}

// keepState journals a state that is newer.
func (w *guarded) keepState(ctx context.Context, st guardian.SignedState) error {
	if !st.Newer(w.state) || w.Dismissed {
		return nil
	}
	if err := w.cfg.Policy.keeps(w.Files, st.Files); err != nil {
		return err
	}
	next := w.Ward
	if next.Over = st.Over; st.Over && next.OverAt == 0 {
		next.OverAt, _ = w.slot() // a wage does not end where the chain was never seen
	}
	var b journal.Batch
	states.Put(&b, w.Job, st)
	if next.Over != w.Over {
		wards.Put(&b, w.Job, next)
	}
	if err := b.Commit(ctx, w.cfg.Store); err != nil {
		return fmt.Errorf("journalling a job's state: %w", err)
	}
	old := w.state
	w.Ward, w.state, w.complete = next, &st, false
	w.files.fetch(w)
	if old != nil {
		w.files.drop(old.Files, w)
	}
	return nil
}

// failed reports whether the supervisor is silent, or does not pay.
func (w *guarded) failed() bool {
	return time.Since(w.heard) > w.timing.Silent || !w.starving.IsZero()
}

// starved reports whether a voucher is overdue.
func (w *guarded) starved() bool {
	now, err := w.slot()
	if err != nil || w.Over {
		return false
	}
	silent := w.cfg.Genesis.SlotsIn(w.timing.Silent)
	for _, k := range w.leases {
		if k.Starved(now, silent) {
			return true
		}
	}
	return false
}

// dismiss forgets the job, except the wages of its guardians.
func (w *guarded) dismiss(ctx context.Context, from sign.Key) (*nodepb.GuardReply, error) {
	if from != w.Owner {
		return nil, guardian.Refuse(guardian.CodeNotYours, "the owner dismisses")
	}
	if w.Dismissed {
		return done(), nil
	}
	if err := w.shut(ctx); err != nil {
		return nil, err
	}
	w.cfg.Log.Info("a job was dismissed", "job", w.Job.Short())
	return done(), nil
}

// needed are the files of the job and of its state.
func (w *guarded) needed() []guardian.File {
	if w.state == nil {
		return w.Files
	}
	return slices.Concat(w.Files, w.state.Files)
}

// shut ends a ward: its data goes, the wages of its guardians stay.
func (w *guarded) shut(ctx context.Context) error {
	now, _ := w.slot() // a wage does not end where the chain was never seen
	next := w.closed(now)
	if err := w.write(ctx, next); err != nil {
		return err
	}
	files := w.needed()
	w.Ward, w.state, w.key, w.leases = next, nil, nil, map[market.LeaseID]*guardian.SignedLease{}
	w.bytes, w.receipts, w.starving = 0, 0, time.Time{}
	w.files.drop(files, w)
	return remove(ctx, w.cfg.Store, next.Job)
}
