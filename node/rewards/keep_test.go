package rewards

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// template makes certificates of any unit in any window, whose signatures are another's: enough to be counted.
func template(t testing.TB) func(unit, window, variant int) audit.Certificate {
	t.Helper()
	r, err := audittest.New(7).Make()
	if err != nil {
		t.Fatal(err)
	}
	b := r.Certificate().Marshal()
	return func(unit, window, variant int) audit.Certificate {
		const answer = 64
		c := append([]byte{}, b...)
		binary.LittleEndian.PutUint64(c[answer+40:], uint64(unit))
		binary.LittleEndian.PutUint64(c[answer+72:], uint64(window))
		c[answer+280] = byte(variant) // of the signature
		out, _, err := audit.CutCertificate(c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// What is counted of an epoch is what a process would count that has just begun, however certificates come and epochs go.
func TestTalliesAreThoseOfAll(t *testing.T) {
	t.Parallel()
	of := template(t)
	rapid.Check(t, func(t *rapid.T) {
		k := newKeep(store.NewMemory())
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			var cs []audit.Certificate
			for range rapid.IntRange(0, 4).Draw(t, "come") {
				cs = append(cs, of(rapid.IntRange(0, 3).Draw(t, "unit"), rapid.IntRange(0, 9).Draw(t, "window"), rapid.IntRange(0, 2).Draw(t, "variant")))
			}
			if err := k.add(context.Background(), cs); err != nil {
				t.Fatal(err)
			}
			n := rapid.Uint64Range(0, 2).Draw(t, "epoch")
			e := rewards.Epoch{Number: n, From: audit.Window(n) * 4, To: audit.Window(n)*4 + audit.Window(rapid.IntRange(2, 4).Draw(t, "windows"))}
			got, err := k.tallies(context.Background(), e)
			if err != nil {
				t.Fatal(err)
			}
			want, err := newKeep(k.store).tallies(context.Background(), e)
			if err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("counted %+v, want %+v, %v", got, want, err)
			}
		}
	})
}

// A look at an epoch of so many units costs what is new of it.
func BenchmarkTallies(b *testing.B) {
	of := template(b)
	e := rewards.Epoch{From: 0, To: 24}
	for _, units := range []int{100, 1000} {
		b.Run(fmt.Sprint(units), func(b *testing.B) {
			k := newKeep(store.NewMemory())
			for u := range units {
				var cs []audit.Certificate
				for w := range 24 {
					cs = append(cs, of(u, w, 1))
				}
				if err := k.add(b.Context(), cs); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := k.tallies(b.Context(), e); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if err := k.add(b.Context(), []audit.Certificate{of(n%units, 30, n%256)}); err != nil { // of another epoch
					b.Fatal(err)
				}
				if ts, err := k.tallies(b.Context(), e); err != nil || len(ts) != units {
					b.Fatal(err)
				}
			}
		})
	}
}
