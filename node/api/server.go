package api

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
	book "github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/exclusive"
)

// Limits of the API.
const (
	maxJobBody  = 4 << 20
	maxBlobBody = 64 << 30
	headerWait  = 10 * time.Second
	idleConn    = 5 * time.Second // a client keeps a connection that it does not use
)

// Jobs is what the API asks of the buying side.
type Jobs interface {
	Submit(ctx context.Context, sub buyer.Submission) (buyer.Job, error)
	Rerun(ctx context.Context, id string, c job.Changes, once, key string) (buyer.Job, error)
	List(ctx context.Context, q buyer.Query) (buyer.Page, error)
	Quote(ctx context.Context, spec job.Job) (buyer.Quotation, error)
	Spending(days int, key string, all bool) buyer.Spend
	AddKey(ctx context.Context, name string, l buyer.Limits) (buyer.Key, string, error)
	RemoveKey(ctx context.Context, name string) error
	Keys() []buyer.Key
	KeyOf(token string) (name string, ok bool)
	Job(id string) (buyer.Job, error)
	Stop(ctx context.Context, id string) error
	// Trace returns the steps from after on, and a channel that closes when there are more.
	Trace(id string, after int) ([]buyer.Step, <-chan struct{}, error)
	Log(ctx context.Context, id string, rank int, follow bool, w io.Writer) error
	Receipts(ctx context.Context, id string) ([]buyer.LeaseAccount, error)
	// Probes are the records of the job's probes that are kept.
	Probes(ctx context.Context, id string) ([]exclusive.Record, error)
	Live
	Clusters
}

// Node is what the API asks of the peer itself.
type Node interface {
	Info(ctx context.Context) NodeInfo
	Peers() []PeerInfo
	// Reputation explains what this peer makes of another one, given by id or key.
	Reputation(peer string) (PeerReputation, error)
	// AnchoredFacts are the receipts of others that count for or against a peer.
	AnchoredFacts(ctx context.Context, peer string) (book.File, error)
	Offers(ctx context.Context, class string) ([]OfferInfo, error)
	Leases() []SoldLease
	Guarded() []GuardedJob
	Audits
	Rewards
	// Ping measures the way to a peer; count is how often.
	Ping(ctx context.Context, target string, count int) (PingResult, error)
	Operator
	// PutBlob and OpenBlob store and read a file, for an API key unless that is "".
	PutBlob(ctx context.Context, key string, r io.Reader) (string, int64, error)
	OpenBlob(key, cid string) (io.ReadCloser, int64, error)
}

// Endpoint is how to reach a peer's API; the peer writes it to its home.
type Endpoint struct {
	URL string `json:"url"`
	// Socket is the unix socket that leads to URL; empty: it is reached over TCP.
	Socket string `json:"socket,omitempty"`
	Token  string `json:"token"`
	PID    int    `json:"pid"`
}

// HTTP makes a client that reaches the API at URL.
func (e Endpoint) HTTP() *http.Client {
	if e.Socket == "" {
		return &http.Client{}
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
		},
		IdleConnTimeout: idleConn,
	}}
}

// Server serves the API.
type Server struct {
	jobs   Jobs
	node   Node
	blocks Blocks
	proofs Evidence // nil for a light peer
	log    *slog.Logger
	token  string
	path   string // of the endpoint file
	ln     door

	useMu sync.Mutex
	using int       // requests under way
	used  time.Time // when the last one ended; the start before the first
}

// Idle is for how long nobody has asked anything; 0 while somebody does.
func (s *Server) Idle() time.Duration {
	s.useMu.Lock()
	defer s.useMu.Unlock()
	if s.using > 0 {
		return 0
	}
	return time.Since(s.used)
}

// use counts a request until the returned function is called.
func (s *Server) use() (done func()) {
	s.useMu.Lock()
	defer s.useMu.Unlock()
	s.using++
	return func() {
		s.useMu.Lock()
		defer s.useMu.Unlock()
		s.using--
		s.used = time.Now()
	}
}

