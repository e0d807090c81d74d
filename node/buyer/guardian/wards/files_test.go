package wards

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// shed is a store of files that some peers have.
type shed struct {
	has map[sign.Key]bool // peers that have all files

	mu      sync.Mutex
	asked   []sign.Key
	shared  map[sign.Key]int
	dropped []cid.Cid
}

func (s *shed) Fetch(_ context.Context, from peer.ID, _ cid.Cid, _ int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := p2p.KeyFromPeerID(from)
	if err != nil {
		return err
	}
	if s.asked = append(s.asked, sign.Key(k)); !s.has[sign.Key(k)] {
		return errNotThere
	}
	return nil
}

func (s *shed) Share(to peer.ID, _ cid.Cid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, err := p2p.KeyFromPeerID(to); err == nil {
		s.shared[sign.Key(k)]++
	}
}

func (s *shed) Drop(c cid.Cid) { s.dropped = append(s.dropped, c) }

// A file comes from its owner, or else from another that has a part in the job, and they may then read it here.
func TestFilesComeFromAnyParticipant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, members := guardiantest.CharterOf(t, 3, 2)
		net := p2ptest.NewNet(t, 1, 0)
		for name, has := range map[string][]sign.Key{
			"owner": {c.Owner}, "the last guardian": {c.Keys.Keys[2]}, "nobody": nil, "this peer alone": {c.Keys.Keys[0]},
		} {
			files := &shed{has: map[sign.Key]bool{}, shared: map[sign.Key]int{}}
			for _, k := range has {
				files.has[k] = true
			}
			s, err := alone(t, guardiantest.Network, c, store.NewMemory())
			guardiantest.Must(t, err)
			s.cfg.Host, s.cfg.Files = net.Hosts[0], files
			w := Ward{Charter: c, Members: members, Epoch: 1}
			ok := s.files.bring(t.Context(), w, []guardian.File{guardiantest.FileOf("x")}, c.Owner)
			if want := slices.Contains([]string{"owner", "the last guardian"}, name); ok != want {
				t.Errorf("%s: got %v", name, ok)
			}
			if files.asked[0] != c.Owner || slices.Contains(files.asked, s.self) {
				t.Errorf("%s: asked %v", name, files.asked)
			}
			if n := len(files.shared); ok && (n != 3 || files.shared[s.self] > 0) || !ok && n > 0 {
				t.Errorf("%s: shared with %v", name, files.shared)
			}
		}
	})
}

// Files of an earlier state are dropped, but those that the job still needs.
func TestFilesOfAnEarlierState(t *testing.T) {
	t.Parallel()
	c, members := guardiantest.CharterOf(t, 3, 2)
	files := &shed{}
	s, err := alone(t, guardiantest.Network, c, store.NewMemory())
	guardiantest.Must(t, err)
	s.cfg.Files = files
	w, err := s.wards.add(t.Context(), Ward{
		Charter: c, Members: members, Epoch: 1, Files: []guardian.File{guardiantest.FileOf("input")},
	})
	guardiantest.Must(t, err)
	state := func(version uint64, names ...string) {
		st := guardian.State{Version: version}
		for _, n := range names {
			st.Files = append(st.Files, guardiantest.FileOf(n))
		}
		signed, err := c.SignState(s.domain, guardiantest.PeerKey(0), 1, nil, st)
		guardiantest.Must(t, err)
		guardiantest.Must(t, w.keepState(t.Context(), signed))
	}
	state(1, "input", "part 1")
	state(2, "part 1", "part 2")
	if len(files.dropped) != 0 {
		t.Errorf("dropped %v of a job that needs them", files.dropped)
	}
	state(3, "part 2")
	if want := []cid.Cid{guardiantest.FileOf("part 1").CID}; !slices.Equal(files.dropped, want) {
		t.Errorf("dropped %v, want %v", files.dropped, want)
	}
	guardiantest.Must(t, w.shut(t.Context()))
	if len(files.dropped) != 3 {
		t.Errorf("a job that was dismissed left files: dropped %v", files.dropped)
	}
}
