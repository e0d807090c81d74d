package provider

import (
	"errors"
	"maps"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
)

// Counts are how often things have happened since the provider started, by their outcome. The keys are few.
type Counts struct {
	Quotes     map[string]uint64 // orders: "quoted", a market.Reason of refusal, or "error"
	Leases     map[string]uint64 // ended leases: "expired", "released", "unfunded" or "stopped"
	Executions map[string]uint64 // ended executions: "ok", "exit" for another code, or another reason such as "oom"
}

// counts keeps Counts.
type counts struct {
	mu  sync.Mutex
	all Counts
}

// Counts returns a copy of the provider's counts.
func (p *Provider) Counts() Counts {
	c := &p.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	return Counts{maps.Clone(c.all.Quotes), maps.Clone(c.all.Leases), p.exec.Ends()}
}

// add counts one more.
func (c *counts) add(of func(*Counts) *map[string]uint64, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := of(&c.all)
	if *m == nil {
		*m = map[string]uint64{}
	}
	(*m)[key]++
}

// quoted counts an order by its answer.
func (c *counts) quoted(err error) {
	key := "quoted"
	if no, ok := errors.AsType[*market.Refusal](err); ok {
		key = string(no.Reason)
	} else if err != nil {
		key = "error"
	}
	c.add(func(c *Counts) *map[string]uint64 { return &c.Quotes }, key)
}

// stepped counts the leases that end with a step of the book.
func (c *counts) stepped(before lease.Book, ev lease.Event, effects []lease.Effect) {
	for _, e := range effects {
		p, ok := e.(lease.Persist)
		if !ok || p.Record.State != lease.Ending && p.Record.State != lease.Ended {
			continue
		}
		if was, ok := before.Lease(p.Record.Lease); !ok || was.State != lease.Active {
			continue // counted when it began to end
		}
		why := "expired"
		switch ev.(type) {
		case lease.ReleaseRequested:
			why = "released"
		case lease.LeaseEnded, lease.ExecutionLost:
			why = "stopped"
		case lease.FundingWrong:
			why = "unfunded"
		default:
			if p.Record.FundBy > 0 {
				why = "unfunded"
			}
		}
		c.add(func(c *Counts) *map[string]uint64 { return &c.Leases }, why)
	}
}
