package record

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
)

var (
	// ErrRefused is returned for a job that cannot be taken; its text has the reason.
	ErrRefused = errors.New("job refused")
	// ErrImage is returned with ErrRefused for a job whose image has no known digest, or is not on this peer.
	ErrImage = errors.New("spec.image")
	// ErrFunds is returned for a job that is refused because its wallet cannot pay for it.
	ErrFunds = errors.New("not enough funds")
	// ErrNoJob is returned if a peer has no such job, or if the beginning of an id fits several.
	ErrNoJob = errors.New("no such job")
	// ErrNotRunning is returned if a job's rank has no program that runs now; its text has the rank's state.
	ErrNotRunning = errors.New("no program runs")
	// ErrNoCopies is returned for a job whose outputs have no copies at other peers.
	ErrNoCopies = errors.New("the outputs of the job have no copies")
	// ErrNoKeeper is returned if no provider sent its copy of a job's outputs.
	ErrNoKeeper = errors.New("no provider sent its copy of the outputs")
	// ErrNeeded is returned for a job that cannot be removed yet.
	ErrNeeded = errors.New("the job is still needed")
)

// Submission is a job as it is handed in.
type Submission struct {
	Spec   job.Job
	Values job.Values // its secrets
	Once   string     // repeated submissions with the same value count once; empty: each counts
	Key    string     // name of the submitting API key; empty: the peer's own token
	Rerun  string     // id of the job that it repeats; empty: none

	// Replica is the job with the result to compute again; nil if the job is no replica.
	Replica *Replica
}

// New returns the job of a submission. It returns an error for a cluster that cannot be formed.
func New(sub Submission, now time.Time) (Job, error) {
	j := Job{ID: NewID(), Spec: sub.Spec, Key: sub.Key, Rerun: sub.Rerun, Replica: sub.Replica, State: Queued,
		Created: now, Ranks: make([]Rank, sub.Spec.Count)}
	for i := range j.Ranks {
		j.Ranks[i].State = RankWaiting
	}
	if sub.Spec.Verify == job.VerifyReplicate {
		_, _ = rand.Read(j.Nonce[:]) // never fails
		if j.Replica == nil {
			j.Verified = make([]Verified, sub.Spec.Count)
		}
	}
	var err error
	j.Cluster, err = NewCluster(j.ID, sub.Spec)
	return j, err
}

// RemoveAfter is the least time since the end of a job that is removed: limits of a day count its money until then.
const RemoveAfter = 24 * time.Hour

// Removed is the rest of a job that was removed.
type Removed struct {
	LogBytes int64     // of its logs, which are gone
	Left     []cid.Cid // files that it left, which its caller removes
}

// Totals are the sums over all of this peer's own jobs. Paid and Fees never become less.
type Totals struct {
	Paid market.Amount // claimed by providers, with the network's fees
	Held market.Amount // in escrows now
	Fees uint64        // lamports that transactions took, about
}

// QuotedOffer is one provider's price for a job.
type QuotedOffer struct {
	Provider sign.Key      `json:"provider"`
	Region   string        `json:"region"`
	Price    market.Price  `json:"price"`  // base units per unit-hour
	Leases   uint32        `json:"leases"` // ranks it has room for
	Route    string        `json:"route"`
	Took     time.Duration `json:"took"`             // nanoseconds
	Ranks    int           `json:"ranks"`            // of the job, if it were placed now
	Ready    bool          `json:"ready,omitempty"`  // its offer names the job's image, which it need not download
	Misfit   string        `json:"misfit,omitempty"` // why it would not be taken
	Units    Units         `json:"units"`            // their kind
}

// Declined is a provider that would not take a job, and why.
type Declined struct {
	Provider sign.Key `json:"provider"`
	Reason   string   `json:"reason"`
}

// Quotation is the market's answer to a job that is not placed.
type Quotation struct {
	Order    market.OrderID `json:"order"`
	Image    string         `json:"image,omitempty"` // with the digest that its tag has now, if that is known
	Quotes   []QuotedOffer  `json:"quotes"`          // the providers that would be chosen, then the others by price
	Declined []Declined     `json:"declined"`
	Places   bool           `json:"places"`            // the job could be placed now
	Reason   string         `json:"reason,omitempty"`  // else why not
	Cost     market.Amount  `json:"cost"`              // at the quoted prices, for the whole of timeouts.run
	MaxCost  market.Amount  `json:"maxCost"`           // at payment.maxPrice, within the budget
	Lamports Lamports       `json:"lamports,omitzero"` // of SOL, besides
	Took     time.Duration  `json:"took"`
}

// ExtendState is the result of a request for more time to one rank's provider.
type ExtendState string

// The results of an extension.
const (
	Extended  ExtendState = "extended" // its lease was extended
	Extending ExtendState = "asked"    // no answer yet; the request is repeated until its lease ends
	// It will not: the rank is taken elsewhere when its lease ends, as restart.max allows.
	NotExtended ExtendState = "refused"
	LongEnough  ExtendState = "enough"  // its lease lasts until then anyway, or the rank is done
	NoLease     ExtendState = "waiting" // it has no lease now; the next one is for the new time
)

// ExtendedRank is the result for one rank.
type ExtendedRank struct {
	Rank     int           `json:"rank"`
	Provider sign.Key      `json:"provider,omitzero"`
	State    ExtendState   `json:"state"`
	Until    time.Time     `json:"until,omitzero"` // when its lease ends now, by the nominal length of slots
	Extra    market.Amount `json:"extra"`          // the most that it adds to the cost
	Reason   string        `json:"reason,omitempty"`
}

// Extension is the result of making a job longer.
type Extension struct {
	Job    string         `json:"job"`
	Run    job.Span       `json:"run"`            // timeouts.run by now
	Until  time.Time      `json:"until,omitzero"` // end of the job's time; zero before it began
	Budget market.Amount  `json:"budget"`
	Ranks  []ExtendedRank `json:"ranks"`
}
