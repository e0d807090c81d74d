package copies

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// buying is the jobs of a peer. A test sets their states.
type buying struct {
	mu     sync.Mutex
	jobs   map[string]record.Job
	once   map[string]string // ids by idempotency key
	subs   []record.Submission
	stops  []string
	refuse error

	extended map[string]time.Duration
	declined map[string]string // reasons of the providers of volumes that are not extended
}

func (b *buying) Job(id string) (record.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok := b.jobs[id]
	if !ok {
		return j, record.ErrNoJob
	}
	return j.Clone(), nil
}

func (b *buying) Submit(_ context.Context, sub record.Submission) (record.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, ok := b.once[sub.Once]; ok {
		return b.jobs[id], nil
	}
	if b.refuse != nil {
		return record.Job{}, b.refuse
	}
	b.subs = append(b.subs, sub)
	j := record.Job{
		ID: fmt.Sprint("v", len(b.subs)), Spec: sub.Spec, Key: sub.Key, State: record.Matching, Created: time.Now(),
		Ranks: make([]record.Rank, 1),
	}
	b.jobs[j.ID], b.once[sub.Once] = j, j.ID
	return j, nil
}

func (b *buying) Stop(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stops = append(b.stops, id)
	return nil
}

func (b *buying) Extend(_ context.Context, id string, by time.Duration, _ market.Amount) (record.Extension, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return record.Extension{}, b.refuse
	}
	j := b.jobs[id].Clone()
	rank := record.ExtendedRank{Provider: j.Ranks[0].Provider, State: record.NotExtended, Reason: b.declined[id]}
	if rank.Reason == "" {
		j.Spec.Timeouts.Run += by
		b.extended[id] += by
		rank.State, rank.Extra = record.Extended, market.Amount(by/time.Hour)
	}
	b.jobs[id] = j
	return record.Extension{Job: id, Until: j.Until(), Ranks: []record.ExtendedRank{rank}}, nil
}

// set changes a job.
func (b *buying) set(id string, change func(*record.Job)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[id].Clone()
	change(&j)
	b.jobs[id] = j
}

// world is a peer with a job, and other peers that may keep copies.
type world struct {
	*Room
	t     *testing.T
	buys  *buying
	blobs *blob.Store
	text  string      // the job's output
	hosts []*p2p.Host // the first is the peer's
	store store.Store
}

const (
	jobID  = "jabcdefgh"
	result = "the result of a program"
)

func newWorld(t *testing.T, keepers int) *world {
	t.Helper()
	w := &world{t: t, text: result, hosts: p2ptest.Loopback(t, keepers+1)}
	p2ptest.ConnectAll(t, w.hosts...)
	w.fresh()
	return w
}

// fresh begins anew, without journal and files.
func (w *world) fresh() {
	t := w.t
	t.Helper()
	var err error
	w.store = store.NewMemory()
	if w.blobs, err = blob.OpenStore(t.TempDir(), 1<<30); err != nil {
		t.Fatal(err)
	}
	w.buys = &buying{
		jobs: map[string]record.Job{}, once: map[string]string{}, extended: map[string]time.Duration{},
		declined: map[string]string{},
	}
	c, size, err := w.blobs.Put(t.Context(), strings.NewReader(w.text))
	if err != nil {
		t.Fatal(err)
	}
	w.buys.jobs[jobID] = record.Job{
		ID: jobID, State: record.Running, Ranks: []record.Rank{{
			Provider: w.keeper(1),
			Outputs:  []record.Output{{Path: "/out", Blob: record.Blob{CID: c.String(), Size: size}}},
		}},
		Spec: job.Job{
			Outputs: []job.Output{{Path: "/out"}}, Payment: job.Payment{MaxPrice: 5, Budget: 9, Decimals: 6},
			Copies: &job.Copies{Count: 2, For: job.Span(24 * time.Hour), MaxPrice: 100},
		},
	}
	if err := record.Keepings.Write(t.Context(), w.store, record.KeptOpen+jobID, record.Kept{}); err != nil {
		t.Fatal(err)
	}
	w.restart()
}

