package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/p2p/stream"
)

// ShellProtocol is what a connection to a running program is upgraded to. What follows are the frames of node/live, or a
// forwarded port's own bytes.
const ShellProtocol = "starling-shell"

const (
	maxProgram = 256 << 10
	// relayedHeader says of a stream over a relay what will be the matter when it breaks.
	relayedHeader = "Starling-Relayed"
	// These say why the archive before them is not whole, as an Error does.
	errorTrailer, codeTrailer, hintTrailer = "Starling-Error", "Starling-Error-Code", "Starling-Error-Hint"
	tarType                                = "application/x-tar"
)

// Live is what the API asks of the buying side about programs that run.
type Live interface {
	Attach(ctx context.Context, id string, rank int, p buyer.Program) (live.Conn, error)
	Forward(ctx context.Context, id string, rank int, port uint16) (live.Conn, error)
	CopyOut(ctx context.Context, id string, rank int, file string, w io.Writer) error
	CopyIn(ctx context.Context, id string, rank int, file string, directory bool, r io.ReadCloser) error
	Pause(ctx context.Context, id string) (buyer.Job, error)
	Resume(ctx context.Context, id string) (buyer.Job, error)
	Extend(ctx context.Context, id string, by time.Duration, budget market.Amount) (buyer.Extension, error)
}

// ExtendRequest is how much longer a job is to run, and on what budget.
type ExtendRequest struct {
	By     job.Span      `json:"by"`
	Budget market.Amount `json:"budget,omitempty"` // base units; 0: as it is, and in full where it was the most the job could cost
}

func (s *Server) liveRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/jobs/{id}/exec":    s.exec,
		"POST /v1/jobs/{id}/forward": s.forward,
		"GET /v1/jobs/{id}/files":    s.copyOut,
		"PUT /v1/jobs/{id}/files":    s.copyIn,
		"POST /v1/jobs/{id}/pause":   s.pause(Live.Pause),
		"POST /v1/jobs/{id}/resume":  s.pause(Live.Resume),
		"POST /v1/jobs/{id}/extend":  s.extend,
	}
}

func (s *Server) pause(do func(Live, context.Context, string) (buyer.Job, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		j, err := do(s.jobs, r.Context(), r.PathValue("id"))
		if err != nil {
			return err
		}
		return reply(w, j)
	}
}

func (s *Server) extend(w http.ResponseWriter, r *http.Request) error {
	var req ExtendRequest
	if err := body(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	x, err := s.jobs.Extend(r.Context(), r.PathValue("id"), time.Duration(req.By), req.Budget)
	if err != nil {
		return err
	}
	return reply(w, x)
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	rank, err := number(r, "rank")
	if err != nil {
		return err
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProgram))
	if err != nil {
		return err
	}
	var p buyer.Program
	if err := json.Unmarshal(b, &p); err != nil {
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "reading what to run: " + err.Error()}
	}
	if len(p.Args) == 0 {
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "args: no program is named"}
	}
	return s.upgrade(w, r, func(ctx context.Context) (live.Conn, error) { return s.jobs.Attach(ctx, r.PathValue("id"), rank, p) })
}

func (s *Server) forward(w http.ResponseWriter, r *http.Request) error {
	rank, err := number(r, "rank")
	if err != nil {
		return err
	}
	port, err := number(r, "port")
	if err != nil {
		return err
	}
	if port < 1 || port > 65535 {
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: fmt.Sprintf("port=%d is not from 1 to 65535", port)}
	}
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxProgram)); err != nil {
		return err
	}
	return s.upgrade(w, r, func(ctx context.Context) (live.Conn, error) {
		return s.jobs.Forward(ctx, r.PathValue("id"), rank, uint16(port))
	})
}

