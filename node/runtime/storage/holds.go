package storage

import (
	"context"
	"sync"
)

// holds counts the holders of directories. The zero value is empty.
type holds struct {
	mu  sync.Mutex
	all map[string]*hold // by Spec.Dir
}

type hold struct {
	holders int
	ending  bool
	gone    chan struct{} // closed once ending
	left    chan struct{} // holds one token once the last holder has left
}

// of returns the hold of a directory. h.mu is held.
func (h *holds) of(dir string) *hold {
	if h.all == nil {
		h.all = map[string]*hold{}
	}
	if h.all[dir] == nil {
		h.all[dir] = &hold{gone: make(chan struct{}), left: make(chan struct{}, 1)}
	}
	return h.all[dir]
}

// add counts a holder until it calls leave.
func (h *holds) add(dir string) (gone <-chan struct{}, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.of(dir)
	at.holders++
	return at.gone, sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if at.holders--; at.holders == 0 {
			select {
			case at.left <- struct{}{}:
			default:
			}
		}
	})
}

// close notifies the holders of a directory and returns when all have left.
func (h *holds) close(ctx context.Context, dir string) error {
	h.mu.Lock()
	at := h.of(dir)
	if !at.ending {
		at.ending = true
		close(at.gone)
	}
	h.mu.Unlock()
	for {
		h.mu.Lock()
		n := at.holders
		h.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-at.left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget removes what is known of a directory that exists no longer.
func (h *holds) forget(dir string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, dir)
}
