package job

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job/names"
)

// Names, labels and variables are of their letters alone, up to their length.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		is         func(string) bool
		good, evil []string
	}{
		{names.IsName, []string{"a", "9", "a-b", strings.Repeat("a", names.Max)}, []string{"", "-a", "a-", "A", "a_b", "a.b", "ä", "a\n", strings.Repeat("a", names.Max+1)}},
		{names.IsLabel, []string{"a", "A.b/c_d-e", strings.Repeat("a", 63)}, []string{"", "a b", "ä", "a=b", strings.Repeat("a", 64)}},
		{names.IsVariable, []string{"A", "_", "a1", strings.Repeat("A", 256)}, []string{"", "1A", "A-B", "A=B", "A\x00", "Ä", strings.Repeat("A", 257)}},
		{names.IsText, []string{"", "ä\n世"}, []string{"\x00", "\xff"}},
	} {
		for _, s := range x.good {
			if !x.is(s) {
				t.Errorf("%.20q is refused", s)
			}
		}
		for _, s := range x.evil {
			if x.is(s) {
				t.Errorf("%.20q is accepted", s)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) { // a job without a name gets one from any program
		module := rapid.String().Draw(t, "module")
		if name := nameFrom(module); !names.IsName(name) {
			t.Fatalf("the name of %q is %q", module, name)
		}
	})
}

// The most that a job can cost is its exact cost rounded up, or an overflow, and more of anything costs no less.
func TestMaxCostProperty(t *testing.T) {
	t.Parallel()
	hour := big.NewInt(int64(time.Hour / time.Millisecond))
	rapid.Check(t, func(t *rapid.T) {
		j := Job{Count: rapid.Uint32().Draw(t, "ranks"), Resources: Resources{Units: rapid.Uint32().Draw(t, "units")},
			Standbys: rapid.Uint32Max(MaxStandbys).Draw(t, "standbys"), Timeouts: Timeouts{Run: time.Duration(rapid.Int64Range(0, int64(MaxRun)).Draw(t, "time"))},
			Payment: Payment{MaxPrice: market.Price(rapid.Uint64().Draw(t, "price"))}}
		exact := new(big.Int).SetUint64(uint64(j.Count)*uint64(j.Resources.Units) + uint64(j.Standbys)*uint64(j.Resources.Units))
		exact.Mul(exact, new(big.Int).SetUint64(uint64(j.Payment.MaxPrice)))
		perHour := exact.IsUint64()
		exact.Mul(exact, big.NewInt(j.Timeouts.Run.Milliseconds()))
		exact.Add(exact, new(big.Int).Sub(hour, big.NewInt(1))).Div(exact, hour)
		got, err := j.MaxCost()
		if fits := perHour && exact.IsUint64(); fits != (err == nil) || err == nil && uint64(got) != exact.Uint64() || err != nil && !errors.Is(err, market.ErrOverflow) {
			t.Fatalf("got %d, %v, want %v", got, err, exact)
		}
		j.Guardians = 3
		if guarded, err2 := j.MaxCost(); err == nil && err2 == nil && (guarded < got || uint64(guarded-got) != uint64(got)/WagePart) {
			t.Fatalf("with guardians %d, without %d", guarded, got)
		}
	})
}

