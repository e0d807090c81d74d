package stream

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/p2p/stream/streampb"
)

// FuzzRequest: what decodes from arbitrary bytes encodes to something that decodes to the same.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{"", "hello", "é"} {
		frame, _ := encodeRequest(&streampb.Text{Text: s}, 1<<10)
		f.Add(frame)
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 1, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := readRequest(bytes.NewReader(data), 1<<10)
		if err != nil {
			return
		}
		var req, again streampb.Text
		if proto.Unmarshal(body, &req) != nil {
			return
		}
		frame, err := encodeRequest(&req, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		body, err = readRequest(bytes.NewReader(frame), 1<<10)
		if err != nil || proto.Unmarshal(body, &again) != nil || !proto.Equal(&req, &again) {
			t.Fatalf("%v became %v: %v", &req, &again, err)
		}
	})
}

// FuzzAnswer: no bytes make the reader panic, and every error class survives encoding.
func FuzzAnswer(f *testing.F) {
	f.Add(encodeError(Refuse("busy", "later")))
	f.Add(encodeError(&Malformed{Reason: "bad"}))
	f.Add(encodeError(errors.New("x")))
	ok, _ := encodeAnswer(StatusOK, &streampb.Text{Text: "x"}, 10)
	end, _ := encodeAnswer(StatusEnd, nil, 0)
	f.Add(ok)
	f.Add(end)
	f.Fuzz(func(t *testing.T, data []byte) {
		st, body, err := readAnswer(bytes.NewReader(data), 1<<10)
		if err == nil {
			if st != StatusOK && st != StatusEnd || len(body) > 1<<10 {
				t.Fatalf("status %d with %d bytes and no error", st, len(body))
			}
			return
		}
		if !isAnswer(err) || errors.Is(err, ErrBadReply) || errors.Is(err, ErrTooLarge) {
			return
		}
		_, _, again := readAnswer(bytes.NewReader(encodeError(err)), 0)
		if again == nil || again.Error() != err.Error() {
			t.Fatalf("%v became %v", err, again)
		}
	})
}
