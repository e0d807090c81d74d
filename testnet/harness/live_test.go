package harness

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/p2p/stream"
)

// livePrograms are a job's program and what is attached to it.
func livePrograms() map[string]guest.Program {
	return map[string]guest.Program{
		// echo answers at port 7000 in capitals.
		"echo": func(p guest.Process) int {
			err := p.Listen(7000, func(c io.ReadWriteCloser) {
				buf := make([]byte, 1<<10)
				for {
					n, err := c.Read(buf)
					if _, werr := c.Write(bytes.ToUpper(buf[:n])); err != nil || werr != nil {
						return
					}
				}
			})
			fmt.Fprintln(p.Stderr(), err)
			return 1
		},
		// serve counts in /out/count and on stdout, and ends when it is told to.
		"serve": func(p guest.Process) int {
			for i := 0; !guest.Exists(p, "/out/enough"); i++ {
				if i%100 == 0 {
					fmt.Fprintln(p.Stdout(), i)
					if err := guest.WriteFile(p, "/out/count", []byte(fmt.Sprint(i))); err != nil {
						return 1
					}
				}
				p.Burn()
			}
			return 0
		},
		// shout says its input in capitals and ends with the length of its first argument.
		"shout": func(p guest.Process) int {
			b, err := io.ReadAll(p.Stdin())
			if err != nil {
				return 1
			}
			fmt.Fprint(p.Stdout(), strings.ToUpper(string(b)))
			fmt.Fprint(p.Stderr(), env(p, buyer.EnvRank), env(p, "MORE"))
			return len(p.Args()[0])
		},
		// pour sends without end on each connection to port 7000, flood on its output.
		"pour": func(p guest.Process) int {
			err := p.Listen(7000, func(c io.ReadWriteCloser) { pour(c) })
			fmt.Fprintln(p.Stderr(), err)
			return 1
		},
		"flood": func(p guest.Process) int {
			pour(p.Stdout())
			return 0
		},
		"forever": func(p guest.Process) int {
			for {
				p.Burn()
			}
		},
		"work":  allPrograms()["work"],
		"brief": allPrograms()["copy"],
	}
}

func pour(to io.Writer) {
	chunk := make([]byte, 1<<16)
	for {
		if _, err := to.Write(chunk); err != nil {
			return
		}
	}
}

// serving is a network whose buyer runs the serve program.
func serving(t *testing.T, o Options) (*Net, *Peer, buyer.Job) {
	t.Helper()
	o.Programs, o.Log = livePrograms(), Logger()
	n := New(t, o)
	time.Sleep(3 * time.Second)
	b := n.Buyer(0)
	spec := b.Job("serve", 1)
	spec.Inputs = []job.Input{{Source: "shard", Path: "/data/shard"}}
	spec.Outputs = []job.Output{{Path: "/out"}}
	spec.Blobs["shard"] = b.Put("the shard")
	j := b.Submit(spec)
	b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State == buyer.RankRunning })
	time.Sleep(2 * time.Second)
	j, err := b.Buyer().Job(j.ID)
	if err != nil {
		t.Fatal(err)
	}
	return n, b, j
}

