package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

// SubmissionType is the content type of a job with its secrets beside it.
const SubmissionType = "application/vnd.starling.submission+json"

// Submission is the body of that type.
type Submission struct {
	Job    job.Job    `json:"job"`
	Values job.Values `json:"values"`
}

// Blocks is what the API asks of the block list.
type Blocks interface {
	Add(ctx context.Context, e block.Entry) error
	Remove(ctx context.Context, p sign.Key) error
	Entries() []block.Entry
}

// NewKey is a request for an API key, and its answer with the token.
type NewKey struct {
	Name   string       `json:"name"`
	Limits buyer.Limits `json:"limits"`
	Token  string       `json:"token,omitempty"` // in the answer only: it is not shown again
}

// spendDays is how many days of spending are shown where nothing is said, and maxSpendDays how many can be.
const (
	spendDays    = 7
	maxSpendDays = 366
	maxSmallBody = 64 << 10
	// lateJobs is how long a quote may take, beside the window for quotes.
	quoteWait = 30 * time.Second
)

func (s *Server) jobRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/jobs":            s.submit,
		"GET /v1/jobs":             s.list,
		"POST /v1/jobs/{id}/rerun": s.rerun,
		"POST /v1/quotes":          s.quote,
		"GET /v1/spend":            s.spend,
		"GET /v1/keys":             func(w http.ResponseWriter, _ *http.Request) error { return reply(w, s.jobs.Keys()) },
		"POST /v1/keys":            s.addKey,
		"DELETE /v1/keys/{name}":   s.removeKey,
		"GET /v1/blocks":           func(w http.ResponseWriter, _ *http.Request) error { return reply(w, s.blocks.Entries()) },
		"PUT /v1/blocks/{peer}":    s.addBlock,
		"DELETE /v1/blocks/{peer}": s.removeBlock,
	}
}

// keyed are the routes that API keys may use, beside those of their own jobs; everything else is for the peer's own token.
var keyed = map[string]bool{
	"POST /v1/jobs": true, "GET /v1/jobs": true, "POST /v1/blobs": true, "GET /v1/blobs/{cid}": true, "POST /v1/quotes": true,
	"GET /v1/spend": true, "GET /v1/node": true, "GET /v1/offers": true,
}

type keyContext struct{}

// keyName is the name of the API key a request came with, "" for the peer's own token.
func keyName(ctx context.Context) string {
	name, _ := ctx.Value(keyContext{}).(string)
	return name
}

// admit says whether an API key may make a request, and returns the request as the handlers see it.
func (s *Server) admit(r *http.Request, name string) (*http.Request, error) {
	if id := r.PathValue("id"); id != "" {
		j, err := s.jobs.Job(id)
		if err == nil && j.Key != name {
			err = fmt.Errorf("%w: %q", buyer.ErrNoJob, id) // as if it were not there
		}
		if err != nil {
			return nil, err
		}
	} else if !keyed[r.Pattern] {
		return nil, &Error{Status: http.StatusForbidden, Code: "forbidden", Message: fmt.Sprintf("key %s may not do this: it is for the peer's own token", name)}
	}
	return r.WithContext(context.WithValue(r.Context(), keyContext{}, name)), nil
}

func badRequest(code, format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// body reads one JSON document without unknown fields.
func body(w http.ResponseWriter, r *http.Request, most int64, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: err.Error()}
	case err != nil:
		return badRequest("bad_request", "reading the request: %v", err)
	case dec.More():
		return badRequest("bad_request", "reading the request: bytes after its end")
	}
	return nil
}

// onceOf is the request's idempotency key.
func onceOf(r *http.Request) (string, error) {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > 128 {
		return "", badRequest("bad_key", "Idempotency-Key is longer than 128 bytes")
	}
	return key, nil
}

