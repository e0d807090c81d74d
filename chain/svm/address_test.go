package svm

import (
	"encoding/binary"
	"testing"

	"github.com/starling-network/starling/market/sign"
)

// What is remembered of an address is what a search finds, also of more addresses than are remembered.
func TestFoundAddresses(t *testing.T) {
	t.Parallel()
	for i := range uint64(maxFound + 10) {
		program, seed := sign.Key{byte(i % 3)}, binary.LittleEndian.AppendUint64(nil, i)
		for range 2 {
			key, bump := FindAddress(program, []byte("seed"), seed)
			if i%64 > 0 {
				continue
			}
			if want := search(program, [][]byte{[]byte("seed"), seed}); (derived{key, bump}) != want {
				t.Fatalf("seed %d: %s with bump %d, want %s with %d", i, key, bump, want.key, want.bump)
			}
		}
	}
}

func BenchmarkFindAddress(b *testing.B) {
	seeds := [][]byte{[]byte("tranche"), make([]byte, 32), {1, 0}}
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			FindAddress(sign.Key{1}, seeds...)
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			search(sign.Key{1}, seeds)
		}
	})
}
