package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
)

// maxLines bounds the lines that a member keeps for audits that are about to begin.
const maxLines = 4096

// lineKey is a unit that is to be audited in a window.
type lineKey struct {
	provider sign.Key
	unit     market.UnitID
	window   audit.Window
}

// line checks that a unit's records go on from one that passed, before its audit begins: when they began goes into the seed.
func (m *Member) line(ctx context.Context, key attemptKey, l *nodepb.AuditRequest_Line) (*nodepb.AuditReply, error) {
	window, _, err := m.cfg.Sight.Window()
	if err != nil || key.window != window {
		return nil, refuse(CodeWindow, "window %d, it is %d now: %v", key.window, window, err)
	}
	if len(l.Unit) != sign.HashSize || len(l.Last) > audit.MaxCertificate {
		return nil, malformed("unit id of %d bytes, certificate of %d", len(l.Unit), len(l.Last))
	}
	at := lineKey{key.provider, market.UnitID(l.Unit), window}
	since, err := m.began(ctx, at, l.Last)
	if err != nil {
		return nil, refuse(CodeLine, "%v", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(window)
	of := 0
	for k := range m.lines {
		if k.provider == at.provider {
			of++
		}
	}
	if _, known := m.lines[at]; !known && (len(m.lines) >= maxLines || of >= MaxUnits) {
		return nil, refuse(CodeLine, "this peer keeps as many lines as it can")
	}
	m.lines[at] = since
	return &nodepb.AuditReply{}, nil
}

// began is when the line began that goes on in a window after a unit's last certificate.
func (m *Member) began(ctx context.Context, at lineKey, last []byte) (audit.Moment, error) {
	cert, rest, err := audit.CutCertificate(last)
	if err != nil {
		return audit.Moment{}, err
	}
	if len(rest) > 0 {
		return audit.Moment{}, errors.New("bytes after the certificate")
	}
	r := cert.Record()
	since, err := r.CheckLink(m.cfg.Domain, m.cfg.WindowSlots, audit.Target{Provider: at.provider, Unit: at.unit, Window: at.window})
	if err != nil {
		return audit.Moment{}, err
	}
	return since, checkPublic(ctx, m.cfg.Sight, r, "")
}

// lineOf is the line that a unit is said to have, if it is the one that was shown. m.mu is not held.
func (m *Member) lineOf(at lineKey, x *nodepb.AuditRequest_Unit) (audit.Moment, error) {
	since := audit.Moment{Window: audit.Window(x.SinceWindow), Attempt: uint8(min(x.SinceAttempt, 255))}
	if since == (audit.Moment{}) {
		return since, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if shown, known := m.lines[at]; !known || shown != since {
		return since, refuse(CodeLine, "unit %s did not show that its records go on since window %d", at.unit.Short(), since.Window)
	}
	return since, nil
}

// errLine says that too few members take a unit's line for what it is: the units may begin a new one.
var errLine = errors.New("the committee does not see that the units' records go on")

// isLine says whether a member refused because of a line.
func isLine(err error) bool {
	var refused *stream.Refused
	return errors.As(err, &refused) && refused.Code == CodeLine
}

// lines shows a member the records that this attempt's units go on from, before the attempt begins.
func (s *session) lines(ctx context.Context, member sign.Key) error {
	var wg sync.WaitGroup
	errs := make([]error, len(s.units))
	for i, u := range s.units {
		if u.since == (audit.Moment{}) {
			continue
		}
		req := s.request()
		req.Step = &nodepb.AuditRequest_Line_{Line: &nodepb.AuditRequest_Line{Unit: bytes.Clone(u.ID[:]), Last: u.Last.Certificate().Marshal()}}
		wg.Go(func() { _, errs[i] = s.p.cfg.Call(ctx, member, req) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// bring shows everybody who was drawn what this attempt's units go on from, before its instant. errLine when too few see it.
func (s *session) bring(ctx context.Context) error {
	if !slices.ContainsFunc(s.units, func(u *running) bool { return u.since != audit.Moment{} }) {
		return nil
	}
	errs := make([]error, len(s.drawn))
	var wg sync.WaitGroup
	for i, m := range s.drawn {
		wg.Go(func() { errs[i] = s.lines(ctx, m.Key) })
	}
	wg.Wait()
	seen, lines := 0, 0
	for _, err := range errs {
		if err == nil {
			seen++
		} else if isLine(err) {
			lines++
		}
	}
	if need := audit.Certify(s.size); seen < need && seen+lines >= need {
		return fmt.Errorf("%w: %w", errLine, errors.Join(errs...))
	} else if seen < need {
		return fmt.Errorf("%w: %d of at least %d: %w", ErrCommittee, seen, need, errors.Join(errs...))
	}
	return ctx.Err()
}
