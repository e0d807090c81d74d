package tee

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

func name(t *testing.T, text string) cid.Cid {
	t.Helper()
	mh, err := multihash.Sum([]byte(text), multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	return cid.NewCidV1(cid.Raw, mh)
}

// A reader has the bytes of the next transfer of its blob, and its end. The hash is the same.
func TestReader(t *testing.T) {
	t.Parallel()
	var table Table
	data := bytes.Repeat([]byte("0123456789"), 1000)
	want := sha256.Sum256(data)
	lost := errors.New("lost")
	for _, failed := range []error{nil, lost} {
		r := table.Open(name(t, "a"), "")
		second := table.Open(name(t, "a"), "")
		sum, _, end := table.Along(name(t, "a"), nil, sha256.New())
		other, _, none := table.Along(name(t, "a"), nil, sha256.New())
		_, taken := other.(teed)
		if none(nil); taken {
			t.Error("two transfers have the same reader")
		}
		go func() {
			for part := range slices.Chunk(data, 777) {
				_, _ = sum.Write(part)
			}
			end(failed)
		}()
		got, err := io.ReadAll(r)
		if !bytes.Equal(got, data) || !errors.Is(err, failed) || failed == nil && err != nil {
			t.Errorf("read %d bytes, %v, want %v", len(got), err, failed)
		}
		if [sha256.Size]byte(sum.Sum(nil)) != want {
			t.Error("another digest")
		}
		r.End()
		second.End()
		if n, err := second.Read(make([]byte, 1)); n > 0 || !errors.Is(err, ErrNone) {
			t.Errorf("the second reader: %d bytes, %v", n, err)
		}
	}
}

// A reader that was ended, or closed, has no part in a transfer.
func TestReaderThatIsGone(t *testing.T) {
	t.Parallel()
	var table Table
	r := table.Open(name(t, "a"), "")
	r.End()
	sum, _, end := table.Along(name(t, "a"), nil, sha256.New())
	if _, ok := sum.(teed); ok {
		t.Error("a reader that was ended waits")
	}
	end(nil)
	r = table.Open(name(t, "a"), "")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	sum, _, end = table.Along(name(t, "a"), nil, sha256.New())
	defer end(nil)
	if n, err := sum.Write(make([]byte, 100)); n != 100 || err != nil {
		t.Errorf("hashed %d bytes, %v", n, err)
	}
}
