package cluster

import (
	"fmt"
	"slices"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
)

// Bounds of a plan.
const (
	// MinMTU is a size that every network carries inside WireGuard; MaxMTU leaves room for its headers in an Ethernet
	// frame.
	MinMTU = 1280
	MaxMTU = 1420

	MaxAddrs    = 8   // of one member
	MaxAddrSize = 160 // bytes of one, as text
	maxID       = 63  // it is a label of names
	maxEngine   = 32
	maxDevices  = market.MaxUnitsPerLease

	// MaxSize bounds the encoding of a plan, bytes.
	MaxSize = MaxMembers*(market.LeaseSize+16+32+MaxAddrs*(MaxAddrSize+3)+64) + maxPaths*maxPathSize + 256
)

// Plan is one rank's data about all ranks of a cluster. It is made by Decode, or by a buyer field by field.
type Plan struct {
	ID      string // of the job: lower-case letters, digits and '-'
	Rank    uint32 // its receiver
	Size    uint32 // ranks 0 to Size-1, up to MaxMembers
	Version uint64 // from 1
	Members []Member
	MTU     uint32 // bytes
	Engine  string // "none" for none
	// Paths are those between members that were measured, of lower to higher ranks, in the order of [comparePaths].
	Paths []Path
}

// Member is one rank as its lease proves it.
type Member struct {
	Rank      uint32
	Epoch     uint32 // of the rank
	Lease     market.Lease
	Hold      market.HoldID
	Key       market.OverlayKey
	Addrs     []ma.Multiaddr // of its peer
	GPUs      uint32
	Slots     uint32 // processes that mpi may start, from 1
	MilliCPU  uint32
	MemoryMiB uint32
}

// Provider is the peer that the member runs on.
func (m Member) Provider() sign.Key { return m.Lease.Core.Provider }

// Own is the member that the plan is for.
func (p Plan) Own() (Member, bool) { return p.Member(p.Rank) }

// First means that the others wait for the rank that the plan is for.
func (p Plan) First() bool { return p.Rank == 0 && Engines[p.Engine].HeadFirst }

// Member returns the member of a rank. It reports false if there is none.
func (p Plan) Member(rank uint32) (Member, bool) {
	i, ok := slices.BinarySearchFunc(p.Members, rank, func(m Member, r uint32) int {
		return int(int64(m.Rank) - int64(r))
	})
	if !ok {
		return Member{}, false
	}
	return p.Members[i], true
}

// For is the same plan for another rank.
func (p Plan) For(rank uint32) Plan {
	p.Rank = rank
	return p
}

// Proto is the plan as it travels.
func (p Plan) Proto() *nodepb.ClusterPlan {
	out := &nodepb.ClusterPlan{Id: p.ID, Rank: p.Rank, Size: p.Size, Version: p.Version, Mtu: p.MTU, Engine: p.Engine}
	for _, m := range p.Members {
		pm := &nodepb.ClusterMember{
			Rank: m.Rank, Epoch: m.Epoch, Lease: m.Lease.Marshal(), Hold: m.Hold[:], Key: m.Key[:],
			Gpus: m.GPUs, Slots: m.Slots, MilliCpu: m.MilliCPU, MemoryMib: m.MemoryMiB,
		}
		for _, a := range m.Addrs {
			pm.Addrs = append(pm.Addrs, a.String())
		}
		out.Members = append(out.Members, pm)
	}
	out.Paths = p.protoPaths()
	return out
}

// Decode reads a plan and checks every rule that needs no key; Check has the others. The error wraps ErrPlan and names
// the broken rule.
func Decode(m *nodepb.ClusterPlan) (Plan, error) {
	p := Plan{
		ID: m.GetId(), Rank: m.GetRank(), Size: m.GetSize(), Version: m.GetVersion(),
		MTU: m.GetMtu(), Engine: m.GetEngine(),
	}
	if len(m.GetMembers()) > MaxMembers {
		return Plan{}, bad("%d members, at most %d", len(m.Members), MaxMembers)
	}
	for _, pm := range m.GetMembers() {
		mm, err := decodeMember(pm)
		if err != nil {
			return Plan{}, err
		}
		p.Members = append(p.Members, mm)
	}
	var err error
	if p.Paths, err = decodePaths(p.Members, m.GetPaths()); err != nil {
		return Plan{}, err
	}
	return p, p.Validate()
}

