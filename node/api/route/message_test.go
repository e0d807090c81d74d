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
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A value is read from a URL as the one that was written, and the zero value is left out of it.
func TestFormatParse(t *testing.T) {
	t.Parallel()
	law := func(t *rapid.T, want any) {
		v := reflect.New(reflect.TypeOf(want)).Elem()
		v.Set(reflect.ValueOf(want))
		text, present, err := format(v)
		if err != nil || present == v.IsZero() {
			t.Fatalf("%#v: %q, %t, %v", want, text, present, err)
		}
		if !present {
			return
		}
		got := reflect.New(v.Type()).Elem()
		if err := parse(got, "x", text); err != nil || !reflect.DeepEqual(got.Interface(), want) {
			t.Fatalf("%q: got %#v, %v, want %#v", text, got, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		law(t, rapid.String().Draw(t, "text"))
		law(t, rapid.Bool().Draw(t, "flag"))
		law(t, rapid.IntRange(0, 1<<62).Draw(t, "number"))
		law(t, netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))))
		law(t, time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC())
		text := rapid.String().Draw(t, "pointed at")
		law(t, &text)
	})
}

// A field without a text form, or with an invalid value, is an error before anything is sent.
func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	type unknown struct {
		At float64 `query:"at"`
	}
	type late struct {
		At time.Time `query:"at"`
	}
	nobody := direct(nil)
	for says, err := range map[string]error{
		"writing the request GET /v1/x: at: type float64 has no place in a URL": Route[unknown, None]{Pattern: "GET /v1/x"}.Send(t.Context(), nobody, unknown{}),
		"writing the request GET /v1/x: at: Time.MarshalText":                   Route[late, None]{Pattern: "GET /v1/x"}.Send(t.Context(), nobody, late{time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"writing the request POST /v1/x: json: unsupported":                     Route[[]any, None]{Pattern: "POST /v1/x"}.Send(t.Context(), nobody, []any{make(chan int)}),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}

// own is a body with an encoding of its own.
type own struct{ text string }

func (o *own) EncodeBody() (string, []byte, error) { return "text/own", []byte(o.text), nil }
func (o *own) DecodeBody(contentType string, b []byte) error {
	if o.text = string(b); contentType != "text/own" {
		return BadRequest("own", "content type %s", contentType)
	}
	return nil
}
func (o *own) Forms() map[string]reflect.Type {
	return map[string]reflect.Type{"text/own": reflect.TypeFor[string](), jsonType: reflect.TypeFor[inner]()}
}

// A body with an encoding of its own is written and read by it, with its content type, and described by its forms.
func TestOwnBody(t *testing.T) {
	t.Parallel()
	type request struct {
		Body own `body:"application/json"`
	}
	r := Route[request, string]{Pattern: "POST /v1/own", Summary: "Own"}
	bound := direct{r.Bind(func(_ context.Context, req request) (string, error) { return req.Body.text, nil })}
	if got, err := r.Call(t.Context(), bound, request{own{"a\x00b"}}); err != nil || got != "a\x00b" {
		t.Errorf("%q, %v", got, err)
	}
	_, err := bound.Do(t.Context(), http.MethodPost, "/v1/own", strings.NewReader("x"), http.Header{"Content-Type": {"text/plain"}})
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != "own" || e.Status != http.StatusBadRequest {
		t.Errorf("got %v", err)
	}
	content := (&document{schemas: newSchemas()}).content(fieldsOf(reflect.TypeFor[request]())[0])
	if len(content) != 2 || content["text/own"] == nil || content[jsonType] == nil {
		t.Errorf("described as %v", content)
	}
}

// A body may be as long as the limit and not a byte longer; a stream is cut there while it is read.
func TestLimits(t *testing.T) {
	t.Parallel()
	type stream struct {
		Data io.Reader `body:"application/octet-stream"`
	}
	const most = 100
	typed := Route[string, int]{Pattern: "POST /v1/typed", Limit: most}
	raw := Route[stream, int]{Pattern: "POST /v1/raw", Limit: most}
	bound := direct{
		typed.Bind(func(_ context.Context, text string) (int, error) { return len(text), nil }),
		raw.Bind(func(_ context.Context, s stream) (int, error) {
			b, err := io.ReadAll(s.Data)
			return len(b), err
		}),
	}
	for n, ok := range map[int]bool{most: true, most + 1: false} {
		if got, err := typed.Call(t.Context(), bound, strings.Repeat("x", n-2)); (err == nil) != ok || ok && got != n-2 {
			t.Errorf("a typed body of %d: %d, %v", n, got, err)
		}
		if got, err := raw.Call(t.Context(), bound, stream{bytes.NewReader(make([]byte, n))}); (err == nil) != ok || ok && got != n {
			t.Errorf("a stream of %d: %d, %v", n, got, err)
		}
	}
	if o := typed.Operation(); o.Limit != most {
		t.Errorf("limit %d", o.Limit)
	}
	if o := (Raw[None]{Pattern: "GET /"}).Operation(); o.Limit != DefaultLimit {
		t.Errorf("limit %d, want %d", o.Limit, DefaultLimit)
	}
}

// Any answer without success is an error with its status, never nil and never a half-read one.
func TestReadError(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"error":{"code":"a","message":"b"}}`: "b", `{"error":{"message":""}} trailing`: "", `{"error":null}`: "the peer answered 418 I'm a teapot",
		``: "the peer answered 418 I'm a teapot", `null`: "the peer answered 418 I'm a teapot", `{"error":"text"}`: "the peer answered 418 I'm a teapot",
		`{"error":{"message":"` + strings.Repeat("x", 1<<20) + `"}}`: "the peer answered 418 I'm a teapot",
	} {
		err := ReadError(&http.Response{Status: "418 I'm a teapot", StatusCode: http.StatusTeapot, Body: io.NopCloser(strings.NewReader(body))})
		if err == nil || err.Error() != want {
			t.Errorf("%.60s: got %v, want %q", body, err, want)
		}
		if e, ok := errors.AsType[*Error](err); ok && e.Status != http.StatusTeapot {
			t.Errorf("%.60s: status %d", body, e.Status)
		}
	}
}

// A refusal that is written is read as the same.
func TestFailIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := Error{Status: rapid.IntRange(400, 599).Draw(t, "status"), Code: rapid.String().Draw(t, "code"),
			Message: rapid.String().Draw(t, "message"), Hint: rapid.String().Draw(t, "hint")}
		w := httptest.NewRecorder()
		Fail(w, &want)
		if e, ok := errors.AsType[*Error](ReadError(w.Result())); !ok || *e != want {
			t.Fatalf("got %+v, want %+v", e, want)
		}
	})
}

// Each route has one handler; a request to none is no call.
func TestMux(t *testing.T) {
	t.Parallel()
	bound := Route[None, None]{Pattern: "GET /v1/x/{id}"}.Bind(func(context.Context, None) (none None, err error) { return })
	if _, err := Mux([]Bound{bound, bound}, nil); err == nil || err.Error() != "route GET /v1/x/{id}: bound twice" {
		t.Errorf("got %v", err)
	}
	h, err := Mux([]Bound{bound}, func(o Operation, w http.ResponseWriter, r *http.Request, _ func(*http.Request) error) {
		Fail(w, &Error{Status: http.StatusForbidden, Message: o.Pattern + " of " + r.PathValue("id")})
	})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]int{"GET /v1/x/a%2Fb": 403, "GET /v1/x": 404, "POST /v1/x/a": 405, "GET /v1/x/a/b": 404} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", request, w.Code, want)
		}
	}
}

// An answer that is not the declared type is an error of the answer, with the route's name.
func TestCallRefusesAnswers(t *testing.T) {
	t.Parallel()
	r := Route[None, inner]{Pattern: "GET /v1/x"}
	for _, body := range []string{"", "<html>", `{"name":7}`, `{"name":"a"`, "[]"} {
		c := caller(func(*http.Request) string { return body })
		if _, err := r.Call(t.Context(), c, None{}); err == nil || !strings.HasPrefix(err.Error(), "reading the answer to GET /v1/x: ") {
			t.Errorf("%q: %v", body, err)
		}
	}
	if err := (Route[None, None]{Pattern: "GET /v1/x"}).Send(t.Context(), caller(func(*http.Request) string { return "<html>" }), None{}); err != nil {
		t.Errorf("an answer that nobody reads: %v", err)
	}
	raw := Raw[None]{Pattern: "POST /v1/x", Upgrade: "shell"}
	_, err := raw.Do(t.Context(), caller(func(r *http.Request) string {
		if r.Header.Get("Connection") != "Upgrade" || r.Header.Get("Upgrade") != "shell" {
			t.Errorf("asked with %v", r.Header)
		}
		return ""
	}), None{})
	if err != nil {
		t.Error(err)
	}
}

// caller answers with a body.
type caller func(*http.Request) string

func (c caller) Do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	r := httptest.NewRequestWithContext(ctx, method, path, body)
	r.Header = header
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(c(r)))}, nil
}

// The names of the document: group, operation and parameters follow from the pattern and the request.
func TestOperations(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ pattern, group, id string }{
		{"GET /v1/jobs/{id}/events", "jobs", "getJobsIdEvents"}, {"DELETE /v1/keys/{name}", "keys", "deleteKeysName"},
		{"GET /v1/openapi.json", "openapi.json", "getOpenapijson"}, {"GET /healthz", "healthz", "getHealthz"}, {"GET /metrics", "metrics", "getMetrics"},
	} {
		o := Raw[sample]{Pattern: x.pattern}.Operation()
		if o.Group() != x.group || o.id() != x.id || !slices.Equal(o.Parameters(), []string{"addr", "since", "limit", "follow", "key"}) {
			t.Errorf("%s: group %s, id %s, parameters %v", x.pattern, o.Group(), o.id(), o.Parameters())
		}
	}
	unsorted := []Operation{{Pattern: "PUT /v1/b"}, {Pattern: "GET /v1/b"}, {Pattern: "POST /v1/a"}}
	var got []string
	for _, o := range Sorted(unsorted) {
		got = append(got, o.Pattern)
	}
	if want := []string{"POST /v1/a", "GET /v1/b", "PUT /v1/b"}; !slices.Equal(got, want) || unsorted[0].Pattern != "PUT /v1/b" {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The status of each kind of route is its declaration's.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for want, o := range map[int]Operation{
		http.StatusOK:                 Route[None, inner]{}.Operation(),
		http.StatusCreated:            Route[None, inner]{Location: func(inner) string { return "" }}.Operation(),
		http.StatusNoContent:          Route[None, None]{}.Operation(),
		http.StatusSwitchingProtocols: Raw[None]{Upgrade: "x", Answer: "text/plain"}.Operation(),
	} {
		if o.Status != want {
			t.Errorf("status %d, want %d", o.Status, want)
		}
	}
	if o := (Raw[None]{}).Operation(); o.Status != http.StatusNoContent || o.Answer() != nil {
		t.Errorf("status %d, answer %v", o.Status, o.Answer())
	}
	failing := Route[None, bool]{Pattern: "GET /v1/up", Failing: func(up bool) bool { return !up }}
	for up, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		h, err := Mux([]Bound{failing.Bind(func(context.Context, None) (bool, error) { return up, nil })},
			func(_ Operation, _ http.ResponseWriter, r *http.Request, serve func(*http.Request) error) {
				_ = serve(r)
			})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/up", nil))
		if w.Code != want || strings.TrimSpace(w.Body.String()) != map[bool]string{true: "true", false: "false"}[up] {
			t.Errorf("status %d with %q, want %d", w.Code, w.Body, want)
		}
	}
}

// A schema says of each kind of Go value how encoding/json writes it.
func TestSchemaKinds(t *testing.T) {
	t.Parallel()
	for want, typ := range map[string]reflect.Type{
		`{"type":"boolean"}`: reflect.TypeFor[bool](), `{"type":"number"}`: reflect.TypeFor[float32](), `{"type":"integer"}`: reflect.TypeFor[int8](),
		`{"minimum":0,"type":"integer"}`:                                       reflect.TypeFor[uint64](),
		`{"format":"date-time","type":"string"}`:                               reflect.TypeFor[time.Time](),
		`{"description":"nanoseconds","type":"integer"}`:                       reflect.TypeFor[time.Duration](),
		`{"type":["string","null"]}`:                                           reflect.TypeFor[*string](),
		`{"contentEncoding":"base64","type":["string","null"]}`:                reflect.TypeFor[[]byte](),
		`{"items":{"type":"boolean"},"type":["array","null"]}`:                 reflect.TypeFor[[]bool](),
		`{"items":{"type":"string"},"maxItems":2,"minItems":2,"type":"array"}`: reflect.TypeFor[[2]string](),
		`{"additionalProperties":{"type":"string"},"type":["object","null"]}`:  reflect.TypeFor[map[string]netip.Addr](),
		`{}`: reflect.TypeFor[any](),
		`{"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"}`: reflect.TypeFor[struct {
			A string `json:"a"`
			b int
			C *url.URL `json:"-"`
		}](),
	} {
		b, err := json.Marshal(newSchemas().of(typ))
		if err != nil || string(b) != want {
			t.Errorf("%v: got %s, %v, want %s", typ, b, err, want)
		}
	}
}
