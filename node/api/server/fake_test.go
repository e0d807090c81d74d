package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/proof"
	book "github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/verify/exclusive"
	"github.com/starling-network/starling/verify/reputation"
)

// fake answers for both sides of a peer. It knows one job.
type fake struct {
	mu       sync.Mutex
	job      record.Job
	steps    []record.Step
	wake     chan struct{}
	log      func(w io.Writer) error
	part     ranklog.Query // of the log that was asked for last
	err      error         // of Submit and of what an operator says
	own      api.OwnOffers
	problems []api.Fault
	keys     map[string]int
	blobs    map[string][]byte
	blobKeys map[string]string // which key uploaded what

	proofs oneProof

	last   record.Submission
	query  record.Query
	blocks []block.Entry
}

func newFake() *fake {
	return &fake{
		job:  record.Job{ID: "jabcdefgh", Spec: spec(), State: record.Running, Ranks: make([]record.Rank, 2)},
		wake: make(chan struct{}), keys: map[string]int{}, blobs: map[string][]byte{}, blobKeys: map[string]string{},
	}
}

// change does something to the job and wakes its followers.
func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.wake)
	f.wake = make(chan struct{})
}

func (f *fake) known(id string) error {
	if id != f.job.ID {
		return fmt.Errorf("%w: %q", record.ErrNoJob, id)
	}
	return nil
}

func (f *fake) Submit(_ context.Context, sub record.Submission) (record.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[sub.Once]++
	f.last = sub
	return f.job, f.err
}

func (f *fake) Rerun(_ context.Context, id string, c job.Changes, once, key string) (record.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[once]++
	f.last = record.Submission{Once: once, Key: key}
	j := f.job
	if c.Count != nil {
		j.Spec.Count = *c.Count
	}
	return j, f.known(id)
}

func (f *fake) List(_ context.Context, q record.Query) (record.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.query = q
	switch q.After {
	case "":
		return record.Page{Jobs: []record.Job{f.job}, Next: "2"}, f.err
	case "2":
		return record.Page{Jobs: []record.Job{f.job}}, f.err
	}
	return record.Page{}, record.ErrQuery
}

func (f *fake) Quote(context.Context, record.Submission) (record.Quotation, error) {
	return record.Quotation{Places: true}, f.err
}

func (f *fake) Spending(days int, key string, all bool) spend.Report {
	return spend.Report{Days: []spend.Day{{Jobs: days, Key: key}}, Keys: make([]spend.Key, map[bool]int{true: 2}[all])}
}

func (f *fake) AddKey(_ context.Context, name string, l spend.Limits) (spend.Key, string, error) {
	if name == "" {
		return spend.Key{}, "", spend.ErrKey
	}
	return spend.Key{Name: name, Limits: l}, keyToken, nil
}

func (f *fake) RemoveKey(_ context.Context, name string) error {
	if name != "ci" {
		return spend.ErrKey
	}
	return nil
}

func (f *fake) Keys() []spend.Key { return []spend.Key{{Name: "ci"}} }

// keyToken is the token of the fake's one key, ci.
const keyToken = "starling_ci"

func (f *fake) KeyOf(token string) (string, bool) { return "ci", token == keyToken }

func (f *fake) Add(_ context.Context, e block.Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocks = append(f.blocks, e)
	return e.Check()
}

func (f *fake) Remove(context.Context, sign.Key) error { return block.ErrNotListed }

func (f *fake) Entries() []block.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blocks
}

func (f *fake) Job(id string) (record.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.job, f.known(id)
}

func (f *fake) Stop(_ context.Context, id string) error { return f.known(id) }

func (f *fake) Trace(id string, after int) ([]record.Step, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps[min(after, len(f.steps)):]), f.wake, f.known(id)
}

func (f *fake) Log(_ context.Context, id string, _ int, q ranklog.Query, w io.Writer) error {
	if err := f.known(id); err != nil {
		return err
	}
	f.part = q
	return f.log(w)
}

// remover removes the fake's job.
type remover struct{ *fake }

func (f remover) Remove(_ context.Context, id string) (record.Removed, error) {
	if id == "jyoung" {
		return record.Removed{}, fmt.Errorf("%w: it is running", record.ErrNeeded)
	}
	return record.Removed{LogBytes: 5, Left: []cid.Cid{blob.Sum([]byte("a")), blob.Sum([]byte("b"))}}, f.known(id)
}

// Free frees 10 bytes for each file.
func (f *fake) Free(all []cid.Cid) (int64, error) { return int64(10 * len(all)), nil }

