package wards

import (
	"context"
	"fmt"
	"reflect"
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

func (s *shed) Drop(all ...cid.Cid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = append(s.dropped, all...)
}

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
			ok := (&fetcher{guard: s.guard}).bring(t.Context(), w, []guardian.File{guardiantest.FileOf("x")}, c.Owner)
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

// A state replaces the files of the state before it. A file is dropped unless this or another job still has it.
func TestFilesOfAnEarlierState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, members := guardiantest.CharterOf(t, 3, 2)
		net := p2ptest.NewNet(t, 1, 0)
		files := &shed{has: map[sign.Key]bool{c.Owner: true}, shared: map[sign.Key]int{}}
		s, _ := running(t, guardiantest.Network, c, store.NewMemory(), func(s *Service) {
			s.cfg.Host, s.cfg.Files = net.Hosts[0], files
		})
		other := c
		other.Job = sign.Sum([]byte("other"))
		for _, c := range []guardian.Charter{c, other} {
			req := engaging(t, guardiantest.Network, c, members)
			req.GetEngage().Files = guardian.Engaged{Files: []guardian.File{guardiantest.FileOf("input")}}.PB().Files
			_, err := s.Answer(t.Context(), c.Owner, req)
			guardiantest.Must(t, err)
		}
		dropped := func() []cid.Cid {
			synctest.Wait()
			files.mu.Lock()
			defer files.mu.Unlock()
			return slices.Clone(files.dropped)
		}
		state := func(version uint64, names ...string) {
			st := guardian.State{Version: version}
			for _, n := range names {
				st.Files = append(st.Files, guardiantest.FileOf(n))
			}
			_, err := s.Answer(t.Context(), c.Owner, beatWith(t, c, st))
			guardiantest.Must(t, err)
		}
		state(1, "input", "part 1")
		state(2, "part 1", "part 2")
		if got := dropped(); len(got) != 0 {
			t.Errorf("dropped %v of a job that needs them", got)
		}
		state(3, "part 2")
		if got, want := dropped(), []cid.Cid{guardiantest.FileOf("part 1").CID}; !slices.Equal(got, want) {
			t.Errorf("dropped %v, want %v", got, want)
		}
		for i, c := range []guardian.Charter{c, other} {
			_, err := s.Answer(t.Context(), c.Owner, asked(c, dismissing))
			guardiantest.Must(t, err)
			if got := dropped(); len(got) != 2+i {
				t.Errorf("after %d jobs were dismissed, %d files were dropped", i+1, len(got))
			}
		}
	})
}

// Checkpoints are kept as far as there is room, and nothing waits for one that nobody has.
func TestSpareFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, members := guardiantest.CharterOf(t, 3, 2)
		net := p2ptest.NewNet(t, 1, 0)
		s, err := alone(t, guardiantest.Network, c, store.NewMemory()) // 100 bytes for a job
		guardiantest.Must(t, err)
		spare := func(size int64) guardian.File {
			f := guardiantest.FileOf(fmt.Sprint(size))
			f.Size, f.Spare = size, true
			return f
		}
		kept := guardiantest.FileOf("part")
		for name, k := range map[string]struct {
			spare     []guardian.File
			there     bool // the supervisor has files
			ok, whole bool
			fetched   int
		}{
			"all":             {[]guardian.File{spare(40), spare(50)}, true, true, true, 3},
			"one too large":   {[]guardian.File{spare(97), spare(50)}, true, true, true, 2},
			"both, too large": {[]guardian.File{spare(60), spare(50)}, true, true, true, 2},
			"none there":      {[]guardian.File{spare(40)}, false, false, false, 0},
		} {
			files := &shed{has: map[sign.Key]bool{c.Owner: k.there}, shared: map[sign.Key]int{}}
			s.cfg.Host, s.cfg.Files = net.Hosts[0], files
			x := &fetcher{guard: s.guard, under: make(chan struct{}, 1)}
			st := &guardian.SignedState{}
			st.Epoch, st.Files = 1, append([]guardian.File{kept}, k.spare...)
			got := x.arrange(t.Context(), arrange{
				ward: Ward{Charter: c, Members: members, Epoch: 1}, state: st, bring: true,
			}).(arranged)
			if got.ok != k.ok || got.whole != k.whole || files.shared[c.Owner] != k.fetched {
				t.Errorf("%s: %+v, %d files", name, got, files.shared[c.Owner])
			}
		}
		files := &shed{has: map[sign.Key]bool{}, shared: map[sign.Key]int{}}
		s.cfg.Files = files
		x := &fetcher{guard: s.guard, under: make(chan struct{}, 1)}
		st := &guardian.SignedState{}
		st.Epoch, st.Files = 1, []guardian.File{spare(40)}
		got := x.arrange(t.Context(), arrange{
			ward: Ward{Charter: c, Members: members, Epoch: 1}, state: st, bring: true,
		}).(arranged)
		if !got.ok || got.whole {
			t.Errorf("an absent checkpoint: %+v", got)
		}
	})
}

// Files that an owner calls spare would not count for what a guardian keeps of a job: they are refused.
func TestAttackSpareEngagement(t *testing.T) {
	t.Parallel()
	c, members := guardiantest.CharterOf(t, 3, 2)
	req := engaging(t, guardiantest.Network, c, members).GetEngage()
	f := guardiantest.FileOf("input")
	if req.Files = (guardian.Engaged{Files: []guardian.File{f}}).PB().Files; len(req.Files) != 1 {
		t.Fatal(req.Files)
	}
	if _, err := guardian.ReadEngaged(req); err != nil {
		t.Fatal(err)
	}
	req.Files[0].Spare, req.Files[0].Size = true, 1<<50
	if _, err := guardian.ReadEngaged(req); err == nil {
		t.Error("a spare file of a job was taken")
	}
}

// While files are fetched for many wards, others are refused a fetch and not delayed.
func TestFetchesAreBounded(t *testing.T) {
	t.Parallel()
	c, members := guardiantest.CharterOf(t, 3, 2)
	s, err := alone(t, guardiantest.Network, c, store.NewMemory())
	guardiantest.Must(t, err)
	x := &fetcher{guard: s.guard, under: make(chan struct{}, 1)}
	f := arrange{ward: Ward{Charter: c, Members: members}, bring: true}
	if got := x.arrange(t.Context(), f); !reflect.DeepEqual(got, arranged{tried: true, ok: true, whole: true}) {
		t.Errorf("alone: %+v", got)
	}
	x.under <- struct{}{}
	if got := x.arrange(t.Context(), f); !reflect.DeepEqual(got, arranged{tried: true}) {
		t.Errorf("beside another: %+v", got)
	}
}
