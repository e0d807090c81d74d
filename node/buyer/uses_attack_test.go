package buyer

import (
	"context"
	"errors"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/blob"
)

// uploads has the one file that each API key uploaded.
type uploads map[string]cid.Cid

func (u uploads) Uploaded(key string, c cid.Cid) bool { return u[key] == c }
func (uploads) Grant(peer.ID, cid.Cid)                {}
func (uploads) Drop(...cid.Cid)                       {}
func (uploads) Fetch(context.Context, peer.ID, cid.Cid, int64) error {
	return errors.New("no file")
}

// A key cannot have another's file mounted in a job of its own by naming its CID.
func TestAttackKeyMountsOthersFiles(t *testing.T) {
	t.Parallel()
	mine, theirs, left := blob.Sum([]byte("mine")), blob.Sum([]byte("theirs")), blob.Sum([]byte("left"))
	w := newPastWorld(t, store.NewMemory())
	w.cfg.Files = uploads{"ci": mine}
	b := w.start()
	for id, key := range map[string]string{"j1": "ci", "j2": "other"} {
		out := map[string]cid.Cid{"ci": left, "other": theirs}[key]
		b.jobs[id] = b.bare(t, Job{ID: id, Key: key, Ranks: []Rank{{Outputs: []Output{{Path: "/out", Blob: Blob{CID: out.String()}}}}}})
	}
	for name, c := range map[string]struct {
		key  string
		cid  cid.Cid
		want error
	}{
		"what it uploaded":    {"ci", mine, nil},
		"what its job left":   {"ci", left, nil},
		"what another's left": {"ci", theirs, ErrRefused},
		"another's upload":    {"other", mine, ErrRefused},
		"the peer's own":      {"", theirs, nil},
	} {
		if err := b.rooms.admission.Held(job.Job{Blobs: map[string]job.Blob{"data": {CID: c.cid.String()}}}, c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}
