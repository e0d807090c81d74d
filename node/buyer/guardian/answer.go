package guardian

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// answer answers one request, of another peer or of this one.
func (s *Service) answer(ctx context.Context, from sign.Key, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	if _, ok := req.Op.(*nodepb.GuardRequest_Offer_); ok {
		return s.offer(from)
	}
	if len(req.Job) != sign.HashSize {
		return nil, malformed("a job of %d bytes", len(req.Job))
	}
	job := sign.Hash(req.Job)
	if e := req.GetEngage(); e != nil {
		return s.engage(ctx, from, job, e)
	}
	unknown := refuse(CodeUnknown, "this peer guards no such job")
	w := s.find(job)
	if w == nil {
		return nil, unknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.has(from) { // nor learns that there is one
		return nil, unknown
	}
	if err := s.learn(ctx, w, req.Epoch, req.Grant); err != nil {
		return nil, err
	}
	switch op := req.Op.(type) {
	case *nodepb.GuardRequest_Beat_:
		return s.beat(ctx, w, from, req.Epoch, op.Beat.GetState())
	case *nodepb.GuardRequest_Voucher_:
		return s.voucher(ctx, w, from, req.Epoch, op.Voucher.GetLease())
	case *nodepb.GuardRequest_Witness_:
		return s.witness(ctx, w, from, req.Epoch, op.Witness.GetMessage())
	case *nodepb.GuardRequest_GrantTo:
		return s.grant(w, from, op.GrantTo)
	case *nodepb.GuardRequest_Read_:
		return s.read(w, op.Read.GetAfter())
	case *nodepb.GuardRequest_Receipts_:
		return s.receiptsOf(ctx, w, op.Receipts)
	case *nodepb.GuardRequest_Wage_:
		return s.wage(w, from, op.Wage.GetVoucher())
	case *nodepb.GuardRequest_Dismiss_:
		return s.dismiss(ctx, w, from)
	}
	return nil, malformed("nothing is asked")
}

func done() *nodepb.GuardReply {
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Done_{Done: &nodepb.GuardReply_Done{}}}
}

func signedReply(sig sign.Signature) *nodepb.GuardReply {
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Signed_{Signed: &nodepb.GuardReply_Signed{Signature: sig[:]}}}
}

func (s *Service) offer(from sign.Key) (*nodepb.GuardReply, error) {
	p := s.cfg.Policy
	if !p.Accept {
		return nil, refuse(CodePolicy, "this peer guards no jobs of others")
	}
	if len(s.Jobs()) >= p.MaxJobs {
		return nil, refuse(CodeFull, "this peer guards %d jobs, which is all it can", p.MaxJobs)
	}
	if err := s.room(from, s.at(from)); err != nil {
		return nil, err
	}
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Offered_{Offered: &nodepb.GuardReply_Offered{
		ShareMillionths: p.ShareMillionths, Payout: s.cfg.Payout[:],
		MaxBytes: uint64(max(p.MaxBytes, 0)), LongestMillis: uint64(max(p.Longest, 0) / time.Millisecond),
	}}}, nil
}

// engage takes a job on. It is answered with Done once all is here that is needed to go on with it; where this peer is
// paid, its wage must be on chain before it fetches anything, and then that is so only if Complete is set.
func (s *Service) engage(
	ctx context.Context, from sign.Key, job sign.Hash, e *nodepb.GuardRequest_Engage,
) (*nodepb.GuardReply, error) {
	next, err := s.wardOf(from, job, e)
	if err != nil {
		return nil, err
	}
	w, err := s.admit(ctx, next)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	ready, backed := w.Ready, w.Unbacked.IsZero()
	fetched := s.fetch(w)
	w.mu.Unlock()
	switch {
	case !backed && !e.Complete:
		return done(), nil
	case !backed:
		return nil, refuse(CodeFetching, "this peer's wage is not on chain yet")
	}
	if !ready {
		select {
		case <-fetched:
		case <-ctx.Done():
		case <-time.After(protocol.QuickAnswer / 2):
		}
		w.mu.Lock()
		ready = w.Ready
		w.mu.Unlock()
	}
	if !ready {
		return nil, refuse(CodeFetching, "the job's files are on their way")
	}
	return done(), nil
}

