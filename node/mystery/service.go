package mystery

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/exclusive"
)

const (
	// MaxUses is how many purchases one identity makes: the more, the better it is known.
	MaxUses = 8
	// idle is how long is waited where nothing can be bought now.
	idle = 10 * time.Minute
)

// Renter buys under one identity.
type Renter interface {
	// Submit hands a job in, once however often it is repeated.
	Submit(ctx context.Context, once string, spec job.Job) (buyer.Job, error)
	Wait(ctx context.Context, id string) (buyer.Job, error)
	Receipts(ctx context.Context, id string) ([]buyer.LeaseAccount, error)
	// Probes are the records of a job's probes.
	Probes(ctx context.Context, id string) ([]exclusive.Record, error)
	Close() error
}

// Book is where a verifier remembers what it saw; node/reputation has it.
type Book interface {
	File(l market.Lease, r verify.Receipt)
	Failed(c market.LeaseCore, lost market.Amount)
}

// Config is what a Service needs. All of it is required.
type Config struct {
	Dir     string // of identities, a light client's home each
	Genesis market.Genesis
	Self    sign.Key // the verifier's own key
	PerDay  market.Amount
	Tasks   []Task
	Demand  *Demand
	Book    Book
	Store   store.Store
	Open    func(ctx context.Context, home string) (Renter, error)
	Log     *slog.Logger
}

// Service rents now and then. New starts nothing; Run does.
type Service struct {
	cfg    Config
	purse  *purse
	rand   *mathrand.Rand
	public public
}

// New checks the tasks.
func New(cfg Config) (*Service, error) {
	for _, t := range cfg.Tasks {
		if err := t.Check(); err != nil {
			return nil, err
		}
	}
	if cfg.PerDay == 0 || len(cfg.Tasks) == 0 {
		return nil, errors.New("mystery rentals need an allowance and a task")
	}
	var seed [32]byte
	_, _ = rand.Read(seed[:])
	return &Service{cfg: cfg, purse: &purse{store: cfg.Store, perDay: cfg.PerDay}, rand: mathrand.New(mathrand.NewChaCha8(seed))}, nil
}

// Purchase is one mystery rental, as journalled before it is made and when it is over.
type Purchase struct {
	ID       string            `json:"id"`
	Identity string            `json:"identity"` // name of its home
	Spec     job.Job           `json:"spec"`
	Expect   map[string]string `json:"expect"`
	Most     market.Amount     `json:"most"`
	At       time.Time         `json:"at"`
	Job      string            `json:"job,omitempty"`
	Done     bool              `json:"done,omitempty"`
	Over     time.Time         `json:"over,omitzero"` // when it was done
	Findings []Finding         `json:"findings,omitempty"`
}

// Finding is what a purchase showed of one provider.
type Finding struct {
	Provider sign.Key      `json:"provider"`
	Paid     market.Amount `json:"paid"`
	Fault    string        `json:"fault,omitempty"` // empty: it did what it was paid for
}

