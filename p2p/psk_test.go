package p2p

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPSKFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "swarm.key")
	made, err := CreatePSK(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := LoadPSK(path); err != nil || *got != *made {
		t.Errorf("%v", err)
	}
	if _, err := CreatePSK(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("overwritten: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPSK(path); !errors.Is(err, ErrKeyReadable) || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("readable by all: %v", err)
	}
	if _, err := LoadPSK(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	in64 := "/key/swarm/psk/1.0.0/\n/base64/\n" + base64.StdEncoding.EncodeToString(made[:])
	if got, err := DecodePSK([]byte(in64)); err != nil || *got != *made {
		t.Errorf("base 64: %v", err)
	}
	for _, bad := range []string{"", "x", "/key/swarm/psk/1.0.0/\n/base16/\n00ff", string(EncodePSK([32]byte{})), strings.Repeat("a", 4000)} {
		if _, err := DecodePSK([]byte(bad)); !errors.Is(err, ErrPSKFile) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func FuzzDecodePSK(f *testing.F) {
	f.Add(EncodePSK([32]byte{1, 2, 3}))
	f.Add([]byte("/key/swarm/psk/1.0.0/\n/bin/\n0123456789abcdef0123456789abcdef"))
	f.Add([]byte("/key/swarm/psk/1.0.0/\r\n/base64/\r\nAQ=="))
	f.Fuzz(func(t *testing.T, b []byte) {
		key, err := DecodePSK(b)
		if err != nil {
			return
		}
		if again, err := DecodePSK(EncodePSK(*key)); err != nil || *again != *key {
			t.Fatalf("%x: %v", key, err)
		}
	})
}
