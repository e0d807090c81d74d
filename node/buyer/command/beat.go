package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/buyer/voice"
)

// standing is the job as its guardians keep it. They may read its files.
func (d *Command) standing(st jobs.State) (guardian.State, error) {
	work, err := st.Encode()
	if err != nil {
		return guardian.State{}, err
	}
	j, _ := d.Project(st)
	b, err := json.Marshal(record.StandingOf(j, work))
	files := voice.Kept(j)
	if err == nil {
		err = voice.Share(d.cfg.Host, d.cfg.Files, j.Detached, files)
	}
	return guardian.State{Bytes: b, Over: st.Phase >= jobs.Settling, Files: files}, err
}

// Follow begins or ends the heartbeats, and ends the search for guardians, as the job's state requires.
func (d *Command) Follow(st jobs.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.engaging != nil && st.Phase != jobs.Engaging {
		d.engaging()
		d.engaging = nil
	}
	wanted := st.Params.Guarded && !st.Command.Lost && st.Phase > jobs.Engaging && st.Phase < jobs.Ended
	switch {
	case wanted && d.beating == nil && d.voice.Guardians() != nil:
		ctx, cancel := context.WithCancel(d.Context())
		d.beating = cancel
		d.cfg.Tasks.Go(func() { d.beat(ctx) })
	case !wanted:
		d.silenceLocked()
	}
}

// Silence ends the heartbeats.
func (d *Command) Silence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silenceLocked()
}

func (d *Command) silenceLocked() {
	if d.beating != nil {
		d.beating()
		d.beating = nil
	}
}

// beat sends heartbeats with the standing of the job to its guardians, until ctx ends. It reports the loss of command.
// Once the job's work has ended it sends only changes, because the job needs no supervision then.
func (d *Command) beat(ctx context.Context) {
	timing := guardian.TimingOf(d.cfg.Genesis)
	var told []byte
	for kept := d.Mine; ; {
		now, err := d.State()
		if err != nil {
			return
		}
		if !kept && now.Phase >= jobs.Settling {
			if err := d.keepLogs(ctx); err != nil && ctx.Err() == nil {
				d.cfg.Log.Warn("logs are not kept for a job's owner", "job", d.ID, "err", err)
			}
			kept = true
		}
		st, err := d.standing(now)
		news := !bytes.Equal(st.Bytes, told)
		if err == nil && (news || !st.Over) {
			var say *guardian.State
			if news {
				st.Version = uint64(time.Now().UnixMilli())
				say = &st
			}
			call, done := context.WithTimeout(ctx, max(timing.Silent, 2*time.Second))
			err = d.panel().Beat(call, say)
			done()
		}
		var other *guardian.Superseded
		switch {
		case errors.As(err, &other):
			d.Post(jobs.CommandLost{Epoch: other.Epoch})
			return
		case err == nil:
			told = st.Bytes
			d.held(ctx)
		case ctx.Err() == nil:
			d.cfg.Log.Debug("sending a job's standing to its guardians failed", "job", d.ID, "err", err)
		}
		if err == nil && !news && kept && !d.Mine && now.Done() {
			d.parts.Ended() // its owner settles it
			return
		}
		if run.Pause(ctx, timing.Beat) != nil {
			return
		}
	}
}

// How far the guardians of a job are with its files: command.handing.
const (
	handingOver = iota + 1
	handedOver
)

// held records that the guardians have a lease for each rank and the job's files, and that the escrow that pays them is
// on chain. From then on the job continues without this peer.
func (d *Command) held(ctx context.Context) {
	j := d.Snapshot()
	if j.Detached.Held || j.State != record.Running || j.Detached.Escrow == nil || !d.Mine {
		return
	}
	filled := func(e record.Escrow) bool { return e.Address == j.Detached.Escrow.Address && e.Deposited > 0 }
	if !slices.ContainsFunc(d.cfg.Escrows.Escrows(j.ID), filled) {
		return
	}
	switch d.handing.Load() {
	case handingOver:
		return
	case handedOver:
	default:
		d.handing.Store(handingOver)
		d.cfg.Tasks.Go(func() { // beats go on meanwhile
			if d.complete(ctx) {
				d.handing.Store(handedOver)
			} else {
				d.handing.Store(0)
			}
		})
		return
	}
	d.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Guarded,
		Detail: "from now on the job continues without this peer"})
	if err := d.Save(ctx, func(j *record.Job) {
		j.Detached = j.Detached.Clone()
		j.Detached.Held = true
	}); err != nil {
		d.cfg.Log.Warn("a job that is held by its guardians was not journalled", "err", err)
	}
}

// Dismiss lets the guardians delete a job once its owner has all of its data.
func (d *Command) Dismiss() {
	d.cfg.Tasks.Go(func() {
		defer d.parts.Ended()
		defer d.Close()
		panel := d.panel()
		if panel == nil {
			return
		}
		call, done := context.WithTimeout(d.Context(), d.cfg.LostAfter)
		defer done()
		if err := panel.Dismiss(call); err != nil {
			d.cfg.Log.Debug("dismissing guardians failed; they delete the job when its time has passed", "job", d.ID,
				"err", err)
		}
	})
}

// keepLogs stores the ranks' logs as files, for an owner that comes back to the job's end.
func (d *Command) keepLogs(ctx context.Context) error {
	all := d.Logs()
	logs := make([]*record.Blob, len(all))
	for i, l := range all {
		c, n, err := l.Store(ctx, d.cfg.Blobs)
		if err != nil {
			d.cfg.Log.Warn("a rank's log is not kept for its owner", "job", d.ID, "rank", i, "err", err)
			continue
		}
		if n > 0 {
			logs[i] = &record.Blob{CID: c.String(), Size: n}
		}
	}
	return d.Save(ctx, func(j *record.Job) {
		for i := range j.Ranks {
			j.Ranks[i].Log = logs[i]
		}
	})
}
