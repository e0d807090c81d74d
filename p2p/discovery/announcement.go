package discovery

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// announcement is this peer's own record, with its latest signature.
type announcement struct {
	network  string
	id       peer.ID
	key      crypto.PrivKey
	validity time.Duration // of renewed records
	known    *signed
	log      *slog.Logger

	mu      sync.Mutex
	own     *Record // the argument of set; nil before, and once it has expired
	current []byte  // its latest signed form
	seq     uint64  // of current
}

// set signs r and makes it current.
func (a *announcement) set(r Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sign(r)
}

// sign makes r current with a sequence above the last; a.mu is held.
func (a *announcement) sign(r Record) error {
	now := time.Now()
	given := r
	if r.Seq == 0 {
		r.Seq = max(uint64(now.UnixMilli()), a.seq+1)
	}
	if r.Seq <= a.seq {
		return fmt.Errorf("%w: sequence %d after %d", ErrReplayed, r.Seq, a.seq)
	}
	if r.Expires.IsZero() {
		r.Expires = time.UnixMilli(int64(r.Seq)).Add(a.validity)
	}
	data, err := encode(a.network, a.key, r, now)
	if err != nil {
		return err
	}
	a.own, a.current, a.seq = &given, data, r.Seq
	return nil
}

// renewed returns the current record, nil if there is none. It signs the record again if Publish allows renewal and the
// signature is older than age.
func (a *announcement) renewed(age time.Duration) (Record, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil {
		return Record{}, nil
	}
	now := time.Now()
	if a.own.Seq == 0 && a.own.Expires.IsZero() && now.Sub(time.UnixMilli(int64(a.seq))) >= age {
		if err := a.sign(*a.own); err != nil {
			a.log.Error("record not renewed", "err", err)
		}
	}
	r, err := decode(a.network, a.id, a.current, now, a.known)
	if err != nil { // expired
		a.own, a.current = nil, nil
		return Record{}, nil
	}
	return r, a.current
}
