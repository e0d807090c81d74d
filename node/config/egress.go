package config

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/p2p/overlay/egress"
)

// Egress is the section of the configuration about containers' access to the outside, for jobs that request it.
// Containers never reach this machine, its local network, and mail servers (TCP ports 25, 465 and 587).
type Egress struct {
	// Mode is none, allowlist or internet; empty means none.
	Mode string `yaml:"mode"`
	// Allow are the rules of an allow list: HOST[:PORT[-PORT][,…]] with a domain name, *.NAME, an IPv4 address or a
	// range a.b.c.d/n.
	Allow []string `yaml:"allow"`
	// Limits bound each container; 0 takes the default.
	Limits EgressLimits `yaml:"limits"`
}

// EgressLimits are for one container.
type EgressLimits struct {
	Flows        int           `yaml:"flows"`        // connections at a time
	NewPerSecond float64       `yaml:"newPerSecond"` // new connections a second
	MbitPerSec   float64       `yaml:"mbitPerSecond"`
	Names        float64       `yaml:"namesPerSecond"` // resolved names per second
	Idle         time.Duration `yaml:"idle"`           // a TCP connection on which nothing moves is cut
}

// Check refuses rules and limits that cannot work.
func (e Egress) Check() error {
	if _, _, err := e.Policy(); err != nil {
		return fmt.Errorf("%w: egress: %w", ErrConfig, err)
	}
	return nil
}

// Policy returns the section's rules and limits.
func (e Egress) Policy() (egress.Policy, egress.Limits, error) {
	p := egress.Policy{Mode: cmp.Or(egress.Mode(e.Mode), egress.ModeNone)}
	var err error
	if p.Allow, err = egress.ParseRules(e.Allow); err != nil {
		return p, egress.Limits{}, fmt.Errorf("allow: %w", err)
	}
	l := egress.Limits{
		Flows: e.Limits.Flows, NewFlows: e.Limits.NewPerSecond, BytesPerSec: e.Limits.MbitPerSec * 1e6 / 8,
		Queries: e.Limits.Names, IdleTCP: e.Limits.Idle,
	}
	return p, l, errors.Join(p.Check(), l.Check())
}