// upgrade opens the stream and joins it with the caller's connection. The body has been read.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, open func(context.Context) (live.Conn, error)) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), ShellProtocol) {
		return &Error{Status: http.StatusUpgradeRequired, Code: "upgrade", Message: "this needs a connection that becomes a stream",
			Hint: "send the headers Connection: Upgrade and Upgrade: " + ShellProtocol}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	conn, err := open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Time{})
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + ShellProtocol + "\r\n"
	if over, ok := conn.(interface{ Relayed() *stream.Relayed }); ok && over.Relayed() != nil {
		head += relayedHeader + ": " + live.Clean(over.Relayed().Error()) + "\r\n"
	}
	if _, err := io.WriteString(raw, head+"\r\n"); err != nil {
		return nil // the caller is gone
	}
	if err := live.Splice(ctx, hijacked{raw, buffered.Reader}, conn); err != nil {
		s.log.Info("a stream to a program broke off", "job", r.PathValue("id"), "err", err)
	}
	return nil
}

// hijacked is a connection of which a part was read ahead.
type hijacked struct {
	net.Conn
	r *bufio.Reader
}

// Read reads around the server once what it has read ahead is taken: it would take the end of one half for the caller's.
func (h hijacked) Read(p []byte) (int, error) {
	if n := h.r.Buffered(); n > 0 {
		return h.r.Read(p[:min(n, len(p))])
	}
	return h.Conn.Read(p)
}

// Abort resets the connection: the caller must not take what it has for all.
func (h hijacked) Abort() {
	if c, ok := h.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = h.Close()
}

func (h hijacked) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (s *Server) copyOut(w http.ResponseWriter, r *http.Request) error {
	rank, err := number(r, "rank")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", tarType)
	w.Header().Set("Trailer", errorTrailer+", "+codeTrailer+", "+hintTrailer)
	begun := &countWriter{w: w}
	err = s.jobs.CopyOut(r.Context(), r.PathValue("id"), rank, r.URL.Query().Get("path"), begun)
	if err != nil && begun.n > 0 {
		// The archive is cut, which whoever unpacks it sees; the trailers say why.
		e := asError(err)
		w.Header().Set(errorTrailer, live.Clean(e.Message))
		w.Header().Set(codeTrailer, e.Code)
		w.Header().Set(hintTrailer, live.Clean(e.Hint))
		return nil
	}
	if err != nil {
		w.Header().Del("Trailer")
	}
	return err
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (s *Server) copyIn(w http.ResponseWriter, r *http.Request) error {
	rank, err := number(r, "rank")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	body, rest := detach(r.Body)
	err = s.jobs.CopyIn(r.Context(), r.PathValue("id"), rank, q.Get("path"), q.Get("directory") == "1", body)
	_ = body.Close()
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // or the answer would wait for the rest of the body
	if err != nil {
		fail(w, asError(err))
		_ = rc.Flush()
	}
	// Closing the connection under the caller's writes would reset it, and the answer would be lost.
	if rc.SetReadDeadline(time.Now().Add(drainTime)) == nil {
		<-rest
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// What is read of a body that nobody wants any more.
const (
	maxDrained = 256 << 20
	drainTime  = 2 * time.Second
)

// detach gives a body whose Close ends a Read that waits for a caller who sends no more. What is not read by then is
// taken in and dropped until rest is closed.
func detach(body io.Reader) (detached io.ReadCloser, rest <-chan struct{}) {
	r, w := io.Pipe()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, err := io.Copy(w, body)
		if errors.Is(err, io.ErrClosedPipe) {
			_, _ = io.CopyN(io.Discard, body, maxDrained)
		}
		_ = w.CloseWithError(err)
	}()
	return r, over
}

// Attach runs a program beside that of a rank. The frames on the connection are those of node/live.
func (c *Client) Attach(ctx context.Context, id string, rank int, p buyer.Program) (live.Conn, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return c.upgrade(ctx, "/v1/jobs/"+url.PathEscape(id)+"/exec?rank="+strconv.Itoa(rank), b)
}

// Forward connects to a TCP port of a rank's program.
func (c *Client) Forward(ctx context.Context, id string, rank int, port uint16) (live.Conn, error) {
	return c.upgrade(ctx, fmt.Sprintf("/v1/jobs/%s/forward?rank=%d&port=%d", url.PathEscape(id), rank, port), nil)
}

// upgrade makes the connection of a request a stream, which ends with ctx.
func (c *Client) upgrade(ctx context.Context, path string, body []byte) (live.Conn, error) {
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {ShellProtocol}}
	resp, err := c.do(context.WithoutCancel(ctx), http.MethodPost, path, bytes.NewReader(body), header)
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(live.Conn)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		resp.Body.Close()
		return nil, fmt.Errorf("the peer answered %s instead of a stream", resp.Status)
	}
	return &upgraded{Conn: conn, ctx: ctx, relayed: live.Clean(resp.Header.Get(relayedHeader)), stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
}

type upgraded struct {
	live.Conn
	ctx     context.Context
	relayed string // what is said when it breaks; "": it goes over no relay
	stop    func() bool

	mu    sync.Mutex // one write at a time
	wrote error      // why the last one failed
}

// Read tells a broken connection from its end: of two calls under way the system tells one of the break, and the other of an end.
func (u *upgraded) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	if err == io.EOF {
		wrote := make(chan error, 1)
		go func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			wrote <- u.wrote
		}()
		select {
		case failed := <-wrote:
			if failed != nil {
				err = failed
			}
		case <-time.After(breakTime): // it writes on: an end it was
		case <-u.ctx.Done():
		}
	}
	return n, u.broken(err)
}

