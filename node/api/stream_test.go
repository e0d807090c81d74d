package api

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
)

// upgrades answers with a stream that serve has, after the headers.
func upgrades(t *testing.T, header string, serve func(net.Conn)) *Client {
	t.Helper()
	return peerOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != ShellProtocol || r.Header.Get("Connection") != "Upgrade" {
			t.Errorf("%s with %v: no request for a stream", r.URL, r.Header)
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+ShellProtocol+"\r\n"+header+"\r\n")
		serve(conn)
	})
}

// The bytes of a forwarded port go both ways, and an end is an end.
func TestForward(t *testing.T) {
	t.Parallel()
	c := upgrades(t, "", func(conn net.Conn) {
		end := live.AcceptTunnel(conn)
		_, _ = io.CopyN(end, end, 5)
		_ = end.CloseWrite()
	})
	conn, err := c.Forward(t.Context(), "j1", 2, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "hello" {
		t.Errorf("got %q, %v", b, err)
	}
}

// A stream that is reset is a provider that cannot be reached; over a relay the relay's words are the reason, and they
// drive no terminal.
func TestForwardReset(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]Error{
		"": {Status: http.StatusBadGateway, Code: CodeUnreachable, Message: "the connection was reset", Hint: HintAway},
		RelayedHeader + ": relay 12D3\x1b[2J ends it\r\n": {Status: http.StatusBadGateway, Code: CodeUnreachable, Message: "relay 12D3", Hint: HintRelay},
	} {
		c := upgrades(t, strings.ReplaceAll(header, "\x1b", "\u009b"), func(conn net.Conn) {
			one := make([]byte, 1)
			_, _ = conn.Read(one)
			_ = conn.(*net.TCPConn).SetLinger(0)
		})
		conn, err := c.Forward(t.Context(), "j1", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Status != want.Status || e.Code != want.Code || e.Hint != want.Hint || !strings.HasPrefix(e.Message, want.Message) ||
			strings.ContainsAny(e.Message, "\x1b\u009b") {
			t.Errorf("got %+v (%v), want %+v", e, err, want)
		}
		conn.Close()
	}
}

// A stream that the peer gave up has the peer's reason; one that ends without a last frame broke.
func TestForwardBreaks(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]func(net.Conn){
		"the provider reset it":    func(conn net.Conn) { live.AcceptTunnel(conn).Fail(errors.New("the provider reset it")) },
		"the connection was reset": func(conn net.Conn) { _ = conn.Close() },
	} {
		c := upgrades(t, "", func(conn net.Conn) {
			_, _ = live.AcceptTunnel(conn).Write([]byte("a part"))
			end(conn)
		})
		conn, err := c.Forward(t.Context(), "j1", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeUnreachable || e.Message != want || string(b) != "a part" {
			t.Errorf("%q, %v, want %s", b, err, want)
		}
		conn.Close()
	}
}

// A stream ends with its context, and that is no trouble of the provider's.
func TestAttachCancelled(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c := upgrades(t, "", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn); close(ended) })
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := c.Attach(ctx, "j1", 0, live.Program{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = conn.Read(make([]byte, 1))
	if _, ok := errors.AsType[*Error](err); err == nil || ok {
		t.Errorf("got %v", err)
	}
	<-ended
}

// An answer that is no stream is refused, with or without the API's error.
func TestNoStream(t *testing.T) {
	t.Parallel()
	c := peerOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	if _, err := c.Forward(t.Context(), "j1", 0, 1); err == nil || err.Error() != "the peer answered 200 OK instead of a stream" {
		t.Errorf("got %v", err)
	}
	c = peerOf(t, func(w http.ResponseWriter, _ *http.Request) {
		route.Fail(w, &Error{Status: http.StatusConflict, Code: "not_running", Message: "rank 0 is done"})
	})
	_, err := c.Attach(t.Context(), "j1", 0, live.Program{})
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != http.StatusConflict || e.Code != "not_running" {
		t.Errorf("got %v", err)
	}
}

// A copy is complete, or an error: by the trailers of the peer, by a connection that breaks, or by the writer.
func TestCopyOut(t *testing.T) {
	t.Parallel()
	c := peerOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", ErrorTrailer+", "+CodeTrailer+", "+HintTrailer)
		_, _ = w.Write([]byte("half a tar"))
		switch r.URL.Query().Get("path") {
		case "/lost":
			w.Header().Set(ErrorTrailer, "the provider\tis gone")
			w.Header().Set(CodeTrailer, CodeUnreachable)
			w.Header().Set(HintTrailer, "wait")
		case "/cut":
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	var b bytes.Buffer
	if err := c.CopyOut(t.Context(), "j1", 1, "/whole", &b); err != nil || b.String() != "half a tar" {
		t.Errorf("%q, %v", b.String(), err)
	}
	err := c.CopyOut(t.Context(), "j1", 1, "/lost", io.Discard)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeUnreachable || e.Hint != "wait" || !strings.HasPrefix(e.Message, "the provider") ||
		strings.Contains(e.Message, "\t") {
		t.Errorf("got %+v, %v", e, err)
	}
	if err := c.CopyOut(t.Context(), "j1", 1, "/cut", io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), "copying /cut: ") {
		t.Errorf("got %v", err)
	}
	full := errors.New("no space")
	if err := c.CopyOut(t.Context(), "j1", 1, "/whole", failing{full}); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

// An archive that cannot be made is its own error, and the peer's refusal of one is the peer's.
func TestCopyIn(t *testing.T) {
	t.Parallel()
	c := peerOf(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Method + " " + r.URL.RequestURI(); got != "PUT /v1/jobs/j1/files?directory=1&path=%2Fin%2Fa+b&rank=3" {
			t.Errorf("asked for %s", got)
		}
		h, err := tar.NewReader(r.Body).Next()
		if err != nil || h.Name != "x" {
			route.Fail(w, &Error{Status: http.StatusBadRequest, Code: "bad_tar", Message: "not a tar"})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "x", Mode: 0o600}), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := c.CopyIn(t.Context(), "j1", 3, "/in/a b", true, &b); err != nil {
		t.Error(err)
	}
	err := c.CopyIn(t.Context(), "j1", 3, "/in/a b", true, strings.NewReader("no"))
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != "bad_tar" {
		t.Errorf("got %v", err)
	}
}

// arrives checks that a request of a route comes to its handler as it was sent.
func arrives[Req, Resp any](t *testing.T, r route.Route[Req, Resp], want Req) {
	t.Helper()
	var got Req
	bound := r.Bind(func(_ context.Context, req Req) (resp Resp, err error) { got = req; return resp, nil })
	h, err := route.Mux([]route.Bound{bound}, func(_ route.Operation, w http.ResponseWriter, q *http.Request, serve func(*http.Request) error) {
		if err := serve(q); err != nil {
			t.Errorf("%s: %v", r.Pattern, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Send(t.Context(), peerOf(t, h.ServeHTTP), want) // an empty answer need not be a valid one
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v: got %+v, want %+v", r.Pattern, err, got, want)
	}
}

// Requests of the declared routes arrive with every field, hostile ids too.
func TestRequests(t *testing.T) {
	t.Parallel()
	const odd = "a/../b c?d=e&f#%2F"
	n, name, price, amount := uint32(7), "", market.Price(1<<63), market.Amount(0)
	at := time.Date(2026, 3, 1, 2, 3, 4, 5, time.UTC)
	arrives(t, GetJob, ByID{odd})
	arrives(t, StopJob, ByID{odd})
	arrives(t, RemoveKey, ByName{odd})
	arrives(t, ListJobs, JobsQuery{After: odd, Limit: 3, State: "open", Name: "ä", Since: at, Key: &name})
	arrives(t, RerunJob, Rerun{ID: odd, Once: "once", Body: job.Changes{Count: &n, MaxPrice: &price, Budget: &amount}})
	arrives(t, ExtendJob, Extend{ID: odd, Body: ExtendRequest{By: job.Span(time.Hour), Budget: 1<<64 - 1}})
	arrives(t, ScaleCluster, Scale{ID: odd, Body: ScaleRequest{Size: 1<<32 - 1, Budget: 5}})
	arrives(t, GetSpending, Days{Days: 366})
	arrives(t, AddKey, NewKey{Name: odd, Limits: spend.Limits{PerJob: 1, PerDay: 1<<64 - 1}})
	arrives(t, AddBlock, Block{Peer: odd, Body: block.Entry{Peer: sign.Key{1}}})
	arrives(t, ListOffers, ByClass{Class: "gpu/h100"})
	arrives(t, GetProof, ByHash{Hash: sign.Hash{1}, Peer: sign.Key{2}})
	arrives(t, WatchUnit, Watched{Provider: sign.Key{1}, Unit: market.UnitID{2}})
	arrives(t, UnwatchUnit, Watched{Provider: sign.Key{1}, Unit: market.UnitID{2}})
	arrives(t, PingPeer, PingRequest{Peer: netip.IPv6Loopback().String(), Count: MaxPings})
	arrives(t, ResumeOffers, ResumeRequest{Devices: []string{odd, ""}})
	arrives(t, PriceOffer, PriceRequest{Class: "cpu", Price: price})
	arrives(t, SubmitJob, Submit{Once: "once", Body: submission(t, "")})
}

// A peer out of order answers with status 503 and its problems.
func TestHealthFails(t *testing.T) {
	t.Parallel()
	disk := Fault{Service: "disk", Problem: "it is full", Remedy: "make room"}
	if text := disk.String(); text != "disk: it is full; make room" {
		t.Errorf("got %q", text)
	}
	for _, want := range []Health{{Healthy: true, Problems: []Fault{}}, {Problems: []Fault{disk}}} {
		bound := GetHealth.Bind(func(context.Context, None) (Health, error) { return want, nil })
		h, err := route.Mux([]route.Bound{bound}, func(_ route.Operation, _ http.ResponseWriter, q *http.Request, serve func(*http.Request) error) {
			if err := serve(q); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/health", nil))
		var got Health
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || (w.Code == http.StatusOK) != want.Healthy || !reflect.DeepEqual(got, want) {
			t.Errorf("status %d, %+v, %v, want %+v", w.Code, got, err, want)
		}
	}
}