// wardOf checks an engagement and makes its ward.
func (s *Service) wardOf(from sign.Key, job sign.Hash, e *nodepb.GuardRequest_Engage) (Ward, error) {
	members, err := membersOf(e.Guardians)
	if err != nil {
		return Ward{}, malformed("%v", err)
	}
	keys, err := keysOf(e.Threshold, members)
	if err != nil {
		return Ward{}, malformed("%v", err)
	}
	files, err := filesOf(e.Files)
	if err != nil {
		return Ward{}, malformed("%v", err)
	}
	if err := checkAddrs(e.Addrs); err != nil {
		return Ward{}, malformed("%v", err)
	}
	if len(e.File) > MaxFile || e.UntilMillis > 1<<48 {
		return Ward{}, malformed("%d bytes about the job, until %d", len(e.File), e.UntilMillis)
	}
	seed, err := s.cfg.Unseal(SealedFor(s.tag, job), e.Sealed)
	if err != nil || len(seed) != 32 {
		return Ward{}, malformed("the job's key is not sealed to this peer")
	}
	key := sign.NewPrivate([32]byte(seed))
	clear(seed)
	w := Ward{
		Charter: Charter{Job: job, Owner: from, Buyer: key.Key(), Keys: keys}, Members: members,
		Sealed: e.Sealed, File: e.File, Files: files, Addrs: e.Addrs,
		Until: time.UnixMilli(int64(e.UntilMillis)), From: s.at(from), Epoch: 1, Ready: len(files) == 0,
	}
	if err := w.Check(s.cfg.Genesis); err != nil {
		return Ward{}, malformed("%v", err)
	}
	if s.cfg.Backed != nil && w.WageOf(s.self) != nil {
		w.Unbacked = time.Now()
	}
	i := slices.Index(keys.Keys, s.self)
	if i < 0 {
		return Ward{}, malformed("this peer is none of the guardians")
	}
	if err := w.checkWages(); err != nil {
		return Ward{}, err
	}
	p := s.cfg.Policy
	if c := members[i].Wage; p.ShareMillionths > 0 && (c == nil || c.Payout != s.cfg.Payout || c.Cap == 0) {
		return Ward{}, refuse(CodePolicy, "this peer guards for %d millionths of what a job may cost, to be paid to %s",
			p.ShareMillionths, s.cfg.Payout)
	}
	if sum := bytesOf(files); sum > p.MaxBytes {
		return Ward{}, refuse(CodePolicy, "the job's files are %s, this peer keeps %s",
			stream.Size(sum), stream.Size(p.MaxBytes))
	}
	if left := time.Until(w.Until); left > p.Longest || left <= 0 {
		return Ward{}, refuse(CodePolicy, "the job lasts %v, this peer guards up to %v",
			left.Round(time.Second), p.Longest)
	}
	return w, nil
}

// admit journals a job that is new, or finds it.
func (s *Service) admit(ctx context.Context, next Ward) (*ward, error) {
	s.admitting.Lock()
	defer s.admitting.Unlock()
	if w := s.find(next.Job); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case !w.same(next):
			return nil, refuse(CodeOther, "this peer was engaged for another job under the same terms")
		case w.Dismissed:
			return nil, refuse(CodeOver, "the job was dismissed")
		}
		return w, nil
	}
	p, n := s.cfg.Policy, len(s.Jobs())
	switch {
	case !p.Accept:
		return nil, refuse(CodePolicy, "this peer guards no jobs of others")
	case n >= p.MaxJobs || len(s.all()) >= 8*p.MaxJobs+64: // those that were dismissed wait for their wages
		return nil, refuse(CodeFull, "this peer guards %d jobs, which is all it can", n)
	}
	if err := s.room(next.Owner, next.From); err != nil {
		return nil, err
	}
	if most := p.unbacked(); !next.Unbacked.IsZero() && s.waiting() >= most {
		return nil, refuse(CodeFull, "this peer guards %d jobs whose wages are not on chain, which is all it does",
			most)
	}
	w := &ward{Ward: next, leases: map[market.LeaseID]*kept{}, heard: time.Now(), refreshed: true}
	if err := s.write(ctx, w.Ward); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.wards[next.Job] = w
	s.mu.Unlock()
	s.cfg.Log.Info("guarding a job",
		"job", next.Job.Short(), "owner", next.Owner.Short(), "guardians", len(next.Keys.Keys))
	return w, nil
}

