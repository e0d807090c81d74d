package buyer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/checks"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/selection"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/store"
)

// Submit journals a job and starts it. One that was submitted with the same Once before returns the job of then.
// ErrRefused, ErrFunds or ErrLimit for one that is not taken.
func (b *Buyer) Submit(ctx context.Context, sub Submission) (Job, error) {
	spec := withLocal(b, sub.Spec, sub.Key)
	if err := b.check(ctx, spec); err != nil {
		return Job{}, err
	}
	if err := b.checkHeld(spec, sub.Key); err != nil {
		return Job{}, err
	}
	warning, err := b.checkCarry(spec)
	if err != nil {
		return Job{}, err
	}
	if err := sub.Values.CheckFor(spec); err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	once := sub.Once
	if once != "" && sub.Key != "" {
		once = sub.Key + "/" + once // one key cannot find out about another's jobs
	}
	var auth *runtime.RegistryAuth
	if spec.Registry != nil {
		auth = &runtime.RegistryAuth{Username: sub.Values.Username, Password: sub.Values.Password}
	}
	var unknown error // of a job that was submitted before it does not matter
	spec.Image, unknown = runtime.Pin(ctx, b.cfg.Registries, spec.Image, auth)
	b.mu.Lock()
	defer b.mu.Unlock()
	if j, ok, err := b.submitted(ctx, once); ok || err != nil {
		return j, err
	}
	if unknown != nil {
		return Job{}, fmt.Errorf("%w: spec.image: %w", ErrRefused, unknown)
	}
	if b.desk.ctx == nil || b.closing {
		return Job{}, fmt.Errorf("%w: the peer is starting or stopping; try again", ErrRefused)
	}
	if err := b.room(); err != nil {
		return Job{}, err
	}
	if err := b.within(spec, sub.Key, time.Now()); err != nil {
		return Job{}, err
	}
	j := Job{ID: record.NewID(), Spec: spec, Key: sub.Key, Rerun: sub.Rerun, Warning: warning, State: Queued,
		Created: time.Now(), Ranks: make([]Rank, spec.Count)}
	for i := range j.Ranks {
		j.Ranks[i].State = RankWaiting
	}
	if j.Replica = sub.Replica; spec.Verify == job.VerifyReplicate {
		_, _ = rand.Read(j.Nonce[:]) // never fails
		if j.Replica == nil {
			j.Verified = make([]Verified, spec.Count)
		}
	}
	if spec.Rounds != nil && spec.Rounds.Carry != "" {
		// Before the first round a program finds its carry directory empty, not absent.
		c, err := b.emptyTree(ctx)
		if err != nil {
			return Job{}, err
		}
		j.Carry = &c
	}
	if j.Cluster, err = record.NewCluster(j.ID, spec); err != nil {
		return Job{}, err
	}
	if spec.Guardians > 0 {
		if j.Detached, err = b.detachedFor(j.ID, spec); err != nil {
			return Job{}, err
		}
	}
	return b.accept(ctx, j, sub.Values, once)
}

// submitted is the job that was submitted under an idempotency key, if there is one. b.mu is held.
func (b *Buyer) submitted(ctx context.Context, once string) (j Job, ok bool, err error) {
	if once == "" {
		return j, false, nil
	}
	id, err := submissions.Get(ctx, b.cfg.Store, once)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return j, false, nil
	case err != nil:
		return j, false, err
	case b.jobs[string(id)] != nil:
		return b.jobs[string(id)].snapshot(), true, nil
	}
	err = b.archive.Read(ctx, string(id), &j)
	if errors.Is(err, store.ErrNotFound) { // it was removed
		return j, false, nil
	}
	return j, err == nil, err
}