// until waits for the job to be as wanted.
func (p *Peer) until(id string, is func(buyer.Job) bool) buyer.Job {
	p.net.t.Helper()
	for range 600 {
		j, err := p.Buyer().Job(id)
		if err != nil {
			p.net.t.Fatal(err)
		}
		if is(j) {
			return j
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.net.t.Fatalf("job %s does not come to what is waited for\n%s", id, p.Why(id))
	return buyer.Job{}
}

func tarOf(t testing.TB, files map[string]string, links ...string) io.ReadCloser {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: l, Linkname: "/etc"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return io.NopCloser(&b)
}

func readTar(t testing.TB, r io.Reader) map[string]string {
	t.Helper()
	out := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(b)
	}
}

func TestLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, b, j := serving(t, Options{Providers: 1})
		ctx := t.Context()

		conn, err := b.Buyer().Attach(ctx, j.ID, 0, buyer.Program{Args: []string{"shout", "three"}, Env: map[string]string{"MORE": "!"}})
		if err != nil {
			t.Fatal(err)
		}
		w := live.NewWriter(conn)
		if _, err := io.WriteString(w.Stream(live.Stdin), strings.Repeat("hello ", 50_000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of silence
		if err := w.Write(live.EOF, nil); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code, err := live.Demultiplex(conn, &out, &errs)
		if code != 5 || err != nil || out.String() != strings.Repeat("HELLO ", 50_000) || errs.String() != "0!" {
			t.Errorf("exit code %d, %v, %d bytes, %q", code, err, out.Len(), errs.String())
		}
		conn.Close()
		conn, err = b.Buyer().Attach(ctx, j.ID, 0, buyer.Program{Args: []string{"nothing"}})
		if err != nil {
			t.Fatal(err)
		}
		var said *live.Error
		if _, err = live.Demultiplex(conn, io.Discard, io.Discard); !errors.As(err, &said) || !strings.Contains(said.Text, "nothing") {
			t.Errorf("a program that is not there: %v", err)
		}
		conn.Close()

		n.copies(t, b, j)
		b.enough(t, j)
		j = b.Wait(j.ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		_, err = b.Buyer().Attach(ctx, j.ID, 0, buyer.Program{Args: []string{"shout", "x"}})
		if !errors.Is(err, buyer.ErrNotRunning) || !strings.Contains(err.Error(), "starling get") {
			t.Errorf("a job that has ended: %v", err)
		}
		_, err = b.Buyer().Forward(ctx, j.ID, 7, 7000)
		if !errors.Is(err, buyer.ErrNoJob) {
			t.Errorf("a rank that is not there: %v", err)
		}
	})
}

func TestForward(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: livePrograms(), Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		j := b.Submit(b.Job("echo", 1))
		b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State == buyer.RankRunning })
		time.Sleep(2 * time.Second)
		var open []live.Conn
		for i := range 3 {
			conn, err := b.Buyer().Forward(t.Context(), j.ID, 0, 7000)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, conn)
			text := strings.Repeat(fmt.Sprint("ping", i), 10_000)
			go func() { _, _ = io.WriteString(conn, text) }()
			buf := make([]byte, len(text))
			if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != strings.ToUpper(text) {
				t.Errorf("%d bytes, %v", len(buf), err)
			}
		}
		_, err := b.Buyer().Forward(t.Context(), j.ID, 0, 7001)
		told(t, "a port where nobody listens", err, "port", "7001")
		open[0].Close()
		if err := b.Buyer().Stop(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		b.Wait(j.ID, time.Minute)
		for _, c := range open[1:] { // they end with the program
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
		n.Settle()
		n.checkQuiet(t, n.Provider(0))
	})
}

// A buyer that reads nothing from its streams into a program must not keep the program from ending: its units would
// stay with it, without payment.
func TestAttackUnreadStreams(t *testing.T) {
	t.Parallel()
	for what, op := range map[string]*nodepb.LiveRequest{
		"port":    {Op: &nodepb.LiveRequest_Forward_{Forward: &nodepb.LiveRequest_Forward{Port: 7000}}},
		"program": {Op: &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{Args: []string{"flood"}}}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 1, Strangers: 1, Programs: livePrograms(), Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				j := b.Submit(b.Job("pour", 1))
				j = b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State == buyer.RankRunning })
				time.Sleep(2 * time.Second)
				op.Lease, op.Seq = j.Ranks[0].Lease[:], j.Ranks[0].Seq
				tag := n.adversary(t, 0).tag
				_, c, err := protocol.Live.Open(t.Context(), n.net.Hosts[b.i], tag, n.Provider(0).id(), op)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Abort()
				time.Sleep(10 * time.Second) // the windows are full
				stopped := time.Now()
				if err := b.Buyer().Stop(t.Context(), j.ID); err != nil {
					t.Fatal(err)
				}
				b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State != buyer.RankRunning })
				if took := time.Since(stopped); took > 10*time.Second {
					t.Errorf("the program ended %v after its stop", took)
				}
				b.Wait(j.ID, time.Minute)
				n.Settle()
				n.checkQuiet(t, n.Provider(0))
			})
		})
	}
}

