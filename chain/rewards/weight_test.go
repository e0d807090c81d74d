package rewards

import (
	"testing"

	"pgregory.net/rapid"
)

// A card that answers for several identities at one instant shares out what it has. However it does, they weigh no more together than the card:
// not fourteen that claim next to no memory, nor twelve that claim a share of it.
func TestAttackOneCardSharedOut(t *testing.T) {
	t.Parallel()
	h200 := Line{Windows: 1, Operations: 900e12, Reads: 75e9, Memory: 133_000 << 20}
	for _, c := range []struct {
		n      uint64
		memory uint64 // MiB that each proves
	}{{14, 900}, {14, 9_500}, {12, 9_700}, {2, 66_500}} {
		part := Line{Windows: 1, Operations: h200.Operations / c.n, Reads: h200.Reads / c.n, Memory: c.memory << 20}
		if all := c.n * part.weight(); all > h200.weight() {
			t.Errorf("as %d of %d MiB it weighs %d, alone %d", c.n, c.memory, all, h200.weight())
		}
	}
	small := Line{Windows: 1, Operations: h200.Operations / 14, Reads: h200.Reads / 14, Memory: 900 << 20}
	if 14*small.weight() > h200.weight()/8 {
		t.Errorf("fourteen without memory weigh %d, the card %d", 14*small.weight(), h200.weight())
	}
	rapid.Check(t, func(t *rapid.T) {
		whole := Line{Windows: rapid.Uint32Range(1, MaxWindows).Draw(t, "windows")}
		var all uint64
		for range rapid.IntRange(1, 30).Draw(t, "identities") {
			part := Line{Windows: whole.Windows, Operations: rapid.Uint64Max(300e12).Draw(t, "operations"), Reads: rapid.Uint64Max(30e9).Draw(t, "reads"),
				Memory: rapid.Uint64Max(30<<30).Draw(t, "memory")}
			whole.Operations, whole.Reads, whole.Memory = whole.Operations+part.Operations, whole.Reads+part.Reads, whole.Memory+part.Memory
			all += part.weight()
		}
		if whole.capacity() < maxPoints && all > whole.weight() {
			t.Fatalf("parts weigh %d, the whole %d", all, whole.weight())
		}
	})
}
