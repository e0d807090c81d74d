package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/live"
)

func TestAddressIsTheServices(t *testing.T) {
	t.Parallel()
	if want := netip.AddrPortFrom(cluster.Service, Port).String(); Address != want {
		t.Errorf("%s, want %s", Address, want)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"node-1 orted -mca ess env":        "node-1 [orted -mca ess env] true",
		"-n node-1 ls":                     "node-1 [ls] false",
		"-x -l me -p 22 node-1 ls -l":      "node-1 [ls -l] true",
		"-o BatchMode=yes -p2222 head who": "head [who] true",
		"-xn me@node-2.c1 a":               "node-2.c1 [a] false",
		"-lname node-1 a":                  "node-1 [a] true",
		"-- node-1 a":                      "node-1 [a] true",
	} {
		r, input, err := parse(strings.Fields(line), []string{"OMPI_MCA_a=1", "PATH=/x", "PMIX_MCA_b=c=d", "OMPI_MCAX=2"})
		if got := fmt.Sprintf("%s %v %t", r.Host, r.Argv, input); err != nil || got != want {
			t.Errorf("%s: %s, %v", line, got, err)
		}
		if !reflect.DeepEqual(r.Env, map[string]string{"OMPI_MCA_a": "1", "PMIX_MCA_b": "c=d"}) {
			t.Errorf("%s: environment %v", line, r.Env)
		}
	}
	for _, line := range []string{"", "node-1", "-l", "-l me node-1", "../x y", "-x", "-n"} {
		if r, _, err := parse(strings.Fields(line), nil); err == nil {
			t.Errorf("%q: %+v", line, r)
		}
	}
	if r := (Request{Argv: []string{"A=1;", "export A;", "orted"}}); !reflect.DeepEqual(r.Command(), []string{"/bin/sh", "-c", "A=1; export A; orted"}) {
		t.Error(r.Command())
	}
}

// peer plays the far side for one connection.
func peer(t *testing.T, program func(context.Context, Request, live.Session) (int, error)) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			req, err := ReadRequest(theirs)
			if err != nil {
				t.Error(err)
				_ = theirs.Close()
				return
			}
			_ = live.Serve(context.Background(), theirs, 0, 0, func(ctx context.Context, s live.Session) (int, error) { return program(ctx, req, s) })
		}()
		return ours, nil
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	echo := func(_ context.Context, r Request, s live.Session) (int, error) {
		n, err := io.Copy(s.Stdout, s.Stdin)
		fmt.Fprintf(s.Stderr, "%s: %d bytes for %v", r.Host, n, r.Command())
		return 7, err
	}
	text := strings.Repeat("carried ", 50_000)
	var out, errs bytes.Buffer
	if code := run([]string{"node-1", "cat"}, nil, strings.NewReader(text), &out, &errs, peer(t, echo)); code != 7 || out.String() != text || errs.String() != fmt.Sprintf("node-1: %d bytes for [/bin/sh -c cat]", len(text)) {
		t.Errorf("code %d, %d bytes, %q", code, out.Len(), errs.String())
	}
	out.Reset()
	never, _ := io.Pipe() // it has no input, so it is not asked for any
	if code := run([]string{"-n", "node-1", "cat"}, nil, never, &out, io.Discard, peer(t, echo)); code != 7 || out.Len() != 0 {
		t.Errorf("code %d, %q", code, out.String())
	}
	for name, test := range map[string]struct {
		dial func() (net.Conn, error)
		says string
	}{
		"refused": {peer(t, func(context.Context, Request, live.Session) (int, error) { return 0, errors.New("no such member") }), "rsh: node-1: no such member\n"},
		"nobody":  {func() (net.Conn, error) { return nil, errors.New("refused") }, "rsh: node-1: the peer that runs this container does not answer: refused\n"},
		"cut off": {func() (net.Conn, error) {
			a, b := net.Pipe()
			go func() { _, _ = ReadRequest(b); _ = b.Close() }()
			return a, nil
		}, "rsh: node-1: " + live.ErrCut.Error() + "\n"},
		"no words": {nil, ""},
	} {
		errs.Reset()
		args := []string{"node-1", "true"}
		if test.dial == nil {
			args, test.says = args[:1], "rsh: usage: rsh HOST COMMAND… (starts a command in another member of this cluster; there is no login)\n"
		}
		if code := run(args, nil, strings.NewReader(""), io.Discard, &errs, test.dial); code != codeFailed || errs.String() != test.says {
			t.Errorf("%s: code %d, %q", name, code, errs.String())
		}
	}
}

func TestReadRequest(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	want := Request{Host: "head", Argv: []string{"a", ""}, Env: map[string]string{"A": "b"}}
	if err := WriteRequest(&b, want); err != nil {
		t.Fatal(err)
	}
	b.WriteString("rest")
	if got, err := ReadRequest(&b); err != nil || !reflect.DeepEqual(got, want) || b.String() != "rest" {
		t.Errorf("%+v, %v, %q", got, err, b.String())
	}
	for _, r := range []Request{{}, {Host: "a"}, {Host: "a/b", Argv: []string{"x"}}, {Host: "a", Argv: make([]string, MaxArgs+1)}, {Host: "a", Argv: []string{"\x00"}},
		{Host: "a", Argv: []string{"x"}, Env: map[string]string{"A=": ""}}, {Host: "a", Argv: []string{strings.Repeat("x", MaxRequest)}}} {
		if err := WriteRequest(io.Discard, r); !errors.Is(err, ErrRequest) {
			t.Errorf("%.40v: %v", r, err)
		}
	}
	if _, err := ReadRequest(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})); !errors.Is(err, ErrRequest) {
		t.Error(err)
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, s := range []string{`{"host":"node-1","argv":["orted"],"env":{"OMPI_MCA_a":"b"}}`, `{"host":"","argv":[]}`, `{"host":"a","argv":["x"]}{}`, `{"x":1}`} {
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...))
	}
	f.Add([]byte{0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadRequest(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := WriteRequest(&again, r); err != nil {
			if again.Len() == 0 && len(b) > MaxRequest/8 {
				t.Skip("escapes can make the encoding longer than the bound")
			}
			t.Fatal(err)
		}
		w, err := ReadRequest(&again)
		if err != nil || w.Host != r.Host || !reflect.DeepEqual(w.Argv, r.Argv) || len(w.Env) != len(r.Env) {
			t.Errorf("%+v, then %+v, %v", r, w, err)
		}
	})
}
