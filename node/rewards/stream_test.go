package rewards

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A document is read part by part; a peer whose parts are not those of one document of the length it said is not read on.
func TestRead(t *testing.T) {
	t.Parallel()
	doc := bytes.Repeat([]byte{1, 2, 3}, protocol.MaxRewardsPart/2) // 1.5 parts
	honest := func(offset uint64) (*nodepb.RewardsReply, error) {
		part := doc[offset:]
		return &nodepb.RewardsReply{Total: uint64(len(doc)), Part: part[:min(len(part), protocol.MaxRewardsPart)]}, nil
	}
	if b, err := read(honest, len(doc)); err != nil || !bytes.Equal(b, doc) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	asked := 0
	for what, part := range map[string]func(uint64) (*nodepb.RewardsReply, error){
		"longer than asked for": func(uint64) (*nodepb.RewardsReply, error) {
			return &nodepb.RewardsReply{Total: uint64(len(doc)) + 1, Part: doc[:protocol.MaxRewardsPart]}, nil
		},
		"byte by byte": func(o uint64) (*nodepb.RewardsReply, error) {
			return &nodepb.RewardsReply{Total: uint64(len(doc)), Part: doc[o : o+1]}, nil
		},
		"empty": func(uint64) (*nodepb.RewardsReply, error) { return &nodepb.RewardsReply{}, nil },
		"a length that changes": func(o uint64) (*nodepb.RewardsReply, error) {
			asked++
			r, err := honest(o)
			r.Total -= o / protocol.MaxRewardsPart
			return r, err
		},
		"too much at the end": func(o uint64) (*nodepb.RewardsReply, error) {
			r, err := honest(o)
			if o > 0 {
				r.Part = append(bytes.Clone(r.Part), 1)
			}
			return r, err
		},
	} {
		if b, err := read(part, len(doc)); !errors.Is(err, market.ErrMalformed) || b != nil {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := read(func(uint64) (*nodepb.RewardsReply, error) { return nil, stream.Refuse(codeUnknown, "none") }, 1); !errors.Is(err, ErrNoDocument) {
		t.Errorf("what is not there: %v", err)
	}
}

// voting is a chain on which something is voted on, and nothing else is known.
type voting struct{ Chain }

func (voting) Network(context.Context) (account.Network, error) {
	return account.NewNetwork(account.Params{Votes: account.Votes{VotingSlots: 1, EpochSlots: 1000, EpochsOfMonth: 1}}), nil
}

var guardedID = sign.Signature{1, 2}

// holder is a peer that keeps the certificate of a unit in epoch 0, and a table with one payee.
func holder(t testing.TB, key sign.Key) (*Service, audit.Certificate, rewards.Award) {
	t.Helper()
	s := New(Config{Genesis: market.Genesis{AuditSlots: 100}, Key: key, Chain: voting{}, Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)})
	r, err := audittest.New(7).Make()
	if err != nil {
		t.Fatal(err)
	}
	c := r.Certificate()
	a := rewards.Award{Payees: []rewards.Payee{{Wallet: sign.Key{1}, Amount: 2}}}
	table := rewards.NewTable(0, [rewards.Sources]uint64{5}, nil)
	g := rewards.Guarded{ID: guardedID, Slot: 7, Net: 3, Keys: []sign.Key{{4}, {5}}}
	if err := errors.Join(guardedTable.Write(t.Context(), s.cfg.Store, guardedID, g), s.keep.add(t.Context(), []audit.Certificate{c}), s.keep.table(t.Context(), table, a)); err != nil {
		t.Fatal(err)
	}
	return s, c, a
}

// Over the network each document is had as it is, by whoever asks for it rightly; what there is not is said not to be there.
func TestStreams(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	p2ptest.ConnectAll(t, hosts...)
	k, err := p2p.KeyFromPeerID(hosts[1].ID())
	if err != nil {
		t.Fatal(err)
	}
	from := sign.Key(k)
	s, c, a := holder(t, from)
	answers := s.Handle(hosts[1], "town")
	defer answers.Close()
	peers := Streams{Host: hosts[0], Tag: "town"}
	of, root := c.Target(), a.Rewards().Root
	for what, x := range map[string]struct {
		d    Document
		want []byte
	}{
		"units":                 {Document{Kind: Units, Provider: of.Provider}, of.Unit[:]},
		"certificates":          {Document{Kind: Certificates, Provider: of.Provider, Unit: of.Unit}, c.Marshal()},
		"table":                 {Document{Kind: Table, Root: rewards.NewTable(0, [rewards.Sources]uint64{5}, nil).Hash()}, rewards.NewTable(0, [rewards.Sources]uint64{5}, nil).Marshal()},
		"guarded":               {Document{Kind: Guarded, Provider: sign.Key{5}}, guardedID[:]},
		"guarded by another":    {Document{Kind: Guarded, Provider: sign.Key{6}}, nil},
		"guarded another time":  {Document{Kind: Guarded, Epoch: 1, Provider: sign.Key{5}}, nil},
		"payees":                {Document{Kind: Payees, Root: root}, a.Marshal()},
		"units of another":      {Document{Kind: Units, Provider: from}, nil},
		"units of another time": {Document{Kind: Units, Epoch: 1, Provider: of.Provider}, nil},
		"of an epoch never":     {Document{Kind: Units, Epoch: ^uint64(0), Provider: of.Provider}, nil},
		"another unit":          {Document{Kind: Certificates, Provider: of.Provider}, nil},
		"another root":          {Document{Kind: Payees}, nil},
		"something else":        {Document{Kind: 9}, nil},
	} {
		got, err := peers.Read(t.Context(), from, x.d, rewards.MaxTable)
		if !bytes.Equal(got, x.want) || errors.Is(err, ErrNoDocument) != (x.want == nil) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
}

// A question with a field of another length is malformed, one for what lies behind a document's end is for nothing.
func TestAnswer(t *testing.T) {
	t.Parallel()
	s, _, a := holder(t, sign.Key{1})
	root := a.Rewards().Root
	good := func() *nodepb.RewardsRequest {
		return &nodepb.RewardsRequest{Document: nodepb.RewardsRequest_PAYEES, Provider: make([]byte, 32), Unit: make([]byte, 32), Root: root[:]}
	}
	if r, err := s.answer(t.Context(), good()); err != nil || r.Total != 40 || len(r.Part) != 40 {
		t.Fatalf("%v, %v", r, err)
	}
	for what, c := range map[string]struct {
		change    func(*nodepb.RewardsRequest)
		malformed bool
	}{
		"provider": {func(r *nodepb.RewardsRequest) { r.Provider = r.Provider[1:] }, true},
		"unit":     {func(r *nodepb.RewardsRequest) { r.Unit = nil }, true},
		"root":     {func(r *nodepb.RewardsRequest) { r.Root = append(r.Root, 0) }, true},
		"offset":   {func(r *nodepb.RewardsRequest) { r.Offset = 40 }, false},
		"epoch":    {func(r *nodepb.RewardsRequest) { r.Epoch = 1 }, false},
		"document": {func(r *nodepb.RewardsRequest) { r.Document = -1 }, false},
	} {
		r := good()
		c.change(r)
		_, err := s.answer(t.Context(), r)
		_, malformed := errors.AsType[*stream.Malformed](err)
		if err == nil || malformed != c.malformed {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzRewardsRequest(f *testing.F) {
	s, c, a := holder(f, sign.Key{1})
	of, root := c.Target(), a.Rewards().Root
	for kind := range 6 {
		b, err := proto.Marshal(&nodepb.RewardsRequest{Document: nodepb.RewardsRequest_Document(kind), Provider: of.Provider[:], Unit: of.Unit[:], Root: root[:]})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r nodepb.RewardsRequest
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		if got, err := s.answer(t.Context(), &r); err == nil && (len(got.Part) == 0 || r.Offset+uint64(len(got.Part)) > got.Total) {
			t.Errorf("%v is answered by %d bytes of %d", &r, len(got.Part), got.Total)
		}
	})
}

// Whatever parts a peer gives, what is read is a document of the length that it said first, or nothing.
func FuzzRewardsReply(f *testing.F) {
	const most = 5 * protocol.MaxRewardsPart / 2
	for _, r := range []*nodepb.RewardsReply{{}, {Total: 3, Part: []byte{1, 2, 3}}, {Total: 2, Part: []byte{1, 2, 3}}, {Total: most + 1}, {Total: protocol.MaxRewardsPart + 2, Part: []byte{1, 2}}} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	full := make([]byte, protocol.MaxRewardsPart)
	f.Fuzz(func(t *testing.T, b []byte) {
		var last nodepb.RewardsReply
		if proto.Unmarshal(b, &last) != nil {
			return
		}
		asked := 0
		got, err := read(func(offset uint64) (*nodepb.RewardsReply, error) {
			if asked++; asked > 4 {
				t.Fatal("it is asked without end")
			}
			if last.Total > offset+protocol.MaxRewardsPart {
				return &nodepb.RewardsReply{Total: last.Total, Part: full}, nil
			}
			return &last, nil
		}, most)
		if err == nil && (uint64(len(got)) != last.Total || len(got) > most) || err != nil && got != nil {
			t.Fatalf("%d bytes of %d, %v", len(got), last.Total, err)
		}
	})
}
