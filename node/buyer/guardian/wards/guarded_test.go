package wards

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
)

// machineOf is the machine of a ward, with all files and a supervisor that was heard at a time.
func machineOf(s *Service, ward Ward, at time.Time) guarded {
	return guarded{
		rules: &s.rules, Ward: ward, key: &guardiantest.JobKey, heard: at, ticked: at, refreshed: true, complete: true,
	}
}

// namesOf are the names of effects, of requests to the other guardians their purposes.
func namesOf(effects []effect) string {
	var out []string
	for _, f := range effects {
		name := reflect.TypeOf(f).Name()
		if m, ok := f.(merge); ok {
			name = []string{"refresh", "judge", "resume"}[m.why]
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// The work that is due follows from the state of the ward, and the gravest goes first.
func TestDueWork(t *testing.T) {
	t.Parallel()
	c, members := guardiantest.CharterOf(t, 3, 2)
	s, err := alone(t, guardiantest.Network, c, store.NewMemory())
	guardiantest.Must(t, err)
	timing, now, mine := s.timing, time.Now(), c.NextEpoch(s.self, 1)
	for name, tc := range map[string]struct {
		change func(w *guarded)
		want   string
	}{
		"all is well":       {func(*guarded) {}, ""},
		"silent":            {func(w *guarded) { w.heard = now.Add(-timing.Silent - 3*timing.Turn) }, "takeOver"},
		"silent, over":      {func(w *guarded) { w.heard, w.Over = time.Time{}, true }, ""},
		"silent, not ready": {func(w *guarded) { w.heard, w.Ready = time.Time{}, false }, ""},
		"just asked":        {func(w *guarded) { w.heard, w.asked = time.Time{}, now }, ""},
		"just granted":      {func(w *guarded) { w.heard, w.granted = time.Time{}, now }, ""},
		"under way":         {func(w *guarded) { w.heard, w.doing = time.Time{}, true }, ""},
		"it does not pay":   {func(w *guarded) { w.starving = now.Add(-3 * timing.Turn) }, "takeOver"},
		"mine":              {func(w *guarded) { w.Epoch = mine }, "resume"},
		"mine, taken up":    {func(w *guarded) { w.Epoch, w.taken = mine, true }, ""},
		"mine, over":        {func(w *guarded) { w.Epoch, w.Over = mine, true }, ""},
		"after a restart":   {func(w *guarded) { w.refreshed = false }, "refresh"},
		"wage awaited":      {func(w *guarded) { w.Unbacked, w.state = now, &guardian.SignedState{} }, "look"},
		"wage looked for":   {func(w *guarded) { w.Unbacked, w.state, w.looked = now, &guardian.SignedState{}, now }, ""},
		"wage never came":   {func(w *guarded) { w.Unbacked = now.Add(-unbackedFor - time.Second) }, "putWard erase arrange"},
		"long over":         {func(w *guarded) { w.Until = now.Add(-forgetAfter) }, "putWard erase arrange"},
		"dismissed":         {func(w *guarded) { w.heard, w.Dismissed, w.erased = time.Time{}, true, true }, ""},
		"not erased":        {func(w *guarded) { w.Dismissed = true }, "erase"},
		"being erased": {func(w *guarded) {
			w.Dismissed, w.erasing, w.Until = true, true, now.Add(-forgetAfter)
		}, ""},
		"dismissed for a day": {func(w *guarded) {
			w.Dismissed, w.erased, w.Until = true, true, now.Add(-forgetAfter)
		}, "removeWard"},
		"dismissed, files left": {func(w *guarded) {
			w.Dismissed, w.erased, w.Until, w.fetching = true, true, now.Add(-forgetAfter), true
		}, ""},
		"files missing":      {func(w *guarded) { w.complete = false }, "arrange"},
		"files just tried":   {func(w *guarded) { w.complete, w.tried = false, now.Add(-timing.Silent) }, ""},
		"files on their way": {func(w *guarded) { w.complete, w.fetching = false, true }, ""},
		"files not paid for": {func(w *guarded) { w.complete, w.Unbacked = false, now }, ""},
	} {
		w := machineOf(s, Ward{
			Charter: c, Members: members, Epoch: 1, Ready: true, Until: now.Add(time.Hour),
			Files: []guardian.File{guardiantest.FileOf("input")},
		}, now)
		tc.change(&w)
		_, effects, err := w.Step(machine.Now{Time: now, Slot: 5000}, ticked{})
		guardiantest.Must(t, err)
		if got := namesOf(effects); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// The guardians of a silent supervisor ask one after the other, each a turn after the one before.
func TestTurns(t *testing.T) {
	t.Parallel()
	base, members := guardiantest.CharterOf(t, 5, 3)
	timing, now := guardian.TimingOf(guardiantest.Network), time.Now()
	for i := range base.Keys.Keys {
		c := base
		c.Keys.Keys = slices.Concat(base.Keys.Keys[i:], base.Keys.Keys[:i]) // alone is the first
		s, err := alone(t, guardiantest.Network, c, store.NewMemory())
		guardiantest.Must(t, err)
		w := machineOf(s, Ward{Charter: base, Members: members, Epoch: 1, Ready: true}, now)
		at := now.Add(timing.Silent + time.Duration(i)*timing.Turn)
		if w.turn(at) || !w.turn(at.Add(1)) {
			t.Errorf("guardian %d does not ask after %v", i, at.Sub(now))
		}
	}
}

// The life of a ward, from an engagement with a wage over a supervisor that fails to its end.
func TestLifeOfAWard(t *testing.T) {
	t.Parallel()
	c, members := guardiantest.CharterOf(t, 3, 2)
	guardiantest.Pay(c, members)
	s, err := alone(t, guardiantest.Network, c, store.NewMemory())
	guardiantest.Must(t, err)
	timing, now, ward := s.timing, time.Now(), Ward{Charter: c, Members: members, Epoch: 1, Files: []guardian.File{guardiantest.FileOf("input")}}
	ward.Unbacked, ward.Until = now, now.Add(30*time.Minute)
	w := machineOf(s, ward, now)
	w.complete = false
	mine := c.NextEpoch(s.self, 1)
	grant := func(epoch uint64) guardian.Standing {
		return guardian.Standing{Epoch: epoch, Grant: guardiantest.Granting(t, c, epoch)}
	}
	state := func(epoch, version uint64, over bool) beaten {
		st, err := c.SignState(s.domain, guardiantest.PeerKey(guardiantest.HostOf(c.Supervisor(epoch))), epoch, grant(max(epoch, 2)).Grant[:], guardian.State{Version: version, Over: over})
		guardiantest.Must(t, err)
		return beaten{by{c.Supervisor(epoch), epoch}, &st}
	}
	stored := arranged{tried: true, ok: true}
	owner := c.NextEpoch(c.Owner, mine)
	for i, x := range []struct {
		after time.Duration
		ev    event
		want  string
	}{
		{0, engaged{ward}, ""},
		{0, ticked{}, ""},
		{0, state(1, 1, false), "putState"},
		{wageLook + 1, ticked{}, "look"},
		{0, ticked{}, ""},
		{0, looked{errNotThere}, ""},
		{wageLook + 1, ticked{}, "look"},
		{0, looked{}, "putWard arrange"},
		{0, arranged{tried: true}, ""},
		{timing.Silent, ticked{}, ""},
		{1, ticked{}, "arrange"},
		{0, stored, "putWard arrange"}, // those of the state are missing
		{0, beaten{by: by{c.Owner, 1}}, ""},
		{0, requested{by{c.Keys.Keys[1], c.NextEpoch(c.Keys.Keys[1], 1)}, 0}, "CodeAlive"},
		{timing.Silent + 4*timing.Turn, ticked{}, "takeOver"},
		{0, requested{by{s.self, mine}, 0}, "signGrant"},
		{0, tookOver{}, ""}, // too few agreed
		{timing.Turn, ticked{}, ""},
		{1, ticked{}, "takeOver"},
		{0, tookOver{grant(mine)}, "putWard superseded"},
		{0, beaten{by: by{c.Owner, 1}}, "CodeSuperseded"},
		{0, ticked{}, "resume"},
		{0, merged{why: resuming, err: errNotThere}, "warn takeUp"}, // its own data is enough
		{0, takenUp{mine, errNotThere}, ""},
		{0, ticked{}, "resume"},
		{0, merged{why: resuming}, "takeUp"},
		{0, takenUp{epoch: mine}, ""},
		{0, ticked{}, ""},
		{0, beaten{by: by{s.self, mine}}, ""},
		{0, learned{owner, grant(owner).Grant}, "putWard superseded"},
		{0, beaten{by: by{s.self, mine}}, "CodeSuperseded"},
		{0, state(owner, 1, true), "putWard putState"},
		{timing.Silent + 4*timing.Turn, ticked{}, ""}, // it needs no supervisor
		{0, dismissed{by{from: s.self}}, "CodeNotYours"},
		{0, dismissed{by{from: c.Owner}}, "putWard erase"}, // the fetch is under way
		{0, erased{errNotThere}, ""},
		{0, ticked{}, "erase"},
		{0, erased{}, ""},
		{0, arranged{tried: true}, "arrange"}, // files are dropped
		{24 * time.Hour, ticked{}, ""},
		{time.Hour, ticked{}, ""}, // they are dropped still
		{0, arranged{}, ""},
		{0, ticked{}, "removeWard"},
		{0, ticked{}, "CodeUnknown"},
	} {
		now = now.Add(x.after)
		next, effects, err := w.Step(machine.Now{Time: now, Slot: 5000}, x.ev)
		got := namesOf(effects)
		if err != nil {
			codes := map[string]string{guardian.CodeAlive: "CodeAlive", guardian.CodeSuperseded: "CodeSuperseded", guardian.CodeNotYours: "CodeNotYours", guardian.CodeUnknown: "CodeUnknown"}
			for code, name := range codes {
				if guardian.Refused(err, code) {
					got = name
				}
			}
		}
		if got != x.want {
			t.Fatalf("step %d, %T: got %q, %v, want %q", i, x.ev, got, err, x.want)
		}
		if err == nil {
			w = next
		}
	}
}

// model is a ward in a history of events, its journal, and the calls under way.
type model struct {
	*rapid.T
	tb     *testing.T
	s      *Service
	w      guarded
	now    machine.Now
	disk   *store.Memory
	leases []guardian.Lease // as the supervisor hands them in, with one more receipt each
	calls  []effect         // under way
	epoch  uint64           // the highest that was granted
	grants map[uint64][]byte
	seen   map[string]int // events that were taken, by type
}

// Safety: whatever the parts of a job ask, whatever calls return, and wherever the process is killed, an epoch only rises,
// a dismissed job stays dismissed and keeps no data, all that was answered is in the journal, one call does the work that
// time brings, and a ward is gone only when nothing of it is left. Liveness: no result of a call is refused; a job that is
// over is gone in the end.
func TestWardInAnyOrder(t *testing.T) {
	t.Parallel()
	base, members := guardiantest.CharterOf(t, 3, 2)
	guardiantest.Pay(base, members)
	paying := guardiantest.StartPaying(t, base, 1, guardiantest.FirstSlot, 1)
	handed := []guardian.Lease{paying.Handed()}
	for i := range 4 {
		at := market.Slot(guardiantest.FirstSlot + 10*(i+1))
		paying.Receipt(at, at, false)
		handed = append(handed, paying.Handed())
	}
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		m := &model{
			T: r, tb: t, disk: store.NewMemory(), leases: handed, epoch: 1, grants: map[uint64][]byte{}, seen: seen,
			now: machine.Now{Time: time.Now(), Slot: guardiantest.FirstSlot},
		}
		var err error
		m.s, err = alone(t, guardiantest.Network, base, m.disk)
		guardiantest.Must(t, err)
		ward := Ward{
			Charter: base, Members: members, Epoch: 1, Files: []guardian.File{guardiantest.FileOf("input")},
			Until: time.Now().Add(time.Hour).Truncate(time.Millisecond),
		}
		if rapid.Bool().Draw(r, "with a wage") {
			ward.Unbacked = m.now.Time.Round(0)
		}
		ward.Ready = rapid.Bool().Draw(r, "ready")
		m.w = machineOf(m.s, ward, m.now.Time)
		m.w.complete = ward.Ready
		guardiantest.Must(t, wards.Write(t.Context(), m.disk, ward.Job, ward))
		for range rapid.IntRange(1, 100).Draw(r, "steps") {
			switch rapid.IntRange(0, 15).Draw(r, "step") {
			case 0:
				m.crash()
			case 1, 2, 3:
				m.call(rapid.IntRange(0, 3).Draw(r, "fails") == 0)
			case 4, 5, 6:
				m.wait(rapid.SampledFrom([]time.Duration{time.Millisecond, m.s.timing.Beat, 3 * m.s.timing.Silent}).Draw(r, "time"))
			case 7:
				if rapid.IntRange(0, 9).Draw(r, "dismiss") == 0 {
					m.step(dismissed{by{from: m.w.Owner}})
				}
			default:
				m.step(m.request())
			}
		}
		m.wait(25 * time.Hour)
		for range 100 {
			for len(m.calls) > 0 {
				m.call(false)
			}
			m.wait(m.s.timing.Beat)
		}
		if !m.w.gone {
			r.Fatalf("liveness: a day after its time the ward is %+v", m.w)
		}
	})
	for _, want := range []string{"vouched", "beaten", "learned", "merged", "arranged", "erased"} {
		if seen[want] == 0 {
			t.Errorf("no %s was taken: %v", want, seen)
		}
	}
}

// wait has time pass, with the ticks that are due.
func (m *model) wait(d time.Duration) {
	m.now.Time = m.now.Time.Add(d)
	m.now.Slot += market.Slot(d / (100 * time.Millisecond))
	if at := m.w.Next(m.now); !at.IsZero() && !at.After(m.now.Time) {
		m.step(ticked{})
	}
}

// step takes the ward one event further, writes its records, and checks the step.
func (m *model) step(ev event) {
	before := m.w
	next, effects, err := m.w.Step(m.now, ev)
	if err != nil {
		switch ev.(type) {
		case engaged, learned, beaten, vouched, witnessed, requested, earnedWage, dismissed:
		default:
			m.Fatalf("liveness: %T is refused, so that its call never ends: %v", ev, err)
		}
		return
	}
	var b journal.Batch
	shell{m.s.guard, nil}.Record(&b, next.Job, before, next, effects)
	if err := b.Commit(m.tb.Context(), m.disk); err != nil {
		m.Fatal(err)
	}
	m.w = next
	m.seen[reflect.TypeOf(ev).Name()]++
	for _, f := range effects {
		switch f := f.(type) {
		case look, merge, takeOver, takeUp, arrange, erase:
			m.calls = append(m.calls, f)
		case signText:
			if before.Dismissed {
				if _, wage := ev.(earnedWage); !wage {
					m.Fatalf("safety: %T of a dismissed job is signed", ev)
				}
			}
		}
	}
	m.check(before, ev)
}

func (m *model) check(before guarded, ev event) {
	work := 0
	for _, f := range m.calls {
		switch f.(type) {
		case look, merge, takeOver, takeUp:
			work++
		}
	}
	switch {
	case m.w.Epoch < before.Epoch:
		m.Fatalf("safety: after %T epoch %d follows %d", ev, m.w.Epoch, before.Epoch)
	case before.Dismissed && !m.w.Dismissed:
		m.Fatalf("safety: %T brought a dismissed job back", ev)
	case work > 1 || (work == 1) != m.w.doing:
		m.Fatalf("safety: after %T %d calls are under way: %v", ev, work, m.calls)
	case m.w.Dismissed && (len(m.w.leases) > 0 || m.w.state != nil || m.w.key != nil):
		m.Fatalf("safety: a dismissed job has data: %+v", m.w)
	case m.w.gone && (records(m.tb, m.disk) != 0 || len(m.calls) > 0):
		m.Fatalf("safety: a ward is gone with %d records and the calls %v", records(m.tb, m.disk), m.calls)
	}
}

// crash loses all that is not in the journal, and starts the ward again.
func (m *model) crash() {
	before := m.w
	m.calls = nil
	found := 0
	err := shell{m.s.guard, nil}.Load(m.tb.Context(), func(_ sign.Hash, w guarded) { m.w = w; found++ })
	if err != nil {
		m.Fatal(err)
	}
	if m.w.rules = before.rules; found == 0 {
		if !before.gone {
			m.Fatal("safety: the journal has no ward")
		}
		m.w = before
		return
	}
	a, b := before, m.w
	x, err := wards.Encode(a.Job, a.Ward)
	guardiantest.Must(m.tb, err)
	y, err := wards.Encode(b.Job, b.Ward)
	guardiantest.Must(m.tb, err)
	if string(x.Value) != string(y.Value) {
		m.Fatalf("safety: the journal has\n%s after\n%s", y.Value, x.Value)
	}
	if (a.state == nil) != (b.state == nil) || a.state != nil && !reflect.DeepEqual(*a.state, *b.state) ||
		len(a.leases) != len(b.leases) || a.bytes != b.bytes || a.receipts != b.receipts {
		m.Fatalf("safety: the journal has %d leases of %d bytes, %d receipts and the state %v after %d, %d, %d, %v",
			len(b.leases), b.bytes, b.receipts, b.state, len(a.leases), a.bytes, a.receipts, a.state)
	}
	m.step(resumed{})
}

// call ends one of the calls under way.
func (m *model) call(fails bool) {
	if len(m.calls) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.calls)-1).Draw(m.T, "call")
	f := m.calls[i]
	m.calls = slices.Delete(m.calls, i, i+1)
	var err error
	if fails {
		err = errNotThere
	}
	switch f := f.(type) {
	case look:
		m.step(looked{err})
	case merge:
		m.step(merged{f.why, guardian.Standing{Epoch: m.epoch, Grant: m.grants[m.epoch], Answers: rapid.IntRange(0, 3).Draw(m.T, "answers")}, err})
	case takeOver:
		if err == nil {
			m.grant(f.ward.NextEpoch(m.s.self, m.epoch))
		}
		m.step(tookOver{guardian.Standing{Epoch: m.epoch, Grant: m.grants[m.epoch]}})
	case takeUp:
		m.step(takenUp{f.ward.Epoch, err})
	case arrange:
		m.step(arranged{of: f.state, tried: f.bring, ok: err == nil && f.bring, whole: true})
	case erase:
		if err == nil {
			err = remove(m.tb.Context(), m.disk, m.w.Job)
		}
		m.step(erased{err})
	}
}

func (m *model) grant(epoch uint64) {
	m.epoch, m.grants[epoch] = epoch, guardiantest.Granting(m.tb, m.w.Charter, epoch)
}

// request is a request of one that has a part in the job, or of a stranger.
func (m *model) request() event {
	peers := append(slices.Clone(m.w.Keys.Keys), m.w.Owner, guardiantest.Provider.Key())
	who := by{
		rapid.SampledFrom(peers).Draw(m.T, "from"),
		rapid.Uint64Range(max(m.w.Epoch, 2)-1, m.w.Epoch+1).Draw(m.T, "epoch"),
	}
	if rapid.Bool().Draw(m.T, "supervisor") {
		who = by{m.w.Supervisor(m.w.Epoch), m.w.Epoch}
	}
	signer, grant := guardiantest.PeerKey(max(0, guardiantest.HostOf(m.w.Supervisor(m.w.Epoch)))), m.grants[m.w.Epoch]
	switch rapid.IntRange(0, 7).Draw(m.T, "request") {
	case 0, 1:
		return beaten{by: who}
	case 2:
		st := guardian.State{Version: rapid.Uint64Range(1, 5).Draw(m.T, "version"), Over: rapid.IntRange(0, 19).Draw(m.T, "over") == 0}
		st.Files = []guardian.File{guardiantest.FileOf(fmt.Sprint("part", st.Version))}
		signed, err := m.w.SignState(m.s.domain, signer, m.w.Epoch, grant, st)
		if err != nil {
			m.Fatal(err)
		}
		return beaten{who, &signed}
	case 3, 4:
		l, err := m.w.SignLease(m.s.genesis, signer, m.w.Epoch, grant, rapid.SampledFrom(m.leases).Draw(m.T, "lease"))
		if err != nil {
			m.Fatal(err)
		}
		return vouched{who, l}
	case 5:
		return requested{by{who.from, rapid.Uint64Range(1, m.epoch+4).Draw(m.T, "asked")}, m.now.Slot}
	case 6:
		if len(m.grants) == 0 || rapid.Bool().Draw(m.T, "new") {
			m.grant(m.epoch + 1)
		}
		return learned{m.epoch, m.grants[m.epoch]}
	}
	return engaged{m.w.Ward}
}
