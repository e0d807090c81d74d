// Package settling settles the account of a job after its work has ended.
package settling

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
)

// Config is the surroundings of the accounts of all jobs. All of it is required.
type Config struct {
	Genesis  market.Genesis
	Payments Payments
	Tasks    leases.Tasks
	Log      *slog.Logger
}

// Payments pays for leases.
type Payments interface {
	// Settle takes back the money that was set aside for a job and costs nothing, and has the receipts anchored. It
	// returns the amount that was paid and the transactions of the anchors.
	Settle(ctx context.Context, job string, of []pay.Lease, bill pay.Bill) (market.Amount, []string, error)
}

// Guardians sign for a job that has some.
type Guardians interface {
	// SignLast has the guardians sign the last vouchers of leases that another supervisor had signed.
	SignLast(ctx context.Context, of []*leases.Lease) error
}

// Account is the account of one job.
type Account struct {
	job    *run.Job
	cfg    *Config
	guards Guardians
}

// New returns the account of a job. Its guardians are optional.
func New(cfg *Config, j *run.Job, g Guardians) Account { return Account{j, cfg, g} }

// Close takes back the job's deposits less its debts, and anchors its receipts.
func (a Account) Close() {
	work := a.job.Commanded()
	a.cfg.Tasks.Go(func() {
		for {
			err := a.settle(work)
			if err == nil || work.Err() != nil {
				return
			}
			a.cfg.Log.Error("settling failed; trying again", "job", a.job.ID, "err", err)
			if run.Pause(work, run.Retry) != nil {
				return
			}
		}
	})
}

// settle settles the job once.
func (a Account) settle(ctx context.Context) error {
	all := a.job.Bought()
	if a.guards != nil {
		if err := a.guards.SignLast(ctx, all); err != nil {
			return err
		}
	}
	due := &bill{job: a.job, leases: all}
	if _, err := due.Owed(ctx); err != nil {
		return err
	}
	paid, anchored, err := a.cfg.Payments.Settle(ctx, a.job.ID, pay.LeasesOf(all), due)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	total, receipts := due.counted()
	if total > 0 {
		amount := a.cfg.Genesis.FormatAmount(paid)
		detail := amount + " are the providers', claimed or to be claimed"
		a.job.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Paid, Detail: detail})
	}
	a.job.Show(func(j *record.Job) bool {
		j.Transactions = anchored
		return true
	})
	a.job.Post(
		jobs.AccountCounted{Owed: total, Receipts: receipts},
		jobs.ReceiptsAnchored{Tx: append(anchored, "")[0]},
		jobs.EscrowReleased{Paid: paid},
	)
	return nil
}
