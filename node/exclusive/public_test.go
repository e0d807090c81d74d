package exclusive_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// shelf gives some records.
type shelf map[sign.Hash][]byte

func (s shelf) Probe(_ context.Context, hash sign.Hash) ([]byte, error) {
	b, ok := s[hash]
	if !ok {
		return nil, exclusive.ErrNoRecord
	}
	return b, nil
}

func (s shelf) Probes(context.Context) ([]sign.Hash, error) {
	var out []sign.Hash
	for h := range s {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b sign.Hash) int { return slices.Compare(a[:], b[:]) })
	return out, nil
}

// A record that a peer gives is had by its hash and checked by whoever has it; a peer that gives something else is not believed, and one
// that has none says so as every other does.
func TestPublic(t *testing.T) {
	t.Parallel()
	r, err, _ := talk(t, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const tag = "town"
	hosts := p2ptest.Loopback(t, 4)
	p2ptest.ConnectAll(t, hosts...)
	keys := make([]sign.Key, len(hosts))
	for i, h := range hosts {
		k, err := p2p.KeyFromPeerID(h.ID())
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = sign.Key(k)
	}
	answers := exclusive.Publish(hosts[1], tag, shelf{r.Hash(): r.Marshal()}, p2ptest.Quiet())
	defer answers.Close()
	none := exclusive.Publish(hosts[2], tag, nil, p2ptest.Quiet())
	defer none.Close()
	var says *nodepb.ProbesReply
	liar := protocol.Probes.Handle(hosts[3], tag, func(context.Context, peer.ID, *nodepb.ProbesRequest) (*nodepb.ProbesReply, error) { return says, nil }, stream.Limits{})
	defer liar.Close()
	ask := exclusive.Asker{Host: hosts[0], Tag: tag}

	got, err := ask.Record(t.Context(), keys[1], r.Hash())
	if err != nil || got.Check(domain) != nil || got.Hash() != r.Hash() {
		t.Errorf("%v, %v", err, got.Check(domain))
	}
	if list, err := ask.List(t.Context(), keys[1]); err != nil || !slices.Equal(list, []sign.Hash{r.Hash()}) {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := ask.Record(t.Context(), keys[1], sign.Hash{1}); !errors.Is(err, exclusive.ErrNoRecord) {
		t.Errorf("a record that is not there: %v", err)
	}
	if _, err := ask.Record(t.Context(), keys[2], r.Hash()); !errors.Is(err, exclusive.ErrNoRecord) {
		t.Errorf("of a peer that has none: %v", err)
	}
	if list, err := ask.List(t.Context(), keys[2]); err != nil || len(list) != 0 {
		t.Errorf("of a peer that has none: %v, %v", list, err)
	}
	other := r
	other.Known++
	h := r.Hash()
	for what, c := range map[string]*nodepb.ProbesReply{
		"nothing": {}, "noise": {Record: make([]byte, 900)}, "cut off": {Record: r.Marshal()[:900]}, "another record": {Record: other.Marshal()},
		"too long": {Record: append(r.Marshal(), 0)},
	} {
		says = c
		if _, err := ask.Record(t.Context(), keys[3], h); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, c := range map[string][]byte{
		"half a hash": h[:16], "one twice": append(slices.Clone(h[:]), h[:]...), "more than there may be": make([]byte, 32*(protocol.MaxProbes+1)),
	} {
		says = &nodepb.ProbesReply{Hashes: c}
		if _, err := ask.List(t.Context(), keys[3]); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if size := rules.MaxRecord; size > protocol.MaxPublic {
		t.Errorf("a record may have %d bytes, an answer %d", size, protocol.MaxPublic)
	}
}