// enough ends the serve program.
func (p *Peer) enough(t *testing.T, j buyer.Job) {
	t.Helper()
	if err := p.Buyer().CopyIn(t.Context(), j.ID, 0, "/out/enough", false, tarOf(t, map[string]string{"x": ""})); err != nil {
		t.Error(err)
	}
}

func (n *Net) copies(t *testing.T, b *Peer, j buyer.Job) {
	t.Helper()
	out := func(path string) (map[string]string, error) {
		var buf bytes.Buffer
		if err := b.Buyer().CopyOut(t.Context(), j.ID, 0, path, &buf); err != nil {
			return nil, err
		}
		return readTar(t, &buf), nil
	}
	in := func(path string, directory bool, r io.ReadCloser) error {
		return b.Buyer().CopyIn(t.Context(), j.ID, 0, path, directory, r)
	}
	if got, err := out("/data/shard"); err != nil || got["shard"] != "the shard" {
		t.Errorf("%v, %v", got, err)
	}
	for _, err := range []error{
		in("/out", true, tarOf(t, map[string]string{"d/a": "one", "d/e/b": "two"})),
		in("/out/d/renamed", false, tarOf(t, map[string]string{"other": "three"})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if got, err := out("/out/d/"); err != nil || len(got) != 5 || got["d/a"] != "one" || got["d/e/b"] != "two" || got["d/renamed"] != "three" {
		t.Errorf("%q, %v", got, err)
	}
	for _, c := range []struct {
		path string
		do   func() error
		code string
		word string
	}{
		{"/etc/passwd", nil, "path", "paths that can be read from: below /data, /out"},
		{"/out/../../etc", nil, "path", "not below"},
		{"relative", nil, "path", "absolute"},
		{"/out/nowhere", nil, "path", "/out/nowhere is not there"},
		{"into an input", func() error { return in("/data", true, tarOf(t, map[string]string{"x": ""})) }, "path", "read-only; paths that can be written to: below /out"},
		{"into what is not there", func() error { return in("/out/no/where", false, tarOf(t, map[string]string{"x": ""})) }, "path", "is not there"},
		{"into what is no directory", func() error { return in("/out/count", true, tarOf(t, map[string]string{"x": ""})) }, "path", "not a directory"},
	} {
		do := c.do
		if do == nil {
			do = func() error { _, err := out(c.path); return err }
		}
		told(t, c.path, do(), c.code, c.word)
	}
	for name, r := range map[string]io.ReadCloser{
		"cannot be copied": tarOf(t, nil, "link"),
		"the name":         tarOf(t, map[string]string{"../../evil": "x"}),
		"more than":        tarOf(t, map[string]string{"big": strings.Repeat("x", 17<<20)}),
		"archive":          io.NopCloser(strings.NewReader(strings.Repeat("noise", 1000))),
	} {
		var said *live.Error
		if err := in("/out", true, r); !errors.As(err, &said) || !strings.Contains(err.Error(), name) {
			t.Errorf("want one that says %q: %v", name, err)
		}
	}
	cut := errors.New("cut")
	if err := in("/out", true, io.NopCloser(io.MultiReader(tarOf(t, map[string]string{"half": strings.Repeat("x", 1000)}), errReader{cut}))); !errors.Is(err, cut) {
		t.Errorf("an archive that cannot be read: %v", err)
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// A paused program stands still, stays paid for and alive, and goes on where it was; also when its provider was restarted
// meanwhile.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, b, j := serving(t, Options{Providers: 2, Price: map[int]string{0: "0.9"}})
		p := n.Provider(1)
		count := func() string {
			var buf bytes.Buffer
			if err := b.Buyer().CopyOut(t.Context(), j.ID, 0, "/out/count", &buf); err != nil {
				t.Fatal(err)
			}
			return readTar(t, &buf)["count"]
		}
		for range 2 {
			if j, err := b.Buyer().Pause(t.Context(), j.ID); err != nil || !j.Paused {
				t.Fatalf("%v, %v", j.Paused, err)
			}
		}
		at := count()
		_, err := b.Buyer().Attach(t.Context(), j.ID, 0, buyer.Program{Args: []string{"shout", "x"}})
		told(t, "attaching to what is paused", err, "paused", "resume")
		receipts := p.Node.Provider().Sold()[0].Receipts
		time.Sleep(30 * time.Second)
		if now := count(); now != at {
			t.Errorf("while it was paused it counted from %s to %s", at, now)
		}
		if now := p.Node.Provider().Sold()[0].Receipts; now < receipts+25 {
			t.Errorf("%d receipts in 30 intervals", now-receipts)
		}
		p.Kill()
		p.Restart()
		time.Sleep(5 * time.Second)
		if now := count(); now != at {
			t.Errorf("after a restart it counted from %s to %s", at, now)
		}
		if j, err := b.Buyer().Resume(t.Context(), j.ID); err != nil || j.Paused {
			t.Fatalf("%v, %v", j.Paused, err)
		}
		time.Sleep(2 * time.Second)
		if now := count(); now == at {
			t.Error("it does not go on")
		}
		b.enough(t, j)
		j = b.Wait(j.ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		if r := j.Ranks[0]; r.Restarts != 0 {
			t.Errorf("it was restarted %d times", r.Restarts)
		}
		if _, err := b.Buyer().Pause(t.Context(), j.ID); !errors.Is(err, buyer.ErrNotRunning) {
			t.Errorf("pausing what has ended: %v", err)
		}
	})
}

// Stopping a job that is paused ends it.
func TestStopPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, b, j := serving(t, Options{Providers: 1})
		if _, err := b.Buyer().Pause(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		if err := b.Buyer().Stop(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		if j = b.Wait(j.ID, time.Minute); j.State != buyer.Stopped {
			t.Errorf("%s", j.Summary())
		}
		n.Settle()
		n.checkQuiet(t, n.Provider(0))
	})
}

// Nobody but its buyer reaches a program, and what a buyer sends that it should not does no harm to it.
func TestLiveAdversary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, b, j := serving(t, Options{Providers: 1, Strangers: 1})
		p, a := n.Provider(0), n.adversary(t, 0)
		r := j.Ranks[0]
		attach := &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{Args: []string{"forever"}}}
		open := func(who *Peer, change func(*nodepb.LiveRequest)) (*stream.Conn, error) {
			req := &nodepb.LiveRequest{Lease: r.Lease[:], Seq: r.Seq, Op: attach}
			if change != nil {
				change(req)
			}
			h := a.host
			if who != nil {
				h = n.net.Hosts[who.i]
			}
			_, c, err := protocol.Live.Open(t.Context(), h, a.tag, p.id(), req)
			return c, err
		}
		_, err := open(nil, nil)
		told(t, "someone else's lease", err, "lease", "no such lease of yours")
		for name, c := range map[string]struct {
			code   string
			change func(*nodepb.LiveRequest)
		}{
			"an unknown execution": {"execution", func(r *nodepb.LiveRequest) { r.Seq = 9 }},
			"half a lease":         {"malformed", func(r *nodepb.LiveRequest) { r.Lease = r.Lease[:16] }},
			"nothing":              {"malformed", func(r *nodepb.LiveRequest) { r.Op = nil }},
			"no program": {"malformed", func(r *nodepb.LiveRequest) {
				r.Op = &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{}}
			}},
			"a NUL": {"malformed", func(r *nodepb.LiveRequest) {
				r.Op = &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{Args: []string{"a\x00b"}}}
			}},
			"a huge terminal": {"malformed", func(r *nodepb.LiveRequest) {
				r.Op = &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{Args: []string{"shout"}, Rows: 1 << 20}}
			}},
			"port 0": {"malformed", func(r *nodepb.LiveRequest) { r.Op = &nodepb.LiveRequest_Forward_{} }},
			"port 65536": {"malformed", func(r *nodepb.LiveRequest) {
				r.Op = &nodepb.LiveRequest_Forward_{Forward: &nodepb.LiveRequest_Forward{Port: 65536}}
			}},
		} {
			_, err := open(b, c.change)
			told(t, name, err, c.code)
		}
		wide := protocol.Live
		wide.MaxRequest = 4 << 20
		_, _, err = wide.Open(t.Context(), n.net.Hosts[b.i], a.tag, p.id(), &nodepb.LiveRequest{Lease: make([]byte, 2<<20)})
		told(t, "an oversized request", err, "malformed", "too large")

		// Frames that are none end the attached program and nothing else.
		for _, noise := range [][]byte{
			binary.BigEndian.AppendUint32([]byte{3, 0, 0, 0}, 1<<31), {9, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, 0}, []byte("GET / HTTP/1.1\r\n\r\n"),
		} {
			c, err := open(b, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(noise); err != nil {
				t.Error(err)
			}
			if _, err := live.Demultiplex(c, io.Discard, io.Discard); err == nil {
				t.Errorf("%q was taken", noise[:8])
			}
			c.Close()
		}
		n.crowd(t, b, open)
		b.enough(t, j)
		n.check(t, b, b.Wait(j.ID, time.Minute), buyer.Succeeded)
		n.Settle()
		n.checkQuiet(t, p, b)
	})
}

