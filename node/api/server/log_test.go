package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/ranklog"
)

// frame is one frame of a log.
func frame(stream byte, text string) []byte {
	b := []byte{stream, 0, 0, 0, byte(len(text) >> 24), byte(len(text) >> 16), byte(len(text) >> 8), byte(len(text))}
	return append(b, text...)
}

func TestLog(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	var all []byte
	for i := range 1000 {
		all = append(all, frame(byte(1+i%2), fmt.Sprint(i, "\n"))...)
	}
	f.log = func(w io.Writer) error {
		for rest := all; len(rest) > 0; { // in pieces that respect no frame
			n := min(len(rest), 7)
			if _, err := w.Write(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	}
	var out, errOut bytes.Buffer
	if err := c.Log(t.Context(), api.Log{ID: f.job.ID}, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "0\n2\n4\n") || !strings.HasPrefix(errOut.String(), "1\n3\n5\n") || strings.Count(out.String()+errOut.String(), "\n") != 1000 {
		t.Errorf("out %.40q, err %.40q", &out, &errOut)
	}
	if f.part != (ranklog.Query{}) {
		t.Errorf("asked for %+v, want all", f.part)
	}
	part, zero := time.Date(2026, 11, 28, 19, 0, 0, 0, time.UTC), 0
	q := api.Log{ID: f.job.ID, Follow: true, Since: part, Tail: &zero, Timestamps: true}
	if err := c.Log(t.Context(), q, io.Discard, io.Discard); err != nil || !f.part.Follow || !f.part.Since.Equal(part) ||
		!f.part.Timestamps || f.part.Tail == nil || *f.part.Tail != 0 {
		t.Errorf("asked for %+v, %v", f.part, err)
	}
	less := -1
	q.Tail = &less
	wantError(t, c.Log(t.Context(), q, io.Discard, io.Discard), http.StatusBadRequest, "bad_request")
	// A log that breaks off is an error, not a shorter log.
	f.log = func(w io.Writer) error {
		if _, err := w.Write(frame(1, "whole")); err != nil {
			return err
		}
		return errors.New("disk on fire")
	}
	out.Reset()
	if err := c.Log(t.Context(), api.Log{ID: f.job.ID}, &out, &errOut); err == nil || out.String() != "whole" {
		t.Errorf("%q, %v", &out, err)
	}
	f.log = func(io.Writer) error { return errors.New("cannot be opened") }
	wantError(t, c.Log(t.Context(), api.Log{ID: f.job.ID}, &out, &errOut), http.StatusInternalServerError, "internal")
}

func FuzzDemultiplex(f *testing.F) {
	f.Add(append(frame(1, "out"), frame(2, "err")...))
	f.Add(frame(1, ""))
	f.Add(frame(3, "x"))
	f.Add(frame(1, "cut")[:10])
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var out, errOut bytes.Buffer
		err := api.Demultiplex(bytes.NewReader(b), &out, &errOut)
		if out.Len()+errOut.Len() > len(b) {
			t.Fatalf("%d bytes of %d", out.Len()+errOut.Len(), len(b))
		}
		if err != nil {
			return
		}
		// What was read is what there is, less the headers: one stream after the other reads as the same.
		again := append(frame(1, out.String()), frame(2, errOut.String())...)
		var out2, errOut2 bytes.Buffer
		if out.Len() <= 1<<20 && errOut.Len() <= 1<<20 {
			if err := api.Demultiplex(bytes.NewReader(again), &out2, &errOut2); err != nil || out2.String() != out.String() || errOut2.String() != errOut.String() {
				t.Fatalf("%v: %q and %q", err, &out2, &errOut2)
			}
		}
	})
}
