package rayjobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/gorilla/websocket"
)

// maxMessage bounds one message of a log: Ray sends ten lines, or 20,000 characters and the rest of their line.
const maxMessage = 16 << 20

// Follow writes a job's log to w as it grows, until the job has ended, and returns the job. A stream that breaks is taken up where it
// was. Errors: ErrNoJob, ErrUnreachable where the head stays away, and those of w.
func (c *Client) Follow(ctx context.Context, id string, w io.Writer) (Job, error) {
	out := &resumed{w: w}
	for silent := 0; ; {
		written := out.written
		err := c.tail(ctx, id, out)
		if out.err != nil {
			return Job{}, out.err
		}
		if ctx.Err() != nil {
			return Job{}, ctx.Err()
		}
		if err != nil && !errors.Is(err, ErrUnreachable) {
			return Job{}, err
		}
		j, asked := c.Job(ctx, id)
		if asked == nil && j.Status.Ended() && err == nil {
			return j, nil
		}
		if asked != nil && !errors.Is(asked, ErrUnreachable) {
			return Job{}, asked
		}
		if silent++; out.written > written || asked == nil {
			silent = 0
		}
		if silent >= tries {
			return Job{}, asked
		}
		if err := sleep(ctx, c.cfg.Wait<<silent); err != nil {
			return Job{}, err
		}
	}
}

// tail copies a job's log from its beginning until the head says that it is at its end.
func (c *Client) tail(ctx context.Context, id string, w *resumed) error {
	at, err := path(id, "/logs/tail")
	if err != nil {
		return err
	}
	dialer := websocket.Dialer{NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.cfg.Dial(ctx) }}
	conn, resp, err := dialer.DialContext(ctx, "ws://head"+at, c.header())
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			defer resp.Body.Close()
			return ofJob(id, refusal(resp))
		}
		return c.broke(ctx, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetReadLimit(maxMessage)
	w.begin()
	for {
		kind, r, err := conn.NextReader()
		if err == nil && kind == websocket.TextMessage {
			_, err = io.Copy(w, r)
		}
		switch {
		case websocket.IsCloseError(err, websocket.CloseNormalClosure):
			return nil
		case errors.Is(err, websocket.ErrReadLimit):
			return fmt.Errorf("%w: a piece of the log is longer than %d MiB", ErrAnswer, maxMessage>>20)
		case err != nil:
			return c.broke(ctx, err)
		}
	}
}

// resumed writes what it has not written before of a stream that may begin anew.
type resumed struct {
	w       io.Writer
	written int64 // of the stream, by all attempts
	skip    int64 // of this attempt, what was written before
	err     error // of w
}

// begin says that the stream begins anew.
func (r *resumed) begin() { r.skip = r.written }

func (r *resumed) Write(p []byte) (int, error) {
	n := min(int64(len(p)), r.skip)
	r.skip -= n
	if rest := p[n:]; len(rest) > 0 {
		if _, err := r.w.Write(rest); err != nil {
			r.err = err
			return 0, err
		}
		r.written += int64(len(rest))
	}
	return len(p), nil
}
