package stream_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/p2p/stream/streampb"
)

type text = *streampb.Text

func say(s string) text { return &streampb.Text{Text: s} }

var (
	echo = stream.Protocol[text, text]{Name: "echo", Version: 1, MaxRequest: 1 << 10, MaxResponse: 2 << 10}
	list = stream.Feed[text, text]{Name: "list", Version: 1, MaxItem: 1 << 10}
	file = stream.Transfer[text, text]{Name: "file", Version: 1}

	quiet = stream.Limits{Logger: p2ptest.Quiet()}
)

// pair is two hosts, the first connected to the second.
func pair(t testing.TB) (*p2p.Host, *p2p.Host) {
	hosts := p2ptest.Loopback(t, 2)
	return hosts[0], hosts[1]
}

func connect(t testing.TB, a, b *p2p.Host) {
	t.Helper()
	p2ptest.ConnectAll(t, a, b)
}

func upper(_ context.Context, _ peer.ID, req text) (text, error) {
	return say(strings.ToUpper(req.GetText())), nil
}

func TestCall(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	var from peer.ID
	srv := echo.Handle(b, p2ptest.Network, func(ctx context.Context, p peer.ID, req text) (text, error) {
		from = p
		if _, ok := ctx.Deadline(); !ok {
			t.Error("handler without a deadline")
		}
		return upper(ctx, p, req)
	}, quiet)
	defer srv.Close()
	connect(t, a, b)
	resp, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say("hello"))
	if err != nil || resp.GetText() != "HELLO" {
		t.Fatalf("got %v, %v", resp, err)
	}
	if from != a.ID() {
		t.Errorf("handler was told %s, want %s", from, a.ID())
	}
}

// A call dials by itself when the peerstore knows an address, and uses the connection that is there.
func TestCallConnection(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	defer echo.Handle(b, p2ptest.Network, upper, quiet).Close()
	_, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say("x"))
	if !errors.Is(err, stream.ErrUnreachable) {
		t.Fatalf("without addresses: got %v, want ErrUnreachable", err)
	}
	a.Peerstore().AddAddrs(b.ID(), b.Addrs(), time.Hour)
	for range 3 {
		if _, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say("x")); err != nil {
			t.Fatal(err)
		}
	}
	// One dial may leave two: TCP and QUIC, when both come at once.
	if n := len(a.Network().ConnsToPeer(b.ID())); n > 2 {
		t.Errorf("%d connections after three calls, want those of one dial", n)
	}
}

func TestCallErrors(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	srv := echo.Handle(b, p2ptest.Network, func(ctx context.Context, p peer.ID, req text) (text, error) {
		switch req.GetText() {
		case "refuse":
			return nil, stream.Refuse("no-units", "all are sold\x1b[2J")
		case "wordy":
			return nil, stream.Refuse(strings.Repeat("c", 1000), strings.Repeat("é", 1000))
		case "malformed":
			return nil, &stream.Malformed{Reason: "count is zero"}
		case "fail":
			return nil, errors.New("secret path")
		case "panic":
			panic("boom")
		case "large":
			return say(strings.Repeat("x", 4<<10)), nil
		}
		return req, nil
	}, quiet)
	defer srv.Close()
	connect(t, a, b)
	call := func(s string) error {
		_, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say(s))
		return err
	}
	var refused *stream.Refused
	if err := call("refuse"); !errors.As(err, &refused) || refused.Code != "no-units" || refused.Reason != "all are sold [2J" {
		t.Errorf("refuse: got %v", err)
	}
	if err := call("wordy"); !errors.As(err, &refused) || len(refused.Code) != 64 || len(refused.Reason) != 512 {
		t.Errorf("wordy: got %v", err)
	}
	var malformed *stream.Malformed
	if err := call("malformed"); !errors.As(err, &malformed) || malformed.Reason != "count is zero" {
		t.Errorf("malformed: got %v", err)
	}
	for _, s := range []string{"fail", "panic", "large"} {
		if err := call(s); !errors.Is(err, stream.ErrInternal) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want ErrInternal", s, err)
		}
	}
	if err := call(strings.Repeat("x", 2<<10)); !errors.Is(err, stream.ErrTooLarge) {
		t.Errorf("large request: got %v, want ErrTooLarge", err)
	}
	if err := call("ok"); err != nil {
		t.Errorf("after all errors: %v", err)
	}
	_, err := echo.Call(t.Context(), a, "other", b.ID(), say("x"))
	if !errors.Is(err, stream.ErrUnsupported) {
		t.Errorf("other network: got %v, want ErrUnsupported", err)
	}
	srv.Close() // waits for the counts
	got, want := srv.Stats(), stream.Stats{Answered: 1, Refused: 2, Malformed: 1, Failed: 3, Panics: 1}
	if got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