// crowd opens as many streams as there are places: the next one is refused until one is closed. A caller that only opens
// and says nothing keeps its place and no more.
func (n *Net) crowd(t *testing.T, b *Peer, open func(*Peer, func(*nodepb.LiveRequest)) (*stream.Conn, error)) {
	t.Helper()
	var conns []*stream.Conn
	for {
		c, err := open(b, nil)
		if err != nil {
			told(t, "one stream too many", err, stream.CodeBusy, "close one")
			break
		}
		if conns = append(conns, c); len(conns) > 200 {
			t.Fatal("there is no end to streams")
		}
	}
	if len(conns) != 64 {
		t.Errorf("%d streams into one execution", len(conns))
	}
	conns[0].Abort()
	time.Sleep(time.Second) // its program ends
	c, err := open(b, nil)
	if err != nil {
		t.Errorf("after one was closed: %v", err)
	} else {
		c.Abort()
		time.Sleep(time.Second)
	}
	// They end with the job's program, though nobody closes them.
	t.Cleanup(func() {
		for _, c := range conns[1:] {
			if _, err := live.Demultiplex(c, io.Discard, io.Discard); err == nil {
				t.Error("an attached program outlived the job's")
			}
			c.Abort()
		}
	})
}

// A rank that is lost while its job is paused is paused again where it is taken to, and goes on there when the job does.
func TestPausedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, b, j := serving(t, Options{Providers: 3, Price: map[int]string{0: "0.9", 2: "0.5"}})
		if _, err := b.Buyer().Pause(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
		n.Provider(1).Kill()
		b.until(j.ID, func(j buyer.Job) bool {
			return j.Ranks[0].Restarts == 1 && j.Ranks[0].State == buyer.RankRunning && j.Ranks[0].Live.Phase == "paused"
		})
		if j, err := b.Buyer().Resume(t.Context(), j.ID); err != nil || j.Paused {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		b.enough(t, j)
		n.check(t, b, b.Wait(j.ID, time.Minute), buyer.Succeeded)
	})
}
