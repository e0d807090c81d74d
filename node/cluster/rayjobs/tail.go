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
	away, broken := 0, 0 // attempts in a row that found nobody, and that ended without anything new
	for {
		written := out.written
		err := c.tail(ctx, id, out)
		if done := errors.Join(out.err, ctx.Err()); done != nil {
			return Job{}, done
		}
		if err != nil && !errors.Is(err, ErrUnreachable) {
			return Job{}, err
		}
		if broken++; err == nil || out.written > written {
			broken = 0
		}
		j, asked := c.Job(ctx, id)
		switch {
		case asked != nil && !errors.Is(asked, ErrUnreachable):
			return Job{}, asked
		case asked == nil && j.Status.Ended() && err == nil:
			return j, nil
		case asked == nil && j.Status.Ended() && broken >= tries: // its end is all that there is to follow
			return j, c.rest(ctx, id, out)
		}
		if away++; asked == nil || out.written > written {
			away = 0
		}
		if away >= tries {
			return Job{}, asked
		}
		if err := sleep(ctx, c.cfg.Wait<<away); err != nil {
			return Job{}, err
		}
	}
}

// rest writes what is left of the log of a job that has ended.
func (c *Client) rest(ctx context.Context, id string, out *resumed) error {
	text, err := c.Log(ctx, id)
	if err != nil {
		return err
	}
	out.begin()
	_, err = io.WriteString(out, text)
	return err
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