// learn accepts a proof of a higher epoch: the earlier supervisor then supervises no more. w is locked.
func (s *Service) learn(ctx context.Context, w *ward, epoch uint64, grant []byte) error {
	if w.Dismissed {
		return nil
	}
	next, changed, err := w.Learn(s.domain, epoch, grant)
	if err != nil || !changed {
		return err
	}
	if err := s.write(ctx, next); err != nil {
		return err
	}
	mine := w.Supervisor(w.Epoch) == s.self && next.Supervisor(next.Epoch) != s.self
	w.Ward, w.heard, w.granted, w.taken, w.starving = next, time.Now(), time.Time{}, false, time.Time{}
	s.cfg.Log.Info("a job has another supervisor",
		"job", w.Job.Short(), "epoch", w.Epoch, "supervisor", w.Supervisor(w.Epoch).Short())
	if mine {
		s.cfg.Yield(w.Job, w.Epoch)
	}
	return nil
}

// beat hears the supervisor.
func (s *Service) beat(
	ctx context.Context, w *ward, from sign.Key, epoch uint64, pb *nodepb.GuardedState,
) (*nodepb.GuardReply, error) {
	if err := w.Commands(from, epoch); err != nil {
		return nil, err
	}
	if pb != nil {
		st, err := w.readState(s.domain, pb)
		if err != nil {
			return nil, malformed("state: %v", err)
		}
		if st.Epoch != epoch {
			return nil, malformed("state of epoch %d under %d", st.Epoch, epoch)
		}
		if err := s.keepState(ctx, w, st); err != nil {
			return nil, err
		}
	}
	w.heard, w.granted = time.Now(), time.Time{}
	return done(), nil
}

// keepState journals a state that is newer. w is locked.
func (s *Service) keepState(ctx context.Context, w *ward, st said) error {
	if !st.newer(w.state) || w.Dismissed {
		return nil
	}
	if sum := bytesOf(w.Files, st.Files); sum > s.cfg.Policy.MaxBytes {
		return refuse(CodePolicy, "the job's files are %s, this peer keeps %s",
			stream.Size(sum), stream.Size(s.cfg.Policy.MaxBytes))
	}
	next := w.Ward
	if next.Over = st.Over; st.Over && next.OverAt == 0 {
		next.OverAt, _ = s.slot() // a wage does not end where the chain was never seen
	}
	var b journal.Batch
	states.Put(&b, w.Job, st)
	if next.Over != w.Over {
		wards.Put(&b, w.Job, next)
	}
	if err := b.Commit(ctx, s.cfg.Store); err != nil {
		return fmt.Errorf("journalling a job's state: %w", err)
	}
	old := w.state
	w.Ward, w.state, w.complete = next, &st, false
	s.fetch(w)
	if old != nil {
		s.drop(old.Files, w)
	}
	return nil
}

// drop lets go of files that the ward does not need any more.
func (s *Service) drop(old []File, w *ward) {
	needed := w.Files
	if w.state != nil {
		needed = slices.Concat(needed, w.state.Files)
	}
	for _, f := range old {
		if s.cfg.Drop != nil && !slices.ContainsFunc(needed, func(n File) bool { return n.CID == f.CID }) {
			s.cfg.Drop(f.CID)
		}
	}
}

// voucher signs a supervisor's payment, and keeps it.
func (s *Service) voucher(
	ctx context.Context, w *ward, from sign.Key, epoch uint64, pb *nodepb.GuardedLease,
) (*nodepb.GuardReply, error) {
	if err := w.Commands(from, epoch); err != nil {
		return nil, err
	}
	l, word, err := leaseOf(pb)
	if err != nil {
		return nil, malformed("%v", err)
	}
	if word.Epoch != epoch {
		return nil, malformed("lease of epoch %d under %d", word.Epoch, epoch)
	}
	k, v, err := s.checkLease(w, l, word)
	if err != nil {
		return nil, err
	}
	if err := k.follows(w.leases[l.ID()]); err != nil {
		return nil, err
	}
	if err := s.keepLease(ctx, w, k); err != nil {
		return nil, err
	}
	if w.heard = time.Now(); !s.starved(w) {
		w.starving = time.Time{}
	}
	b := v.Marshal()
	sig, err := s.cfg.Key.Sign(s.domain.Preimage(sign.TagVoucher, b[:]))
	if err != nil {
		return nil, fmt.Errorf("signing a voucher: %w", err)
	}
	return signedReply(sig), nil
}