// Listen opens the API and writes the endpoint file: on addr, which must be a loopback address, or without one on a unix socket
// beside that file. It serves nothing before Run. A light peer has no proofs: nil.
func Listen(addr, path string, jobs Jobs, node Node, blocks Blocks, proofs Evidence, log *slog.Logger) (*Server, error) {
	var token [24]byte
	if _, err := rand.Read(token[:]); err != nil {
		return nil, err
	}
	ln, err := open(addr, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("opening the local api: %w", err)
	}
	s := &Server{jobs: jobs, node: node, blocks: blocks, proofs: proofs, log: log, token: hex.EncodeToString(token[:]), path: path, ln: ln, used: time.Now()}
	ep := ln.endpoint()
	ep.Token, ep.PID = s.token, os.Getpid()
	b, err := json.Marshal(ep)
	if err == nil {
		tmp := path + ".new"
		if err = os.WriteFile(tmp, b, 0o600); err == nil {
			err = os.Rename(tmp, path)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing %s: %w", filepath.Base(path), err), ln.Close())
	}
	return s, nil
}

// Where is the socket or the URL where the API listens.
func (s *Server) Where() string {
	if ep := s.ln.endpoint(); ep.Socket == "" {
		return ep.URL
	}
	return s.ln.socket
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if err := serveHTTP(ctx, s.ln.Listener, s.handler(), s.log); err != nil {
		return fmt.Errorf("serving the local api: %w", err)
	}
	return errors.Join(os.Remove(s.path), s.ln.gone())
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range s.liveRoutes() {
		mux.Handle(pattern, s.guard(h))
	}
	if m, ok := s.node.(Metered); ok && s.ln.socket != "" { // over TCP whoever is on this machine could read them
		mux.Handle("GET /metrics", m.Metrics())
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	for pattern, h := range s.operatorRoutes() {
		mux.Handle(pattern, s.guard(h))
	}
	routes := map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/blobs":             s.putBlob,
		"GET /v1/blobs/{cid}":        s.getBlob,
		"GET /v1/jobs/{id}":          s.get,
		"DELETE /v1/jobs/{id}":       s.stop,
		"GET /v1/jobs/{id}/events":   s.events,
		"GET /v1/jobs/{id}/why":      s.why,
		"GET /v1/jobs/{id}/logs":     s.logs,
		"GET /v1/jobs/{id}/receipts": s.receipts,
		"GET /v1/jobs/{id}/probes":   s.probes,
		"GET /v1/node":               func(w http.ResponseWriter, r *http.Request) error { return reply(w, s.node.Info(r.Context())) },
		"GET /v1/peers":              func(w http.ResponseWriter, _ *http.Request) error { return reply(w, s.node.Peers()) },
		"GET /v1/peers/{peer}":       s.reputation,
		"GET /v1/peers/{peer}/facts": s.anchoredFacts,
		"POST /v1/ping":              s.ping,
		"GET /v1/offers":             s.offers,
		"GET /v1/guarded":            func(w http.ResponseWriter, _ *http.Request) error { return reply(w, s.node.Guarded()) },
		"GET /v1/leases":             func(w http.ResponseWriter, _ *http.Request) error { return reply(w, s.node.Leases()) },
	}
	maps.Copy(routes, s.jobRoutes())
	maps.Copy(routes, s.clusterRoutes())
	maps.Copy(routes, s.evidenceRoutes())
	maps.Copy(routes, s.auditRoutes())
	maps.Copy(routes, s.rewardRoutes())
	for pattern, h := range routes {
		mux.Handle(pattern, s.guard(h))
	}
	return mux
}

// guard checks the token and writes errors.
func (s *Server) guard(h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.use()()
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if name, key := s.jobs.KeyOf(token); ok && key {
			admitted, err := s.admit(r, name)
			if err != nil {
				fail(w, asError(err))
				return
			}
			r = admitted
		} else if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
			fail(w, &Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: "the request does not carry this peer's token",
				Hint: "read the token from api.json in the peer's home directory"})
			return
		}
		if err := h(w, r); err != nil && r.Context().Err() == nil {
			fail(w, asError(err))
		}
	})
}

func reply(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func (s *Server) putBlob(w http.ResponseWriter, r *http.Request) error {
	c, n, err := s.node.PutBlob(r.Context(), keyName(r.Context()), http.MaxBytesReader(w, r.Body, maxBlobBody))
	if err != nil {
		return err
	}
	return reply(w, buyer.Blob{CID: c, Size: n, Tree: r.URL.Query().Get("tree") == "1"})
}

func (s *Server) getBlob(w http.ResponseWriter, r *http.Request) error {
	f, n, err := s.node.OpenBlob(keyName(r.Context()), r.PathValue("cid"))
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	if _, err := io.Copy(w, f); err != nil {
		panic(http.ErrAbortHandler) // the answer has begun: only a broken connection says that it is not whole
	}
	return nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	j, err := s.jobs.Job(r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, j)
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) error {
	if err := s.jobs.Stop(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) why(w http.ResponseWriter, r *http.Request) error {
	steps, _, err := s.jobs.Trace(r.PathValue("id"), 0)
	if err != nil {
		return err
	}
	return reply(w, steps)
}

// events streams the trace, each step with its number as event id, and the job
// itself whenever it changed, until it has ended.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	after, err := number(r, "after")
	if err != nil {
		return err
	}
	follow := r.URL.Query().Get("follow") == "1"
	if _, err := s.jobs.Job(id); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	for {
		steps, more, err := s.jobs.Trace(id, after)
		if err != nil {
			return nil // the stream has begun; its end is the answer
		}
		for _, st := range steps {
			b, err := json.Marshal(st)
			if err != nil {
				return nil
			}
			after++
			fmt.Fprintf(w, "id: %d\nevent: step\ndata: %s\n\n", after, b)
		}
		j, err := s.jobs.Job(id)
		if err != nil {
			return nil
		}
		b, err := json.Marshal(j)
		if err != nil {
			return nil
		}
		if _, err := fmt.Fprintf(w, "event: job\ndata: %s\n\n", b); err != nil {
			return nil
		}
		if err := rc.Flush(); err != nil || !follow || (j.State.Ended() && len(steps) == 0) {
			return nil
		}
		if j.State.Ended() {
			continue // take what came in between
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-more:
		}
	}
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	rank, err := number(r, "rank")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/vnd.starling.log")
	f := &flusher{w: w, rc: http.NewResponseController(w)}
	err = s.jobs.Log(r.Context(), r.PathValue("id"), rank, r.URL.Query().Get("follow") == "1", f)
	if err != nil && f.begun {
		panic(http.ErrAbortHandler) // frames have gone out: only a broken connection says that some are missing
	}
	return err
}

func (s *Server) receipts(w http.ResponseWriter, r *http.Request) error {
	acc, err := s.jobs.Receipts(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, acc)
}

func (s *Server) offers(w http.ResponseWriter, r *http.Request) error {
	o, err := s.node.Offers(r.Context(), r.URL.Query().Get("class"))
	if err != nil {
		return err
	}
	return reply(w, o)
}

func number(r *http.Request, name string) (int, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: fmt.Sprintf("%s=%q is not a number from 0", name, v)}
	}
	return n, nil
}