// A budget that was the whole cost stays the whole cost of the changed job; any other stays as it is.
func TestChangesProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		j.Payment.MaxPrice = market.Price(rapid.Uint64Range(1, 1000).Draw(t, "price"))
		cost, err := j.MaxCost()
		if err != nil || cost == 0 {
			return
		}
		whole := rapid.Bool().Draw(t, "whole")
		if j.Payment.Budget = cost; !whole {
			j.Payment.Budget = cost + 1
		}
		count := rapid.Uint32Range(1, 16).Draw(t, "count")
		run := Span(rapid.Int64Range(int64(MinTime), int64(MaxRun)).Draw(t, "time"))
		before := roundTrip(t, j)
		got, err := j.With(Changes{Count: &count, Run: &run})
		if !reflect.DeepEqual(j, before) {
			t.Fatalf("the job was changed: %+v, want %+v", j, before)
		}
		if err != nil {
			return // a cluster of too few, or a cost of nothing
		}
		want, err := got.MaxCost()
		if !whole {
			want = j.Payment.Budget
		}
		if err != nil || got.Count != count || got.Timeouts.Run != time.Duration(run) || got.Payment.Budget != want {
			t.Fatalf("%d ranks for %v with %d, %v, want %d", got.Count, got.Timeouts.Run, got.Payment.Budget, err, want)
		}
		if again, err := j.With(Changes{}); err != nil || !reflect.DeepEqual(again, j) {
			t.Fatalf("without changes: %+v, %v", again, err)
		}
	})
}

// New URLs are for sources that have some, and change no content and no other job.
func TestChangesOfURLs(t *testing.T) {
	t.Parallel()
	const source, id = "s3://bucket/w.bin", "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	j := fullJob(t)
	j.Inputs = []Input{{Source: source, Path: "/in/w.bin"}}
	blobs := map[string]Blob{}
	for _, s := range j.Sources() {
		blobs[s] = Blob{CID: id}
	}
	blobs[source] = Blob{CID: id, URLs: []string{"https://s3.example/w.bin?signature=old"}}
	j, err := j.WithBlobs(blobs)
	if err != nil {
		t.Fatal(err)
	}
	now := []string{"https://s3.example/w.bin?signature=new"}
	got, err := j.With(Changes{URLs: map[string][]string{source: now}})
	if b := got.Blobs[source]; err != nil || !slices.Equal(b.URLs, now) || b.CID != id || strings.HasSuffix(j.Blobs[source].URLs[0], "new") {
		t.Errorf("%+v of %+v, %v", b, j.Blobs[source], err)
	}
	huge := uint32(math.MaxUint32)
	for name, ch := range map[string]Changes{
		"another source":   {URLs: map[string][]string{"s3://bucket/other": now}},
		"a file":           {URLs: map[string][]string{j.Module: now}},
		"no URL":           {URLs: map[string][]string{source: nil}},
		"many URLs":        {URLs: map[string][]string{source: slices.Repeat(now, 5)}},
		"plain HTTP":       {URLs: map[string][]string{source: {"http://s3.example/w.bin"}}},
		"with other ranks": {URLs: map[string][]string{source: now}, Count: &huge},
	} {
		if _, err := j.With(ch); !errors.Is(err, ErrInvalid) || strings.HasSuffix(j.Blobs[source].URLs[0], "new") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of fewer ranks fewer inputs are needed; of more, those of the new ranks are missing.
func TestChangesOfBlobs(t *testing.T) {
	t.Parallel()
	j := fullJob(t)
	blobs := map[string]Blob{}
	for _, s := range j.Sources() {
		blobs[s] = Blob{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}
	}
	j, err := j.WithBlobs(blobs)
	if err != nil {
		t.Fatal(err)
	}
	two, six, none, huge := uint32(2), uint32(6), uint32(0), uint32(math.MaxUint32)
	if got, err := j.With(Changes{Count: &two}); err != nil || len(got.Blobs) != 3 || len(j.Blobs) != 6 {
		t.Errorf("two ranks have %d files, five %d: %v", len(got.Blobs), len(j.Blobs), err)
	}
	if _, err := j.With(Changes{Count: &six}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `shards/5.bin`) {
		t.Errorf("six ranks: %v", err)
	}
	for _, n := range []*uint32{&none, &huge} {
		if _, err := j.With(Changes{Count: n}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d ranks: %v", *n, err)
		}
	}
	price, budget := market.Price(0), market.Amount(0)
	for name, ch := range map[string]Changes{"price": {MaxPrice: &price}, "budget": {Budget: &budget}, "queue": {Queue: new(Span)}, "run": {Run: new(Span)}} {
		if _, err := j.With(ch); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
}

// Guardians that are taken on and given up leave the job as it was, with its budget.
func TestGuardedProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		j.Payment.MaxPrice = market.Price(rapid.Uint64Range(1, 1000).Draw(t, "price"))
		if cost, err := j.MaxCost(); err == nil && rapid.Bool().Draw(t, "whole") {
			j.Payment.Budget = cost
		}
		guarded := j.Guarded(3)
		if guarded.Guardians != 3 || guarded.Standbys != DefaultStandbys || guarded.Payment.Budget < j.Payment.Budget {
			t.Fatalf("%d guardians, %d standbys, budget %d, without %d", guarded.Guardians, guarded.Standbys, guarded.Payment.Budget, j.Payment.Budget)
		}
		if back := guarded.Guarded(0); !reflect.DeepEqual(back, j) {
			cost, _ := guarded.MaxCost()
			if j.Payment.Budget != cost { // by chance the budget was that of the guarded job
				t.Fatalf("got %+v back for %+v", back, j)
			}
		}
	})
}