// checkLease checks a lease that a supervisor left, and its voucher. w is locked.
func (s *Service) checkLease(w *ward, l Lease, word Word) (kept, verify.Voucher, error) {
	if err := w.checkWord(s.domain, word, wordLease, l.hash()); err != nil {
		return kept{}, verify.Voucher{}, malformed("lease: %v", err)
	}
	now, err := s.slot()
	if err != nil {
		return kept{}, verify.Voucher{}, refuse(CodeClock, "%v", err)
	}
	k, err := w.readLease(s.cfg.Genesis, l, word, w.leases[l.ID()])
	if err != nil {
		return kept{}, verify.Voucher{}, err
	}
	v, err := w.checkVoucher(s.cfg.Genesis, now, k)
	return k, v, err
}

// keepLease journals a lease, with the receipt that its payer holds. w is locked.
func (s *Service) keepLease(ctx context.Context, w *ward, k kept) error {
	old := w.leases[k.ID()]
	grown := k.size()
	if old != nil {
		grown -= old.size()
	}
	if old == nil && len(w.leases) >= MaxLeases || w.bytes+grown > maxKept {
		return refuse(CodeFull, "the job has %d leases of %s", len(w.leases), stream.Size(int64(w.bytes)))
	}
	var b journal.Batch
	leases.Put(&b, leaseKey(w.Job, k.ID()), keptRecord{k.Lease, k.Word})
	counted := 0
	last := k.payer.Last()
	if last.Seq > 0 && (old == nil || old.payer.Last().Seq < last.Seq) && w.receipts < maxReceipts {
		r, err := s.receipt(w, k)
		if err != nil {
			return err
		}
		receipts.Put(&b, receiptKey(w.Job, k.ID(), last.Seq), r.Marshal())
		counted = 1
	}
	if err := b.Commit(ctx, s.cfg.Store); err != nil {
		return fmt.Errorf("journalling a lease: %w", err)
	}
	w.leases[k.ID()] = &k
	w.bytes += grown
	w.receipts += counted
	return nil
}

// receipt completes the receipt that the payer holds: a signature of the job's key is always the same.
func (s *Service) receipt(w *ward, k kept) (verify.Receipt, error) {
	key, err := s.open(w)
	if err != nil {
		return verify.Receipt{}, err
	}
	last := k.payer.Last()
	sig, err := last.Sign(s.domain, key)
	return verify.Receipt{ReceiptCore: last, ProviderSig: k.payer.LastSig(), BuyerSig: sig}, err
}

// open is the job's key. w is locked.
func (s *Service) open(w *ward) (sign.Private, error) {
	if w.key == nil {
		seed, err := s.cfg.Unseal(SealedFor(s.tag, w.Job), w.Sealed)
		if err != nil || len(seed) != 32 {
			return sign.Private{}, fmt.Errorf("opening the key of job %s: %w",
				w.Job.Short(), errors.Join(err, sealed.ErrSealed))
		}
		key := sign.NewPrivate([32]byte(seed))
		clear(seed)
		w.key = &key
	}
	return *w.key, nil
}

// witness signs a transaction for the supervisor.
func (s *Service) witness(
	ctx context.Context, w *ward, from sign.Key, epoch uint64, message []byte,
) (*nodepb.GuardReply, error) {
	if err := w.Commands(from, epoch); err != nil {
		return nil, err
	}
	// If it were a preimage (market/sign), it would be of at least 115 signers, which fit none.
	payer, in, err := transaction.ParseMessage(message)
	if err != nil {
		return nil, malformed("%v", err)
	}
	opened, err := w.Witness(s.cfg.Genesis, s.self, payer, in)
	if err != nil {
		return nil, err
	}
	if len(opened) > 0 {
		next := w.Ward
		next.Escrows = slices.Concat(w.Escrows, opened)
		if err := s.write(ctx, next); err != nil {
			return nil, err
		}
		w.Ward = next
	}
	sig, err := s.cfg.Key.Sign(message)
	if err != nil {
		return nil, fmt.Errorf("signing a transaction: %w", err)
	}
	w.heard = time.Now()
	return signedReply(sig), nil
}

