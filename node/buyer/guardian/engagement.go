package guardian

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
)

// File is a file that providers or the owner will request.
type File struct {
	CID  cid.Cid `json:"cid"`
	Size int64   `json:"size"` // bytes
	// Spare files are kept if there is room. The job goes on without them: they are its checkpoints.
	Spare bool `json:"spare,omitempty"`
}

// SameFiles reports whether two lists name the same files.
func SameFiles(a, b []File) bool {
	return slices.EqualFunc(a, b, func(x, y File) bool {
		return x.Size == y.Size && x.Spare == y.Spare && bytes.Equal(x.CID.Bytes(), y.CID.Bytes())
	})
}

// spares returns the spare files of a list, in its order.
func spares(files []File) (out []cid.Cid) {
	for _, f := range files {
		if f.Spare {
			out = append(out, f.CID)
		}
	}
	return out
}

// SpareBits returns a bit for each spare file of a list, in its order, the lowest first: whether it is stored.
func SpareBits(files []File, stored []cid.Cid) []byte {
	all := spares(files)
	bits := make([]byte, (len(all)+7)/8)
	for i, c := range all {
		if slices.Contains(stored, c) {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return bits
}

// SpareOf is the reverse of SpareBits. Bits beyond the list are ignored, and missing ones are 0.
func SpareOf(files []File, bits []byte) (stored []cid.Cid) {
	for i, c := range spares(files) {
		if i/8 < len(bits) && bits[i/8]&(1<<(i%8)) != 0 {
			stored = append(stored, c)
		}
	}
	return stored
}

// BytesOf is the size of all files of some lists that are not spare.
func BytesOf(lists ...[]File) (sum int64) {
	for _, files := range lists {
		for _, f := range files {
			if !f.Spare {
				sum += f.Size
			}
		}
	}
	return sum
}

func pbFiles(files []File) []*nodepb.GuardedFile {
	var out []*nodepb.GuardedFile
	for _, f := range files {
		out = append(out, &nodepb.GuardedFile{Cid: f.CID.Bytes(), Size: uint64(f.Size), Spare: f.Spare})
	}
	return out
}

func filesOf(pb []*nodepb.GuardedFile) ([]File, error) {
	if len(pb) > MaxFiles {
		return nil, fmt.Errorf("%d files, at most %d", len(pb), MaxFiles)
	}
	var out []File
	for _, f := range pb {
		c, err := work.CID(&nodepb.Blob{Cid: f.GetCid()})
		if err != nil {
			return nil, err
		}
		if f.Size > 1<<50 {
			return nil, fmt.Errorf("a file of %d bytes", f.Size)
		}
		out = append(out, File{CID: c, Size: int64(f.Size), Spare: f.Spare})
	}
	return out, nil
}

// Member is a guardian with its addresses and its wage.
type Member struct {
	Key   sign.Key          `json:"key"`
	Addrs []string          `json:"addrs"`
	Wage  *market.LeaseCore `json:"wage,omitempty"` // between the job's key and the guardian; nil: nothing
}

func checkAddrs(addrs []string) error {
	if len(addrs) > maxAddrs || slices.ContainsFunc(addrs, func(a string) bool { return len(a) > maxAddr }) {
		return fmt.Errorf("%d addresses, at most %d of %d bytes", len(addrs), maxAddrs, maxAddr)
	}
	return nil
}

func membersOf(pb []*nodepb.Guardian) ([]Member, error) {
	if len(pb) > MaxGuardians {
		return nil, fmt.Errorf("%d guardians, at most %d", len(pb), MaxGuardians)
	}
	var out []Member
	for _, g := range pb {
		if len(g.GetKey()) != sign.KeySize {
			return nil, fmt.Errorf("a guardian's key of %d bytes", len(g.GetKey()))
		}
		if err := checkAddrs(g.Addrs); err != nil {
			return nil, err
		}
		m := Member{Key: sign.Key(g.Key), Addrs: slices.Clone(g.Addrs)}
		if len(g.Wage) > 0 {
			core, err := market.UnmarshalLeaseCore(g.Wage)
			if err != nil {
				return nil, err
			}
			m.Wage = &core
		}
		out = append(out, m)
	}
	return out, nil
}

func pbMembers(members []Member) []*nodepb.Guardian {
	var out []*nodepb.Guardian
	for _, m := range members {
		g := &nodepb.Guardian{Key: m.Key[:], Addrs: m.Addrs}
		if m.Wage != nil {
			b := m.Wage.Marshal()
			g.Wage = b[:]
		}
		out = append(out, g)
	}
	return out
}

// keysOf is the key set of members, which are in the order of their keys.
func keysOf(threshold uint32, members []Member) (market.KeySet, error) {
	ks := market.KeySet{Threshold: uint8(min(threshold, 255))}
	for _, m := range members {
		ks.Keys = append(ks.Keys, m.Key)
	}
	return ks, ks.Validate()
}

// Engaged is an engagement as one guardian receives it.
type Engaged struct {
	Keys    market.KeySet // the guardians
	Members []Member      // in the order of their keys
	Sealed  []byte        // the job's key, for this guardian only
	File    []byte
	Files   []File
	Addrs   []string // of the owner
	Until   time.Time
	// Complete means that the answer waits for the files: see Engagement.
	Complete bool
}

// PB returns the message.
func (e Engaged) PB() *nodepb.GuardRequest_Engage {
	return &nodepb.GuardRequest_Engage{
		Sealed: e.Sealed, File: e.File, Files: pbFiles(e.Files),
		Threshold: uint32(e.Keys.Threshold), Guardians: pbMembers(e.Members),
		Addrs: e.Addrs, UntilMillis: uint64(e.Until.UnixMilli()), Complete: e.Complete,
	}
}

// ReadEngaged parses the message and checks its bounds.
func ReadEngaged(pb *nodepb.GuardRequest_Engage) (Engaged, error) {
	members, err := membersOf(pb.Guardians)
	if err != nil {
		return Engaged{}, malformed("%v", err)
	}
	keys, err := keysOf(pb.Threshold, members)
	if err != nil {
		return Engaged{}, malformed("%v", err)
	}
	files, err := filesOf(pb.Files)
	if err != nil {
		return Engaged{}, malformed("%v", err)
	}
	if slices.ContainsFunc(files, func(f File) bool { return f.Spare }) { // it would not count
		return Engaged{}, malformed("a file of the job is spare: want one of its state")
	}
	if err := checkAddrs(pb.Addrs); err != nil {
		return Engaged{}, malformed("%v", err)
	}
	if len(pb.File) > MaxFile || pb.UntilMillis > 1<<48 {
		return Engaged{}, malformed("%d bytes about the job, until %d", len(pb.File), pb.UntilMillis)
	}
	return Engaged{
		Keys: keys, Members: members, Sealed: pb.Sealed, File: pb.File, Files: files, Addrs: pb.Addrs,
		Until: time.UnixMilli(int64(pb.UntilMillis)), Complete: pb.Complete,
	}, nil
}