// What a hostile peer may put on the wire, byte for byte.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	defer echo.Handle(b, p2ptest.Network, upper, quiet).Close()
	connect(t, a, b)
	u32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for name, tc := range map[string]struct {
		send []byte
		want stream.Status // 0: the stream just breaks
	}{
		"huge length":  {u32(1 << 31), stream.StatusMalformed},
		"over size":    {u32(1<<10 + 1), stream.StatusMalformed},
		"not protobuf": {append(u32(3), 0xff, 0xff, 0xff), stream.StatusMalformed},
		"bad UTF-8":    {append(u32(3), 0x0a, 0x01, 0xff), stream.StatusMalformed},
		"cut short":    {append(u32(10), 1, 2), 0},
		"nothing":      {nil, 0},
		"empty":        {u32(0), stream.StatusOK},
	} {
		s, err := a.NewStream(t.Context(), b.ID(), echo.ID(p2ptest.Network))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(tc.send); err != nil {
			t.Fatal(err)
		}
		_ = s.CloseWrite()
		answer, _ := io.ReadAll(s)
		_ = s.Reset()
		switch {
		case tc.want == 0 && len(answer) != 0:
			t.Errorf("%s: got an answer %x", name, answer)
		case tc.want != 0 && (len(answer) < 6 || stream.Status(binary.BigEndian.Uint16(answer)) != tc.want):
			t.Errorf("%s: answer %x, want status %d", name, answer, tc.want)
		}
	}
}

func TestRawAnswers(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	answers := map[string]struct {
		send []byte
		want error
	}{
		"unknown status": {[]byte{0, 1, 0, 0, 0, 0}, stream.ErrBadReply},
		"end of feed":    {[]byte{0, 110, 0, 0, 0, 0}, stream.ErrBadReply},
		"end with body":  {[]byte{0, 110, 0, 0, 0, 1, 9}, stream.ErrBadReply},
		"over size":      {[]byte{0, 100, 0, 0, 0x10, 0}, stream.ErrTooLarge},
		"not protobuf":   {[]byte{0, 100, 0, 0, 0, 1, 0xff}, stream.ErrBadReply},
		"bad refusal":    {[]byte{0, 200, 0, 0, 0, 1, 0xff}, stream.ErrBadReply},
		"huge refusal":   {[]byte{0, 200, 0xff, 0, 0, 1, 0xff}, stream.ErrTooLarge},
		"cut short":      {[]byte{0, 100, 0, 0, 0, 9, 1}, stream.ErrUnreachable},
		"nothing":        {nil, stream.ErrUnreachable},
	}
	b.SetStreamHandler(echo.ID(p2ptest.Network), func(s network.Stream) {
		req := make([]byte, 64)
		n, _ := s.Read(req)
		_, _ = s.Write(answers[string(req[6:n])].send) // 4 bytes of length, 2 of protobuf framing
		_ = s.Close()
	})
	connect(t, a, b)
	for name, tc := range answers {
		if _, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say(name)); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	enter, leave := make(chan struct{}), make(chan struct{})
	srv := echo.Handle(b, p2ptest.Network, func(ctx context.Context, _ peer.ID, req text) (text, error) {
		enter <- struct{}{}
		<-leave
		return req, nil
	}, stream.Limits{PerPeer: 2, Logger: p2ptest.Quiet()})
	defer srv.Close()
	connect(t, a, b)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say("x")); err != nil {
				t.Error(err)
			}
		})
		<-enter
	}
	var refused *stream.Refused
	if _, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say("x")); !errors.As(err, &refused) || refused.Code != stream.CodeBusy {
		t.Errorf("third call: got %v, want busy", err)
	}
	close(leave)
	wg.Wait()
	if n := srv.Stats().Busy; n != 1 {
		t.Errorf("busy count %d, want 1", n)
	}
}

// TestAttackRequestRate: who asks too often is refused before its request is handled.
func TestAttackRequestRate(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	slow, all := admit.Rate{PerSecond: 1e-6, Burst: 3}, admit.Rate{PerSecond: 1e-6, Burst: 100}
	srv := echo.Handle(b, p2ptest.Network, upper, stream.Limits{Rates: admit.NewRates(slow, all, all), Logger: p2ptest.Quiet()})
	defer srv.Close()
	connect(t, a, b)
	for i := range 6 {
		_, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say("x"))
		var refused *stream.Refused
		if i < 3 && err != nil || i >= 3 && (!errors.As(err, &refused) || refused.Code != stream.CodeBusy) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if s := srv.Stats(); s.Answered != 3 || s.Busy != 3 {
		t.Errorf("%+v", s)
	}
}

