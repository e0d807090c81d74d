package wards

import (
	"fmt"
	"maps"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// engage accepts the engagement of the job once more.
func (s *step) engage(ward Ward) error {
	switch {
	case !s.same(ward):
		return guardian.Refuse(guardian.CodeOther, "this peer was engaged for another job under the same terms")
	case s.Dismissed:
		return guardian.Refuse(guardian.CodeOver, "the job was dismissed")
	}
	s.tried = time.Time{}
	return nil
}

// learn accepts a proof of a higher epoch: the earlier supervisor then supervises no more.
func (s *step) learn(epoch uint64, grant []byte) error {
	if s.Dismissed {
		return nil
	}
	next, changed, err := s.Learn(s.domain, epoch, grant)
	if err != nil || !changed {
		return err
	}
	mine := s.mine()
	s.Ward, s.heard, s.granted, s.taken, s.starving = next, s.now.Time, time.Time{}, false, time.Time{}
	s.do(putWard{})
	s.do(superseded{s.Epoch, s.Supervisor(s.Epoch), mine && !s.mine()})
	return nil
}

// beat processes the supervisor's heartbeat.
func (s *step) beat(ev beaten) error {
	if err := s.Commands(ev.from, ev.epoch); err != nil {
		return err
	}
	if ev.state != nil {
		if ev.state.Epoch != ev.epoch {
			return malformed("state of epoch %d under %d", ev.state.Epoch, ev.epoch)
		}
		if err := s.keepState(*ev.state); err != nil {
			return err
		}
	}
	s.heard, s.granted = s.now.Time, time.Time{}
	return nil
}

// keepState journals a state that is newer.
func (s *step) keepState(st guardian.SignedState) error {
	if !st.Newer(s.state) {
		return nil
	}
	if err := s.keeps(s.Files, st.Files); err != nil {
		return err
	}
	if st.Over != s.Over {
		if s.Over = st.Over; st.Over && s.OverAt == 0 {
			s.OverAt = s.now.Slot // a wage does not end where the chain was never seen
		}
		s.do(putWard{})
	}
	if s.state != nil {
		s.drop(s.state.Files)
	}
	s.state, s.complete, s.tried = &st, false, time.Time{}
	s.spare = st.SpareOf(s.spare)
	s.do(putState{})
	return nil
}

// keeps refuses files that are larger than this peer keeps for one job.
func (r *rules) keeps(lists ...[]guardian.File) error {
	if sum := guardian.BytesOf(lists...); sum > r.maxBytes {
		return guardian.Refuse(guardian.CodePolicy, "the job's files are %s, this peer keeps %s",
			stream.Size(sum), stream.Size(r.maxBytes))
	}
	return nil
}

// voucher signs a supervisor's payment, and keeps it.
func (s *step) voucher(ev vouched) error {
	if err := s.Commands(ev.from, ev.epoch); err != nil {
		return err
	}
	if ev.lease.Epoch != ev.epoch {
		return malformed("lease of epoch %d under %d", ev.lease.Epoch, ev.epoch)
	}
	k, v, err := s.checkLease(ev.lease)
	if err != nil {
		return err
	}
	if err := k.Follows(s.leases[k.ID()]); err != nil {
		return err
	}
	if err := s.keepLease(k); err != nil {
		return err
	}
	if s.heard = s.now.Time; !s.starved(s.now) {
		s.starving = time.Time{}
	}
	b := v.Marshal()
	s.do(signText{s.domain.Preimage(sign.TagVoucher, b[:])})
	return nil
}

var errClock = guardian.Refuse(guardian.CodeClock, "the current slot is unknown: the chain has not answered yet")

// checkLease checks a lease that a supervisor left, and its voucher.
func (s *step) checkLease(l guardian.SignedLease) (guardian.SignedLease, verify.Voucher, error) {
	if err := s.VerifyLease(s.domain, l); err != nil {
		return l, verify.Voucher{}, malformed("lease: %v", err)
	}
	if s.now.Slot == 0 {
		return l, verify.Voucher{}, errClock
	}
	l, err := s.CheckLease(s.genesis, l, s.leases[l.ID()])
	if err != nil {
		return l, verify.Voucher{}, err
	}
	v, err := s.CheckVoucher(s.genesis, s.now.Slot, l)
	return l, v, err
}

// keepLease journals a lease, with the receipt that its payer holds.
func (s *step) keepLease(k guardian.SignedLease) error {
	old := s.leases[k.ID()]
	grown := k.Size()
	if old != nil {
		grown -= old.Size()
	}
	if old == nil && len(s.leases) >= guardian.MaxLeases || s.bytes+grown > maxKept {
		return guardian.Refuse(guardian.CodeFull,
			"the job has %d leases of %s", len(s.leases), stream.Size(int64(s.bytes)))
	}
	last := k.Last()
	if last.Seq > 0 && (old == nil || old.Last().Seq < last.Seq) && s.receipts < guardian.MaxReceipts {
		if s.key == nil {
			return fmt.Errorf("opening the key of job %s: %w", s.Job.Short(), sealed.ErrSealed)
		}
		r, err := k.Receipt(s.domain, *s.key)
		if err != nil {
			return err
		}
		s.receipts++
		s.do(putSigned{r})
	}
	if s.leases = maps.Clone(s.leases); s.leases == nil {
		s.leases = map[market.LeaseID]*guardian.SignedLease{}
	}
	s.leases[k.ID()] = &k
	s.bytes += grown
	s.do(putLease{k.ID()})
	return nil
}

// witness signs a transaction for the supervisor.
func (s *step) witness(ev witnessed) error {
	if err := s.Commands(ev.from, ev.epoch); err != nil {
		return err
	}
	next, changed, err := s.Witness(s.genesis, s.self, ev.message)
	if err != nil {
		return err
	}
	if changed {
		s.Ward = next
		s.do(putWard{})
	}
	s.heard = s.now.Time
	s.do(signText{ev.message})
	return nil
}

// grant signs that another peer, or this one, supervises the job, if the present supervisor failed.
func (s *step) grant(ev requested) error {
	if err := s.MayGrant(ev.from, ev.epoch, s.failed(s.now)); err != nil {
		return err
	}
	b := verify.SupervisionGrant{
		Version: verify.GrantVersion, Job: s.Job, Epoch: ev.epoch, Supervisor: ev.from, Guardians: s.Keys.Hash(),
		Slot: ev.slot,
	}.Marshal()
	if ev.from != s.self && s.granted.IsZero() { // once in each silence: no peer can block the requests of others
		s.granted = s.now.Time
	}
	s.do(signGrant{s.domain.Preimage(sign.TagSupervision, b[:]), s.guarded})
	return nil
}

// wage signs a fellow guardian's earnings.
func (s *step) wage(ev earnedWage) error {
	if s.now.Slot == 0 {
		return errClock
	}
	if err := s.Wage(s.genesis, s.now.Slot, ev.from, ev.voucher); err != nil {
		return err
	}
	b := ev.voucher.Marshal()
	s.do(signText{s.domain.Preimage(sign.TagVoucher, b[:])})
	return nil
}

// dismiss forgets the job, except the wages of its guardians.
func (s *step) dismiss(from sign.Key) error {
	if from != s.Owner {
		return guardian.Refuse(guardian.CodeNotYours, "the owner dismisses")
	}
	if !s.Dismissed {
		s.shut()
	}
	return nil
}

// shut ends a ward: its data goes, the wages of its guardians stay.
func (s *step) shut() {
	s.drop(s.needed())
	s.Ward = s.closed(s.now.Slot) // 0: a wage does not end where the chain was never seen
	s.state, s.key, s.leases, s.bytes, s.receipts, s.starving = nil, nil, nil, 0, 0, time.Time{}
	s.do(putWard{})
	s.erase()
}

// erase removes all records beside the ward.
func (s *step) erase() {
	s.erased, s.erasing = false, true
	s.do(erase{})
}
