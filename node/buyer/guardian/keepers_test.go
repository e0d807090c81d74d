package guardian_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
)

// The keepers of a checkpoint are the guardians that have answered that they store it. One that is away is none, and
// there are none before a guardian has the file and after the state no longer names it.
func TestKeepers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		spare := func(content string) guardian.File {
			f := guardiantest.FileOf(content)
			f.Spare = true
			return f
		}
		first, second, absent := spare("first"), spare("second"), spare("absent")
		version := uint64(0)
		state := func(files ...guardian.File) {
			version++
			s := guardian.State{Version: version, Bytes: []byte{byte(version)}, Files: files}
			guardiantest.Must(t, p.Beat(t.Context(), &s))
			time.Sleep(time.Second) // for the guardians to fetch
			guardiantest.Must(t, p.Beat(t.Context(), nil))
			time.Sleep(time.Second) // for the last answer
		}
		all := w.charter.Keys.Keys
		are := func(what string, f guardian.File, want ...sign.Key) {
			t.Helper()
			if got := p.Keepers(f.CID); !slices.Equal(got, want) {
				t.Errorf("%s: %d guardians keep it, want %d", what, len(got), len(want))
			}
		}
		are("before", first)
		state(first)
		are("fetched", first, all...)
		are("not one of the state", absent)
		w.crash(guardiantest.HostOf(all[1]))
		state(first, second)
		are("one is away", second, all[0], all[2])
		are("it had this", first, all...)
		w.mu.Lock()
		for i := range w.nodes {
			w.missing[i] = true
		}
		w.mu.Unlock()
		state(second, absent)
		are("nobody has it", absent)
		are("still kept", second, all[0], all[2])
	})
}

// A guardian's answer names only files of the state that it was sent, whatever its bits are.
func TestAttackKeptBits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var files []guardian.File
		var spare []cid.Cid
		for i := range rapid.IntRange(0, 40).Draw(t, "files") {
			f := guardiantest.FileOf(string(rune('a' + i)))
			if f.Spare = rapid.Bool().Draw(t, "spare"); f.Spare {
				spare = append(spare, f.CID)
			}
			files = append(files, f)
		}
		bits := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bits")
		stored := guardian.SpareOf(files, bits)
		for _, c := range stored {
			if !slices.Contains(spare, c) {
				t.Fatalf("%s: not a spare file of the state", c)
			}
		}
		again := guardian.SpareBits(files, stored)
		if back := guardian.SpareOf(files, again); !slices.Equal(back, stored) || len(again) > len(files)/8+1 {
			t.Fatalf("%d files in %d bytes, want %d", len(back), len(again), len(stored))
		}
	})
}
