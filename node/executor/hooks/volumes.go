package hooks

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/storage"
	"github.com/starling-network/starling/node/workload"
)

// Volumes mounts volumes, which are executions of a runtime.Storer, in programs of the same buyer. A program that has a
// volume is ended before the volume is removed.
type Volumes struct {
	Storer runtime.Storer // nil if there are no volumes here
	Log    *slog.Logger

	mu   sync.Mutex
	held map[executor.Key][]holding // by the program that has them
}

var (
	_ executor.Admission = (*Volumes)(nil)
	_ executor.Restoring = (*Volumes)(nil)
	_ executor.Prestart  = (*Volumes)(nil)
	_ executor.Recovery  = (*Volumes)(nil)
	_ executor.Exit      = (*Volumes)(nil)
	_ executor.Stop      = (*Volumes)(nil)
)

// noteVolumes is the name of the note of Volumes.
const noteVolumes = "volumes"

// volumeNote is the note of an execution that is a volume or has some.
type volumeNote struct {
	Buyer   sign.Key         `json:"buyer"`             // signs the leases of a volume and of its programs
	Volumes []executor.Key   `json:"volumes,omitempty"` // of a program, in the order of its workload
	Of      []runtime.Handle `json:"of,omitempty"`      // likewise
}

// holding is a volume that a program has.
type holding struct {
	of     executor.Key
	writes bool
	gone   <-chan struct{}
	leave  func()
}

// Admit notes the buyer of a volume, or the owner that it names, and refuses a program with a volume that is not there,
// belongs to another buyer, or is in use. An unknown volume and another buyer's get the same answer.
func (h *Volumes) Admit(e *executor.Execution, buyer sign.Key) error {
	_, stores := e.Runtime().(runtime.Storer)
	if !stores && len(e.Work.Volumes) == 0 {
		return nil
	}
	if len(e.Work.Volumes) > 0 && h.Storer == nil {
		return workload.Bad("volumes: this provider keeps none")
	}
	note := volumeNote{Buyer: buyer}
	if stores && len(e.Work.VolumeOwner) == len(note.Buyer) {
		note.Buyer = sign.Key(e.Work.VolumeOwner)
	}
	for _, m := range e.Work.Volumes {
		v, handle, err := find(e, m, buyer)
		if err != nil {
			return err
		}
		note.Of, note.Volumes = append(note.Of, *handle), append(note.Volumes, v.Key)
		h.mu.Lock()
		err = h.free(v.Key, m)
		h.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return e.Note(noteVolumes, note)
}

// find returns the running volume of a mount, and its handle.
func find(
	e *executor.Execution, m *nodepb.VolumeMount, buyer sign.Key,
) (*executor.Execution, *runtime.Handle, error) {
	for _, v := range e.Under(market.LeaseID(m.GetLease())) {
		var note volumeNote
		s, handle, _ := v.Snapshot()
		if _, stores := v.Runtime().(runtime.Storer); !stores || handle == nil || s.State.Ended() {
			continue
		}
		if ok, err := v.Noted(noteVolumes, &note); err == nil && ok && note.Buyer == buyer {
			return v, handle, nil
		}
	}
	return nil, nil, workload.Bad("volume %s: no such volume of this buyer is here now", m.GetPath())
}

// free refuses a second program that writes. h.mu is held.
func (h *Volumes) free(v executor.Key, m *nodepb.VolumeMount) error {
	if m.GetReadOnly() {
		return nil
	}
	for _, all := range h.held {
		for _, held := range all {
			if held.of == v && held.writes {
				return workload.Bad("volume %s: in use by another program that writes; wait for its end, or mount it "+
					"read-only", m.GetPath())
			}
		}
	}
	return nil
}

// Restore takes over the volumes of a program of an earlier process.
func (h *Volumes) Restore(e *executor.Execution) error {
	var note volumeNote
	ok, err := e.Noted(noteVolumes, &note)
	_, handle, _ := e.Snapshot()
	if err != nil || !ok || h.Storer == nil || e.Ended() || handle == nil ||
		len(note.Of) != len(e.Work.Volumes) || len(note.Volumes) != len(note.Of) {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, of := range note.Of {
		h.take(e, note.Volumes[i], e.Work.Volumes[i], of)
	}
	return nil
}

// take holds a volume for a program. h.mu is held.
func (h *Volumes) take(e *executor.Execution, v executor.Key, m *nodepb.VolumeMount, of runtime.Handle) holding {
	gone, leave := h.Storer.Hold(of)
	held := holding{v, !m.GetReadOnly(), gone, leave}
	if h.held == nil {
		h.held = map[executor.Key][]holding{}
	}
	h.held[e.Key] = append(h.held[e.Key], held)
	return held
}

// Prestart holds the volumes of a program and adds them to its mounts.
func (h *Volumes) Prestart(_ context.Context, e *executor.Execution, l *executor.Launch) error {
	if len(e.Work.Volumes) == 0 {
		return nil
	}
	var note volumeNote
	if ok, err := e.Noted(noteVolumes, &note); err != nil || !ok {
		return fmt.Errorf("reading the volumes of an execution: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range e.Work.Volumes {
		v, handle, err := find(e, m, note.Buyer)
		if err == nil {
			err = h.free(v.Key, m)
		}
		if err != nil {
			return err
		}
		h.take(e, note.Volumes[i], m, *handle)
		dir, err := h.Storer.Directory(*handle)
		if err != nil {
			return workload.Bad("volume %s: its paid time has ended", m.Path)
		}
		l.Spec.Mounts = append(l.Spec.Mounts, runtime.Mount{
			Host: dir, Guest: m.Path, ReadOnly: m.ReadOnly, RoomMiB: uint32(v.Disk() >> 20),
		})
	}
	h.watch(e)
	return nil
}

// watch ends a program when one of its volumes is to be removed. h.mu is held.
func (h *Volumes) watch(e *executor.Execution) {
	for _, held := range h.held[e.Key] {
		e.Go(func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-held.gone:
				if err := executor.Halt(e); err != nil && ctx.Err() == nil {
					h.Log.Warn("a program whose volume ends was not stopped", "lease", e.Lease, "err", err)
				}
			}
		})
	}
}

// Recover watches the volumes of a program that outlived its peer's process.
func (h *Volumes) Recover(e *executor.Execution) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch(e)
}

// Exited gives the volumes of a program back, and reports the end of one as the cause of the program's.
func (h *Volumes) Exited(_ context.Context, e *executor.Execution, r *executor.Result) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, held := range h.held[e.Key] {
		select {
		case <-held.gone:
			r.Message = fmt.Sprintf("stopped: the paid time of volume %s has ended", e.Work.Volumes[i].GetPath())
		default:
		}
	}
	h.release(e)
	return nil
}

// Stop gives the volumes of a program back, and removes the directory of a volume that was not started.
func (h *Volumes) Stop(e *executor.Execution) error {
	h.mu.Lock()
	h.release(e)
	h.mu.Unlock()
	if _, stores := e.Runtime().(runtime.Storer); !stores {
		return nil
	}
	return storage.Remove(e.Stage().Run())
}

// release gives the volumes of a program back. h.mu is held.
func (h *Volumes) release(e *executor.Execution) {
	for _, held := range h.held[e.Key] {
		held.leave()
	}
	delete(h.held, e.Key)
}
