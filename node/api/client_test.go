package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// peerOf returns a client of a peer that answers each request with a handler.
func peerOf(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return New(Endpoint{URL: s.URL, Token: "token"})
}

// A home directory without an endpoint file has no peer; a file that cannot be read is another error.
func TestDial(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if _, err := Dial(home, "api.json"); !errors.Is(err, ErrNoPeer) || !strings.Contains(err.Error(), home) {
		t.Errorf("no file: %v", err)
	}
	if err := os.Mkdir(filepath.Join(home, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cut": `{"url": "http://`, "list": `[]`, "number": `{"url": 7}`, "empty": ``} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"folder", "cut", "list", "number", "empty"} {
		if _, err := Dial(home, name); err == nil || errors.Is(err, ErrNoPeer) || !strings.HasPrefix(err.Error(), "reading the endpoint file: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := Endpoint{URL: "http://127.0.0.1:7", Token: "t", PID: 9}
	b, err := json.Marshal(want)
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "api.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Dial(home, "api.json"); err != nil || c.Endpoint() != want || c.PID() != 9 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The peer's API is reached over its unix socket; the host of the URL is a header alone.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "api") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"version": %q}`, r.Host+" "+r.Header.Get("Authorization"))
	})}}
	s.Start()
	t.Cleanup(s.Close)
	c := New(Endpoint{URL: "http://peer.invalid", Socket: filepath.Join(dir, "s"), Token: "token"})
	if n, err := GetNode.Call(t.Context(), c, None{}); err != nil || n.Version != "peer.invalid Bearer token" {
		t.Errorf("got %q, %v", n.Version, err)
	}
}

// The client distinguishes a peer that does not answer, an answer without success, and a caller that gave up.
func TestDo(t *testing.T) {
	t.Parallel()
	if _, err := GetNode.Call(t.Context(), New(Endpoint{URL: "http://127.0.0.1:1"}), None{}); !errors.Is(err, ErrNoPeer) {
		t.Errorf("nobody listens: %v", err)
	}
	aborts := peerOf(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := GetNode.Call(t.Context(), aborts, None{}); !errors.Is(err, ErrNoPeer) {
		t.Errorf("it hangs up: %v", err)
	}
	asked := make(chan struct{})
	hangs := peerOf(t, func(_ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := GetNode.Call(ctx, hangs, None{}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoPeer) {
		t.Errorf("given up: %v", err)
	}
	refuses := peerOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = w.Write([]byte(`{"error":{"code":"payment","message":"no funds","hint":"add some"}}`))
	})
	_, err := GetNode.Call(t.Context(), refuses, None{})
	if e, ok := errors.AsType[*Error](err); !ok || *e != (Error{Status: 402, Code: CodePayment, Message: "no funds", Hint: "add some"}) {
		t.Errorf("got %v", err)
	}
	if _, err := New(Endpoint{URL: "http://a b"}).Do(t.Context(), "GET", "/", nil, nil); err == nil || errors.Is(err, ErrNoPeer) {
		t.Errorf("no URL: %v", err)
	}
}

// A file that cannot be read while it is sent is the user's trouble, not the peer's silence.
func TestUploadBroken(t *testing.T) {
	t.Parallel()
	c := peerOf(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_ = json.NewEncoder(w).Encode(record.Blob{CID: string(b), Tree: r.URL.Query().Get("tree") == "1"})
	})
	broken := errors.New("the disk is broken")
	body := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))
	if _, err := PutBlob.Call(t.Context(), c, Upload{Data: body}); !errors.Is(err, broken) || errors.Is(err, ErrNoPeer) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if b, err := PutBlob.Call(t.Context(), c, Upload{Tree: true, Data: iotest.OneByteReader(strings.NewReader("whole"))}); err != nil ||
		b.CID != "whole" || !b.Tree {
		t.Errorf("%+v, %v", b, err)
	}
}

