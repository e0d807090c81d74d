package model

import (
	"errors"
	"slices"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// ErrTable is a refusal by the lookup tables' program, and the error of a transaction that uses a missing table.
var ErrTable = errors.New("lookup table")

// Table is an address lookup table.
type Table struct {
	Authority sign.Key
	Holds     []sign.Key // never changed in place
	Since     uint64     // slot of the last change to Holds: it can be used after it
	Disabled  uint64     // slot; 0: it can be used
}

// ApplyTable runs one call of the lookup tables' program in a slot.
func (s *State) ApplyTable(slot uint64, c svm.TableCall) error {
	t, there := s.Tables[c.Table]
	switch {
	case c.Made && (there || c.Slot >= slot || c.Slot+svm.TableCooldown < slot ||
		c.Table != svm.TableAddress(c.Authority, c.Slot)):
		return ErrTable
	case c.Made:
		s.Tables[c.Table] = Table{Authority: c.Authority, Since: slot}
		s.Rent[c.Authority] += int64(svm.TableRent(0))
		return nil
	case !there || t.Authority != c.Authority:
		return ErrTable
	case c.Closed:
		if t.Disabled == 0 || slot <= t.Disabled+svm.TableCooldown {
			return ErrTable
		}
		delete(s.Tables, c.Table)
		s.Rent[c.Authority] -= int64(svm.TableRent(len(t.Holds)))
		return nil
	case t.Disabled != 0 || len(t.Holds)+len(c.Holds) > svm.MaxTable || !c.Disabled && len(c.Holds) == 0:
		return ErrTable
	case c.Disabled:
		t.Disabled = slot
	default:
		t.Holds, t.Since = append(slices.Clip(t.Holds), c.Holds...), slot
		s.Rent[c.Authority] += int64(svm.TableRent(len(c.Holds)) - svm.TableRent(0))
	}
	s.Tables[c.Table] = t
	return nil
}

// Uses returns ErrTable unless a transaction can use a table in a slot. A disabled table is usable until it can be
// closed.
func (s *State) Uses(slot uint64, use svm.Table) error {
	if t, there := s.Tables[use.Address]; !there || t.Since >= slot ||
		t.Disabled != 0 && slot > t.Disabled+svm.TableCooldown || len(use.Holds) > len(t.Holds) ||
		!slices.Equal(use.Holds, t.Holds[:len(use.Holds)]) {
		return ErrTable
	}
	return nil
}
