package buyer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// Why a member's program is ended by its own side.
var (
	errLeft  = errors.New("the cluster was scaled down")
	errOver0 = errors.New("the head of the cluster has ended")
	errAnew  = errors.New("the cluster begins again with its head")
)

// crew runs the members of a cluster, one goroutine each, which come and go with its size.
//
//	a member's lease is lost     only its rank is ordered again, and joins what runs
//	the head's is                everybody begins again where the head binds them; restart.max counts
//	a member's program ends      it is the engine's, and begins again, restart.max times; or, of an engine that ends with all, its end
//	the head's program ends      well: the others are ended, and the job has succeeded. Ill: as restart.policy says
type crew struct {
	s      *supervisor
	engine cluster.Engine
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	err     error               // why it ends; the first
	members map[int]*crewmember // that run, by rank
	trial   map[int]func(error) // ends the attempt that a rank is at, to begin it again
}

type crewmember struct {
	leave context.CancelCauseFunc
	gone  chan struct{} // closed when its goroutine has ended
}

// runCluster runs a cluster until its engine's end, or an outcome.
func (s *supervisor) runCluster(parent context.Context, cancelWork context.CancelCauseFunc) error {
	if err := s.tidy(parent); err != nil {
		return err
	}
	j := s.snapshot()
	engine := j.engine()
	if engine.Ends == cluster.EndsHead && j.Ranks[0].State == RankDone {
		return nil // an earlier process did not live to say so
	}
	// Where there are members already, each rank that has none is ordered by itself, while they are taken up: one that was lost while
	// this peer was away is nobody to be near to.
	if len(s.members()) == 0 {
		if err := s.leaseAll(parent); err != nil {
			return err
		}
	}
	if err := s.begin(parent, cancelWork); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(parent)
	c := &crew{s: s, engine: engine, ctx: ctx, cancel: cancel, members: map[int]*crewmember{}, trial: map[int]func(error){}}
	for i := range s.snapshot().Ranks {
		c.join(i)
	}
	s.mu.Lock()
	s.crew = c
	s.ringLocked()
	s.mu.Unlock()
	if d := time.Duration(j.Spec.Cluster.Autostop); d > 0 {
		c.wg.Go(func() { s.watchIdle(ctx, cancelWork, d) })
	}
	<-ctx.Done()
	s.mu.Lock()
	s.crew = nil
	s.mu.Unlock()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return parent.Err()
}

// end has everybody end, for an outcome or for nil.
func (c *crew) end(err error) {
	c.mu.Lock()
	if c.ctx.Err() == nil && c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.cancel(errOver0)
}

// join begins a rank.
func (c *crew) join(i int) {
	ctx, leave := context.WithCancelCause(c.ctx)
	m := &crewmember{leave: leave, gone: make(chan struct{})}
	c.mu.Lock()
	c.members[i] = m
	c.mu.Unlock()
	c.wg.Go(func() {
		defer close(m.gone)
		telling := make(chan struct{})
		go func() {
			defer close(telling)
			c.s.tell(ctx, i)
		}()
		looking := make(chan struct{})
		go func() {
			defer close(looking)
			c.s.look(ctx, i)
		}()
		err := c.run(ctx, i)
		if ctx.Err() != nil && err != nil {
			leave(nil)
			<-telling
			<-looking
			return // it left, or all end; who asked for it knows why
		}
		leave(nil)
		<-telling
		<-looking
		switch {
		case err != nil:
			c.end(err)
		case c.over():
			c.end(nil)
		}
	})
}

// over reports whether the cluster's work is done.
func (c *crew) over() bool {
	ranks := c.s.snapshot().Ranks
	if c.engine.Ends == cluster.EndsHead {
		return ranks[0].State == RankDone
	}
	for _, r := range ranks {
		if r.State != RankDone && r.State != RankJoining {
			return false
		}
	}
	return true
}

// leave ends ranks, gracefully and all at once, and returns when they have ended.
func (c *crew) leave(ctx context.Context, ranks []int) error {
	var gone []*crewmember
	c.mu.Lock()
	for _, i := range ranks {
		if m := c.members[i]; m != nil {
			gone = append(gone, m)
			m.leave(errLeft)
			delete(c.members, i)
		}
	}
	c.mu.Unlock()
	for _, m := range gone {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.gone:
		}
	}
	return nil
}