// restart begins a new process on the journal.
func (w *world) restart() {
	of := files.New(files.Config{
		Host: w.hosts[0], Network: p2ptest.Network, Blobs: w.blobs, Log: slog.New(slog.DiscardHandler),
	})
	of.Serve(none{})
	key := sign.NewPrivate([32]byte{7})
	w.Room = New(Config{
		Self: key.Key(), Store: w.store, Boxes: sealed.Boxes{Key: key, Network: "test"}, Jobs: w.buys, Files: of,
		Parts: files.Parts{Host: w.hosts[0], Network: p2ptest.Network}, Log: slog.New(slog.DiscardHandler),
	})
	of.Need("copy", w.Blobs)
}

// none is the jobs of a peer that read no blob.
type none struct{}

func (none) Holds(string, cid.Cid) bool { return false }
func (none) Uses(cid.Cid) bool          { return false }

// keeper returns the key of a peer.
func (w *world) keeper(i int) sign.Key {
	w.t.Helper()
	k, err := p2p.KeyFromPeerID(w.hosts[i].ID())
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// step is the step of the job, which must succeed. It returns the entry after it.
func (w *world) step() record.Kept {
	w.t.Helper()
	if err := w.Room.step(w.t.Context(), jobID); err != nil {
		w.t.Fatal(err)
	}
	k, _, err := w.read(w.t.Context(), jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// succeed ends the job's work.
func (w *world) succeed() {
	w.buys.set(jobID, func(j *record.Job) { j.State = record.Succeeded })
}

// take lets a peer be the provider of a volume, and have its input.
func (w *world) take(id string, keeper int) {
	w.t.Helper()
	w.buys.set(id, func(j *record.Job) {
		j.State, j.Started = record.Running, time.Now()
		j.Ranks[0].State, j.Ranks[0].Live.Phase, j.Ranks[0].Provider = record.RankRunning, "running", w.keeper(keeper)
	})
}

// serve lets a peer send the pack to the peer of the job. It returns the directory of the peer's store, and the store.
func (w *world) serve(keeper int) (string, *blob.Store) {
	w.t.Helper()
	dir := w.t.TempDir()
	s, err := blob.OpenStore(dir, 1<<30)
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := w.blobs.Open(w.packed())
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := s.Put(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
	allow := func(to peer.ID, _ cid.Cid) bool { return to == w.hosts[0].ID() }
	w.t.Cleanup(blob.Serve(w.hosts[keeper], p2ptest.Network, s, allow, nil).Close)
	return dir, s
}

// change rewrites the entry of the copies.
func (w *world) change(f func(*record.Kept)) {
	w.t.Helper()
	k, _, err := w.read(w.t.Context(), jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	k = k.Clone()
	f(&k)
	if err := w.write(w.t.Context(), jobID, k); err != nil {
		w.t.Fatal(err)
	}
}

// check checks one copy now, whose keeper has least for an answer. It returns the copy afterwards.
func (w *world) check(i int, least time.Duration) record.Copy {
	w.t.Helper()
	w.change(func(k *record.Kept) {
		for j := range k.Copies {
			k.Copies[j].Spot.Next = time.Now().Add(time.Hour)
		}
		k.Copies[i].Spot.Next = time.Now().Add(-time.Second)
	})
	if err := (spots{w.Room, least}).job(w.t.Context(), jobID); err != nil {
		w.t.Fatal(err)
	}
	k, _, err := w.read(w.t.Context(), jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	return k.Copies[i]
}

// packed returns the pack of the job.
func (w *world) packed() cid.Cid {
	w.t.Helper()
	k, _, err := w.read(w.t.Context(), jobID)
	if err != nil || k.Pack == nil {
		w.t.Fatalf("pack: %+v, %v", k, err)
	}
	c, err := blob.Parse(k.Pack.CID)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// lose removes all files of the peer.
func (w *world) lose() {
	w.t.Helper()
	all, err := w.blobs.List()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range all {
		if err := w.blobs.Remove(b.CID); err != nil {
			w.t.Fatal(err)
		}
	}
}

// output returns the stored output of the job, or "".
func (w *world) output() string {
	w.t.Helper()
	j, err := w.buys.Job(jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := blob.Parse(j.Ranks[0].Outputs[0].CID)
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := w.blobs.Open(c)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}
