package buyer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/verify/reputation"
)

// lonely is a market without other peers.
type lonely struct{}

func (lonely) Publish(context.Context, market.Order, []byte) (int, error) { return 0, nil }
func (lonely) Find(context.Context, market.Class, []market.Region, int) ([]market.Offer, error) {
	return nil, nil
}
func (lonely) Size(market.Class) int       { return 0 }
func (lonely) Shard(market.Class) uint32   { return 0 }
func (lonely) Neighbours() []peer.AddrInfo { return nil }

// unrated knows no peer.
type unrated struct{ Reputation }

func (unrated) Scores(_ reputation.Role, peers ...sign.Key) []reputation.Score {
	return make([]reputation.Score, len(peers))
}

// noBlobs is a store without files.
type noBlobs struct{ *blob.Store }

func (noBlobs) Has(cid.Cid) bool { return false }

// gated is a journal whose writes of jobs wait for the gate, or fail.
type gated struct {
	store.Store
	waiting chan struct{} // receives one for each write that waits
	gate    chan error    // sends the outcome of one write; nil: it is made. Closed: all are made
}

func newGated() *gated {
	return &gated{store.NewMemory(), make(chan struct{}, 100), make(chan error)}
}

func (g *gated) Write(ctx context.Context, puts ...store.Put) error {
	if slices.ContainsFunc(puts, func(p store.Put) bool { return p.Kind == record.Records.Kind() && p.Value != nil }) {
		g.waiting <- struct{}{}
		if err := <-g.gate; err != nil {
			return err
		}
	}
	return g.Store.Write(ctx, puts...)
}

// pricedWorld is a buyer on a network with prices that takes jobs, and finds no provider for them.
func pricedWorld(t *testing.T, st store.Store) *pastWorld {
	w := newPastWorld(t, st)
	clock := slots.New(slots.Wall(w.cfg.Genesis.SlotMillis), w.cfg.Genesis.SlotMillis, time.Second, w.cfg.Log)
	if err := clock.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.cfg.Genesis.Free, w.cfg.Slots, w.cfg.QuoteWindow = false, clock, time.Hour
	w.cfg.Market, w.cfg.Blobs, w.cfg.Reputation, w.cfg.MaxJobs = lonely{}, noBlobs{}, unrated{}, 100
	return w
}

// submitWorld is a pricedWorld that runs.
func submitWorld(t *testing.T, st store.Store, change func(*Config)) *Buyer {
	w := pricedWorld(t, st)
	if change != nil {
		change(&w.cfg)
	}
	return running(t, w.start())
}

// running lets the machines of a buyer's jobs run until the test ends.
func running(t *testing.T, b *Buyer) *Buyer {
	ctx, cancel := context.WithCancel(context.Background())
	b.mu.Lock()
	b.ctx = ctx
	b.runner.Start(ctx)
	b.mu.Unlock()
	b.wg.Go(func() { b.runner.Run() })
	t.Cleanup(func() {
		cancel()
		b.wg.Wait()
	})
	return b
}

// priced is a submission of a job that can cost 100.
func priced(key, once string) Submission {
	spec := pastSpec("priced")
	spec.Payment, spec.Timeouts.Queue = job.Payment{MaxPrice: 100, Budget: 100}, time.Hour
	return Submission{Spec: spec, Key: key, Once: once}
}

// tagged is a registry whose images all have one digest, and whose private ones need a password.
type tagged struct{ digest string }

func (r tagged) Resolve(_ context.Context, image string, auth *runtime.RegistryAuth) (string, error) {
	if strings.Contains(image, "/private/") && (auth == nil || auth.Password != "hush") {
		return "", runtime.ErrCredentials
	}
	return r.digest, nil
}

// A quote has the digest of its image's tag. Without credentials a private tag is not resolved, and wrong ones are
// refused as at submission.
func TestQuotePinsImage(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	b := submitWorld(t, store.NewMemory(), func(c *Config) { c.QuoteWindow, c.Registries = time.Millisecond, tagged{digest} })
	quote := func(image string, auth bool, password string) (Quotation, error) {
		sub := priced("", "")
		if sub.Spec.Image = image; auth {
			sub.Spec.Registry, sub.Values.Password = &job.Registry{Docker: true}, password
		}
		return b.Quote(t.Context(), sub)
	}
	const public, private = "registry.example/x:v1", "registry.example/private/x:v1"
	for _, x := range []struct {
		image    string
		auth     bool
		password string
		want     string
	}{
		{public, false, "", public + "@" + digest},
		{public + "@" + digest, false, "", public + "@" + digest},
		{private, true, "hush", private + "@" + digest},
		{private, true, "", private},
	} {
		if q, err := quote(x.image, x.auth, x.password); err != nil || q.Image != x.want {
			t.Errorf("%+v: %+v, %v", x, q, err)
		}
	}
	for _, auth := range []bool{false, true} {
		if _, err := quote(private, auth, "other"); !errors.Is(err, ErrRefused) || !errors.Is(err, runtime.ErrCredentials) {
			t.Errorf("a private image without its password: %v", err)
		}
	}
}