func (f *fake) Receipts(_ context.Context, id string) ([]record.LeaseAccount, error) {
	return []record.LeaseAccount{}, f.known(id)
}

func (f *fake) Probes(_ context.Context, id string) ([]exclusive.Record, error) {
	return nil, f.known(id)
}

func (f *fake) Info(context.Context) api.NodeInfo { return api.NodeInfo{Peer: "me"} }
func (f *fake) Reputation(peer string) (api.PeerReputation, error) {
	if peer != "somebody" {
		return api.PeerReputation{}, &api.Error{Status: 400, Code: "bad_peer", Message: "no such peer"}
	}
	return api.PeerReputation{Peer: peer, Opinion: book.Opinion{Provider: reputation.Explanation{Stranger: reputation.Stranger}}}, nil
}
func (f *fake) Peers() []api.PeerInfo     { return []api.PeerInfo{} }
func (f *fake) Guarded() []api.GuardedJob { return nil }
func (f *fake) Health() api.Health {
	return api.Health{Healthy: len(f.problems) == 0, Problems: f.problems}
}

func (f *fake) Audits() ([]proof.PastAudit, error)               { return []proof.PastAudit{{Failed: "late"}}, nil }
func (f *fake) Audit(context.Context) ([]proof.PastAudit, error) { return nil, audit.ErrTooEarly }

func (f *fake) Leases() []api.SoldLease { return []api.SoldLease{} }

func (f *fake) Ping(_ context.Context, target string, count int) (api.PingResult, error) {
	if target == "" {
		return api.PingResult{}, &api.Error{Status: 400, Code: "bad_peer", Message: "no peer"}
	}
	return api.PingResult{Peer: target, RTTs: make([]float64, count)}, nil
}

func (f *fake) Offers(_ context.Context, class string) ([]api.OfferInfo, error) {
	if class != "cpu" {
		return nil, &api.Error{Status: 400, Code: "bad_class", Message: "no class"}
	}
	return []api.OfferInfo{}, nil
}

func (f *fake) OwnOffers() (api.OwnOffers, error) { return f.own, f.err }

func (f *fake) PauseOffers(_ context.Context, drain bool) error {
	f.own.State = map[bool]string{false: "paused", true: "draining"}[drain]
	return f.err
}

func (f *fake) ResumeOffers(_ context.Context, devices []string) error {
	f.own.State = "selling " + strings.Join(devices, " ")
	return f.err
}

func (f *fake) PriceOffer(_ context.Context, class market.Class, price market.Price) error {
	f.own.State = fmt.Sprint(class, " ", price)
	return f.err
}

func (f *fake) Images(context.Context) ([]api.ImageInfo, error) {
	return []api.ImageInfo{{ID: "one", Public: true}}, f.err
}

func (f *fake) RemoveImage(_ context.Context, id string) error {
	return map[string]error{"one": nil, "used": fmt.Errorf("%w: by a test", runtime.ErrImageUsed)}[id]
}

func (f *fake) PutBlob(_ context.Context, key string, r io.Reader) (string, int64, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	c := blob.Sum(b).String()
	f.blobs[c] = b
	f.blobKeys[c] = key
	return c, int64(len(b)), nil
}

func (f *fake) OpenBlob(key, text string) (io.ReadCloser, int64, error) {
	b, ok := f.blobs[text]
	if !ok || key != "" && f.blobKeys[text] != key {
		return nil, 0, blob.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

func (f *fake) NameImage(string, string) error { return nil }

func (f *fake) Stored() ([]api.StoredBlob, error) { return []api.StoredBlob{{CID: "stored"}}, nil }

func (f *fake) Clean(bool) ([]api.StoredBlob, error) { return []api.StoredBlob{}, nil }

func (f *fake) Rewards() (rewards.Status, error) { return rewards.Status{Epoch: 7}, nil }

func (f *fake) ClaimRewards(context.Context) (rewards.Status, error) {
	return rewards.Status{}, &api.Error{Status: 409, Code: "no_rewards", Message: "none"}
}

// copied is the copies of the job of a fake.
type copied struct{ *fake }

func (f copied) Show(_ context.Context, id string) (record.ShownCopies, error) {
	return record.ShownCopies{Job: id}, f.known(id)
}

func (f copied) Restore(_ context.Context, id string) error { return f.known(id) }

func (f copied) Import(_ context.Context, s record.ShownCopies) error { return f.known(s.Job) }

func (f copied) Extend(_ context.Context, id string, by time.Duration) (record.ExtendedCopies, error) {
	return record.ExtendedCopies{Job: id, Until: time.Unix(0, 0).Add(by)}, f.known(id)
}