// Run rents until ctx ends. What an earlier process had begun is brought to its end first.
func (s *Service) Run(ctx context.Context) error {
	all, err := s.Purchases(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if !p.Done {
			s.rent(ctx, p)
		}
	}
	for ctx.Err() == nil {
		wait := idle
		p, err := s.choose(ctx, time.Now())
		if err == nil {
			wait = gap(p.Most, s.cfg.PerDay, s.rand)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		if err != nil {
			s.cfg.Log.Info("nothing is rented now", "reason", err)
			continue
		}
		if err := s.buy(ctx, p); err != nil && ctx.Err() == nil {
			s.cfg.Log.Info("a mystery rental was not made", "err", err)
		}
	}
	return nil
}

// errNothing says that there is nothing to buy, or nobody to buy it.
var errNothing = errors.New("no order was heard that a task fits, or no identity is left: `starling mystery new` makes one")

// choose draws a purchase.
func (s *Service) choose(ctx context.Context, now time.Time) (Purchase, error) {
	names, err := Identities(s.cfg.Dir)
	if err != nil {
		return Purchase{}, err
	}
	all, err := s.Purchases(ctx)
	if err != nil {
		return Purchase{}, err
	}
	uses := map[string]int{}
	for _, p := range all {
		uses[p.Identity]++
	}
	var fresh []string
	for _, name := range names {
		if uses[name] < MaxUses {
			fresh = append(fresh, name)
		}
	}
	spec, task, ok := draw(s.cfg.Genesis, s.cfg.Tasks, s.cfg.Demand.sample(), s.cfg.PerDay, map[sign.Key]bool{s.cfg.Self: true}, s.rand)
	if !ok || len(fresh) == 0 {
		return Purchase{}, errNothing
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	binary.BigEndian.PutUint32(id[:], uint32(now.Unix())) // in the order of time
	return Purchase{ID: hex.EncodeToString(id[:]), Identity: fresh[s.rand.IntN(len(fresh))], Spec: spec, Expect: s.cfg.Tasks[task].Expect,
		Most: spec.Payment.Budget, At: now}, nil
}

// buy reserves what a purchase may cost, and makes it.
func (s *Service) buy(ctx context.Context, p Purchase) error {
	p.At = time.Now()
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := s.purse.reserve(ctx, p.At, p.Most, p.ID, b); err != nil {
		return err
	}
	s.tell(ctx)
	s.rent(ctx, p)
	return nil
}

// FileRentals is where people read what was rented while the peer has its journal, in the directory of identities.
const FileRentals = "rentals.json"

// tell writes the file.
func (s *Service) tell(ctx context.Context) {
	all, err := s.Purchases(context.WithoutCancel(ctx))
	var b []byte
	if err == nil {
		b, err = json.MarshalIndent(all, "", " ")
	}
	path := filepath.Join(s.cfg.Dir, FileRentals)
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		s.cfg.Log.Warn("mystery rentals are not told", "err", err)
	}
}

// rent makes a purchase that is journalled, or brings it to its end. What fails for now goes on in the next process.
func (s *Service) rent(ctx context.Context, p Purchase) {
	log := s.cfg.Log.With("purchase", p.ID)
	r, err := s.cfg.Open(ctx, filepath.Join(s.cfg.Dir, p.Identity))
	if err != nil {
		log.Warn("an identity for mystery rentals could not be opened", "identity", p.Identity, "err", err)
		return
	}
	defer func() {
		if err := r.Close(); err != nil {
			log.Warn("closing an identity", "identity", p.Identity, "err", err)
		}
	}()
	j, err := r.Submit(ctx, p.ID, p.Spec)
	if err == nil {
		j, err = r.Wait(ctx, j.ID)
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		p.Job = j.ID
		var leases []buyer.LeaseAccount
		if leases, err = r.Receipts(ctx, j.ID); err == nil {
			p.Findings, err = s.judge(p, j, leases)
		}
	}
	var records []exclusive.Record
	if err == nil {
		records, err = r.Probes(ctx, p.Job)
	}
	if err != nil {
		log.Info("a mystery rental came to nothing", "err", err)
	}
	p.Done, p.Over = true, time.Now()
	b, err := json.Marshal(p)
	if err == nil {
		err = s.hold(context.WithoutCancel(ctx), p, records, store.Put{Kind: kindPurchase, Key: p.ID, Value: b})
	}
	if err != nil {
		log.Warn("a mystery rental was not journalled", "err", err)
	}
	s.tell(ctx)
}

// judge takes what a job showed of its providers into the verifier's book.
func (s *Service) judge(p Purchase, j buyer.Job, leases []buyer.LeaseAccount) ([]Finding, error) {
	var out []Finding
	for _, acc := range leases {
		l, err := market.UnmarshalLease(acc.Signed)
		if err != nil {
			return out, err
		}
		if l.Core.Provider == s.cfg.Self || int(acc.Rank) >= len(j.Ranks) {
			continue // one's own word about oneself
		}
		f := Finding{Provider: l.Core.Provider, Fault: p.fault(j, acc)}
		for _, r := range acc.Receipts {
			s.cfg.Book.File(l, r)
			f.Paid = max(f.Paid, r.Cumulative)
		}
		if f.Fault != "" {
			s.cfg.Book.Failed(l.Core, f.Paid)
		}
		out = append(out, f)
	}
	return out, nil
}

// fault is what was wrong with a lease, "" for one that was kept.
func (p Purchase) fault(j buyer.Job, acc buyer.LeaseAccount) string {
	r := j.Ranks[acc.Rank]
	if r.Lease != acc.Lease {
		if acc.Active && acc.Epoch < r.Epoch {
			return "it did not finish: " + acc.Reason
		}
		return ""
	}
	if x := r.Exclusive; x != nil && x.Lease == acc.Lease {
		switch {
		case x.Wrong > 0:
			return fmt.Sprintf("%d wrong answers to probes", x.Wrong)
		case x.Watch.Alarms > 1:
			return "its units are shared: " + x.Watch.Text()
		}
		if x.Health != nil {
			for _, c := range x.Health.Changes {
				if c.Fault {
					return "its hardware: " + c.Text
				}
			}
		}
	}
	if r.State != buyer.RankDone {
		return ""
	}
	left := map[string]string{}
	for _, o := range r.Outputs {
		left[o.Path] = o.CID
	}
	if !(Task{Expect: p.Expect}).right(left) {
		return "its result is not what the program gives"
	}
	return ""
}

// Purchases lists what was rented, the oldest first.
func (s *Service) Purchases(ctx context.Context) (out []Purchase, err error) {
	err = s.cfg.Store.List(ctx, kindPurchase, "", func(key string, value []byte) error {
		var p Purchase
		if err := json.Unmarshal(value, &p); err != nil {
			return fmt.Errorf("reading mystery rental %s: %w", key, err)
		}
		out = append(out, p)
		return nil
	})
	return out, err
}

// Identities are the names of the homes in a directory.
func Identities(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), node.FileIdentity)); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, err
}