// run runs one rank: again on the same lease, on another provider, or from the beginning with the head.
func (c *crew) run(ctx context.Context, i int) error {
	s := c.s
	for {
		r, l, err := s.due(ctx, i)
		if err != nil || l == nil {
			return err
		}
		adopted := r.State == RankRunning
		if adopted && r.Generation < s.snapshot().Cluster.Generation {
			s.finish(i, l, r)
			if err := s.beginAgain(ctx, i); err != nil {
				return err
			}
			continue
		}
		if !adopted {
			c.afterHead(ctx, i)
			if r, err = s.launch(ctx, i, l, r); err != nil {
				return err
			}
		}
		try, done := c.attempt(ctx, i, r)
		res, err := s.attempt(try, i, l, r, adopted)
		done()
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(context.Cause(try), errAnew):
			s.finish(i, l, r)
			err = s.beginAgain(ctx, i)
		case err != nil:
			// When it is the peer that stops, the program runs on for its next process.
			if ctx.Err() != nil && s.peer.Err() == nil {
				s.finish(i, l, r)
				if errors.Is(context.Cause(ctx), errOver0) && c.engine.Ends == cluster.EndsHead && c.ended() {
					_ = s.keep(s.peer, func(j *Job) { j.Ranks[i].State = RankDone })
				}
			}
			return err
		case res.lost != "":
			if err = s.parted(ctx, i, l, res); err == nil && i == 0 && c.engine.Binds {
				err = c.anew(ctx, "the head was lost: "+res.lost)
			}
		default:
			again := false
			if again, err = c.exited(ctx, i, r, res); err == nil && !again {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// headStart is how long the others let the head of a cluster go first: it takes longest to be ready, and they wait for it anyway.
const headStart = time.Second

// afterHead lets the head's program start before that of another rank, where the others only wait for it. They do not wait
// for its image: theirs may have to be fetched too.
func (c *crew) afterHead(ctx context.Context, i int) {
	s := c.s
	if i == 0 || !c.engine.HeadFirst {
		return
	}
	t := time.NewTimer(headStart)
	defer t.Stop()
	for {
		bell := s.rung()
		j := s.snapshot()
		if head := j.Ranks[0].Live; !j.Cluster.Ready.IsZero() || head.Phase == "running" || head.PullTotal > 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-bell:
		}
	}
}

// ended says that the head has ended well, so that the others are done.
func (c *crew) ended() bool { return c.s.snapshot().Ranks[0].State == RankDone }

// exited reports whether a rank whose program ended runs it again, and notes how it ended.
func (c *crew) exited(ctx context.Context, i int, r Rank, res result) (again bool, err error) {
	s := c.s
	spec := s.snapshot().Spec.Restart
	serves := c.engine.Ends == cluster.EndsHead && i != 0
	switch {
	case res.hopeless():
	case serves && r.Retries < spec.Max:
		// What it runs is the engine's own: it has not ended because its work is done.
		return true, s.againIn(ctx, i, r, res, max(spec.Wait(r.Retries+1), serveWait), "the cluster goes on")
	case serves:
		return false, s.exited(ctx, i, r, broken(res))
	case spec.Again(res.ok(), r.Retries):
		if err := s.again(ctx, i, r, res); err != nil || i != 0 || !c.engine.Binds {
			return true, err
		}
		return true, c.anew(ctx, "the head is started again")
	case !res.ok() && c.engine.Binds && i != 0:
		innocent, err := c.innocent(ctx, i, r)
		if err != nil {
			return false, err
		}
		if innocent {
			return true, s.againIn(ctx, i, r, res, serveWait, "another member was lost")
		}
	}
	return false, s.exited(ctx, i, r, res)
}

// serveWait is the least that is waited until a program of the engine begins again.
const serveWait = time.Second

// broken is the result of a program that ended and never should: not well, whatever it says.
func broken(res result) result {
	if res.ok() {
		res.reason, res.message = "ended", "it ended while the cluster ran, more often than restart.max allows"
	}
	return res
}

// attempt is the context of a rank's run, which anew ends.
func (c *crew) attempt(ctx context.Context, i int, r Rank) (context.Context, func()) {
	try, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trial[i] = cancel
	if r.Generation < c.s.snapshot().Cluster.Generation { // it came meanwhile
		cancel(errAnew)
	}
	return try, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.trial, i)
		cancel(nil)
	}
}

// anew has every rank but the head begin again, where it is.
func (c *crew) anew(ctx context.Context, why string) error {
	s := c.s
	s.trace.Add(Step{At: time.Now(), Kind: StepRestarted, Detail: "all members: " + why})
	if err := s.keep(ctx, func(j *Job) {
		j.Cluster.Generation++
		j.Cluster.Begun, j.Cluster.Ready = j.Cluster.Size, time.Time{}
	}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, cancel := range c.trial {
		if i != 0 {
			cancel(errAnew)
		}
	}
	return nil
}

// beginAgain notes that a rank is to begin again on its lease.
func (s *supervisor) beginAgain(ctx context.Context, i int) error {
	return s.keep(ctx, func(j *Job) { j.Ranks[i].State = RankLeased })
}

// innocent reports whether a program failed because another member was lost: it then begins again, for nothing. Every
// other member is waited for until it has answered, or is lost.
func (c *crew) innocent(ctx context.Context, i int, r Rank) (bool, error) {
	s := c.s
	before := s.snapshot()
	for k := range before.Ranks {
		for k != i {
			now := s.snapshot()
			if k >= len(now.Ranks) {
				break
			}
			if now.Cluster.Generation != r.Generation || now.Ranks[k].Epoch != before.Ranks[k].Epoch || now.Ranks[k].Restarts != before.Ranks[k].Restarts {
				return true, nil
			}
			l, seq, err := s.running(k)
			if err != nil { // it is being ordered, or has ended
				if now.Ranks[k].State == RankWaiting {
					return true, nil
				}
				break
			}
			if _, err := s.b.status(ctx, l, seq); err == nil {
				break
			}
			if err := pause(ctx, redial); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

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

// tidy takes up what an earlier process was at when it ended: ranks that it was adding have no leases, and are not there; those
// that it was taking away go.
func (s *supervisor) tidy(ctx context.Context) error {
	j := s.snapshot()
	keep := len(j.Ranks)
	for keep > 1 && j.Ranks[keep-1].State == RankJoining {
		keep--
	}
	if t := int(j.Cluster.Target); t > 0 && t < keep {
		for i := t; i < keep; i++ {
			s.mu.Lock()
			l := s.leases[i]
			s.mu.Unlock()
			if r := j.Ranks[i]; l != nil && r.State == RankRunning {
				s.finish(i, l, r)
			}
		}
		keep = t
	}
	if keep == len(j.Ranks) && j.Cluster.Target == 0 {
		return nil
	}
	return s.shrink(ctx, keep)
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
