package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/api/server/failure"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/p2p/stream"
)

// Programs is the buying side of programs that run.
type Programs interface {
	Attach(ctx context.Context, id string, rank int, p live.Program) (live.Conn, error)
	Forward(ctx context.Context, id string, rank int, port uint16) (live.Conn, error)
	CopyOut(ctx context.Context, id string, rank int, file string, w io.Writer) error
	CopyIn(ctx context.Context, id string, rank int, file string, directory bool, r io.ReadCloser) error
}

// BindPrograms binds the routes that reach into running programs.
func BindPrograms(of Programs, log *slog.Logger) []route.Bound {
	return []route.Bound{
		api.ExecProgram.Bind(func(w http.ResponseWriter, r *http.Request, q api.Exec) error {
			if len(q.Body.Args) == 0 {
				return route.BadRequest("bad_request", "args: no program is named")
			}
			open := func(ctx context.Context) (live.Conn, error) { return of.Attach(ctx, q.ID, q.Rank, q.Body) }
			return upgrade(w, r, log, open, func(caller hijacked) io.ReadWriteCloser { return caller })
		}),
		api.ForwardPort.Bind(func(w http.ResponseWriter, r *http.Request, q api.Forward) error {
			if q.Port < 1 || q.Port > 65535 {
				return route.BadRequest("bad_request", "port=%d is not from 1 to 65535", q.Port)
			}
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, api.MaxProgram)); err != nil {
				return err
			}
			open := func(ctx context.Context) (live.Conn, error) {
				return of.Forward(ctx, q.ID, q.Rank, uint16(q.Port))
			}
			tunnel := func(caller hijacked) io.ReadWriteCloser { return live.AcceptTunnel(caller) }
			return upgrade(w, r, log, open, tunnel)
		}),
		api.GetFiles.Bind(func(w http.ResponseWriter, r *http.Request,
			q api.Files) error {
			return copyOut(of, w, r, q)
		}),
		api.PutFiles.Bind(func(w http.ResponseWriter, r *http.Request,
			q api.Unpack) error {
			return copyIn(of, w, r, q)
		}),
	}
}

// Lifetimes pauses, resumes and extends jobs.
type Lifetimes interface {
	Pause(ctx context.Context, id string) (record.Job, error)
	Resume(ctx context.Context, id string) (record.Job, error)
	Extend(ctx context.Context, id string, by time.Duration, budget market.Amount) (record.Extension, error)
}

// BindLifetimes binds the routes that change how long a job runs.
func BindLifetimes(of Lifetimes) []route.Bound {
	return []route.Bound{
		api.PauseJob.Bind(byID(of.Pause)),
		api.ResumeJob.Bind(byID(of.Resume)),
		api.ExtendJob.Bind(func(ctx context.Context, q api.Extend) (record.Extension, error) {
			return of.Extend(ctx, q.ID, time.Duration(q.Body.By), q.Body.Budget)
		}),
	}
}

// upgrade opens the stream and joins it with the caller's connection, in frames. The body has been read.
func upgrade(w http.ResponseWriter, r *http.Request, log *slog.Logger,
	open func(context.Context) (live.Conn, error), framed func(hijacked) io.ReadWriteCloser) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), api.ShellProtocol) {
		return &api.Error{
			Status: http.StatusUpgradeRequired, Code: "upgrade",
			Message: "this needs a connection that becomes a stream",
			Hint:    "send the headers Connection: Upgrade and Upgrade: " + api.ShellProtocol,
		}
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
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + api.ShellProtocol + "\r\n"
	if over, ok := conn.(interface{ Relayed() *stream.Relayed }); ok && over.Relayed() != nil {
		head += api.RelayedHeader + ": " + live.Clean(over.Relayed().Error()) + "\r\n"
	}
	if _, err := io.WriteString(raw, head+"\r\n"); err != nil {
		return nil // the caller is gone
	}
	if err := live.Splice(ctx, framed(hijacked{raw, buffered.Reader}), conn); err != nil {
		log.Info("a stream to a program broke off", "job", r.PathValue("id"), "err", err)
	}
	return nil
}

// hijacked is a connection of which a part was read ahead.
type hijacked struct {
	net.Conn
	r *bufio.Reader
}

// Read reads around the server once the bytes that it read ahead are taken: it would take the end of one half for the
// caller's.
func (h hijacked) Read(p []byte) (int, error) {
	if n := h.r.Buffered(); n > 0 {
		return h.r.Read(p[:min(n, len(p))])
	}
	return h.Conn.Read(p)
}

// Abort resets the connection: the caller must not take a part for the whole.
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

func copyOut(of Programs, w http.ResponseWriter, r *http.Request, q api.Files) error {
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Trailer", api.ErrorTrailer+", "+api.CodeTrailer+", "+api.HintTrailer)
	begun := &countWriter{w: w}
	err := of.CopyOut(r.Context(), q.ID, q.Rank, q.Path, begun)
	if err != nil && begun.n > 0 {
		// The archive is cut, which is an error when it is unpacked; the trailers have the reason.
		e := failure.Of(err)
		w.Header().Set(api.ErrorTrailer, live.Clean(e.Message))
		w.Header().Set(api.CodeTrailer, e.Code)
		w.Header().Set(api.HintTrailer, live.Clean(e.Hint))
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

func copyIn(of Programs, w http.ResponseWriter, r *http.Request, q api.Unpack) error {
	body, rest := detach(q.Data)
	err := of.CopyIn(r.Context(), q.ID, q.Rank, q.Path, q.Directory, body)
	_ = body.Close()
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // or the answer would wait for the rest of the body
	if err != nil {
		route.Fail(w, failure.Of(err))
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

// Limits on draining an unused body.
const (
	maxDrained = 256 << 20
	drainTime  = 2 * time.Second
)

// detach returns a copy of a body. Its Close ends a Read that waits for the caller. The unread rest is then read and
// dropped until rest is closed.
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