// ReadSubmission reads the body of a submission: a job, or with SubmissionType a job and its secrets. What is wrong with
// secrets is said without them.
func ReadSubmission(contentType string, b []byte) (Submission, error) {
	var sub Submission
	if mt, _, err := mime.ParseMediaType(contentType); err != nil || mt != SubmissionType {
		spec, err := job.Unmarshal(b)
		return Submission{Job: spec}, err
	}
	var raw struct {
		Job    json.RawMessage `json:"job"`
		Values json.RawMessage `json:"values"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return sub, fmt.Errorf("%w: the submission is not JSON with job and values", job.ErrInvalid)
	}
	spec, err := job.Unmarshal(raw.Job)
	if err != nil {
		return sub, err
	}
	sub.Job = spec
	if len(raw.Values) > 0 {
		if err := json.Unmarshal(raw.Values, &sub.Values); err != nil {
			return sub, fmt.Errorf("%w: the values are not what secrets look like", job.ErrInvalid)
		}
	}
	return sub, sub.Values.CheckFor(spec)
}

func (s *Server) submit(w http.ResponseWriter, r *http.Request) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJobBody))
	if err != nil {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: "reading the job: " + err.Error()}
	}
	sub, err := ReadSubmission(r.Header.Get("Content-Type"), b)
	if err != nil {
		return badRequest("bad_job", "%v", err)
	}
	once, err := onceOf(r)
	if err != nil {
		return err
	}
	j, err := s.jobs.Submit(r.Context(), buyer.Submission{Spec: sub.Job, Values: sub.Values, Once: once, Key: keyName(r.Context())})
	if err != nil {
		return err
	}
	return created(w, j)
}

func created(w http.ResponseWriter, j buyer.Job) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/v1/jobs/"+j.ID)
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(j)
}

func (s *Server) rerun(w http.ResponseWriter, r *http.Request) error {
	var c job.Changes
	if err := body(w, r, maxSmallBody, &c); err != nil {
		return err
	}
	once, err := onceOf(r)
	if err != nil {
		return err
	}
	j, err := s.jobs.Rerun(r.Context(), r.PathValue("id"), c, once, keyName(r.Context()))
	if err != nil {
		return err
	}
	return created(w, j)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit")
	if err != nil {
		return err
	}
	v := r.URL.Query()
	q := buyer.Query{After: v.Get("after"), Limit: limit, State: v.Get("state"), Name: v.Get("name")}
	if at := v.Get("since"); at != "" {
		if q.Since, err = time.Parse(time.RFC3339, at); err != nil {
			return badRequest("bad_request", "since=%.80q is not a time: want RFC 3339, such as 2006-01-02T15:04:05Z", at)
		}
	}
	if name := keyName(r.Context()); name != "" {
		q.Key = &name
	} else if v.Has("key") {
		name := v.Get("key")
		q.Key = &name
	}
	p, err := s.jobs.List(r.Context(), q)
	if err != nil {
		return err
	}
	return reply(w, p)
}

func (s *Server) quote(w http.ResponseWriter, r *http.Request) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJobBody))
	if err != nil {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: "reading the job: " + err.Error()}
	}
	spec, err := job.Unmarshal(b)
	if err != nil {
		return badRequest("bad_job", "%v", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), quoteWait)
	defer cancel()
	q, err := s.jobs.Quote(ctx, spec)
	if err != nil {
		return err
	}
	return reply(w, q)
}

func (s *Server) spend(w http.ResponseWriter, r *http.Request) error {
	days, err := number(r, "days")
	if err != nil {
		return err
	}
	if days == 0 {
		days = spendDays
	}
	if days > maxSpendDays {
		return badRequest("bad_request", "days=%d, want 1 to %d", days, maxSpendDays)
	}
	name := keyName(r.Context())
	return reply(w, s.jobs.Spending(days, name, name == ""))
}

func (s *Server) addKey(w http.ResponseWriter, r *http.Request) error {
	var k NewKey
	if err := body(w, r, maxSmallBody, &k); err != nil {
		return err
	}
	made, token, err := s.jobs.AddKey(r.Context(), k.Name, k.Limits)
	if err != nil {
		return err
	}
	return reply(w, NewKey{Name: made.Name, Limits: made.Limits, Token: token})
}

func (s *Server) removeKey(w http.ResponseWriter, r *http.Request) error {
	if err := s.jobs.RemoveKey(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) addBlock(w http.ResponseWriter, r *http.Request) error {
	p, err := peerOf(r)
	if err != nil {
		return err
	}
	var e block.Entry
	if err := body(w, r, maxSmallBody, &e); err != nil {
		return err
	}
	e.Peer, e.At = p, time.Now().UTC()
	if err := s.blocks.Add(r.Context(), e); err != nil {
		return err
	}
	return reply(w, e)
}

func (s *Server) removeBlock(w http.ResponseWriter, r *http.Request) error {
	p, err := peerOf(r)
	if err == nil {
		err = s.blocks.Remove(r.Context(), p)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func peerOf(r *http.Request) (sign.Key, error) {
	k, err := sign.ParseKey(r.PathValue("peer"))
	if err != nil {
		return k, badRequest("bad_peer", "%.80q is not a peer's key", r.PathValue("peer"))
	}
	return k, nil
}

// jobError classes the errors of the buying side that have a class of their own; nil for others.
func jobError(err error) *Error {
	switch {
	case errors.Is(err, buyer.ErrLimit):
		return &Error{Status: http.StatusPaymentRequired, Code: CodePayment, Message: err.Error(), Hint: "`starling spend` shows what was spent and what is left"}
	case errors.Is(err, buyer.ErrQuery):
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: err.Error()}
	case errors.Is(err, buyer.ErrKey):
		return &Error{Status: http.StatusBadRequest, Code: "bad_key", Message: err.Error(), Hint: "`starling key ls` lists them"}
	case errors.Is(err, block.ErrEntry):
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: err.Error()}
	case errors.Is(err, block.ErrNotListed):
		return &Error{Status: http.StatusNotFound, Code: "not_found", Message: err.Error(), Hint: "`starling block ls` lists them"}
	}
	return nil
}

// queryOf is a query as the API takes it.
func queryOf(q buyer.Query) string {
	v := map[string][]string{}
	set := func(name, value string) {
		if value != "" {
			v[name] = []string{value}
		}
	}
	set("after", q.After)
	set("state", q.State)
	set("name", q.Name)
	if q.Limit > 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	if !q.Since.IsZero() {
		set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.Key != nil {
		v["key"] = []string{*q.Key}
	}
	return encode(v)
}

// probes gives the layouts of the records of a job's probes.
func (s *Server) probes(w http.ResponseWriter, r *http.Request) error {
	records, err := s.jobs.Probes(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	raw := make([][]byte, 0, len(records))
	for _, x := range records {
		raw = append(raw, x.Marshal())
	}
	return reply(w, raw)
}
