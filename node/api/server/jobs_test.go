package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/job"
)

// secretSpec is a job with a secret.
func secretSpec() (job.Job, job.Values) {
	j := spec()
	j.Secrets = []job.Secret{{Name: "t", Env: "TOKEN", From: "env:TOKEN"}}
	return j, job.Values{Secrets: map[string][]byte{"t": []byte("hush-hush")}}
}

func TestSubmission(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	j, v := secretSpec()
	if _, err := c.Submit(t.Context(), j, v, "once"); err != nil {
		t.Fatal(err)
	}
	if f.last.Once != "once" || string(f.last.Values.Secrets["t"]) != "hush-hush" || f.last.Key != "" || f.last.Spec.Secrets[0].Env != "TOKEN" {
		t.Errorf("%+v", f.last)
	}
	_, err := c.Submit(t.Context(), j, job.Values{}, "")
	wantError(t, err, http.StatusBadRequest, "bad_job")
	for _, body := range []string{`{"job":{},"values":{"secrets":{"t":"hush-hush"}}}`, `{"job":1,"values":"hush-hush"}`, `hush-hush`} {
		if _, err := api.ReadSubmission(api.SubmissionType, []byte(body)); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestRerun(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	n := uint32(7)
	j, err := api.RerunJob.Call(t.Context(), c, api.Rerun{ID: "jabcdefgh", Body: job.Changes{Count: &n}, Once: "once"})
	if err != nil || j.Spec.Count != 7 || f.last.Once != "once" {
		t.Errorf("%+v, %v", j, err)
	}
	_, err = api.RerunJob.Call(t.Context(), c, api.Rerun{ID: "jnone", Body: job.Changes{}, Once: ""})
	wantError(t, err, http.StatusNotFound, "not_found")
	err = ask(t, c, http.MethodPost, "/v1/jobs/jabcdefgh/rerun", `{"ranks":1}`, nil)
	wantError(t, err, http.StatusBadRequest, "bad_request")
}

func TestPages(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	key := "ci"
	at := time.Unix(1000, 5).UTC()
	q := record.Query{Limit: 5, State: "failed", Name: "a b&c", Since: at, Key: &key}
	all, err := c.Jobs(t.Context(), q)
	if err != nil || len(all) != 2 {
		t.Errorf("%d jobs, %v", len(all), err)
	}
	q.After = "2"
	if !reflect.DeepEqual(f.query, q) {
		t.Errorf("asked for %+v, want %+v", f.query, q)
	}
	_, err = api.ListJobs.Call(t.Context(), c, api.JobsQuery(record.Query{After: "x"}))
	wantError(t, err, http.StatusBadRequest, "bad_request")
	err = ask(t, c, http.MethodGet, "/v1/jobs?since=x", "", nil)
	wantError(t, err, http.StatusBadRequest, "bad_request")
}

// An API key opens what it may and nothing else, and a job that is not its own is not there.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	f := newFake()
	own, _ := serve(t, f)
	k, err := api.AddKey.Call(t.Context(), own, api.NewKey{Name: "ci", Limits: spend.Limits{PerDay: 5}})
	if err != nil || k.Token != keyToken || k.Limits.PerDay != 5 {
		t.Fatalf("%+v, %v", k, err)
	}
	_, err = api.AddKey.Call(t.Context(), own, api.NewKey{Name: "", Limits: spend.Limits{}})
	wantError(t, err, http.StatusBadRequest, "bad_key")
	if keys, err := api.ListKeys.Call(t.Context(), own, api.None{}); err != nil || len(keys) != 1 {
		t.Errorf("%v, %v", keys, err)
	}
	if _, err := api.RemoveKey.Call(t.Context(), own, api.ByName{Name: "ci"}); err != nil {
		t.Error(err)
	}
	c := withToken(own, keyToken)
	if _, err := c.Submit(t.Context(), spec(), job.Values{}, "x"); err != nil || f.last.Key != "ci" {
		t.Errorf("submitted with key %q: %v", f.last.Key, err)
	}
	if _, err := api.ListJobs.Call(t.Context(), c, api.JobsQuery(record.Query{})); err != nil || f.query.Key == nil || *f.query.Key != "ci" {
		t.Errorf("lists the jobs of %v: %v", f.query.Key, err)
	}
	other := "other"
	if _, err := api.ListJobs.Call(t.Context(), c, api.JobsQuery(record.Query{Key: &other})); err != nil || *f.query.Key != "ci" {
		t.Errorf("lists the jobs of %v: %v", *f.query.Key, err)
	}
	if s, err := api.GetSpending.Call(t.Context(), c, api.Days{Days: 3}); err != nil || s.Days[0].Key != "ci" || s.Days[0].Jobs != 3 || len(s.Keys) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = api.GetJob.Call(t.Context(), c, api.ByID{ID: "jabcdefgh"})
	wantError(t, err, http.StatusNotFound, "not_found")
	wantError(t, stop(t, c, "jabcdefgh"), http.StatusNotFound, "not_found")
	f.change(func() { f.job.Key = "ci" })
	if _, err := api.GetJob.Call(t.Context(), c, api.ByID{ID: "jabcdefgh"}); err != nil {
		t.Errorf("its own job: %v", err)
	}
	_, err = api.AddKey.Call(t.Context(), c, api.NewKey{Name: "more", Limits: spend.Limits{}})
	wantError(t, err, http.StatusForbidden, "forbidden")
	_, err = api.ListLeases.Call(t.Context(), c, api.None{})
	wantError(t, err, http.StatusForbidden, "forbidden")
	_, err = api.ListBlocks.Call(t.Context(), c, api.None{})
	wantError(t, err, http.StatusForbidden, "forbidden")
	f.change(func() { f.err = spend.ErrLimit })
	_, err = c.Submit(t.Context(), spec(), job.Values{}, "y")
	wantError(t, err, http.StatusPaymentRequired, api.CodePayment)
	_, err = api.GetSpending.Call(t.Context(), c, api.Days{Days: 1000})
	wantError(t, err, http.StatusBadRequest, "bad_request")
}

// A key that knows the CID of a file has no right to it: it reads what it uploaded, and the files of its own jobs.
func TestAttackKeyReadsOthersFiles(t *testing.T) {
	t.Parallel()
	f := newFake()
	own, _ := serve(t, f)
	key := withToken(own, keyToken)
	secret, err := api.PutBlob.Call(t.Context(), own, api.Upload{Data: strings.NewReader("secret")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = key.GetBlob(t.Context(), secret.CID)
	wantError(t, err, http.StatusNotFound, "not_found")
	mine, err := api.PutBlob.Call(t.Context(), key, api.Upload{Data: strings.NewReader("mine")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*api.Client{key, own} {
		r, err := c.GetBlob(t.Context(), mine.CID)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	p := sign.NewPrivate([32]byte{7}).Key()
	e, err := api.AddBlock.Call(t.Context(), c, api.Block{Peer: block.Entry{Peer: p, Roles: []block.Role{block.Buyer}, Reason: "x"}.Peer.String(), Body: block.Entry{Peer: p, Roles: []block.Role{block.Buyer}, Reason: "x"}})
	if err != nil || e.Peer != p || e.At.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
	if list, err := api.ListBlocks.Call(t.Context(), c, api.None{}); err != nil || len(list) != 1 || list[0].Reason != "x" {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = api.AddBlock.Call(t.Context(), c, api.Block{Peer: block.Entry{Peer: p}.Peer.String(), Body: block.Entry{Peer: p}})
	wantError(t, err, http.StatusBadRequest, "bad_request")
	_, err = api.RemoveBlock.Call(t.Context(), c, api.ByPeer{Peer: p.String()})
	wantError(t, err, http.StatusNotFound, "not_found")
	wantError(t, ask(t, c, http.MethodDelete, "/v1/blocks/me", "", nil), http.StatusBadRequest, "bad_peer")
}

func TestQuote(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	if q, err := api.QuoteJob.Call(t.Context(), c, api.Quote{Body: api.Submission{Job: spec()}}); err != nil || !q.Places {
		t.Errorf("%+v, %v", q, err)
	}
	_, err := api.QuoteJob.Call(t.Context(), c, api.Quote{Body: api.Submission{Job: job.Job{}}})
	if !errors.Is(err, job.ErrInvalid) {
		t.Error(err)
	}
}

// FuzzSubmission: what is read is written and read back equal, and an error never repeats a secret.
func FuzzSubmission(f *testing.F) {
	j, v := secretSpec()
	b, err := json.Marshal(api.Submission{Job: j, Values: v})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"job":{},"values":{"secrets":{"t":"aHVzaA=="}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sub, err := api.ReadSubmission(api.SubmissionType, data)
		if err != nil {
			if !errors.Is(err, job.ErrInvalid) && !errors.Is(err, job.ErrNotSupported) {
				t.Fatalf("%v is of no kind", err)
			}
			return
		}
		b, err := json.Marshal(sub)
		if err != nil {
			t.Fatal(err)
		}
		again, err := api.ReadSubmission(api.SubmissionType, b)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := json.Marshal(again); err != nil || string(b) != string(c) {
			t.Fatalf("%s came back as %s: %v", b, c, err)
		}
	})
}

// A removal answers with the room that it made, and a job that is needed is kept.
func TestRemoveJob(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	r, err := api.RemoveJob.Call(t.Context(), c, api.ByID{ID: f.job.ID})
	if want := (api.RemovedJob{LogBytes: 5, OutputBytes: 20}); err != nil || r != want {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
	_, err = api.RemoveJob.Call(t.Context(), c, api.ByID{ID: "jyoung"})
	wantError(t, err, http.StatusConflict, api.CodeNeeded)
	_, err = api.RemoveJob.Call(t.Context(), c, api.ByID{ID: "jother"})
	wantError(t, err, http.StatusNotFound, "not_found")
}