// While the journal writes a new job, others are listed and taken, and the new one counts against the limits.
func TestSubmitWaitsAlone(t *testing.T) {
	t.Parallel()
	st := newGated()
	b := submitWorld(t, st, func(c *Config) { c.MaxJobs, c.Limits.PerDay = 2, 250 })
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := b.Submit(t.Context(), priced("", ""))
			results <- err
		}()
	}
	<-st.waiting
	<-st.waiting
	if all := b.Jobs(); len(all) != 2 || all[0].State != Queued {
		t.Errorf("%d jobs are listed: %+v", len(all), all)
	}
	if _, err := b.Submit(t.Context(), priced("", "")); !errors.Is(err, ErrRefused) {
		t.Errorf("the third of two jobs: %v", err)
	}
	b.mu.Lock()
	b.cfg.MaxJobs = 3
	b.mu.Unlock()
	if _, err := b.Submit(t.Context(), priced("", "")); !errors.Is(err, ErrLimit) {
		t.Errorf("a job for 100 with 50 left: %v", err)
	}
	close(st.gate)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	w := newPastWorld(t, st)
	w.cfg = b.cfg
	if all := w.start().Jobs(); len(all) != 2 {
		t.Errorf("after a restart there are %d jobs, want 2", len(all))
	}
}

// A job that the journal does not take is not there, counts no longer, and can be submitted again.
func TestSubmitFails(t *testing.T) {
	t.Parallel()
	st := newGated()
	b := submitWorld(t, st, func(c *Config) { c.MaxJobs, c.Limits.PerDay = 1, 100 })
	go func() { st.gate <- store.ErrFull }()
	if _, err := b.Submit(t.Context(), priced("", "mine")); !errors.Is(err, store.ErrFull) {
		t.Fatalf("with a full disk: %v", err)
	}
	if all := b.Jobs(); len(all) != 0 {
		t.Errorf("a job without a record is listed: %+v", all)
	}
	close(st.gate)
	j, err := b.Submit(t.Context(), priced("", "mine"))
	if err != nil || j.State.Ended() {
		t.Fatalf("once more: %+v, %v", j, err)
	}
	if again, err := b.Submit(t.Context(), priced("", "mine")); err != nil || again.ID != j.ID {
		t.Errorf("repeated: job %s, %v, want job %s", again.ID, err, j.ID)
	}
}