func decodeMember(m *nodepb.ClusterMember) (Member, error) {
	rank := m.GetRank()
	if len(m.GetHold()) != len(market.HoldID{}) || len(m.GetKey()) != len(market.OverlayKey{}) {
		return Member{}, badMember(rank, "hold of %d and key of %d bytes, want %d and %d",
			len(m.GetHold()), len(m.GetKey()), len(market.HoldID{}), len(market.OverlayKey{}))
	}
	l, err := market.UnmarshalLease(m.GetLease())
	if err != nil {
		return Member{}, badMember(rank, "lease: %v", err)
	}
	out := Member{
		Rank: rank, Epoch: m.GetEpoch(), Lease: l, Hold: market.HoldID(m.Hold), Key: market.OverlayKey(m.Key),
		GPUs: m.GetGpus(), Slots: m.GetSlots(), MilliCPU: m.GetMilliCpu(), MemoryMiB: m.GetMemoryMib(),
	}
	if len(m.GetAddrs()) > MaxAddrs {
		return Member{}, badMember(rank, "%d addresses, at most %d", len(m.Addrs), MaxAddrs)
	}
	for _, text := range m.GetAddrs() {
		if len(text) > MaxAddrSize {
			return Member{}, badMember(rank, "an address of %d bytes, at most %d", len(text), MaxAddrSize)
		}
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			return Member{}, badMember(rank, "address %.80q: %v", text, err)
		}
		if len(a.String()) > MaxAddrSize {
			return Member{}, badMember(rank, "an address of %d bytes, at most %d", len(a.String()), MaxAddrSize)
		}
		out.Addrs = append(out.Addrs, a)
	}
	return out, nil
}

// Validate holds the plan to every rule that needs no key.
func (p Plan) Validate() error {
	switch {
	case !label(p.ID, maxID):
		return bad("id %.80q is not 1 to %d lower-case letters, digits and '-'", p.ID, maxID)
	case !label(p.Engine, maxEngine):
		return bad("engine %.40q is not 1 to %d lower-case letters, digits and '-'", p.Engine, maxEngine)
	case p.Size < 1 || p.Size > MaxMembers:
		return bad("size %d, want 1 to %d", p.Size, MaxMembers)
	case p.Version == 0:
		return bad("version 0, want 1 or more")
	case p.MTU < MinMTU || p.MTU > MaxMTU:
		return bad("MTU %d, want %d to %d", p.MTU, MinMTU, MaxMTU)
	case len(p.Members) > MaxMembers:
		return bad("%d members, at most %d", len(p.Members), MaxMembers)
	}
	keys := map[market.OverlayKey]uint32{}
	for i, m := range p.Members {
		if m.Rank >= p.Size {
			return badMember(m.Rank, "no such rank, the size is %d", p.Size)
		}
		if i > 0 && m.Rank <= p.Members[i-1].Rank {
			return badMember(m.Rank, "ranks are not ascending")
		}
		if err := m.validate(); err != nil {
			return err
		}
		if other, twice := keys[m.Key]; twice {
			return badMember(m.Rank, "same key as member %d", other)
		}
		keys[m.Key] = m.Rank
	}
	if _, ok := p.Own(); !ok {
		return bad("rank %d, which it is for, is not among its members", p.Rank)
	}
	return p.checkPaths()
}

func (m Member) validate() error {
	switch core := m.Lease.Core; {
	case m.Hold.IsZero():
		return badMember(m.Rank, "no hold")
	case core.Rank != m.Rank || core.RankEpoch != m.Epoch:
		return badMember(m.Rank, "epoch %d: the lease is for rank %d, epoch %d",
			m.Epoch, core.Rank, core.RankEpoch)
	case core.Successor():
		return badMember(m.Rank, "the lease is a successor, want the first of its line")
	case core.Nonce != market.OverlayNonce(m.Hold, m.Key):
		return badMember(m.Rank, "the lease does not name its key")
	case len(m.Addrs) > MaxAddrs:
		return badMember(m.Rank, "%d addresses, at most %d", len(m.Addrs), MaxAddrs)
	case m.GPUs > maxDevices:
		return badMember(m.Rank, "%d GPUs, at most %d", m.GPUs, maxDevices)
	case m.Slots < 1 || m.Slots > maxSlots:
		return badMember(m.Rank, "%d slots, want 1 to %d", m.Slots, maxSlots)
	}
	if err := m.Key.Check(); err != nil {
		return badMember(m.Rank, "%v", err)
	}
	return nil
}

// maxSlots bounds the processes that mpi may start on one member.
const maxSlots = 4096

func label(s string, most int) bool {
	if s == "" || len(s) > most || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// String is the plan in a few words, for logs.
func (p Plan) String() string {
	return fmt.Sprintf("%s v%d: rank %d of %d, %d members", p.ID, p.Version, p.Rank, p.Size, len(p.Members))
}
