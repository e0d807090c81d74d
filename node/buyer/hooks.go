package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
)

// hookJob is a job as its webhooks are told of it.
type hookJob struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels,omitempty"`
	State   State             `json:"state"`
	Outcome State             `json:"outcome,omitempty"`
	Code    Code              `json:"code,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Ranks   int               `json:"ranks"`
	Done    int               `json:"done"`
	Created time.Time         `json:"created"`
	Started time.Time         `json:"started,omitzero"`
	Ended   time.Time         `json:"ended,omitzero"`
	Owed    string            `json:"owed"` // in whole tokens
	Paid    string            `json:"paid"`
}

// tellHooks makes what the webhooks of a job are told of its state, and what the journal must be told of that. A queue
// that is full loses the news: a job's state does not wait for its webhooks.
func (b *Buyer) tellHooks(j Job) ([]webhook.Delivery, []store.Put) {
	if len(j.Spec.Webhooks) == 0 || !b.owned(j) {
		return nil, nil
	}
	about := hookJob{
		ID: j.ID, Name: j.Spec.Name, Labels: j.Spec.Labels, State: j.State, Outcome: j.Outcome, Code: j.Code,
		Reason: j.Reason, Ranks: len(j.Ranks), Created: j.Created, Started: j.Started, Ended: j.Ended,
		Owed: b.cfg.Genesis.FormatAmount(j.Owed), Paid: b.cfg.Genesis.FormatAmount(j.Paid),
	}
	for _, r := range j.Ranks {
		if r.State == RankDone {
			about.Done++
		}
	}
	var ds []webhook.Delivery
	var puts []store.Put
	for i, w := range j.Spec.Webhooks {
		if !w.Wants(string(j.State)) {
			continue
		}
		err := b.hooks.Room()
		var d webhook.Delivery
		var p store.Put
		if err == nil {
			d, err = webhook.New(j.ID, i, w.URL, string(j.State), w.SecretFrom != "", time.Now(), about)
		}
		if err == nil {
			p, err = d.Put()
		}
		if err != nil {
			b.cfg.Log.Warn("a webhook is not told", "job", j.ID, "state", j.State, "err", err)
			continue
		}
		ds, puts = append(ds, d), append(puts, p)
	}
	return ds, puts
}

// hookSecret is the key that signs the deliveries of a job's webhook.
func (b *Buyer) hookSecret(ctx context.Context, id string, hook int) ([]byte, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	v, err := b.secrets.Values(ctx, s.snapshot())
	if err != nil {
		return nil, err
	}
	secret := v.Webhooks[hook]
	if len(secret) == 0 {
		return nil, fmt.Errorf("webhook %d of job %s has no secret", hook, id)
	}
	return secret, nil
}
