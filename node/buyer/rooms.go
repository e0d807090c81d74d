package buyer

import (
	"time"

	"github.com/starling-network/starling/node/buyer/access"
	"github.com/starling-network/starling/node/buyer/admission"
	"github.com/starling-network/starling/node/buyer/changes"
	"github.com/starling-network/starling/node/buyer/command"
	"github.com/starling-network/starling/node/buyer/guardian/search"
	"github.com/starling-network/starling/node/buyer/lines"
	"github.com/starling-network/starling/node/buyer/orders"
	"github.com/starling-network/starling/node/buyer/plans"
	"github.com/starling-network/starling/node/buyer/programs"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/settling"
	"github.com/starling-network/starling/node/buyer/takeover"
	"github.com/starling-network/starling/node/buyer/voice"
)

// rooms has the rules by which jobs are taken, and the surroundings of the rooms that each job has.
type rooms struct {
	admission admission.Rules
	orders    *orders.Office
	programs  programs.Config
	lines     lines.Config
	plans     plans.Config
	access    access.Config
	changes   changes.Config
	settling  settling.Config
	voices    voice.Config
	command   command.Config
	takeover  takeover.Config
}

// furnish makes the rooms that each job has.
func (b *Buyer) furnish(fundTime time.Duration) {
	cfg := &b.cfg
	b.runner = run.New(run.Config{
		Genesis: cfg.Genesis, Store: cfg.Store, Clock: cfg.Slots, Dir: cfg.Dir, Log: cfg.Log, News: b.news,
	})
	r := &b.rooms
	r.admission = admission.Rules{
		Genesis: cfg.Genesis, Clock: cfg.Slots, Blobs: cfg.Blobs, Runtimes: cfg.Runtimes, Registries: cfg.Registries,
		Webhooks: b.news, Wallet: b.pay, Holder: b, Jobs: b, Blocks: cfg.Blocks != nil, Escrows: cfg.Escrows != nil,
		Carries: cfg.Carries, Dir: cfg.Dir,
	}
	r.orders = orders.Open(orders.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Key: cfg.Key, Store: cfg.Store, Clock: cfg.Slots, Weights: cfg.Weights,
		Secret: b.secrets.Seed(), FundTime: fundTime, Exchange: b.exchange, Leases: b.leases, Wallet: b.pay,
		Money: buying{b}, Limits: buying{b}, Replicas: b.checks, Tasks: &b.wg, Log: cfg.Log,
	})
	r.programs = programs.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Clock: cfg.Slots, Executions: b.executions, Secrets: b.secrets,
		Files: cfg.Files, Reputation: cfg.Reputation, MaxOutput: cfg.MaxOutput, Packs: cfg.Blobs, Tasks: &b.wg,
		Log: cfg.Log,
	}
	r.lines = lines.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Clock: cfg.Slots, Leases: b.leases, Money: buying{b}, Deposits: b.pay,
		Reputation: cfg.Reputation, Tasks: &b.wg,
	}
	r.plans = plans.Config{
		Store: cfg.Store, Leases: b.leases, Executions: b.executions, Tokens: b.secrets, Tasks: &b.wg, Log: cfg.Log,
	}
	r.access = access.Config{Executions: b.executions, Tasks: &b.wg, Log: cfg.Log}
	r.changes = changes.Config{
		Genesis: cfg.Genesis, Runner: b.runner, Clock: cfg.Slots, Wallet: b.pay, Limits: bounding{b}, Log: cfg.Log,
	}
	r.settling = settling.Config{Genesis: cfg.Genesis, Payments: b.pay, Tasks: &b.wg, Log: cfg.Log}
	r.voices = voice.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Key: cfg.Key, Local: cfg.Guardian, Clock: cfg.Slots, Secrets: b.secrets,
		Tasks: &b.wg, Log: cfg.Log,
	}
	r.command = command.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Voices: &r.voices, Files: cfg.Files, Blobs: cfg.Blobs, Escrows: b.pay,
		LostAfter: cfg.LostAfter, Tasks: &b.wg, Log: cfg.Log,
		Search: search.Config{
			Host: cfg.Host, Genesis: cfg.Genesis, Self: b.self, Clock: cfg.Slots, Exchange: b.exchange,
			Neighbours: cfg.Market, Stakes: cfg.Stakes,
		},
	}
	r.takeover = takeover.Config{
		Host: cfg.Host, Store: cfg.Store, Blobs: cfg.Blobs, Files: cfg.Files, Leases: b.leases, Deposits: b.pay,
		LostAfter: cfg.LostAfter, Tasks: &b.wg, Log: cfg.Log,
	}
}

// newSupervisor composes the rooms of a job.
func (b *Buyer) newSupervisor(j Job) (*supervisor, error) {
	as := run.Voice(b.own)
	var guard *voice.Guarded
	if j.Detached != nil {
		var err error
		if guard, err = b.rooms.voices.Of(j); err != nil {
			return nil, err
		}
		as = guard
	}
	r := &b.rooms
	of, err := b.runner.Open(j, b.owned(j), as)
	if err != nil {
		return nil, err
	}
	s := &supervisor{Job: of, b: b, lines: lines.New(&r.lines, of), access: access.New(&r.access, of)}
	s.changes = changes.New(&r.changes, of)
	s.plans = plans.New(&r.plans, of, s.access)
	s.programs = programs.New(&r.programs, of, s.plans, s.access)
	s.orders = r.orders.Of(of, s.plans)
	s.account = settling.New(&r.settling, of, nil)
	if guard != nil {
		s.command = command.New(&r.command, of, guard, s)
		s.takeover = takeover.New(&r.takeover, of, s.command, s.programs)
		s.account = settling.New(&r.settling, of, s.takeover)
	}
	of.Serve(s)
	return s, nil
}