// All pages are read in order, and a peer that repeats itself does not keep its caller for ever.
func TestJobsPages(t *testing.T) {
	t.Parallel()
	const pages = 4
	c := peerOf(t, func(w http.ResponseWriter, r *http.Request) {
		n := 0
		_, _ = fmt.Sscanf(r.URL.Query().Get("after"), "p%d", &n)
		p := struct {
			Jobs []map[string]any `json:"jobs"`
			Next string           `json:"next,omitempty"`
		}{Jobs: []map[string]any{}}
		if n+1 < pages {
			p.Next = fmt.Sprintf("p%d", n+1)
		}
		if r.URL.Query().Get("name") == "circle" {
			p.Next = "p1"
		}
		_ = json.NewEncoder(w).Encode(p)
	})
	if jobs, err := c.Jobs(t.Context(), record.Query{}); err != nil || jobs == nil {
		t.Errorf("%v, %v: none is a list without elements", jobs, err)
	}
	if _, err := c.Jobs(t.Context(), record.Query{Name: "circle"}); err == nil || !strings.Contains(err.Error(), "the same page again") {
		t.Errorf("got %v", err)
	}
}

// Events may come in any chunks; unknown kinds and comments are passed over.
func TestEvents(t *testing.T) {
	t.Parallel()
	stream := ": hello\n\nevent: step\ndata: {\"kind\":\"leased\",\"detail\":\"one\"}\n\nevent: strange\ndata: {not JSON\n\n" +
		"event: step\ndata: {\"kind\":\"lost\",\"detail\":\"" + strings.Repeat("x", 100_000) + "\"}\nid: 7\n\ndata: {\"kind\":\"paid\"}\n"
	c := peerOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/v1/jobs/j%2F1/events?follow=1" {
			t.Errorf("asked for %s", r.URL.RequestURI())
		}
		for chunk := range slices.Chunk([]byte(stream), 33_333) {
			_, _ = w.Write(chunk)
			_ = http.NewResponseController(w).Flush()
		}
	})
	var kinds []string
	err := c.Events(t.Context(), "j/1", func(s record.Step) { kinds = append(kinds, string(s.Kind)) }, nil)
	if err != nil || !slices.Equal(kinds, []string{"leased", "lost", "paid"}) {
		t.Errorf("%q, %v", kinds, err)
	}
	for _, bad := range []string{"event: step\ndata: {\n\n", "event: job\ndata: []\n\n", "event: job\ndata: \n\n"} {
		c := peerOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(bad)) })
		if err := c.Events(t.Context(), "j", nil, nil); err == nil || !strings.HasPrefix(err.Error(), "reading events: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// frame is a log frame.
func frame(stream byte, text []byte) []byte {
	h := make([]byte, ranklog.FrameHeader, ranklog.FrameHeader+len(text))
	h[0] = stream
	binary.BigEndian.PutUint32(h[4:], uint32(len(text)))
	return append(h, text...)
}

// Both streams come out as they went in. The part of a log before a cut is written, and the cut is an error unless it
// is between two frames.
func TestDemultiplexProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var log []byte
		var want [3][]byte
		borders := map[int]bool{0: true}
		for range rapid.IntRange(0, 6).Draw(t, "frames") {
			stream := rapid.SampledFrom([]byte{ranklog.StreamStdout, ranklog.StreamStderr}).Draw(t, "stream")
			text := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "text")
			log, want[stream] = append(log, frame(stream, text)...), append(want[stream], text...)
			borders[len(log)] = true
		}
		cut := rapid.IntRange(0, len(log)).Draw(t, "cut")
		var out, errs bytes.Buffer
		err := Demultiplex(iotest.HalfReader(bytes.NewReader(log[:cut])), &out, &errs)
		if borders[cut] != (err == nil) || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d of %d: %v", cut, len(log), err)
		}
		if !bytes.HasPrefix(want[ranklog.StreamStdout], out.Bytes()) || !bytes.HasPrefix(want[ranklog.StreamStderr], errs.Bytes()) {
			t.Fatalf("got %q and %q, want %q", out.Bytes(), errs.Bytes(), want)
		}
		if cut == len(log) && out.Len()+errs.Len() != len(want[ranklog.StreamStdout])+len(want[ranklog.StreamStderr]) {
			t.Fatalf("got %q and %q, want %q", out.Bytes(), errs.Bytes(), want)
		}
	})
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

// Bytes that are no frames are refused before more of them is read, and a writer's error is the caller's.
func TestDemultiplexRefuses(t *testing.T) {
	t.Parallel()
	for says, log := range map[string][]byte{
		"frame of unknown stream 0": frame(0, nil), "frame of unknown stream 72": []byte("HTTP/1.1"),
		"this is no frame": append(frame(ranklog.StreamStdout, nil)[:4], 0, 0x10, 0, 1),
	} {
		if err := Demultiplex(bytes.NewReader(log), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", log, err, says)
		}
	}
	full := errors.New("no space")
	if err := Demultiplex(bytes.NewReader(frame(ranklog.StreamStderr, []byte("x"))), io.Discard, failing{full}); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	most := frame(ranklog.StreamStdout, make([]byte, maxFrame))
	if err := Demultiplex(bytes.NewReader(most), io.Discard, io.Discard); err != nil {
		t.Errorf("a frame of %d bytes: %v", maxFrame, err)
	}
}