// A caller that goes away, and a server that is closed, end the handler.
func TestCancel(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	entered, ended := make(chan struct{}), make(chan struct{})
	srv := echo.Handle(b, p2ptest.Network, func(ctx context.Context, _ peer.ID, req text) (text, error) {
		entered <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}, quiet)
	connect(t, a, b)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 2)
	call := func() {
		_, err := echo.Call(ctx, a, p2ptest.Network, b.ID(), say("x"))
		result <- err
	}
	go call()
	<-entered
	cancel()
	<-ended
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: got %v", err)
	}
	ctx = t.Context()
	go call()
	<-entered
	go func() { <-ended }()
	srv.Close()
	if err := <-result; err == nil {
		t.Error("call to a closed server succeeded")
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	gone := make(chan struct{})
	srv := list.Serve(b, p2ptest.Network, func(ctx context.Context, _ peer.ID, req text, send func(text) error) error {
		switch req.GetText() {
		case "three":
			for _, s := range []string{"a", "b", "c"} {
				if err := send(say(s)); err != nil {
					return err
				}
			}
			return nil
		case "endless":
			defer close(gone)
			for {
				if err := send(say("again")); err != nil {
					return err
				}
			}
		case "silent":
			<-ctx.Done()
			return ctx.Err()
		}
		_ = send(say("one"))
		return stream.Refuse("unknown", "no such list")
	}, quiet)
	defer srv.Close()
	connect(t, a, b)
	open := func(s string) *stream.Items[text] {
		items, err := list.Open(t.Context(), a, p2ptest.Network, b.ID(), say(s))
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	items := open("three")
	var got string
	for {
		item, err := items.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += item.GetText()
	}
	if _, err := items.Next(); got != "abc" || err != io.EOF {
		t.Errorf("got %q, then %v", got, err)
	}
	items = open("other")
	if item, err := items.Next(); err != nil || item.GetText() != "one" {
		t.Fatalf("got %v, %v", item, err)
	}
	var refused *stream.Refused
	if _, err := items.Next(); !errors.As(err, &refused) || refused.Code != "unknown" {
		t.Errorf("got %v, want the refusal", err)
	}
	items = open("endless")
	if _, err := items.Next(); err != nil {
		t.Fatal(err)
	}
	items.Close()
	<-gone
	if _, err := items.Next(); err == nil {
		t.Error("a closed feed gave an item for ever")
	}
	open("silent").Close() // srv.Close would hang if the handler did not learn of it
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	big := strings.Repeat("0123456789abcdef", 64<<10)
	srv := file.Serve(b, p2ptest.Network, func(_ context.Context, _ peer.ID, req text) (text, io.ReadCloser, int64, error) {
		body := io.NopCloser(strings.NewReader(big))
		switch req.GetText() {
		case "big":
			return say("head"), body, int64(len(big)), nil
		case "short":
			return say("head"), body, int64(len(big)) + 1, nil
		case "empty":
			return say("head"), body, 0, nil
		}
		return nil, nil, 0, stream.Refuse("unknown", "no such file")
	}, quiet)
	defer srv.Close()
	connect(t, a, b)
	for name, want := range map[string]struct {
		body string
		err  error
	}{"big": {big, nil}, "empty": {"", nil}, "short": {big, stream.ErrUnreachable}} {
		head, body, err := file.Open(t.Context(), a, p2ptest.Network, b.ID(), say(name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		body.Close()
		// A body that breaks off may lose its tail on the way, and is an error all the same.
		if head.GetText() != "head" || !strings.HasPrefix(want.body, string(got)) || !errors.Is(err, want.err) || err == nil && len(got) != len(want.body) {
			t.Errorf("%s: %d bytes, %v; want %d, %v", name, len(got), err, len(want.body), want.err)
		}
	}
	var refused *stream.Refused
	if _, _, err := file.Open(t.Context(), a, p2ptest.Network, b.ID(), say("x")); !errors.As(err, &refused) {
		t.Errorf("got %v, want a refusal", err)
	}
}

// In a simulated network: deadlines fire on both sides, a call costs one round trip on a warm connection,
// and nothing is left running.
func TestSimulated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rtt = 50 * time.Millisecond
		net := p2ptest.NewNet(t, 3, rtt)
		a, b := net.Hosts[0], net.Hosts[1]
		slow := stream.Protocol[text, text]{Name: "slow", Version: 1, Deadline: 5 * time.Second}
		var handlerErr error
		defer slow.Handle(b, p2ptest.Network, func(ctx context.Context, _ peer.ID, req text) (text, error) {
			<-ctx.Done()
			handlerErr = ctx.Err()
			return nil, ctx.Err()
		}, quiet).Close()
		defer echo.Handle(b, p2ptest.Network, upper, quiet).Close()
		net.ConnectAll()
		synctest.Wait()
		start := time.Now()
		if _, err := echo.Call(t.Context(), a, p2ptest.Network, b.ID(), say("x")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > rtt+rtt/2 {
			t.Errorf("a warm call took %v at a round trip of %v", took, rtt)
		}
		start = time.Now()
		if _, err := slow.Call(t.Context(), a, p2ptest.Network, b.ID(), say("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the deadline of 5 s came after %v", took)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if handlerErr == nil {
			t.Error("the handler still runs after the deadline")
		}
		net.Crash(1)
		start = time.Now()
		if _, err := echo.Call(t.Context(), a, p2ptest.Network, net.Addr(1).ID, say("x")); err == nil {
			t.Error("a crashed peer answered")
		}
		if took := time.Since(start); took > stream.DefaultDeadline {
			t.Errorf("a crashed peer was waited for %v", took)
		}
	})
}
