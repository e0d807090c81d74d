package member

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/attach"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// hostKey is the key of a host of p2ptest.
func hostKey(t *testing.T, i int) sign.Private {
	t.Helper()
	raw, err := p2ptest.Key(i).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate([32]byte(raw[:32]))
}

func attachTo(m cluster.Member, args ...string) *nodepb.LiveRequest {
	id := m.Lease.Core.ID()
	return &nodepb.LiveRequest{Lease: id[:], Op: &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{Args: args, Env: map[string]string{"OMPI_MCA_x": "1"}}}}
}

// finish speaks for the one who attached and returns what comes back.
func finish(conn io.ReadWriteCloser, input string) (code int, out string, err error) {
	defer conn.Close()
	go func() {
		w := live.NewWriter(conn)
		_, _ = w.Stream(live.Stdin).Write([]byte(input))
		_ = w.Write(live.EOF, nil)
	}()
	var b bytes.Buffer
	code, err = live.Demultiplex(conn, &b, &b)
	return code, b.String(), err
}

// Only the peer of a member, by the plan in force, attaches a program to another member, and only while it is one.
func TestRshFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.NewNet(t, 3, 2*time.Millisecond) // 0 is a member's, 1 the one asked, 2 an outsider
		nw.ConnectAll()
		b := newClusterBench(t)
		server := protocol.Rsh.Serve(nw.Hosts[1], p2ptest.Network, b.rshHandler(), stream.Limits{Logger: p2ptest.Quiet()})
		defer server.Close()
		head := rankBy(t, testOwner, hostKey(t, 0), 0, 0)
		ask := func(from int, req *nodepb.LiveRequest) (int, string, error) {
			_, conn, err := protocol.Rsh.Open(t.Context(), nw.Hosts[from], p2ptest.Network, nw.Hosts[1].ID(), req)
			if err != nil {
				return 0, "", err
			}
			return finish(conn, "input")
		}
		good := attachTo(b.own, "/bin/sh", "-c", "orted")
		_, _, err := ask(0, good)
		b.wantRefused("a member, before the cluster is there", err, codeFellow, "")
		e, err := b.start(1, planOf(1, head, b.own))
		b.must(err)
		code, out, err := ask(0, good)
		if err != nil || code != 5 || !strings.Contains(out, "-c orted") || !strings.Contains(out, "OMPI_MCA_x=1") || !strings.Contains(out, "NODE_RANK=1") || !strings.HasSuffix(out, ":input") {
			t.Errorf("a member: code %d, %q, %v", code, out, err)
		}
		_, _, err = ask(2, good)
		b.wantRefused("an outsider", err, codeFellow, "no program runs here")
		_, _, err = ask(0, attachTo(head, "/bin/sh"))
		b.wantRefused("a member, for a lease that is not here", err, codeFellow, "no program runs here")
		for what, spoil := range map[string]func(*nodepb.LiveRequest){
			"no lease":      func(r *nodepb.LiveRequest) { r.Lease = nil },
			"nothing asked": func(r *nodepb.LiveRequest) { r.Op = nil },
			"files": func(r *nodepb.LiveRequest) {
				r.Op = &nodepb.LiveRequest_CopyOut_{CopyOut: &nodepb.LiveRequest_CopyOut{Path: "/x"}}
			},
			"a port": func(r *nodepb.LiveRequest) {
				r.Op = &nodepb.LiveRequest_Forward_{Forward: &nodepb.LiveRequest_Forward{Port: 22}}
			},
			"a terminal": func(r *nodepb.LiveRequest) { r.GetAttach().Tty = true },
			"no program": func(r *nodepb.LiveRequest) { r.GetAttach().Args = nil },
			"a NUL":      func(r *nodepb.LiveRequest) { r.GetAttach().Args[0] = "a\x00" },
			"too many words": func(r *nodepb.LiveRequest) {
				r.GetAttach().Args = make([]string, attach.MaxArgs+1)
				r.GetAttach().Args[0] = "x"
			},
			"an empty variable": func(r *nodepb.LiveRequest) { r.GetAttach().Env = map[string]string{"": "x"} },
		} {
			req := attachTo(b.own, "/bin/sh")
			spoil(req)
			if _, _, err := ask(0, req); err == nil {
				t.Errorf("%s was taken", what)
			}
		}
		// Who is replaced is no member from then on, and what it runs ends.
		open := func() *stream.Conn {
			_, conn, err := protocol.Rsh.Open(t.Context(), nw.Hosts[0], p2ptest.Network, nw.Hosts[1].ID(), good)
			b.must(err)
			return conn
		}
		conn := open()
		b.must(b.members(e, planOf(2, rankOf(t, testOwner, 0, 1), b.own)))
		if _, err := live.Demultiplex(conn, io.Discard, io.Discard); err == nil {
			t.Error("the program of a member that was replaced came to its own end")
		}
		conn.Abort()
		_, _, err = ask(0, good)
		b.wantRefused("a member that was replaced", err, codeFellow, "")
		b.must(b.members(e, planOf(3, rankBy(t, testOwner, hostKey(t, 0), 0, 2), b.own)))
		conn = open()
		stopped := make(chan error, 1)
		go func() { stopped <- b.Executor.Stop(context.Background(), e, time.Second) }()
		if code, err := live.Demultiplex(conn, io.Discard, io.Discard); err == nil && code == 5 {
			t.Error("a program outlived the rank that it ran beside, and came to its own end")
		}
		conn.Abort()
		b.must(<-stopped)
		_, _, err = ask(0, good)
		b.wantRefused("after its end", err, codeFellow, "")
	})
}