const jobText = `{apiVersion: v1, kind: Job, metadata: {name: words}, spec: {module: app.wasm,
  payment: {maxPrice: 0.05, budget: 0.1}%s}}`

// submission is a job with secrets, as a user's file has it.
func submission(t testing.TB, more string) Submission {
	t.Helper()
	spec, err := jobfile.Parse(fmt.Appendf(nil, jobText, more), jobfile.Token{Decimals: 6})
	if err == nil {
		spec, err = spec.WithBlobs(map[string]job.Blob{"app.wasm": {CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy", Size: 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return Submission{Job: spec}
}

// A job goes with its secrets only where it has some, under a content type that says so, and arrives as it was.
func TestSubmissionForms(t *testing.T) {
	t.Parallel()
	plain := submission(t, "")
	sealed := submission(t, ", secrets: [{name: token, from: 'env:TOKEN', env: T}]")
	sealed.Values.Secrets = map[string][]byte{"token": []byte("correct\nhorse")}
	for want, s := range map[string]Submission{jsonType: plain, SubmissionType: sealed} {
		contentType, b, err := s.EncodeBody()
		if err != nil || contentType != want {
			t.Fatalf("%s, %v, want %s", contentType, err, want)
		}
		var got Submission
		if err := got.DecodeBody(contentType+"; charset=utf-8", b); err != nil || !bytes.Equal(got.Values.Secrets["token"], s.Values.Secrets["token"]) {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
		if again, _ := json.Marshal(got.Job); !bytes.Contains(b, again) {
			t.Errorf("%s: the job %s is not in %s", want, again, b)
		}
	}
	if got, err := ReadSubmission("text/plain", []byte(`{"job":{},"values":{}}`)); err == nil {
		t.Errorf("another content type: %+v", got)
	}
}

// A malformed submission is refused with its reason, and no error repeats a secret.
func TestSubmissionRefused(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse"
	sealed := submission(t, ", secrets: [{name: token, from: 'env:TOKEN', env: T}]")
	spec, err := json.Marshal(sealed.Job)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ body, says string }{
		{`{"job":` + string(spec) + `,"values":{"secrets":{"token":"` + secret + `"}}}`, "values: malformed secrets"},
		{`{"job":` + string(spec) + `,"values":{"secrets":["` + secret + `"]}}`, "values: malformed secrets"},
		{`{"job":` + string(spec) + `,"values":"` + secret + `"}`, "values: malformed secrets"},
		{`{"job":` + string(spec) + `,"values":{"secrets":{"` + secret + `` /* cut */, "not JSON with job and values"},
		{`{"job":` + string(spec) + `}`, "token"},
		{`{"values":{}}`, ""}, {`null`, ""}, {`[]`, "not JSON with job and values"}, {``, "not JSON with job and values"},
	} {
		var s Submission
		err := s.DecodeBody(SubmissionType, []byte(x.body))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Status != http.StatusBadRequest || e.Code != "bad_job" || !strings.Contains(e.Message, x.says) || strings.Contains(e.Message, secret) {
			t.Errorf("%.60s: got %v, want bad_job with %q", x.body, err, x.says)
		}
	}
	sealed.Values.Secrets = nil
	if err := badJob(nil); err != nil {
		t.Errorf("no error is %v", err)
	}
	quote := Submission{Job: sealed.Job}
	quote.Job.Secrets, quote.Job.Registry, quote.Job.Webhooks = nil, nil, nil
	_, b, err := quote.EncodeBody()
	if err != nil {
		t.Fatal(err)
	}
	var got Submission
	if err := got.DecodeBody(jsonType, append(b, "{}"...)); err == nil {
		t.Error("two jobs are one")
	}
	if err := got.DecodeBody(jsonType, bytes.Replace(b, []byte(`"name"`), []byte(`"nmae"`), 1)); err == nil {
		t.Error("an unknown field is passed over")
	}
	if err := got.DecodeBody(jsonType, b); err != nil {
		t.Error(err)
	}
}
