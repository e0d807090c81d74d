package audit

import (
	"cmp"

	"github.com/starling-network/starling/market/sign"
)

// LineGap is how many windows may lie between two records of a unit that belong to one line.
const LineGap = 7 * 24

// Moment is an attempt of a window.
type Moment struct {
	Window  Window `json:"window"`
	Attempt uint8  `json:"attempt"`
}

// Compare orders moments in time.
func (m Moment) Compare(o Moment) int {
	return cmp.Or(cmp.Compare(m.Window, o.Window), cmp.Compare(m.Attempt, o.Attempt))
}

// bytes are what a seed is made of: nothing of a line that begins with the record.
func (m Moment) bytes() []byte {
	if m == (Moment{}) {
		return nil
	}
	return append(m.Window.bytes(), m.Attempt)
}

// Line is when the line began that the record goes on with: of records of its unit that passed, each at most LineGap windows after the
// one before. The seeds say so, so everybody who judged saw the record before (CheckLink). A record that names none begins one.
func (r Record) Line() Moment {
	if r.Since == (Moment{}) {
		return r.Moment()
	}
	return r.Since
}

// Moment is when the record's unit answered.
func (r Record) Moment() Moment { return Moment{r.Answer.Window, r.Answer.Attempt} }

// checkLine holds the line against the record's own window.
func (r Record) checkLine() error {
	if r.Since == (Moment{}) {
		return nil
	}
	if r.Since.Window >= r.Answer.Window || r.Since.Attempt < 1 || r.Since.Attempt > MaxAttempts {
		return broken(RuleLine, "a line from attempt %d in window %d on, the record is of window %d", r.Since.Attempt, r.Since.Window, r.Answer.Window)
	}
	return nil
}

// CheckLink verifies of a unit's last record, as its certificate has it, that the line which it belongs to goes on in a later window, and
// says when the line began. Its beacon, members and dataset are checked as those of any record; what was computed is the word of the
// committee that passed it.
func (r Record) CheckLink(d sign.Domain, slots uint64, t Target) (Moment, error) {
	switch {
	case r.Answer.Provider != t.Provider || r.Answer.Unit != t.Unit:
		return Moment{}, broken(RuleUnit, "the line is of unit %s of %s", r.Answer.Unit.Short(), r.Answer.Provider.Short())
	case r.WindowSlots != slots:
		return Moment{}, broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, slots)
	case r.Answer.Window >= t.Window || t.Window-r.Answer.Window > LineGap:
		return Moment{}, broken(RuleLine, "the unit last passed in window %d: no line goes from there to %d", r.Answer.Window, t.Window)
	}
	if err := r.checkForm(); err != nil {
		return Moment{}, err
	}
	if err := r.checkSeeds(); err != nil {
		return Moment{}, err
	}
	return r.Line(), r.checkSignatures(d)
}