// accept journals a job that is taken and starts it. b.mu is held.
func (b *Buyer) accept(ctx context.Context, j Job, v job.Values, once string) (Job, error) {
	s, err := b.newSupervisor(j, trace.New(b.cfg.Store, j.ID))
	if err != nil {
		return Job{}, err
	}
	var more []store.Put
	if once != "" {
		more = append(more, submissions.Encode(once, []byte(j.ID)))
	}
	if j.Spec.NeedsValues() {
		p, err := b.secrets.Seal(j.ID, v)
		if err != nil {
			return Job{}, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		more = append(more, p)
	}
	p, err := j.Params(b.cfg.Genesis, b.cfg.LostAfter)
	if err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := b.begin(ctx, s, beginning{p, true, j.Created}, more); err != nil {
		return Job{}, err
	}
	b.jobs[j.ID] = s
	b.cfg.Log.Info("job accepted", "job", j.ID, "name", j.Spec.Name, "ranks", j.Spec.Count)
	return s.snapshot(), nil
}

// begin journals a new job with more, and starts its machine. b.mu is held.
func (b *Buyer) begin(ctx context.Context, s *supervisor, g beginning, more []store.Put) error {
	b.desk.runner.Add(s, task{})
	// The job is refused or begun, whether its submitter waits or not.
	if _, err := b.desk.runner.Ask(context.WithoutCancel(ctx), s, event{begin: &g, puts: more}); err != nil {
		b.desk.runner.Remove(s)
		return fmt.Errorf("journalling job %s: %w", s.job.ID, err)
	}
	return nil
}

// room reports whether one more job may run. b.mu is held.
func (b *Buyer) room() error {
	running := 0
	for _, s := range b.jobs {
		// One that only waits for the chain holds nothing.
		if j := s.peek(); b.owned(j) && j.State != Settling && !j.State.Ended() {
			running++
		}
	}
	if running >= b.cfg.MaxJobs {
		return fmt.Errorf("%w: %w: %d jobs run already, buy.maxJobs is %d", ErrRefused, checks.ErrRoom, running,
			b.cfg.MaxJobs)
	}
	return nil
}

// Rerun submits the job once more, with changes. Its files are still here; its secrets are taken over.
func (b *Buyer) Rerun(ctx context.Context, id string, c job.Changes, once, key string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	old := s.snapshot()
	spec, err := old.Spec.With(c)
	if err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	v, err := b.secrets.Values(ctx, old)
	if err != nil {
		return Job{}, err
	}
	return b.Submit(ctx, Submission{Spec: spec, Values: v, Once: once, Key: key, Rerun: old.ID})
}

// emptyTree stores the archive of an empty directory.
func (b *Buyer) emptyTree(ctx context.Context) (Blob, error) {
	dir, err := os.MkdirTemp(b.cfg.Dir, "empty-")
	if err != nil {
		return Blob{}, err
	}
	defer os.Remove(dir)
	t, err := b.cfg.Blobs.PutTree(ctx, dir, 0)
	return Blob{CID: t.CID.String(), Size: t.Size, Tree: true}, err
}

// check refuses jobs that cannot work, before anything is journalled.
func (b *Buyer) check(ctx context.Context, spec job.Job) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if _, err := b.cfg.Slots.Now(time.Now()); err != nil {
		return fmt.Errorf("%w: %w; check the chain's RPC endpoint and try again", ErrRefused, err)
	}
	if free := b.cfg.Genesis.Free; free != spec.Payment.Free {
		if free {
			return fmt.Errorf("%w: network %s is free, nothing is paid on it; leave payment.maxPrice and "+
				"payment.budget out", ErrRefused, b.cfg.Genesis.Network)
		}
		return fmt.Errorf("%w: payment.maxPrice is missing: network %s is paid in %s", ErrRefused,
			b.cfg.Genesis.Network, b.cfg.Genesis.Symbol)
	}
	if spec.Verify == job.VerifyReplicate && b.cfg.Genesis.Free {
		return fmt.Errorf("%w: verify: replicate draws by a chain's blocks, and network %s is free; leave it out",
			ErrRefused, b.cfg.Genesis.Network)
	}
	if spec.Verify == job.VerifyReplicate && b.cfg.Blocks == nil {
		return fmt.Errorf("%w: verify: replicate draws by the chain's blocks, and this peer sees none", ErrRefused)
	}
	if spec.Guardians > 0 && b.cfg.Escrows == nil {
		return fmt.Errorf("%w: guardians pay from an escrow, and network %s is free; leave them out", ErrRefused,
			b.cfg.Genesis.Network)
	}
	if spec.Guardians > 0 && (len(spec.Secrets) > 0 || spec.Registry != nil) {
		return fmt.Errorf("%w: a job with secrets can have no guardians: whoever supervises it commands its program, "+
			"and could have it tell them; leave out one of the two (--guardians 0)", ErrRefused)
	}
	if !spec.Uploaded() {
		return fmt.Errorf("%w: its files are not uploaded yet", ErrRefused)
	}
	for i, w := range spec.Webhooks {
		if err := b.hooks.Check(w.URL); err != nil {
			return fmt.Errorf("%w: spec.webhooks[%d].url: %w", ErrRefused, i, err)
		}
	}
	for source, bl := range spec.Blobs {
		c, err := cid.Parse(bl.CID)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRefused, source, err)
		}
		if bl.Here() && !b.cfg.Blobs.Has(c) {
			return notUploaded(source, bl.CID)
		}
	}
	if err := b.checkModules(spec); err != nil {
		return err
	}
	if r := spec.Rounds; r != nil && r.Reduce != nil && b.cfg.Runtimes[job.RuntimeWasm] == nil {
		return fmt.Errorf("%w: rounds.reduce runs on this peer, which has no runtime %q", ErrRefused, job.RuntimeWasm)
	}
	need, err := mostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return b.pay.Afford(ctx, "", need, spec.Count)
}

