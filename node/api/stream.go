package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/starling-network/starling/node/live"
)

// RelayedHeader has the limit of a relay that will break the stream.
const RelayedHeader = "Starling-Relayed"

// These trailers are the Error of an incomplete archive, which they follow.
const (
	ErrorTrailer = "Starling-Error"
	CodeTrailer  = "Starling-Error-Code"
	HintTrailer  = "Starling-Error-Hint"
)

const (
	// HintAway is the hint for an unreachable provider.
	HintAway = "the provider may return soon; otherwise the job moves to another provider"
	// HintRelay is the hint where a relay's limits cut a stream.
	HintRelay = "send less at a time, use a relay or entry peer with a larger relay.dataMiB, " +
		"or make a direct connection possible (a light client's --direct)"
)

// Attach runs a program beside that of a rank. The frames on the connection are those of node/live.
func (c *Client) Attach(ctx context.Context, id string, rank int, p live.Program) (live.Conn, error) {
	conn, err := upgrade(ctx, func(ctx context.Context) (*http.Response, error) {
		return ExecProgram.Do(ctx, c, Exec{ID: id, Rank: rank, Body: p})
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Forward connects to a TCP port of a rank's program. Read returns io.EOF when the program closed its half, and an
// *Error where the connection broke.
func (c *Client) Forward(ctx context.Context, id string, rank int, port uint16) (live.Conn, error) {
	conn, err := upgrade(ctx, func(ctx context.Context) (*http.Response, error) {
		return ForwardPort.Do(ctx, c, Forward{ID: id, Rank: rank, Port: int(port)})
	})
	if err != nil {
		return nil, err
	}
	return forwarded{live.DialTunnel(conn), conn}, nil
}

// forwarded gives a tunnel's failure the form of the API's errors.
type forwarded struct {
	live.Conn
	way *upgraded
}

func (f forwarded) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if failed, ok := errors.AsType[*live.Error](err); ok {
		err = f.way.lost(failed.Text)
	}
	return n, err
}

// upgrade makes the connection of a request a stream, which ends with ctx.
func upgrade(ctx context.Context, ask func(context.Context) (*http.Response, error)) (*upgraded, error) {
	resp, err := ask(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(live.Conn)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		resp.Body.Close()
		return nil, fmt.Errorf("the peer answered %s instead of a stream", resp.Status)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &upgraded{Conn: conn, ctx: ctx, relayed: live.Clean(resp.Header.Get(RelayedHeader)), stop: stop}, nil
}

// upgraded is a connection of frames. Readers of frames stop at the last frame, so any other end is a break.
type upgraded struct {
	live.Conn
	ctx     context.Context
	relayed string // the error when it breaks; "": it goes over no relay
	stop    func() bool
}

func (u *upgraded) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	return n, u.broken(err)
}

func (u *upgraded) Write(p []byte) (int, error) {
	n, err := u.Conn.Write(p)
	return n, u.broken(err)
}

// broken gives a stream that broke the reason that is likely.
func (u *upgraded) broken(err error) error {
	if err == nil || u.ctx.Err() != nil {
		return err
	}
	return u.lost("the connection was reset")
}

// lost is the error of a connection that broke for a reason; a relay that it went over is the likelier one.
func (u *upgraded) lost(why string) error {
	e := &Error{Status: http.StatusBadGateway, Code: CodeUnreachable, Message: why, Hint: HintAway}
	if u.relayed != "" {
		e.Message, e.Hint = u.relayed, HintRelay
	}
	return e
}

func (u *upgraded) Close() error {
	u.stop()
	return u.Conn.Close()
}

// CopyOut writes a tar archive of a file or directory of a rank's program to w.
func (c *Client) CopyOut(ctx context.Context, id string, rank int, file string, w io.Writer) error {
	resp, err := GetFiles.Do(ctx, c, Files{ID: id, Rank: rank, Path: file})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("copying %s: %w", file, err)
	}
	if text := resp.Trailer.Get(ErrorTrailer); text != "" {
		said := func(name string) string { return live.Clean(resp.Trailer.Get(name)) }
		return &Error{Status: http.StatusBadGateway, Code: said(CodeTrailer), Message: live.Clean(text),
			Hint: said(HintTrailer)}
	}
	return nil
}

// CopyIn unpacks a tar archive beneath a path of a rank's program, as [buyer.Buyer.CopyIn] does.
func (c *Client) CopyIn(ctx context.Context, id string, rank int, file string, directory bool, r io.Reader) error {
	resp, err := PutFiles.Do(ctx, c, Unpack{ID: id, Rank: rank, Path: file, Directory: directory, Data: r})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
