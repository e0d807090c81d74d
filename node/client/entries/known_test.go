package entries

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

func addr(i int) string {
	id, err := p2p.PeerIDFromKey(keyOf(i).Key())
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("/ip4/10.0.0.%d/tcp/4001/p2p/%s", i, id)
}

func FuzzEntries(f *testing.F) {
	one, err := config.ParsePeers([]string{addr(1)})
	if err != nil {
		f.Fatal(err)
	}
	k := knownOf(one[0])
	k.Given, k.Shown, k.Seen, k.By = true, true, 1700000000, k.ID
	f.Add(encodeEntries([]known{k, knownOf(one[0])}))
	f.Add([]byte(`[{"id":"x"},{}]`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeEntries(b)
		if err != nil {
			if !errors.Is(err, ErrEntriesFile) {
				t.Fatal(err)
			}
			return
		}
		once := encodeEntries(all)
		again, err := decodeEntries(once)
		if err != nil || len(again) != len(all) || !bytes.Equal(encodeEntries(again), once) {
			t.Fatalf("%s is read as %v (%v)", once, again, err)
		}
		for _, k := range all {
			if _, ok := k.info(); !ok || !slices.ContainsFunc(again, func(o known) bool { return o.ID == k.ID }) {
				t.Fatalf("entry %v makes no sense or is lost", k)
			}
		}
	})
}