// withLocal marks the contents with URLs that this peer has too, and that an API key may read: providers get them from
// here where no URL has them.
func withLocal(b *Buyer, spec job.Job, key string) job.Job {
	spec.Blobs = maps.Clone(spec.Blobs)
	for source, bl := range spec.Blobs {
		c, err := cid.Parse(bl.CID)
		bl.Local = len(bl.URLs) > 0 && err == nil && b.cfg.Blobs.Has(c) && (key == "" || b.Holds(key, c))
		spec.Blobs[source] = bl
	}
	return spec
}

// checkHeld refuses files that an API key has not uploaded, as if they were not there: it knows their CIDs and no more.
func (b *Buyer) checkHeld(spec job.Job, key string) error {
	if key == "" {
		return nil
	}
	for source, bl := range spec.Blobs {
		c, err := cid.Parse(bl.CID)
		if err != nil || bl.Here() && !b.Holds(key, c) {
			return notUploaded(source, bl.CID)
		}
	}
	return nil
}

func notUploaded(source, c string) error {
	return fmt.Errorf("%w: %s: its content %s is not on this peer; upload it first", ErrRefused, source, c)
}

// checkModules refuses programs that no provider could run, where this peer can tell.
func (b *Buyer) checkModules(spec job.Job) error {
	c, ok := b.cfg.Runtimes[job.RuntimeWasm].(runtime.Checker)
	if !ok {
		return nil
	}
	var modules []string
	if spec.Module != "" {
		modules = append(modules, spec.Module)
	}
	if r := spec.Rounds; r != nil && r.Reduce != nil {
		modules = append(modules, r.Reduce.Module)
	}
	for _, source := range modules {
		id, err := cid.Parse(spec.Blobs[source].CID)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRefused, source, err)
		}
		if !spec.Blobs[source].Here() {
			continue // its provider refuses it
		}
		path, err := b.cfg.Blobs.Path(id)
		if err == nil {
			err = c.CheckModule(path)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRefused, source, err)
		}
	}
	return nil
}

// checkCarry refuses a job whose files cannot get to any provider, or returns what its user should know. It can tell
// only of a light client, all of whose connections go through its entries.
func (b *Buyer) checkCarry(spec job.Job) (warning string, err error) {
	if b.cfg.Carries == nil {
		return "", nil
	}
	text, refused := exchange.OverRelay(selection.Brought(spec), b.cfg.Carries())
	if refused {
		return "", fmt.Errorf("%w: %s (with --direct, providers that can be dialled; or name another entry peer with "+
			"--peer)", ErrRefused, text)
	}
	return text, nil
}
