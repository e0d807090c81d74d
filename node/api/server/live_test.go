package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/p2p/stream"
)

// tcpPair is a connection whose halves close one by one, as a stream's do.
func tcpPair() (live.Conn, live.Conn, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	b, err := ln.Accept()
	if err != nil {
		return nil, nil, err
	}
	return a.(live.Conn), b.(live.Conn), nil
}

func (f *fake) Attach(ctx context.Context, id string, rank int, p live.Program) (live.Conn, error) {
	if err := f.known(id); err != nil {
		return nil, err
	}
	switch p.Args[0] {
	case "refused":
		return nil, fmt.Errorf("asking: %w", stream.Refuse("runtime", "the wasm runtime cannot"))
	case "lost":
		return nil, stream.ErrUnreachable
	}
	ours, theirs, err := tcpPair()
	if err != nil {
		return nil, err
	}
	go live.Serve(context.WithoutCancel(ctx), theirs, uint32(p.Rows), uint32(p.Cols), func(_ context.Context, s live.Session) (int, error) {
		if p.TTY {
			size := <-s.Sizes
			fmt.Fprint(s.Stderr, size.Rows, "x", size.Cols, " ")
		}
		b, err := io.ReadAll(s.Stdin)
		fmt.Fprint(s.Stdout, strings.ToUpper(string(b)), p.Env["E"], rank)
		return 7, err
	})
	return ours, nil
}

func (f *fake) Forward(_ context.Context, id string, rank int, port uint16) (live.Conn, error) {
	if err := f.known(id); err != nil {
		return nil, err
	}
	ours, theirs, err := tcpPair()
	if err != nil {
		return nil, err
	}
	go func() {
		defer theirs.Close()
		b, _ := io.ReadAll(theirs)
		fmt.Fprint(theirs, strings.ToUpper(string(b)), rank, port)
	}()
	return ours, nil
}

func (f *fake) CopyOut(_ context.Context, id string, rank int, file string, w io.Writer) error {
	if err := f.known(id); err != nil {
		return err
	}
	if file == "/nowhere" {
		return stream.Refuse("path", "/nowhere is not there")
	}
	fmt.Fprint(w, "archive of ", file, rank)
	if file == "/cut" {
		return &live.Error{Text: "copying: the disk is gone"}
	}
	return nil
}

func (f *fake) CopyIn(_ context.Context, id string, rank int, file string, directory bool, r io.ReadCloser) error {
	defer r.Close()
	if err := f.known(id); err != nil {
		return err
	}
	if file == "/full" {
		return fmt.Errorf("%w: x", live.ErrRoom) // before it was read
	}
	b, err := io.ReadAll(r)
	f.blobs[fmt.Sprint(file, rank, directory)] = b
	return err
}

func (f *fake) Extend(_ context.Context, id string, by time.Duration, budget market.Amount) (record.Extension, error) {
	if by < time.Second {
		return record.Extension{}, fmt.Errorf("%w: %v more", record.ErrRefused, by)
	}
	return record.Extension{Job: id, Run: job.Span(time.Hour + by), Budget: budget, Ranks: []record.ExtendedRank{{State: record.Extended}}}, f.known(id)
}

func (f *fake) Pause(_ context.Context, id string) (record.Job, error) {
	f.change(func() { f.job.Paused = true })
	return f.job, f.known(id)
}

func (f *fake) Resume(_ context.Context, id string) (record.Job, error) {
	return record.Job{}, fmt.Errorf("%w: the job is queued", record.ErrNotRunning)
}