// flusher sends every write on at once, so that a log is live.
type flusher struct {
	w     io.Writer
	rc    *http.ResponseController
	begun bool
}

func (f *flusher) Write(b []byte) (int, error) {
	f.begun = true
	n, err := f.w.Write(b)
	if err == nil {
		err = f.rc.Flush()
	}
	return n, err
}

const hintAway = "the provider may be back in a moment; a job whose provider stays away is taken to another"

// asError classes an error of the peer for the caller.
func asError(err error) *Error {
	var e *Error
	var big *http.MaxBytesError
	var refused *stream.Refused
	var malformed *stream.Malformed
	var said *live.Error
	var relayed *stream.Relayed
	switch {
	case errors.As(err, &e):
		return e
	case jobError(err) != nil:
		return jobError(err)
	case errors.As(err, &big):
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: err.Error()}
	case errors.Is(err, buyer.ErrNoJob), errors.Is(err, os.ErrNotExist):
		return &Error{Status: http.StatusNotFound, Code: "not_found", Message: err.Error(), Hint: "`starling ps` lists the jobs of this peer"}
	case errors.Is(err, buyer.ErrNotRunning):
		return &Error{Status: http.StatusConflict, Code: "not_running", Message: err.Error()}
	case errors.As(err, &refused):
		return &Error{Status: http.StatusConflict, Code: refused.Code, Message: refused.Reason}
	case errors.As(err, &malformed):
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: malformed.Reason}
	case errors.As(err, &said), errors.Is(err, live.ErrCopy), errors.Is(err, live.ErrRoom):
		return &Error{Status: http.StatusUnprocessableEntity, Code: "failed", Message: err.Error()}
	case errors.As(err, &relayed):
		return &Error{Status: http.StatusBadGateway, Code: CodeUnreachable, Message: err.Error(), Hint: stream.RelayAdvice}
	case errors.Is(err, stream.ErrUnreachable), errors.Is(err, live.ErrCut):
		return &Error{Status: http.StatusBadGateway, Code: CodeUnreachable, Message: err.Error(), Hint: hintAway}
	case errors.Is(err, blob.ErrNotFound):
		return &Error{Status: http.StatusNotFound, Code: "not_found", Message: err.Error()}
	case errors.Is(err, blob.ErrBadCID):
		return &Error{Status: http.StatusBadRequest, Code: "bad_cid", Message: err.Error()}
	case errors.Is(err, blob.ErrFull), errors.Is(err, blob.ErrDiskFull):
		return &Error{Status: http.StatusInsufficientStorage, Code: CodeFull, Message: err.Error()}
	case errors.Is(err, store.ErrFull):
		return &Error{Status: http.StatusInsufficientStorage, Code: CodeFull, Message: err.Error()}
	case errors.Is(err, store.ErrBroken), errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrClosed):
		return &Error{Status: http.StatusInternalServerError, Code: CodePeer, Message: err.Error(), Hint: "the peer's own log says more"}
	case errors.Is(err, buyer.ErrFunds), errors.Is(err, slots.ErrUnknown):
		return &Error{Status: http.StatusPaymentRequired, Code: CodePayment, Message: err.Error(), Hint: "`starling node` shows the chain's state and the balance"}
	case errors.Is(err, buyer.ErrRefused):
		return &Error{Status: http.StatusUnprocessableEntity, Code: "refused", Message: err.Error()}
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal", Message: err.Error()}
}

func fail(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(map[string]*Error{"error": e})
}
