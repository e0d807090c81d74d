package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// status asks the provider of an execution how it stands.
func (b *Buyer) status(ctx context.Context, l *bought, seq uint64) (*nodepb.Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	b.cfg.Host.Forgive(l.peer)
	reply, err := protocol.Exec.Call(ctx, b.cfg.Host, b.tag, l.peer, &nodepb.ExecRequest{Lease: l.first[:], Seq: seq, Op: &nodepb.ExecRequest_Status_{Status: &nodepb.ExecRequest_Status{}}})
	if err == nil && reply.GetExecution() == nil {
		err = stream.ErrBadReply
	}
	return reply.GetExecution(), err
}

// lookEvery is how often a member is asked how it reaches the others: its provider tells of its program, not of that.
const lookEvery = 3 * time.Second

// look keeps what is known of a member's ways to the others, until ctx ends.
func (s *supervisor) look(ctx context.Context, i int) {
	for pause(ctx, jitter(lookEvery)) == nil {
		l, seq, err := s.running(i)
		if err != nil {
			continue
		}
		ex, err := s.b.status(ctx, l, seq)
		if err != nil || ex.Seq != seq || ex.State.Ended() { // its end is for who watches it
			continue
		}
		if again, now, err := s.running(i); err == nil && again == l && now == seq {
			s.see(i, ex)
			s.heard(i, ex)
		}
	}
}

// size is the job with another number of members. Its budget follows when it was the most that the job could cost.
func (j Job) size(n int) (job.Job, error) {
	count := uint32(n)
	spec, err := j.Spec.With(job.Changes{Count: &count})
	if err != nil {
		return spec, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return spec, nil
}