// Relative paths are taken from a directory once; absolute ones and content ids stay; the job itself is not changed.
func TestInProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		before := roundTrip(t, j)
		in := j.In("/jobs")
		if !reflect.DeepEqual(j, before) {
			t.Fatalf("the job was changed: %+v, want %+v", j, before)
		}
		for _, s := range in.Sources() {
			if !strings.HasPrefix(s, "/jobs/") {
				t.Fatalf("source %q", s)
			}
		}
		for i, s := range in.Secrets {
			if was := j.Secrets[i].From; strings.HasPrefix(was, FromEnv) && s.From != was || strings.HasPrefix(was, FromFile) && s.From != FromFile+"/jobs/"+was[len(FromFile):] {
				t.Fatalf("%q became %q", was, s.From)
			}
		}
		if again := in.In("/elsewhere"); !slices.Equal(again.Sources(), in.Sources()) || !reflect.DeepEqual(again.Secrets, in.Secrets) {
			t.Fatalf("moved twice: %v", again.Sources())
		}
	})
	j := Job{Module: "cid:bafy", Inputs: []Input{{Source: "/abs"}, {Source: "../up"}}}.In("/a/b")
	if j.Module != "cid:bafy" || j.Inputs[0].Source != "/abs" || j.Inputs[1].Source != "/a/up" {
		t.Errorf("got %+v", j)
	}
}

// A webhook without events is notified of all of them.
func TestWebhookWants(t *testing.T) {
	t.Parallel()
	for _, e := range Events {
		if !(Webhook{}).Wants(e) || (Webhook{Events: []string{"failed"}}).Wants(e) != (e == "failed") {
			t.Errorf("event %s", e)
		}
	}
	for url, ok := range map[string]bool{
		"https://example.org/x": true, "http://[::1]:8080/": true, "ftp://example.org": false, "https://": false, "/x": false, "https://u:p@example.org": false,
		"https://example.org/#f": false, "https://example.org/" + strings.Repeat("x", maxURL): false, "https://exa mple.org": false, "https://a\x00": false, "": false,
	} {
		var ps problems
		if checkWebhooks(Job{Webhooks: []Webhook{{URL: url}}}, &ps); (len(ps) == 0) != ok {
			t.Errorf("%.40q: %v", url, ps.err())
		}
	}
	var ps problems
	checkWebhooks(Job{Webhooks: []Webhook{{URL: "https://a", Events: []string{"failed", "failed", "ended"}}}}, &ps)
	if len(ps) != 2 || ps[0].Field != "spec.webhooks[0].events[1]" || ps[1].Field != "spec.webhooks[0].events[2]" {
		t.Errorf("got %v", ps.err())
	}
	ps = nil
	if checkWebhooks(Job{Webhooks: make([]Webhook, MaxWebhooks+1)}, &ps); len(ps) != 1 {
		t.Errorf("got %v", ps.err())
	}
}