// Submissions with one idempotency key are one job, however many come at once; those of another API key are another. A
// submission does not wait longer than its caller.
func TestSubmitOnce(t *testing.T) {
	t.Parallel()
	st := newGated()
	b := submitWorld(t, st, nil)
	for _, key := range []string{"ci", "lab"} {
		if _, _, err := b.AddKey(t.Context(), key, Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]map[string]bool{"": {}, "ci": {}, "lab": {}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for key := range ids {
		for range 8 {
			all.Go(func() {
				j, err := b.Submit(t.Context(), priced(key, "train-7"))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				ids[key][j.ID] = true
				mu.Unlock()
			})
		}
	}
	for range ids {
		<-st.waiting
	}
	short, end := context.WithCancel(t.Context())
	end()
	if _, err := b.Submit(short, priced("", "train-7")); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
	close(st.gate)
	all.Wait()
	for key, of := range ids {
		if len(of) != 1 {
			t.Errorf("key %q: %d jobs, want 1", key, len(of))
		}
	}
	if n := len(b.Jobs()); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
}

// A key that submits many jobs at the same time gets those that its limit allows, and no more.
func TestAttackSubmitsAtOnce(t *testing.T) {
	t.Parallel()
	b := submitWorld(t, store.NewMemory(), nil)
	if _, _, err := b.AddKey(t.Context(), "ci", Limits{PerDay: 350}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	results := make(chan error, 20)
	for range cap(results) {
		all.Go(func() {
			_, err := b.Submit(t.Context(), priced("ci", ""))
			results <- err
		})
	}
	all.Wait()
	close(results)
	taken := 0
	for err := range results {
		if err == nil {
			taken++
		} else if !errors.Is(err, ErrLimit) {
			t.Error(err)
		}
	}
	for _, j := range b.Jobs() {
		if j.State.Ended() {
			t.Errorf("job %s: %s: %s", j.ID, j.State, j.Reason)
		}
	}
	if n := len(b.Jobs()); taken != 3 || n != 3 {
		t.Errorf("%d jobs for 100 are taken and %d listed with a limit of 350, want 3", taken, n)
	}
}

// A buyer that does not run yet, or stops, takes no job.
func TestSubmitBesidesRun(t *testing.T) {
	t.Parallel()
	b := pricedWorld(t, store.NewMemory()).start()
	if _, err := b.Submit(t.Context(), priced("", "")); !errors.Is(err, ErrRefused) {
		t.Errorf("before Run: %v", err)
	}
	running(t, b)
	j, err := b.Submit(t.Context(), priced("", ""))
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	if _, err := b.Submit(t.Context(), priced("", "")); !errors.Is(err, ErrRefused) {
		t.Errorf("while it stops: %v", err)
	}
	if len(b.Jobs()) != 1 || len(b.taking) != 0 {
		t.Errorf("jobs %+v, being taken %+v", b.Jobs(), b.taking)
	}
	if err := b.Stop(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	if j, err = b.Wait(t.Context(), j.ID); err != nil || j.State != Stopped {
		t.Errorf("%s: %s, %v", j.State, j.Reason, err)
	}
}

// A cluster that grows counts with the members that it is to have, before they are there.
func TestAttackScaleAndSubmit(t *testing.T) {
	t.Parallel()
	b := submitWorld(t, store.NewMemory(), func(c *Config) { c.Limits.PerDay = 400 })
	j := Job{ID: "j1", State: Running, Created: time.Now(), Spec: priced("", "").Spec, Ranks: make([]Rank, 3)}
	j.Spec.Count, j.Spec.Payment.Budget = 1, 1000
	j.Ranks[1].State, j.Ranks[2].State = record.RankJoining, record.RankJoining
	b.jobs[j.ID] = b.bare(t, j)
	if got := b.Spending(1, "", true).Days[0]; got.Open != 300 {
		t.Errorf("it counts %d, want 300", got.Open)
	}
	sub := priced("", "")
	if _, err := b.Submit(t.Context(), sub); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	if _, err := b.Submit(t.Context(), sub); !errors.Is(err, ErrLimit) {
		t.Errorf("over the limit: %v", err)
	}
}

// Changes of a job of an earlier day count against the limits of today, together, also after a restart.
func TestAttackExtendsOldJob(t *testing.T) {
	t.Parallel()
	w := pricedWorld(t, store.NewMemory())
	w.cfg.Limits.PerDay = 250
	b := running(t, w.start())
	old, err := b.Submit(t.Context(), priced("", ""))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(old.Orders) == 0; time.Sleep(time.Millisecond) {
		if old, err = b.Job(old.ID); err != nil || time.Now().After(deadline) {
			t.Fatalf("no order is placed: %v", err)
		}
	} // from now on its machine waits for quotes
	b.jobs[old.ID].Show(func(j *Job) bool {
		j.Created = j.Created.Add(-25 * time.Hour)
		return true
	})
	grow := func(b *Buyer, hours int, change func() error) error {
		s, err := b.get(old.ID)
		if err != nil {
			t.Fatal(err)
		}
		spec := s.Snapshot().Spec
		spec.Timeouts.Run = time.Duration(hours) * time.Hour
		spec.Payment.Budget = market.Amount(100 * hours)
		return bounding{b}.Within(s.Job, spec, func() error {
			if err := change(); err != nil {
				return err
			}
			s.Show(func(j *Job) bool { // as the machine does
				j.Spec = spec
				return true
			})
			return nil
		})
	}
	done := func() error { return nil }
	if err := grow(b, 2, func() error {
		if got := b.Spending(1, "", true).Days; len(got) != 1 || got[0].Open != 100 || got[0].Jobs != 0 {
			t.Errorf("while it is changed, today counts %+v", got)
		}
		return errors.New("the provider refuses")
	}); err == nil {
		t.Error("a refused change: no error")
	}
	if got := b.Spending(1, "", true).Days; len(got) > 0 && got[0].Open != 0 {
		t.Errorf("after a refused change today counts %+v", got)
	}
	if err := grow(b, 3, done); err != nil {
		t.Errorf("for 200 more: %v", err)
	}
	if err := grow(b, 4, done); !errors.Is(err, ErrLimit) {
		t.Errorf("for 100 more, with 50 left: %v", err)
	}
	if err := grow(b, 2, done); err != nil {
		t.Errorf("for less: %v", err)
	}
	if err := grow(b, 3, done); err != nil {
		t.Errorf("for the same as before: %v", err)
	}
	if _, err := b.Submit(t.Context(), priced("", "")); !errors.Is(err, ErrLimit) {
		t.Errorf("a new job for 100, with 50 left: %v", err)
	}
	again := w.start()
	j, err := again.Job(old.ID)
	if err != nil || j.Raised == nil || j.Raised.Before != 100 || spend.DayOf(j.Raised.At) != spend.DayOf(time.Now()) {
		t.Errorf("after a restart: %+v, %v", j.Raised, err)
	}
	days := b.Spending(3, "", true).Days
	if len(days) != 2 || days[0].Open != 200 || days[1].Open != 100 || days[1].Jobs != 1 {
		t.Errorf("by days: %+v", days)
	}
}
