package route

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sample has every kind of field.
type sample struct {
	ID     string     `path:"id"`
	Addr   netip.Addr `query:"addr"`
	Since  time.Time  `query:"since"`
	Limit  int        `query:"limit"`
	Follow bool       `query:"follow"`
	Key    *string    `query:"key"`
	Once   string     `header:"Idempotency-Key"`
	Body   inner      `body:"application/json"`
}

type inner struct {
	Name string   `json:"name"`
	Tags []string `json:"tags,omitempty"`
}

var sampleRoute = Route[sample, sample]{Pattern: "POST /v1/things/{id}/act", Summary: "Act", Limit: 1 << 10}

// direct asks bound routes in this goroutine.
type direct []Bound

func (d direct) Do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	h, err := Mux(d, func(_ Operation, w http.ResponseWriter, r *http.Request, serve func(*http.Request) error) {
		if err := serve(r); err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok {
				e = &Error{Status: http.StatusInternalServerError, Code: "internal", Message: err.Error()}
			}
			Fail(w, e)
		}
	})
	if err != nil {
		return nil, err
	}
	r := httptest.NewRequestWithContext(ctx, method, path, body)
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code >= http.StatusMultipleChoices {
		return nil, ReadError(w.Result())
	}
	return w.Result(), nil
}

// What a caller sends is what the handler gets, whatever is in it.
func TestRequestsArrive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// ServeMux redirects what path.Clean changes.
		id := rapid.String().Filter(func(s string) bool { return s != "" && path.Clean("/"+s) == "/"+s }).Draw(t, "id")
		want := sample{
			ID: id, Limit: rapid.IntRange(0, 1<<40).Draw(t, "limit"), Follow: rapid.Bool().Draw(t, "follow"),
			Key: rapid.Ptr(rapid.String(), true).Draw(t, "key"), Once: rapid.StringMatching(`[!-~]{0,20}`).Draw(t, "once"),
			Body: inner{Name: rapid.String().Draw(t, "name"), Tags: rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "tags")},
		}
		if rapid.Bool().Draw(t, "more") {
			want.Since = time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "since"), 5).UTC()
			want.Addr = netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "addr")})
		}
		var got sample
		bound := sampleRoute.Bind(func(_ context.Context, req sample) (sample, error) { got = req; return sample{ID: req.ID}, nil })
		resp, err := sampleRoute.Call(t.Context(), direct{bound}, want)
		if err != nil || !reflect.DeepEqual(got, want) || resp.ID != want.ID {
			t.Fatalf("%v: got %+v, want %+v", err, got, want)
		}
	})
}