// dialAgent is the agent's connection to the service of an execution that has joined.
func (b *clusterBench) dialAgent(req agent.Request) net.Conn {
	b.T.Helper()
	here, there := net.Pipe()
	serve := b.nets.last().joining.Services[agent.Port]
	if serve == nil {
		b.T.Fatal("no service at the agent's port")
	}
	go func() {
		serve(b.T.Context(), there)
		_ = there.Close()
	}()
	if err := agent.WriteRequest(here, req); err != nil {
		b.T.Fatal(err)
	}
	return here
}

// A rank's agent reaches its own rank here and the others through their peers, waits for those that are not there yet, and is
// told what cannot be.
func TestRshFromInside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		head, third := rankOf(t, testOwner, 0, 0), rankOf(t, testOwner, 3, 0)
		var asked []string
		answers := map[uint32][]error{
			0: {stream.Refuse(codeFellow, "not told of you yet"), stream.Refuse(stream.CodeBusy, "not running yet"), nil},
			3: {stream.Refuse("paused", "the job is paused")},
		}
		b.hook.Fellows = fellows(func(_ context.Context, m cluster.Member, req *nodepb.LiveRequest) (live.Conn, error) {
			asked = append(asked, cluster.Name(m.Rank))
			err := answers[m.Rank][0]
			if len(answers[m.Rank]) > 1 {
				answers[m.Rank] = answers[m.Rank][1:]
			}
			if err != nil {
				return nil, err
			}
			if want := m.Lease.Core.ID(); !bytes.Equal(req.Lease, want[:]) {
				t.Error("asked for another lease")
			}
			here, there := net.Pipe()
			go func() {
				_ = live.Serve(t.Context(), there, 0, 0, func(_ context.Context, s live.Session) (int, error) {
					_, err := io.Copy(s.Stdout, s.Stdin)
					return 9, err
				})
			}()
			return pipeEnd{here}, nil
		})
		_, err := b.start(1, planOf(1, head, b.own, third))
		b.must(err)
		run := func(host string) (int, string, error) {
			return finish(b.dialAgent(agent.Request{Host: host, Argv: []string{"orted", "-x"}, Env: map[string]string{"OMPI_MCA_a": "b"}}), "in")
		}
		for _, own := range []string{"node-1", "NODE-1.jabc", "10.77.0.3"} {
			if code, out, err := run(own); err != nil || code != 5 || !strings.HasPrefix(out, "-c orted -x ") || !strings.Contains(out, "OMPI_MCA_a=b") || !strings.HasSuffix(out, ":in") {
				t.Errorf("%s: code %d, %q, %v", own, code, out, err)
			}
		}
		if len(asked) > 0 {
			t.Errorf("its own rank was looked for at %v", asked)
		}
		if code, out, err := run("head"); err != nil || code != 9 || out != "in" || len(asked) != 3 {
			t.Errorf("head: code %d, %q, %v, asked %v", code, out, err, asked)
		}
		for host, want := range map[string]string{
			"node-3": "paused", "node-2": "being replaced", "node-9": "no member of this cluster", "example.org": "no member", "10.77.0.200": "no member", "192.168.1.1": "no member",
			"node-1.other": "no member",
		} {
			var no *live.Error
			if _, _, err := run(host); !errors.As(err, &no) || !strings.Contains(no.Text, want) {
				t.Errorf("%s: %v, want %q", host, err, want)
			}
		}

		// What is no request ends at once, or after its time.
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.nets.last().joining.Services[agent.Port](t.Context(), there)
			_ = there.Close()
		}()
		go func() { _, _ = here.Write(binary.BigEndian.AppendUint32(nil, agent.MaxRequest+1)) }()
		if _, err := live.Demultiplex(here, io.Discard, io.Discard); err == nil {
			t.Error("a request that is too long was taken")
		}
		<-done
		here, there = net.Pipe()
		defer here.Close()
		began := time.Now()
		go func() { _, _ = io.Copy(io.Discard, here) }()
		b.nets.last().joining.Services[agent.Port](t.Context(), there)
		if took := time.Since(began); took != requestTime {
			t.Errorf("silence was waited out for %v", took)
		}
	})
}

