package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// peer is a peer without files, programs or webhooks, which can pay for everything.
type peer struct {
	slot  error // of the chain
	funds error
	has   map[cid.Cid]bool
	holds string // the key that has all files
	Blobs
}

func (p *peer) Now(time.Time) (market.Slot, error) { return 7, p.slot }
func (p *peer) Check(address string) error {
	if strings.HasPrefix(address, "https://") {
		return nil
	}
	return errors.New("not https")
}
func (p *peer) Afford(context.Context, string, market.Amount, uint32) error { return p.funds }
func (p *peer) Holds(key string, _ cid.Cid) bool                            { return key == p.holds }
func (p *peer) Has(c cid.Cid) bool                                          { return p.has[c] }

var paid = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}

func rules(g market.Genesis, p *peer) Rules {
	return Rules{Genesis: g, Clock: p, Blobs: p, Webhooks: p, Wallet: p, Holder: p, Blocks: true, Escrows: true}
}

func spec() job.Job {
	return job.Job{
		Name: "train", Runtime: job.RuntimeDocker, Args: []string{"python"}, Count: 2,
		Image:     "docker.io/library/python@sha256:" + strings.Repeat("0123456789abcdef", 4),
		Resources: job.Resources{Class: "cpu", Units: 1},
		Timeouts:  job.Timeouts{Queue: time.Minute, Run: time.Hour},
		Payment:   job.Payment{MaxPrice: 36_000, Budget: 1_000_000},
	}
}

// Each reason to refuse a job is named to its user. A job that can work is admitted.
func TestAdmit(t *testing.T) {
	t.Parallel()
	file := blob.Sum([]byte("data"))
	free := paid
	free.Free = true
	withFile := func(s *job.Job) {
		s.Inputs = []job.Input{{Source: "data", Path: "/data/in"}}
		s.Blobs = map[string]job.Blob{"data": {CID: file.String(), Size: 4}}
	}
	for name, c := range map[string]struct {
		genesis market.Genesis
		change  func(*job.Job)
		peer    peer
		rules   func(*Rules)
		key     string
		want    error
		text    string
	}{
		"a job":              {genesis: paid},
		"no ranks":           {genesis: paid, change: func(s *job.Job) { s.Count = 0 }, want: record.ErrRefused},
		"no chain":           {genesis: paid, peer: peer{slot: errors.New("down")}, want: record.ErrRefused, text: "RPC endpoint"},
		"free on a paid one": {genesis: paid, change: func(s *job.Job) { s.Payment = job.Payment{Free: true} }, want: record.ErrRefused, text: "payment.maxPrice"},
		"paid on a free one": {genesis: free, want: record.ErrRefused, text: "is free"},
		"no funds":           {genesis: paid, peer: peer{funds: record.ErrFunds}, want: record.ErrFunds},
		"a file":             {genesis: paid, change: withFile, peer: peer{has: map[cid.Cid]bool{file: true}}},
		"a file of its key":  {genesis: paid, change: withFile, peer: peer{has: map[cid.Cid]bool{file: true}, holds: "ci"}, key: "ci"},
		"another key's file": {genesis: paid, change: withFile, peer: peer{has: map[cid.Cid]bool{file: true}, holds: "ci"}, key: "x", want: record.ErrRefused, text: "upload it first"},
		"a file that is not": {genesis: paid, change: withFile, want: record.ErrRefused, text: "upload it first"},
		"a webhook": {genesis: paid, change: func(s *job.Job) {
			s.Webhooks = []job.Webhook{{URL: "https://example.com/x", Events: []string{"succeeded"}}}
		}},
		"a bad webhook": {genesis: paid, change: func(s *job.Job) {
			s.Webhooks = []job.Webhook{{URL: "http://example.com/x", Events: []string{"succeeded"}}}
		}, want: record.ErrRefused, text: "spec.webhooks[0].url"},
		"files over a relay":  {genesis: paid, change: withFile, peer: peer{has: map[cid.Cid]bool{file: true}}, rules: func(r *Rules) { r.Carries = func() int64 { return 1 } }, want: record.ErrRefused, text: "--peer"},
		"guardians on escrow": {genesis: paid, change: func(s *job.Job) { s.Guardians = 3 }, rules: func(r *Rules) { r.Escrows = false }, want: record.ErrRefused, text: "guardians"},
	} {
		s := spec()
		if c.change != nil {
			c.change(&s)
		}
		r := rules(c.genesis, &c.peer)
		if c.rules != nil {
			c.rules(&r)
		}
		_, err := r.Admit(t.Context(), &record.Submission{Spec: s, Key: c.key})
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
}

// The archive of an empty directory is stored, and the directory does not stay.
func TestEmptyTree(t *testing.T) {
	t.Parallel()
	p := &peer{}
	r := rules(paid, p)
	r.Dir = t.TempDir()
	p.Blobs = trees{}
	got, err := r.EmptyTree(t.Context())
	if err != nil || !got.Tree || got.Size != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if left, err := os.ReadDir(r.Dir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	r.Dir += "/missing"
	if _, err := r.EmptyTree(t.Context()); err == nil {
		t.Error("there is a directory where none can be made")
	}
}

// trees stores trees of seven bytes.
type trees struct{ Blobs }

func (trees) PutTree(context.Context, string, int64) (blob.Tree, error) {
	return blob.Tree{CID: blob.Sum(nil), Size: 7}, nil
}
