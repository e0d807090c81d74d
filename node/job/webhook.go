package job

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/starling-network/starling/node/job/names"
)

// Webhook is an address that the buyer's peer notifies of the job's changes of state.
type Webhook struct {
	URL    string   `json:"url"`              // http or https
	Events []string `json:"events,omitempty"` // of Events; none: all of them
	// like Secret.From: signs the notices; if empty, they are not signed
	SecretFrom string `json:"secretFrom,omitempty"`
}

// Events are the states with notices to webhooks.
var Events = []string{"queued", "matching", "running", "settling", "succeeded", "failed", "stopped"}

const (
	// MaxWebhooks bounds the webhooks of one job.
	MaxWebhooks = 8
	maxURL      = 2048
)

// Wants reports whether the webhook gets notices of a state.
func (w Webhook) Wants(event string) bool {
	return len(w.Events) == 0 || slices.Contains(w.Events, event)
}

func checkWebhooks(j Job, ps *problems) {
	if len(j.Webhooks) > MaxWebhooks {
		ps.add("spec.webhooks", "%d webhooks, at most %d", len(j.Webhooks), MaxWebhooks)
		return
	}
	for i, w := range j.Webhooks {
		field := fmt.Sprintf("spec.webhooks[%d]", i)
		u, err := url.Parse(w.URL)
		switch {
		case len(w.URL) > maxURL || !names.IsText(w.URL) || err != nil || u.Hostname() == "" || u.Scheme != "http" &&
			u.Scheme != "https":
			ps.add(field+".url", "want an address such as https://example.org/hook of at most %d bytes", maxURL)
		case u.User != nil:
			ps.add(field+".url", "password in the URL: write secretFrom, which signs the "+
				"notices")
		case u.Fragment != "":
			ps.add(field+".url", "a fragment is never sent")
		}
		for k, e := range w.Events {
			if !slices.Contains(Events, e) || slices.Contains(w.Events[:k], e) {
				ps.add(fmt.Sprintf("%s.events[%d]", field, k), "%.40q, want each of %v at most once", e, Events)
			}
		}
		if w.SecretFrom != "" {
			checkFrom(ps, field+".secretFrom", w.SecretFrom)
		}
	}
}
