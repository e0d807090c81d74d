// Package route declares the calls of an HTTP API as values. One declaration yields the server's handler (Bind), the
// client's call (Call or Do) and an entry of the reference and of the OpenAPI document (Document).
//
// A request type is a struct. The tag of a field is its place in the request:
//
//	ID    string          `path:"id"`                  // the {id} of the pattern
//	Rank  int             `query:"rank" doc:"from 0"`  // left out when zero; a pointer when "" has a meaning
//	Once  string          `header:"Idempotency-Key"`
//	Body  ScaleRequest    `body:"application/json"`    // JSON without unknown fields; see Body for other encodings
//	Data  io.Reader       `body:"application/x-tar"`   // a stream
//
// A request type without any of these tags is the JSON body itself, and None is no request.
package route

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"
)

// Access is a condition on the callers of a route.
type Access int

const (
	Owner  Access = iota // the peer's own token
	Keys                 // the tokens of API keys too; where the path has an {id}, for that key's own jobs
	Public               // nothing
	Socket               // nothing, but the route exists on the unix socket alone
)

// Limits of the body of a request, bytes.
const (
	DefaultLimit = 64 << 10
	Unlimited    = math.MaxInt64
)

// None is the request or the answer of a route that has none.
type None struct{}

// Route declares a call with a typed request and a JSON answer. An answer of type None has status 204.
type Route[Req, Resp any] struct {
	Pattern string // "GET /v1/jobs/{id}"
	Summary string // one sentence without its full stop
	Access  Access
	Limit   int64 // of the body, bytes; if zero, DefaultLimit
	// Location returns the path of the created object, which goes with status 201. It is optional; if nil, status 200.
	Location func(Resp) string
	// Failing reports whether an answer has status 503. It is optional; if nil, no answer has.
	Failing func(Resp) bool
}

// Raw declares a call with a handler that writes the answer itself: a file, a stream of events, an upgraded connection.
type Raw[Req any] struct {
	Pattern string
	Summary string
	Access  Access
	Limit   int64
	// Answer is the content type of the answer, or empty if it has no content.
	Answer string
	// Upgrade is the protocol that the connection is upgraded to, or empty.
	Upgrade string
}

// Declared is a Route or a Raw.
type Declared interface{ Operation() Operation }

// Operation describes a declared route.
type Operation struct {
	Pattern, Summary string
	Access           Access
	Limit            int64
	Status           int
	Upgrade          string
	Failing          bool // some answers have status 503

	request, answer reflect.Type // answer is nil for a Raw
	content         string       // type of a Raw's answer
}

// Method is the HTTP method.
func (o Operation) Method() string {
	method, _, _ := strings.Cut(o.Pattern, " ")
	return method
}

// Path is the path with its parameters in braces.
func (o Operation) Path() string {
	_, path, _ := strings.Cut(o.Pattern, " ")
	return path
}

// Answer is the type of the JSON of the answer, or nil for a Raw.
func (o Operation) Answer() reflect.Type { return o.answer }

// Operation describes the route.
func (r Route[Req, Resp]) Operation() Operation {
	o := Operation{
		Pattern: r.Pattern, Summary: r.Summary, Access: r.Access, Limit: limit(r.Limit), Status: http.StatusOK,
		Failing: r.Failing != nil, request: reflect.TypeFor[Req](), answer: reflect.TypeFor[Resp](),
	}
	switch {
	case r.Location != nil:
		o.Status = http.StatusCreated
	case o.answer == reflect.TypeFor[None]():
		o.Status = http.StatusNoContent
	}
	return o
}

// Operation describes the route.
func (r Raw[Req]) Operation() Operation {
	o := Operation{
		Pattern: r.Pattern, Summary: r.Summary, Access: r.Access, Limit: limit(r.Limit), Status: http.StatusOK,
		Upgrade: r.Upgrade, request: reflect.TypeFor[Req](), content: r.Answer,
	}
	switch {
	case r.Upgrade != "":
		o.Status = http.StatusSwitchingProtocols
	case r.Answer == "":
		o.Status = http.StatusNoContent
	}
	return o
}

func limit(n int64) int64 {
	if n == 0 {
		return DefaultLimit
	}
	return n
}

// Bound is a route with its handler. Only Bind makes one.
type Bound struct {
	Operation
	serve func(w http.ResponseWriter, r *http.Request) error
}

