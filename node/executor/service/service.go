// Package service composes a provider's executor with its hooks, and serves the streams with which buyers command
// executions: start, stop, pause, watch, attach, copy and measure.
//
// It checks each command with the seller by [Leases], and has no other data of leases.
package service

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/checkpoints"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/executor/member"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
)

// Keys are this peer's private keys.
type Keys interface {
	member.Keys
	hooks.Opener
}

// Config is the configuration of a Service. All of it is required, except fields with a stated meaning of nil or zero.
type Config struct {
	Host     *p2p.Host
	Tag      string // of the network
	Domain   sign.Domain
	Key      sign.Signer
	Keys     Keys
	Dir      string // absolute; for executions
	Store    journal.Store
	Blobs    workload.Blobs
	Files    executor.Files
	Devices  hooks.Devices
	Machine  workload.Host   // the limits of programs here
	Networks member.Networks // nil gives programs no networks
	Leases   Leases
	Retain   time.Duration // how long outputs and logs are kept for their buyer
	MaxBytes int64         // that they may take together; 0 means no bound
	Log      *slog.Logger
}

// Service runs executions. New starts nothing; Restore and Run do.
type Service struct {
	cfg       Config
	run       *executor.Executor
	members   *member.Hook
	snapshots hooks.Snapshots
	probes    hooks.Probes
	sweeper   hooks.Sweeper
}

// New returns the executing room.
func New(cfg Config) *Service {
	s := &Service{
		cfg: cfg,
		members: &member.Hook{
			Networks: cfg.Networks, Keys: cfg.Keys, Domain: cfg.Domain, Log: cfg.Log,
			Fellows: member.Remote{Host: cfg.Host, Tag: cfg.Tag},
		},
	}
	hc := hooks.Config{
		Host: cfg.Machine, Opener: cfg.Keys, Devices: cfg.Devices, Blobs: cfg.Blobs, Files: cfg.Files, Store: cfg.Store,
		Domain: cfg.Domain, Key: cfg.Key, Retain: cfg.Retain, Log: cfg.Log,
	}
	s.snapshots, s.probes = hc.Snapshots(), hc.Probes()
	s.run = executor.New(executor.Config{
		Dir: cfg.Dir, Store: cfg.Store, Files: cfg.Files, Runtimes: cfg.Machine.Runtimes, Log: cfg.Log,
	}, hooks.All(hc, s.members, checkpoints.New(cfg.Blobs, cfg.Files, cfg.Log))...)
	s.sweeper = hooks.Sweeper{
		Executions: s.run, Leases: cfg.Leases, Retain: cfg.Retain, Bytes: cfg.MaxBytes, Log: cfg.Log,
	}
	return s
}

// Restore takes over the executions of an earlier process. They end with ctx.
func (s *Service) Restore(ctx context.Context) error { return s.run.Restore(ctx) }

// Run serves buyers until ctx ends. Running programs run on for the next process.
func (s *Service) Run(ctx context.Context) {
	shut := s.open()
	var wg sync.WaitGroup
	wg.Go(func() { s.sweeper.Run(ctx) })
	<-ctx.Done()
	shut()
	wg.Wait()
	s.run.Wait()
}

// CPUMillis returns the processor time that a lease's executions have used.
func (s *Service) CPUMillis(ctx context.Context, l market.LeaseID) uint64 {
	return s.run.CPUMillis(ctx, l)
}

// Digest returns the result of a lease's last execution; zero if there is none.
func (s *Service) Digest(l market.LeaseID) sign.Hash { return s.run.Digest(l) }

// End lets nothing more begin under a lease, stops its programs with a grace, and returns when none runs.
func (s *Service) End(ctx context.Context, l market.LeaseID, grace time.Duration) error {
	return s.run.End(ctx, l, grace)
}

// Terms returns the job and the guardians of a lease that has executions here. ok is false if it has none.
func (s *Service) Terms(l market.LeaseID) (job, guardians sign.Hash, ok bool) { return s.run.Terms(l) }

// HandTo lets a peer command the executions of a lease under a supervision epoch.
func (s *Service) HandTo(ctx context.Context, l market.LeaseID, to peer.ID, epoch uint64) error {
	return s.run.HandTo(ctx, l, to, epoch)
}

// Joins returns why a program of a runtime cannot be a member of a cluster, for its buyer; nil if it can.
func (s *Service) Joins(ctx context.Context, rt runtime.Runtime) error {
	return s.members.Joins(ctx, rt)
}

// Members returns the number of executions that are members of clusters.
func (s *Service) Members() int { return member.Members(s.run.All()) }

// Ends returns how many executions ended since the start, by their outcome.
func (s *Service) Ends() map[string]uint64 { return s.run.Ends() }

// Blobs returns the files that executions need.
func (s *Service) Blobs() map[cid.Cid]bool { return hooks.Needed(s.run.All()) }