// pipeEnd is a net.Pipe's end with one half to close, which closes all.
type pipeEnd struct{ net.Conn }

func (p pipeEnd) CloseWrite() error { return nil }
func (p pipeEnd) Abort()            { _ = p.Close() }

// Two ranks on one peer reach each other without the network.
func TestRshOnOnePeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		second := rankBy(t, testOwner, peerKey(1), 2, 0)
		_, err := b.start(1, planOf(1, b.own, second))
		b.must(err)
		first := b.nets.last()
		b.hook.Fellows = fellows(func(context.Context, cluster.Member, *nodepb.LiveRequest) (live.Conn, error) {
			return nil, errors.New("the network was asked")
		})
		plan := planOf(1, b.own, second)
		plan.Rank = 2
		b.own = second
		_, err = b.start(1, plan)
		b.must(err)
		if b.nets.last().joining.Address == first.joining.Address {
			t.Fatal("the second rank has not joined")
		}
		code, out, err := finish(b.dialAgent(agent.Request{Host: "node-1", Argv: []string{"true"}}), "")
		if err != nil || code != 5 || !strings.Contains(out, "NODE_RANK=1") {
			t.Errorf("code %d, %q, %v", code, out, err)
		}
	})
}

// fellows is a function that is Fellows.
type fellows func(context.Context, cluster.Member, *nodepb.LiveRequest) (live.Conn, error)

func (f fellows) Open(ctx context.Context, m cluster.Member, req *nodepb.LiveRequest) (live.Conn, error) {
	return f(ctx, m, req)
}

func (b *clusterBench) rshHandler() func(context.Context, peer.ID, *nodepb.LiveRequest, attach.Accept) error {
	return func(ctx context.Context, from peer.ID, req *nodepb.LiveRequest, take attach.Accept) error {
		return b.hook.Rsh(ctx, b.Executor, from, req, take)
	}
}

// blocked is a hook that lets no program start.
type blocked struct{}

func (blocked) Prestart(ctx context.Context, _ *executor.Execution, _ *executor.Launch) error {
	<-ctx.Done()
	return ctx.Err()
}

// FuzzRsh holds that a member's peer answers or hangs up, whatever the member's agent writes, and attaches nothing that
// is out of bounds.
func FuzzRsh(f *testing.F) {
	var seed bytes.Buffer
	if err := agent.WriteRequest(&seed, agent.Request{Host: "node-1", Argv: []string{"a", "b"}, Env: map[string]string{"OMPI_MCA_a": "b"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	own := rankOf(f, testOwner, 1, 0)
	p, err := cluster.Decode(planOf(1, rankOf(f, testOwner, 0, 0), own, rankOf(f, testOwner, 2, 0), rankOf(f, testOwner, 3, 0)))
	if err != nil {
		f.Fatal(err)
	}
	x := executor.New(executor.Config{Store: store.NewMemory(), Log: p2ptest.Quiet()}, blocked{})
	lease := executortest.Lease(own.Lease.Core.ID())
	e, err := x.Start(f.Context(), executortest.Buyer, lease, 1, &nodepb.Workload{Runtime: "none"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &Hook{Log: p2ptest.Quiet(), Fellows: fellows(func(_ context.Context, m cluster.Member, req *nodepb.LiveRequest) (live.Conn, error) {
			if err := attach.Check(req.GetAttach()); err != nil || m.Rank == 1 || len(req.Lease) != len(market.LeaseID{}) {
				t.Fatalf("asked rank %d: %v", m.Rank, err)
			}
			return nil, stream.Refuse("enough", "")
		})}
		m := h.begin(e)
		m.set(&p, nil)
		here, there := net.Pipe()
		go func() { _, _ = here.Write(b) }()
		go func() { _, _ = io.Copy(io.Discard, here) }()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { // an end of its input is an end
			defer close(done)
			_ = m.rsh(ctx, there)
		}()
		if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
			cancel()
		}
		<-done
		cancel()
		_ = here.Close()
	})
}
