package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
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
		if _, err := ReadSubmission(SubmissionType, []byte(body)); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestRerun(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	n := uint32(7)
	j, err := c.Rerun(t.Context(), "jabcdefgh", job.Changes{Count: &n}, "once")
	if err != nil || j.Spec.Count != 7 || f.last.Once != "once" {
		t.Errorf("%+v, %v", j, err)
	}
	_, err = c.Rerun(t.Context(), "jnone", job.Changes{}, "")
	wantError(t, err, http.StatusNotFound, "not_found")
	err = c.send(t.Context(), http.MethodPost, "/v1/jobs/jabcdefgh/rerun", map[string]int{"ranks": 1}, nil, nil)
	wantError(t, err, http.StatusBadRequest, "bad_request")
}

func TestPages(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	key := "ci"
	at := time.Unix(1000, 5).UTC()
	q := buyer.Query{Limit: 5, State: "failed", Name: "a b&c", Since: at, Key: &key}
	all, err := c.Jobs(t.Context(), q)
	if err != nil || len(all) != 2 {
		t.Errorf("%d jobs, %v", len(all), err)
	}
	q.After = "2"
	if !reflect.DeepEqual(f.query, q) {
		t.Errorf("asked for %+v, want %+v", f.query, q)
	}
	_, err = c.List(t.Context(), buyer.Query{After: "x"})
	wantError(t, err, http.StatusBadRequest, "bad_request")
	err = c.get(t.Context(), "/v1/jobs?since=x", &buyer.Page{})
	wantError(t, err, http.StatusBadRequest, "bad_request")
}

// An API key opens what it may and nothing else, and a job that is not its own is not there.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	f := newFake()
	own, _ := serve(t, f)
	k, err := own.AddKey(t.Context(), "ci", buyer.Limits{PerDay: 5})
	if err != nil || k.Token != keyToken || k.Limits.PerDay != 5 {
		t.Fatalf("%+v, %v", k, err)
	}
	_, err = own.AddKey(t.Context(), "", buyer.Limits{})
	wantError(t, err, http.StatusBadRequest, "bad_key")
	if keys, err := own.Keys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("%v, %v", keys, err)
	}
	if err := own.RemoveKey(t.Context(), "ci"); err != nil {
		t.Error(err)
	}
	c := &Client{ep: own.ep, http: own.http}
	c.ep.Token = keyToken
	if _, err := c.Submit(t.Context(), spec(), job.Values{}, "x"); err != nil || f.last.Key != "ci" {
		t.Errorf("submitted with key %q: %v", f.last.Key, err)
	}
	if _, err := c.List(t.Context(), buyer.Query{}); err != nil || f.query.Key == nil || *f.query.Key != "ci" {
		t.Errorf("lists the jobs of %v: %v", f.query.Key, err)
	}
	other := "other"
	if _, err := c.List(t.Context(), buyer.Query{Key: &other}); err != nil || *f.query.Key != "ci" {
		t.Errorf("lists the jobs of %v: %v", *f.query.Key, err)
	}
	if s, err := c.Spend(t.Context(), 3); err != nil || s.Days[0].Key != "ci" || s.Days[0].Jobs != 3 || len(s.Keys) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = c.Job(t.Context(), "jabcdefgh")
	wantError(t, err, http.StatusNotFound, "not_found")
	wantError(t, c.Stop(t.Context(), "jabcdefgh"), http.StatusNotFound, "not_found")
	f.change(func() { f.job.Key = "ci" })
	if _, err := c.Job(t.Context(), "jabcdefgh"); err != nil {
		t.Errorf("its own job: %v", err)
	}
	_, err = c.AddKey(t.Context(), "more", buyer.Limits{})
	wantError(t, err, http.StatusForbidden, "forbidden")
	_, err = c.Leases(t.Context())
	wantError(t, err, http.StatusForbidden, "forbidden")
	_, err = c.Blocks(t.Context())
	wantError(t, err, http.StatusForbidden, "forbidden")
	f.change(func() { f.err = buyer.ErrLimit })
	_, err = c.Submit(t.Context(), spec(), job.Values{}, "y")
	wantError(t, err, http.StatusPaymentRequired, CodePayment)
	_, err = c.Spend(t.Context(), 1000)
	wantError(t, err, http.StatusBadRequest, "bad_request")
}

// A key that knows the CID of a file has no right to it: it reads what it uploaded, and the files of its own jobs.
func TestAttackKeyReadsOthersFiles(t *testing.T) {
	t.Parallel()
	f := newFake()
	own, _ := serve(t, f)
	key := &Client{ep: own.ep, http: own.http}
	key.ep.Token = keyToken
	secret, err := own.PutBlob(t.Context(), strings.NewReader("secret"), false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = key.GetBlob(t.Context(), secret.CID)
	wantError(t, err, http.StatusNotFound, "not_found")
	mine, err := key.PutBlob(t.Context(), strings.NewReader("mine"), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Client{key, own} {
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
	e, err := c.Block(t.Context(), block.Entry{Peer: p, Roles: []block.Role{block.Buyer}, Reason: "x"})
	if err != nil || e.Peer != p || e.At.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
	if list, err := c.Blocks(t.Context()); err != nil || len(list) != 1 || list[0].Reason != "x" {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = c.Block(t.Context(), block.Entry{Peer: p})
	wantError(t, err, http.StatusBadRequest, "bad_request")
	wantError(t, c.Unblock(t.Context(), p), http.StatusNotFound, "not_found")
	wantError(t, c.send(t.Context(), http.MethodDelete, "/v1/blocks/me", nil, nil, nil), http.StatusBadRequest, "bad_peer")
}

func TestQuote(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	if q, err := c.Quote(t.Context(), spec()); err != nil || !q.Places {
		t.Errorf("%+v, %v", q, err)
	}
	_, err := c.Quote(t.Context(), job.Job{})
	var e *Error
	if !errors.As(err, &e) || e.Code != "bad_job" {
		t.Error(err)
	}
}

// FuzzSubmission: what is read is written and read back equal, and an error never repeats a secret.
func FuzzSubmission(f *testing.F) {
	j, v := secretSpec()
	b, err := json.Marshal(Submission{Job: j, Values: v})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"job":{},"values":{"secrets":{"t":"aHVzaA=="}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sub, err := ReadSubmission(SubmissionType, data)
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
		again, err := ReadSubmission(SubmissionType, b)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := json.Marshal(again); err != nil || string(b) != string(c) {
			t.Fatalf("%s came back as %s: %v", b, c, err)
		}
	})
}
