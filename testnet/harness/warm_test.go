package harness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// A job of an image that a provider has goes there, of providers that are alike otherwise, and its decisions say so. An
// image that a buyer pushed is preferred nowhere, and no offer names it.
func TestWarmImage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Container("train", "cpu", 1, "1")
		spec.Outputs = []job.Output{{Path: "/out"}}
		first := b.Wait(b.Submit(spec).ID, 2*time.Minute)
		if first.State != buyer.Succeeded {
			t.Fatalf("%s\n%s", first.Summary(), b.Why(first.ID))
		}
		warm := first.Ranks[0].Provider
		own := spec
		own.Image, _ = b.pushed("train")
		own.Placement.Exclude = []sign.Key{warm}
		second := b.Wait(b.Submit(own).ID, 2*time.Minute) // its provider is alike but for the image
		if second.State != buyer.Succeeded {
			t.Fatalf("%s\n%s", second.Summary(), b.Why(second.ID))
		}
		time.Sleep(12 * time.Minute) // the offers are renewed
		named := 0
		for _, k := range b.Node.Buyer().Exchange().Offers(t.Context(), "cpu") {
			named += len(k.Offer.Ready)
			if k.Offer.Ready.Has(images.PrefixOf(spec.Image)) != (k.Offer.Provider == warm) {
				t.Errorf("the offer of %s names %v", k.Offer.Provider.Short(), k.Offer.Ready)
			}
		}
		if named != 1 {
			t.Errorf("%d images are named, want 1", named)
		}
		for range 8 {
			q, err := b.Node.Buyer().Quote(t.Context(), buyer.Submission{Spec: spec})
			if err != nil || len(q.Quotes) != 2 {
				t.Fatalf("%+v, %v", q, err)
			}
			for _, o := range q.Quotes {
				if is := o.Provider == warm; o.Ready != is || (o.Ranks > 0) != is {
					t.Errorf("%+v, warm is %s", o, warm.Short())
				}
			}
		}
		j := b.Wait(b.Submit(spec).ID, 2*time.Minute)
		chosen := b.steps(t, j.ID, record.StepChosen)
		if j.State != buyer.Succeeded || len(chosen) != 1 || !strings.Contains(chosen[0].Detail, "has the image") {
			t.Fatalf("%s: %+v\n%s", j.Summary(), chosen, b.Why(j.ID))
		}
	})
}