// Bind gives the route its implementation.
func (r Route[Req, Resp]) Bind(do func(context.Context, Req) (Resp, error)) Bound {
	o := r.Operation()
	return Bound{o, func(w http.ResponseWriter, q *http.Request) error {
		req, err := decode[Req](w, q, o.Limit)
		if err != nil {
			return err
		}
		resp, err := do(q.Context(), req)
		if err != nil {
			return err
		}
		w.Header().Set("Cache-Control", "no-store")
		if o.Status == http.StatusNoContent {
			w.WriteHeader(o.Status)
			return nil
		}
		b, err := json.Marshal(resp)
		if err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
		if r.Location != nil {
			w.Header().Set("Location", r.Location(resp))
		}
		w.Header().Set("Content-Type", jsonType)
		status := o.Status
		if r.Failing != nil && r.Failing(resp) {
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
		_, _ = w.Write(append(b, '\n')) // a caller that has gone needs no answer
		return nil
	}}
}

// Bind gives the route its implementation. An error that it returns is the answer, if none has begun.
func (r Raw[Req]) Bind(do func(w http.ResponseWriter, q *http.Request, req Req) error) Bound {
	o := r.Operation()
	return Bound{o, func(w http.ResponseWriter, q *http.Request) error {
		req, err := decode[Req](w, q, o.Limit)
		if err != nil {
			return err
		}
		return do(w, q, req)
	}}
}

// Guard answers a request to a route: it calls serve, unless it refuses the request, and writes the error.
type Guard func(o Operation, w http.ResponseWriter, r *http.Request, serve func(*http.Request) error)

// Mux returns a handler for all routes. Each request goes through guard. A route that is bound twice is an error.
func Mux(routes []Bound, guard Guard) (http.Handler, error) {
	mux, bound := http.NewServeMux(), map[string]bool{}
	for _, b := range routes {
		if bound[b.Pattern] {
			return nil, fmt.Errorf("route %s: bound twice", b.Pattern)
		}
		bound[b.Pattern] = true
		mux.HandleFunc(b.Pattern, func(w http.ResponseWriter, r *http.Request) {
			guard(b.Operation, w, r, func(r *http.Request) error { return b.serve(w, r) })
		})
	}
	return mux, nil
}

// Caller sends a request to a peer. The path has its query. An answer without success is returned as an error.
type Caller interface {
	Do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error)
}

// Call calls the route.
func (r Route[Req, Resp]) Call(ctx context.Context, c Caller, req Req) (resp Resp, err error) {
	answer, err := send(ctx, c, r.Pattern, req, nil)
	if err != nil {
		return resp, err
	}
	defer answer.Body.Close()
	if reflect.TypeFor[Resp]() == reflect.TypeFor[None]() {
		return resp, nil
	}
	if err := json.NewDecoder(answer.Body).Decode(&resp); err != nil {
		return resp, fmt.Errorf("reading the answer to %s: %w", r.Pattern, err)
	}
	return resp, nil
}

// Send calls the route and drops the answer.
func (r Route[Req, Resp]) Send(ctx context.Context, c Caller, req Req) error {
	_, err := r.Call(ctx, c, req)
	return err
}

// Do calls the route and returns the answer as it is. The caller closes its body.
func (r Raw[Req]) Do(ctx context.Context, c Caller, req Req) (*http.Response, error) {
	header := http.Header{}
	if r.Upgrade != "" {
		header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {r.Upgrade}}
	}
	return send(ctx, c, r.Pattern, req, header)
}

func send[Req any](ctx context.Context, c Caller, pattern string, req Req, header http.Header) (*http.Response, error) {
	method, path, _ := strings.Cut(pattern, " ")
	e, err := encode(path, req)
	if err != nil {
		return nil, fmt.Errorf("writing the request %s: %w", pattern, err)
	}
	for k, v := range header {
		e.header[k] = v
	}
	return c.Do(ctx, method, e.path, e.body, e.header)
}

// Error is an answer without success.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// failure is the JSON of an Error.
type failure struct {
	Error *Error `json:"error"`
}

// Fail answers with an error.
func Fail(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(failure{e})
}

// ReadError returns the error that an answer without success is.
func ReadError(resp *http.Response) error {
	var f failure
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || json.NewDecoder(bytes.NewReader(b)).Decode(&f) != nil || f.Error == nil {
		return fmt.Errorf("the peer answered %s", resp.Status)
	}
	f.Error.Status = resp.StatusCode
	return f.Error
}

// BadRequest returns an error of status 400.
func BadRequest(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}