// grant signs that another peer, or this one, supervises the job, if the present supervisor failed.
func (s *Service) grant(w *ward, from sign.Key, g *nodepb.GuardRequest_Grant) (*nodepb.GuardReply, error) {
	if err := w.MayGrant(from, g.GetEpoch(), s.failed(w)); err != nil {
		return nil, err
	}
	b := verify.SupervisionGrant{
		Version: verify.GrantVersion, Job: w.Job, Epoch: g.Epoch, Supervisor: from, Guardians: w.Keys.Hash(),
		Slot: market.Slot(g.Slot),
	}.Marshal()
	sig, err := s.cfg.Key.Sign(s.domain.Preimage(sign.TagSupervision, b[:]))
	if err != nil {
		return nil, fmt.Errorf("signing a grant: %w", err)
	}
	if from != s.self && w.granted.IsZero() { // once in each silence, so that nobody can be kept from asking
		w.granted = time.Now()
	}
	out, err := s.read(w, nil)
	if err != nil {
		return nil, err
	}
	out.GetStanding().Signature = sig[:]
	return out, nil
}

// failed reports whether the supervisor is silent, or does not pay.
func (s *Service) failed(w *ward) bool {
	return time.Since(w.heard) > s.timing.Silent || !w.starving.IsZero()
}

// read says how the job stands.
func (s *Service) read(w *ward, since []byte) (*nodepb.GuardReply, error) {
	if len(since) != 0 && len(since) != sign.HashSize {
		return nil, malformed("a lease of %d bytes", len(since))
	}
	out := &nodepb.GuardReply_Standing{Epoch: w.Epoch, Grant: w.Grant}
	ids := slices.SortedFunc(maps.Keys(w.leases), func(a, b market.LeaseID) int { return slices.Compare(a[:], b[:]) })
	if len(since) == 0 {
		if w.state != nil {
			out.State = w.state.pb()
		}
	} else {
		ids = slices.DeleteFunc(ids, func(id market.LeaseID) bool { return slices.Compare(id[:], since) <= 0 })
	}
	size := 0
	for i, id := range ids {
		k := w.leases[id]
		if size += k.size() + verify.MaxSignedSupervisionGrant + 1024; size > pageBytes && i > 0 {
			out.More = true
			break
		}
		out.Leases = append(out.Leases, k.Lease.pb(k.Word))
	}
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Standing_{Standing: out}}, nil
}

// wage signs a fellow guardian's earnings.
func (s *Service) wage(w *ward, from sign.Key, voucher []byte) (*nodepb.GuardReply, error) {
	v, err := verify.UnmarshalVoucher(voucher)
	if err != nil {
		return nil, malformed("%v", err)
	}
	now, err := s.slot()
	if err != nil {
		return nil, refuse(CodeClock, "%v", err)
	}
	if err := w.Wage(s.cfg.Genesis, now, from, v); err != nil {
		return nil, err
	}
	b := v.Marshal()
	sig, err := s.cfg.Key.Sign(s.domain.Preimage(sign.TagVoucher, b[:]))
	if err != nil {
		return nil, fmt.Errorf("signing a wage: %w", err)
	}
	return signedReply(sig), nil
}

// dismiss forgets the job, except the wages of its guardians.
func (s *Service) dismiss(ctx context.Context, w *ward, from sign.Key) (*nodepb.GuardReply, error) {
	if from != w.Owner {
		return nil, refuse(CodeNotYours, "the owner dismisses")
	}
	if w.Dismissed {
		return done(), nil
	}
	if err := s.shut(ctx, w); err != nil {
		return nil, err
	}
	s.cfg.Log.Info("a job was dismissed", "job", w.Job.Short())
	return done(), nil
}
