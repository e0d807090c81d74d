// Package news reports the states of jobs to their webhooks.
package news

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
)

// Config is the surroundings of News. All of it is required.
type Config struct {
	Genesis market.Genesis
	Self    sign.Key // the peer
	Store   store.Store
	Private bool // webhooks may be at addresses that are not public
	Secrets Secrets
	Log     *slog.Logger
}

// Secrets has the secrets of webhooks.
type Secrets interface {
	// HookSecret returns the key that signs the deliveries of a job's webhook.
	HookSecret(ctx context.Context, job string, hook int) ([]byte, error)
}

// News reports the states of a peer's own jobs. Its queue delivers the reports.
type News struct {
	*webhook.Queue
	cfg Config
}

// Open reads the reports that an earlier process has not delivered. It starts nothing; Run delivers.
func Open(ctx context.Context, cfg Config) (*News, error) {
	q, err := webhook.Open(ctx, webhook.Config{
		Store: cfg.Store, Private: cfg.Private, Secret: cfg.Secrets.HookSecret, Log: cfg.Log,
	})
	return &News{q, cfg}, err
}

// hookJob is a job as its webhooks receive it.
type hookJob struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels,omitempty"`
	State   record.State      `json:"state"`
	Outcome record.State      `json:"outcome,omitempty"`
	Code    record.Code       `json:"code,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Ranks   int               `json:"ranks"`
	Done    int               `json:"done"`
	Created time.Time         `json:"created"`
	Started time.Time         `json:"started,omitzero"`
	Ended   time.Time         `json:"ended,omitzero"`
	Owed    string            `json:"owed"` // in whole tokens
	Paid    string            `json:"paid"`
}

// Of returns the reports of a job's new state to its webhooks, and their records. A queue that is full loses them: a
// job's state does not wait for its webhooks.
func (n *News) Of(j record.Job) ([]webhook.Delivery, []store.Put) {
	if len(j.Spec.Webhooks) == 0 || !j.OwnedBy(n.cfg.Self) {
		return nil, nil
	}
	about := hookJob{
		ID: j.ID, Name: j.Spec.Name, Labels: j.Spec.Labels, State: j.State, Outcome: j.Outcome, Code: j.Code,
		Reason: j.Reason, Ranks: len(j.Ranks), Created: j.Created, Started: j.Started, Ended: j.Ended,
		Owed: n.cfg.Genesis.FormatAmount(j.Owed), Paid: n.cfg.Genesis.FormatAmount(j.Paid),
	}
	for _, r := range j.Ranks {
		if r.State == record.RankDone {
			about.Done++
		}
	}
	var ds []webhook.Delivery
	var puts []store.Put
	for i, w := range j.Spec.Webhooks {
		if !w.Wants(string(j.State)) {
			continue
		}
		err := n.Room()
		var d webhook.Delivery
		var p store.Put
		if err == nil {
			d, err = webhook.New(j.ID, i, w.URL, string(j.State), w.SecretFrom != "", time.Now(), about)
		}
		if err == nil {
			p, err = d.Put()
		}
		if err != nil {
			n.cfg.Log.Warn("no report is sent to a webhook", "job", j.ID, "state", j.State, "err", err)
			continue
		}
		ds, puts = append(ds, d), append(puts, p)
	}
	return ds, puts
}
