package meter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// MaxState bounds a journalled state, in bytes.
const MaxState = 32 << 10

// Marshal gives the state for the journal: JSON, so that a person can read it. Persist carries it.
func (m Seller) Marshal() ([]byte, error) { return encode(m.s) }

// Marshal gives the state for the journal: JSON, so that a person can read it. Persist carries it.
func (m Payer) Marshal() ([]byte, error) { return encode(m.s) }

func encode(s any) ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return b, nil
}

func decode(b []byte, into any) error {
	if len(b) > MaxState {
		return fmt.Errorf("%w: %d bytes", ErrState, len(b))
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: trailing bytes", ErrState)
	}
	return nil
}

// RestoreSeller returns the machine with its last journalled state, under the same terms. It returns ErrTerms or
// ErrState.
func RestoreSeller(t Terms, state []byte) (Seller, error) {
	if err := t.Validate(); err != nil {
		return Seller{}, err
	}
	m := Seller{terms: t}
	if err := decode(state, &m.s); err != nil {
		return Seller{}, err
	}
	var err error
	if m.chain, err = restoreChain(t, m.s.Lease, m.s.Last, m.s.Start); err != nil {
		return Seller{}, err
	}
	if err := m.plausible(); err != nil {
		return Seller{}, err
	}
	return m, nil
}

// plausible refuses states that no Seller journals. Data from peers was checked before it was journalled.
func (m Seller) plausible() error {
	s := m.s
	states := []SellerState{SellerWaiting, SellerWorking, SellerStopping, SellerClosing, SellerSettled}
	switch {
	case !slices.Contains(states, s.State):
		return fmt.Errorf("%w: state %q", ErrState, s.State)
	case s.Start < m.terms.Core.Start || s.Start > m.terms.Core.ActivateBefore:
		return fmt.Errorf("%w: start %d", ErrState, s.Start)
	case s.Voucher == nil && (s.Pending != nil || s.Last != nil || s.State == SellerWorking ||
		s.State == SellerStopping || s.State == SellerClosing):
		return fmt.Errorf("%w: %s without a voucher", ErrState, s.State)
	}
	if s.Pending != nil {
		if _, err := m.chain.Follow(*s.Pending); err != nil {
			return fmt.Errorf("%w: pending receipt: %w", ErrState, err)
		}
		if m.chain.Last().Seq == 0 && s.Pending.From != s.Start {
			return fmt.Errorf("%w: pending receipt begins in slot %d", ErrState, s.Pending.From)
		}
	}
	for _, v := range []*verify.SignedVoucher{s.Voucher, s.Closing} {
		if v == nil {
			continue
		}
		if err := v.Check(m.terms.Domain, m.terms.Core); err != nil {
			return fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	return nil
}

// RestorePayer returns the machine with its last journalled state, under the same terms. It returns ErrTerms or
// ErrState.
func RestorePayer(t Terms, state []byte) (Payer, error) {
	if err := t.Validate(); err != nil {
		return Payer{}, err
	}
	m := Payer{terms: t}
	if err := decode(state, &m.s); err != nil {
		return Payer{}, err
	}
	var err error
	if m.chain, err = restoreChain(t, m.s.Lease, m.s.Last, m.s.First); err != nil {
		return Payer{}, err
	}
	s := m.s
	states := []PayerState{PayerIdle, PayerPaying, PayerStopping, PayerSettled}
	switch {
	case !slices.Contains(states, s.State):
		return Payer{}, fmt.Errorf("%w: state %q", ErrState, s.State)
	case s.Voucher == nil && (s.Last != nil || s.State == PayerPaying || s.State == PayerStopping):
		return Payer{}, fmt.Errorf("%w: %s without a voucher", ErrState, s.State)
	case s.Voucher != nil && (s.Voucher.Lease != s.Lease || s.Voucher.Version != verify.VoucherVersion ||
		s.Voucher.Cumulative < m.Owed()):
		return Payer{}, fmt.Errorf("%w: voucher", ErrState)
	case len(s.Detail) > maxDetail:
		return Payer{}, fmt.Errorf("%w: detail", ErrState)
	}
	return m, nil
}

func restoreChain(t Terms, lease market.LeaseID, last *verify.ReceiptCore, start market.Slot) (verify.Chain, error) {
	chain := verify.NewChain(t.Core)
	switch {
	case lease != t.Core.ID():
		return chain, fmt.Errorf("%w: of lease %s", ErrState, lease.Short())
	case last == nil:
		return chain, nil
	case last.Seq == 0 || last.Lease != lease || last.Version != verify.ReceiptVersion || start > last.From ||
		last.To < last.From || last.To > t.Core.End || start < t.Core.Start:
		return chain, fmt.Errorf("%w: last receipt", ErrState)
	}
	return chain.Resume(*last, start), nil
}