func TestRequestsRefused(t *testing.T) {
	t.Parallel()
	bound := direct{sampleRoute.Bind(func(context.Context, sample) (sample, error) { return sample{}, nil })}
	const path = "/v1/things/x/act"
	for _, c := range []struct{ path, body, code, want string }{
		{path, ``, "bad_request", "EOF"},
		{path, `{"name":"a"} {}`, "bad_request", "more than one JSON value"},
		{path, `{"unknown":1}`, "bad_request", "unknown field"},
		{path, `{"name":7}`, "bad_request", "cannot unmarshal"},
		{path, `{"name":"` + strings.Repeat("x", 1<<10) + `"}`, "too_large", "too large"},
		{path + "?limit=-1", `{}`, "bad_request", `limit="-1" is not a number from 0`},
		{path + "?limit=1e3", `{}`, "bad_request", `limit="1e3" is not a number from 0`},
		{path + "?follow=maybe", `{}`, "bad_request", `follow="maybe": want 1 or 0`},
		{path + "?since=yesterday", `{}`, "bad_request", "want RFC 3339"},
		{path + "?addr=here", `{}`, "bad_request", `addr="here": `},
	} {
		_, err := bound.Do(t.Context(), http.MethodPost, c.path, strings.NewReader(c.body), http.Header{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != c.code || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s %.40s: got %v, want %s with %q", c.path, c.body, err, c.code, c.want)
		}
	}
	for _, follow := range []string{"0", "false", ""} {
		if _, err := bound.Do(t.Context(), http.MethodPost, path+"?follow="+follow, strings.NewReader(`{}`), http.Header{}); err != nil {
			t.Errorf("follow=%s: %v", follow, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	made := Route[inner, inner]{Pattern: "POST /v1/made", Location: func(x inner) string { return "/v1/made/" + x.Name }}
	gone := Route[None, None]{Pattern: "DELETE /v1/gone"}
	fails := Route[None, None]{Pattern: "GET /v1/fails"}
	raw := Raw[upload]{Pattern: "PUT /v1/raw", Answer: "text/plain"}
	bound := direct{
		made.Bind(func(_ context.Context, x inner) (inner, error) { return x, nil }),
		gone.Bind(func(context.Context, None) (none None, err error) { return }),
		fails.Bind(func(context.Context, None) (none None, err error) {
			return none, &Error{Status: http.StatusTeapot, Code: "tea", Message: "no coffee", Hint: "drink tea"}
		}),
		raw.Bind(func(w http.ResponseWriter, _ *http.Request, u upload) error { _, err := io.Copy(w, u.Data); return err }),
	}
	body, err := json.Marshal(inner{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := bound.Do(t.Context(), http.MethodPost, "/v1/made", bytes.NewReader(body), http.Header{})
	if err != nil || resp.StatusCode != http.StatusCreated || resp.Header.Get("Location") != "/v1/made/a" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v, %v", resp, err)
	}
	if resp, err = bound.Do(t.Context(), http.MethodDelete, "/v1/gone", nil, http.Header{}); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Errorf("%+v, %v", resp, err)
	}
	want := Error{Status: http.StatusTeapot, Code: "tea", Message: "no coffee", Hint: "drink tea"}
	if e, ok := errors.AsType[*Error](fails.Send(t.Context(), bound, None{})); !ok || *e != want {
		t.Errorf("got %+v, want %+v", e, want)
	}
	if resp, err = raw.Do(t.Context(), bound, upload{Data: strings.NewReader("bytes")}); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "bytes" {
		t.Errorf("%q, %v", b, err)
	}
	// An answer that is no error of the API is one all the same.
	html := &http.Response{Status: "502 Bad Gateway", StatusCode: http.StatusBadGateway, Body: io.NopCloser(strings.NewReader("<html>"))}
	if err := ReadError(html); err == nil || !strings.Contains(err.Error(), "502 Bad Gateway") {
		t.Errorf("got %v", err)
	}
}

type upload struct {
	Data io.Reader `body:"application/octet-stream"`
}

// node contains itself, and has what encoding/json treats in ways of its own.
type node struct {
	base
	Next  *node           `json:"next"`
	Bytes []byte          `json:"bytes,omitempty"`
	Addr  netip.Addr      `json:"addr"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Sizes map[string]int  `json:"sizes,omitzero"`
	Skip  int             `json:"-"`
	Plain bool
}

type base struct {
	Name string `json:"name" doc:"what it is called"`
}

func TestSchema(t *testing.T) {
	t.Parallel()
	s := newSchemas()
	ref, err := json.Marshal(s.of(reflect.TypeFor[node]()))
	if err != nil || string(ref) != `{"$ref":"#/components/schemas/route.node"}` {
		t.Fatalf("%s, %v", ref, err)
	}
	got, err := json.MarshalIndent(s.defs, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "route.node": {
  "properties": {
   "Plain": {"type": "boolean"},
   "addr": {"type": "string"},
   "bytes": {"contentEncoding": "base64", "type": ["string", "null"]},
   "name": {"description": "what it is called", "type": "string"},
   "next": {"anyOf": [{"$ref": "#/components/schemas/route.node"}, {"type": "null"}]},
   "raw": {},
   "sizes": {"additionalProperties": {"type": "integer"}, "type": ["object", "null"]}
  },
  "required": ["name", "next", "addr", "Plain"],
  "type": "object"
 }
}`
	var x, y any
	if err := errors.Join(json.Unmarshal(got, &x), json.Unmarshal([]byte(want), &y)); err != nil || !reflect.DeepEqual(x, y) {
		t.Errorf("got %s, want %s: %v", got, want, err)
	}
}

// Types of one name in packages of one name get names of their own.
func TestSchemaNames(t *testing.T) {
	t.Parallel()
	s := newSchemas()
	taken := reflect.TypeFor[url.URL]()
	s.names["route.node"] = taken
	if name := s.name(reflect.TypeFor[node]()); name != "api.route.node" {
		t.Errorf("got %s", name)
	}
}

// FuzzDecode: whatever comes is a request or a refusal with a status of its own.
func FuzzDecode(f *testing.F) {
	f.Add("limit=3&follow=1&key=&since=2026-01-02T15:04:05Z&addr=10.0.0.1", []byte(`{"name":"a"}`))
	f.Add("limit=-1", []byte(`{`))
	f.Fuzz(func(t *testing.T, query string, body []byte) {
		r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/v1/things/x/act", RawQuery: query}, Body: io.NopCloser(bytes.NewReader(body))}
		req, err := decode[sample](httptest.NewRecorder(), r, 1<<10)
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Status/100 != 4) {
			t.Fatalf("got %v, want a refusal", err)
		}
		if err == nil && (req.Limit < 0 || len(body) > 1<<10) {
			t.Fatalf("took %+v", req)
		}
	})
}