// breakTime is how long a write takes at the most to fail on a connection that broke.
const breakTime = time.Second

func (u *upgraded) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := u.Conn.Write(p)
	if err != nil {
		u.wrote = err
	}
	return n, u.broken(err)
}

// broken gives a stream that broke the reason that is likely.
func (u *upgraded) broken(err error) error {
	if err == nil || err == io.EOF || u.ctx.Err() != nil {
		return err
	}
	e := &Error{Status: http.StatusBadGateway, Code: CodeUnreachable, Message: "the connection was reset", Hint: hintAway}
	if u.relayed != "" {
		e.Message, e.Hint = u.relayed, stream.RelayAdvice
	}
	return e
}

func (u *upgraded) Close() error {
	u.stop()
	return u.Conn.Close()
}

// CopyOut writes a tar archive of a file or directory of a rank's program to w.
func (c *Client) CopyOut(ctx context.Context, id string, rank int, file string, w io.Writer) error {
	resp, err := c.do(ctx, http.MethodGet, filesPath(id, rank, file), nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("copying %s: %w", file, err)
	}
	if text := resp.Trailer.Get(errorTrailer); text != "" {
		said := func(name string) string { return live.Clean(resp.Trailer.Get(name)) }
		return &Error{Status: http.StatusBadGateway, Code: said(codeTrailer), Message: live.Clean(text), Hint: said(hintTrailer)}
	}
	return nil
}

// CopyIn unpacks a tar archive beneath a path of a rank's program, as [buyer.Buyer.CopyIn] does.
func (c *Client) CopyIn(ctx context.Context, id string, rank int, file string, directory bool, r io.Reader) error {
	path := filesPath(id, rank, file)
	if directory {
		path += "&directory=1"
	}
	resp, err := c.do(ctx, http.MethodPut, path, r, http.Header{"Content-Type": {tarType}})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func filesPath(id string, rank int, file string) string {
	return "/v1/jobs/" + url.PathEscape(id) + "/files?rank=" + strconv.Itoa(rank) + "&path=" + url.QueryEscape(file)
}

// Pause freezes a job's programs.
func (c *Client) Pause(ctx context.Context, id string) (buyer.Job, error) {
	return c.post(ctx, id, "pause")
}

// Resume lets a paused job go on.
func (c *Client) Resume(ctx context.Context, id string) (buyer.Job, error) {
	return c.post(ctx, id, "resume")
}

// Extend gives a job more time.
func (c *Client) Extend(ctx context.Context, id string, req ExtendRequest) (x buyer.Extension, err error) {
	return x, c.send(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/extend", req, &x, nil)
}

func (c *Client) post(ctx context.Context, id, what string) (j buyer.Job, err error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/"+what, nil, nil)
	if err != nil {
		return j, err
	}
	defer resp.Body.Close()
	return j, json.NewDecoder(resp.Body).Decode(&j)
}
