package svm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// deployed returns the two accounts of a program of the upgradeable loader. A zero authority means that it has none.
func deployed(id, authority sign.Key, slot uint64, elf []byte) (account, data []byte) {
	at := svm.DataAddress(id)
	account = append([]byte{2, 0, 0, 0}, at[:]...)
	data = binary.LittleEndian.AppendUint64([]byte{3, 0, 0, 0}, slot)
	if authority.IsZero() {
		data = append(data, make([]byte, 33)...)
	} else {
		data = append(append(data, 1), authority[:]...)
	}
	return account, append(data, elf...)
}

// TestDeployed: code, slot and authority come back.
func TestDeployed(t *testing.T) {
	t.Parallel()
	id, elf := key(1), []byte("program\x00code\x00\x00")
	for name, authority := range map[string]sign.Key{"final": {}, "with an authority": key(7)} {
		account, data := deployed(id, authority, 1<<40+3, elf)
		want := svm.Deployed{Code: sign.Sum([]byte("program\x00code")), Slot: 1<<40 + 3, Authority: authority}
		got, err := svm.ParseDeployed(id, account, data)
		if err != nil || got != want {
			t.Errorf("%s: %+v, want %+v, %v", name, got, want, err)
		}
		if got.Final() != authority.IsZero() {
			t.Errorf("%s: final %v", name, got.Final())
		}
	}
}

// TestParseDeployedRefuses: accounts of other kinds, other programs and other lengths.
func TestParseDeployedRefuses(t *testing.T) {
	t.Parallel()
	id := key(1)
	for name, change := range map[string]func(account, data *[]byte){
		"another kind":          func(account, _ *[]byte) { (*account)[0] = 1 },
		"another program's":     func(account, _ *[]byte) { (*account)[4] ^= 1 },
		"a short account":       func(account, _ *[]byte) { *account = (*account)[:35] },
		"a long account":        func(account, _ *[]byte) { *account = append(*account, 0) },
		"no account":            func(account, _ *[]byte) { *account = nil },
		"a buffer for data":     func(_, data *[]byte) { (*data)[0] = 1 },
		"an authority of sorts": func(_, data *[]byte) { (*data)[12] = 2 },
		"short data":            func(_, data *[]byte) { *data = (*data)[:44] },
		"no data":               func(_, data *[]byte) { *data = nil },
	} {
		account, data := deployed(id, key(7), 5, []byte("elf"))
		change(&account, &data)
		if got, err := svm.ParseDeployed(id, account, data); !errors.Is(err, svm.ErrAccount) || got != (svm.Deployed{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestCodeHash: zeros at the end of a program do not count, others do.
func TestCodeHash(t *testing.T) {
	t.Parallel()
	want := sign.Sum([]byte("\x00elf\x00x"))
	for _, zeros := range []int{0, 1, 1000} {
		if got := svm.CodeHash(append([]byte("\x00elf\x00x"), make([]byte, zeros)...)); got != want {
			t.Errorf("with %d zeros: %s, want %s", zeros, got, want)
		}
	}
	if svm.CodeHash([]byte("elfx")) == svm.CodeHash([]byte("elf\x00x")) {
		t.Error("a zero inside does not count")
	}
}

// TestSingleKey: an authority is one key's if it is a point of the curve.
func TestSingleKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		authority sign.Key
		want      bool
	}{
		"none":      {sign.Key{}, false},
		"a key":     {sign.NewPrivate([32]byte{1}).Key(), true},
		"a program": {svm.Address(key(1), []byte("vault")), false},
	} {
		if got := (svm.Deployed{Authority: c.authority}).SingleKey(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func FuzzDeployed(f *testing.F) {
	id := key(1)
	account, data := deployed(id, key(7), 5, []byte("elf"))
	f.Add(account, data)
	f.Fuzz(func(t *testing.T, account, data []byte) {
		d, err := svm.ParseDeployed(id, account, data)
		if err != nil {
			if !errors.Is(err, svm.ErrAccount) {
				t.Fatal(err)
			}
			return
		}
		again, head := deployed(id, d.Authority, d.Slot, nil)
		if !bytes.Equal(again, account) || !d.Authority.IsZero() && !slices.Equal(head, data[:45]) {
			t.Fatalf("%x and %x come back as %x and %x", account, data, again, head)
		}
	})
}