func TestExec(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	conn, err := c.Attach(t.Context(), f.job.ID, 3, live.Program{Args: []string{"shout"}, Env: map[string]string{"E": "!"}, TTY: true, Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := live.NewWriter(conn)
	text := strings.Repeat("hello ", 100_000)
	if _, err := io.WriteString(w.Stream(live.Stdin), text); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(live.EOF, nil); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code, err := live.Demultiplex(conn, &out, &errs)
	if code != 7 || err != nil || out.String() != strings.ToUpper(text)+"!3" || errs.String() != "24x80 " {
		t.Errorf("exit code %d, %v, %d bytes, %q", code, err, out.Len(), errs.String())
	}
	for _, want := range []struct {
		args   []string
		status int
		code   string
	}{{[]string{"refused"}, http.StatusConflict, "runtime"}, {[]string{"lost"}, http.StatusBadGateway, "unreachable"}, {nil, http.StatusBadRequest, "bad_request"}} {
		_, err := c.Attach(t.Context(), f.job.ID, 0, live.Program{Args: want.args})
		var answer *api.Error
		if !errors.As(err, &answer) || answer.Status != want.status || answer.Code != want.code {
			t.Errorf("%v: %v", want.args, err)
		}
	}
	resp, err := c.Do(t.Context(), http.MethodPost, "/v1/jobs/"+f.job.ID+"/exec", strings.NewReader(`{"args":["x"]}`), nil)
	var answer *api.Error
	if !errors.As(err, &answer) || answer.Status != http.StatusUpgradeRequired {
		t.Errorf("without an upgrade: %v, %v", resp, err)
	}
	// The end of the context ends the stream.
	ctx, cancel := context.WithCancel(t.Context())
	conn, err = c.Attach(ctx, f.job.ID, 0, live.Program{Args: []string{"shout"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := live.Demultiplex(conn, io.Discard, io.Discard); !errors.Is(err, live.ErrCut) {
		t.Errorf("after the context: %v", err)
	}
}

func TestForwardPort(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	conn, err := c.Forward(t.Context(), f.job.ID, 1, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "ping"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "PING1 8080" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := c.Forward(t.Context(), f.job.ID, 1, 0); err == nil {
		t.Error("port 0 was taken")
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	var b bytes.Buffer
	if err := c.CopyOut(t.Context(), f.job.ID, 2, "/out/a b&c", &b); err != nil || b.String() != "archive of /out/a b&c2" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if err := c.CopyOut(t.Context(), f.job.ID, 2, "/nowhere", &b); err == nil || !strings.Contains(err.Error(), "is not there") {
		t.Errorf("what is not there: %v", err)
	}
	if err := c.CopyOut(t.Context(), f.job.ID, 2, "/cut", &b); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("an archive that is cut: %v", err)
	}
	text := strings.Repeat("x", 1<<20)
	if err := c.CopyIn(t.Context(), f.job.ID, 1, "/out/x", true, strings.NewReader(text)); err != nil || string(f.blobs["/out/x1 true"]) != text {
		t.Errorf("%d bytes, %v", len(f.blobs["/out/x1 true"]), err)
	}
	// One that is refused at once ends though its archive never does.
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("begun")) }()
	var answer *api.Error
	if err := c.CopyIn(t.Context(), f.job.ID, 1, "/full", false, r); !errors.As(err, &answer) || answer.Status != http.StatusUnprocessableEntity {
		t.Errorf("without room: %v", err)
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	x, err := api.ExtendJob.Call(t.Context(), c, api.Extend{ID: f.job.ID, Body: api.ExtendRequest{By: job.Span(2 * time.Hour), Budget: 7}})
	if err != nil || time.Duration(x.Run) != 3*time.Hour || x.Budget != 7 || len(x.Ranks) != 1 || x.Ranks[0].State != record.Extended {
		t.Errorf("%+v, %v", x, err)
	}
	var answer *api.Error
	if _, err := api.ExtendJob.Call(t.Context(), c, api.Extend{ID: f.job.ID, Body: api.ExtendRequest{}}); !errors.As(err, &answer) || answer.Status != http.StatusUnprocessableEntity {
		t.Error(err)
	}
	if _, err := api.ExtendJob.Call(t.Context(), c, api.Extend{ID: "jnone", Body: api.ExtendRequest{By: job.Span(time.Hour)}}); !errors.As(err, &answer) || answer.Status != http.StatusNotFound {
		t.Error(err)
	}
}

func TestPauseResume(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	if j, err := api.PauseJob.Call(t.Context(), c, api.ByID{ID: f.job.ID}); err != nil || !j.Paused {
		t.Errorf("%v, %v", j.Paused, err)
	}
	var answer *api.Error
	if _, err := api.ResumeJob.Call(t.Context(), c, api.ByID{ID: f.job.ID}); !errors.As(err, &answer) || answer.Status != http.StatusConflict || answer.Code != "not_running" {
		t.Error(err)
	}
}
