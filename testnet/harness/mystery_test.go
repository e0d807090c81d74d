package harness

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/mystery"
	"github.com/starling-network/starling/node/nodepb"
)

// seen is what a provider has in its journal of what it ran for buyers, without what is random or names the buyer: ids, keys, times.
func (p *Peer) seen(t *testing.T) map[string][]string {
	out := map[string][]string{}
	if err := p.Journal.List(t.Context(), "execution", "", func(_ string, value []byte) error {
		var rec struct {
			Buyer    string          `json:"buyer"`
			Limits   json.RawMessage `json:"limits"`
			Workload json.RawMessage `json:"workload"`
		}
		if err := json.Unmarshal(value, &rec); err != nil {
			return err
		}
		w := &nodepb.Workload{}
		if err := protojson.Unmarshal(rec.Workload, w); err != nil {
			return err
		}
		w.Env[buyer.EnvJob] = "job"
		text, err := protojson.Marshal(w)
		out[rec.Buyer] = append(out[rec.Buyer], string(rec.Limits)+string(text))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// What a provider runs for a mystery renter it could as well run for anybody: the same workload to the byte, under the same limits.
func TestMysteryRentersLookLikeOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Buyers: 1, Entries: 1, Strangers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		ordinary, renter := n.Light(0, n.Buyer(0)), n.Light(1, n.Buyer(0))
		time.Sleep(5 * time.Second)
		spec := func(l *Light) job.Job {
			j := l.Peer.Job("work", 1, "3")
			j.Probes = job.ProbesWarn
			return j
		}
		j, err := ordinary.Client.Submit(t.Context(), spec(ordinary))
		if err != nil {
			t.Fatal(err)
		}
		m, err := mystery.Renting{Client: renter.Client}.Submit(t.Context(), "a purchase", spec(renter))
		if err != nil {
			t.Fatal(err)
		}
		again, err := mystery.Renting{Client: renter.Client}.Submit(t.Context(), "a purchase", spec(renter))
		if err != nil || again.ID != m.ID {
			t.Errorf("handed in twice: %s and %s, %v", m.ID, again.ID, err)
		}
		for l, id := range map[*Light]string{ordinary: j.ID, renter: m.ID} {
			if j, err := l.Client.Wait(t.Context(), id); err != nil || j.State != buyer.Succeeded {
				t.Fatalf("%+v, %v", j, err)
			}
		}
		seen := n.Provider(0).seen(t)
		each := slices.Collect(maps.Values(seen))
		if len(each) != 2 || !slices.Equal(each[0], each[1]) {
			t.Errorf("the provider can tell them apart: %q", seen)
		}
	})
}
