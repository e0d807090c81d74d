// Package admission refuses jobs that cannot work, before anything of them is journalled.
package admission

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/selection"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	work "github.com/starling-network/starling/node/workload"
)

// Rules are the rules by which a peer accepts jobs. All fields are required unless marked optional.
type Rules struct {
	Genesis    market.Genesis
	Clock      run.Clock
	Blobs      Blobs
	Runtimes   Runtimes
	Registries Registries
	Webhooks   Webhooks
	Wallet     Wallet
	Holder     Holder
	Jobs       Jobs
	Blocks     bool         // the chain's blocks are seen
	Escrows    bool         // jobs are paid from escrows
	Carries    func() int64 // bytes that a connection carries, see buyer.Config; optional
	Dir        string       // for files that are made
}

type (
	// Blobs are the files of this peer.
	Blobs = work.Blobs
	// Runtimes run programs on this peer, by their names.
	Runtimes = map[string]runtime.Runtime
	// Registries have the images of containers.
	Registries = runtime.Registries
)

// Webhooks delivers reports.
type Webhooks interface {
	// Check returns an error for an address that no report is sent to.
	Check(address string) error
}

// Wallet is the money that pays for jobs.
type Wallet interface {
	// Afford returns an error if the wallet cannot pay need, the most that the job can cost, with that many leases at a
	// time. The job is empty for a new job.
	Afford(ctx context.Context, job string, need market.Amount, leases uint32) error
}

// Holder reports the files of API keys.
type Holder interface {
	// Holds reports whether an API key may have a blob.
	Holds(key string, c cid.Cid) bool
}

// Admit refuses a job that cannot work, or whose files or volumes its key does not have. It completes the job with the
// places of its files and volumes and with the parts of a pushed image, and returns a warning for its user. The errors
// are ErrRefused and ErrFunds.
func (b Rules) Admit(ctx context.Context, sub *record.Submission) (warning string, err error) {
	if sub.Spec, err = b.withParts(b.Local(sub.Spec, sub.Key), sub.Key); err != nil {
		return "", err
	}
	if sub.Spec, warning, err = b.Volumes(sub.Spec, sub.Key, time.Now()); err != nil {
		return "", err
	}
	if err := b.check(ctx, sub.Spec); err != nil {
		return "", err
	}
	if err := b.Held(sub.Spec, sub.Key); err != nil {
		return "", err
	}
	carried, err := b.carry(sub.Spec)
	if err != nil {
		return "", err
	}
	warning = strings.TrimPrefix(warning+"; "+carried, "; ")
	warning = strings.TrimSuffix(warning, "; ")
	if err := sub.Values.CheckFor(sub.Spec); err != nil {
		return "", fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	return warning, nil
}

// Local returns the job with marks on inputs by URL that this peer has too, and that the API key may read. Providers
// fetch these from here if no URL has them.
func (b Rules) Local(spec job.Job, key string) job.Job {
	spec.Blobs = maps.Clone(spec.Blobs)
	for source, bl := range spec.Blobs {
		c, err := cid.Parse(bl.CID)
		bl.Local = len(bl.URLs) > 0 && err == nil && b.Blobs.Has(c) && (key == "" || b.Holder.Holds(key, c))
		spec.Blobs[source] = bl
	}
	return spec
}

// Pin returns the image of a job by its digest.
func (b Rules) Pin(ctx context.Context, sub record.Submission) (string, error) {
	var auth *runtime.RegistryAuth
	if sub.Spec.Registry != nil {
		auth = &runtime.RegistryAuth{Username: sub.Values.Username, Password: sub.Values.Password}
	}
	return runtime.Pin(ctx, b.Registries, sub.Spec.Image, auth)
}

// EmptyTree stores the archive of an empty directory.
func (b Rules) EmptyTree(ctx context.Context) (record.Blob, error) {
	dir, err := os.MkdirTemp(b.Dir, "empty-")
	if err != nil {
		return record.Blob{}, err
	}
	defer os.Remove(dir)
	t, err := b.Blobs.PutTree(ctx, dir, 0)
	return record.Blob{CID: t.CID.String(), Size: t.Size, Tree: true}, err
}

// check refuses jobs that cannot work, before anything is journalled.
func (b Rules) check(ctx context.Context, spec job.Job) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	if _, err := b.Clock.Now(time.Now()); err != nil {
		return fmt.Errorf("%w: %w; check the chain's RPC endpoint and try again", record.ErrRefused, err)
	}
	if free := b.Genesis.Free; free != spec.Payment.Free {
		if free {
			return fmt.Errorf("%w: network %s is free, nothing is paid on it; leave payment.maxPrice and "+
				"payment.budget out", record.ErrRefused, b.Genesis.Network)
		}
		return fmt.Errorf("%w: payment.maxPrice is missing: network %s is paid in %s", record.ErrRefused,
			b.Genesis.Network, b.Genesis.Symbol)
	}
	if spec.Verify == job.VerifyReplicate && b.Genesis.Free {
		return fmt.Errorf("%w: verify: replicate draws by a chain's blocks, and network %s is free; leave it out",
			record.ErrRefused, b.Genesis.Network)
	}
	if spec.Verify == job.VerifyReplicate && !b.Blocks {
		return fmt.Errorf("%w: verify: replicate draws by the chain's blocks, and this peer sees none",
			record.ErrRefused)
	}
	if spec.Guardians > 0 && !b.Escrows {
		return fmt.Errorf("%w: guardians pay from an escrow, and network %s is free; leave them out", record.ErrRefused,
			b.Genesis.Network)
	}
	if spec.Guardians > 0 && (len(spec.Secrets) > 0 || spec.Registry != nil) {
		return fmt.Errorf("%w: a job with secrets cannot have guardians: any supervisor commands the program "+
			"and could read the secrets; remove the secrets or set --guardians 0", record.ErrRefused)
	}
	if !spec.Uploaded() {
		return fmt.Errorf("%w: files of the job are not uploaded yet", record.ErrRefused)
	}
	for i, w := range spec.Webhooks {
		if err := b.Webhooks.Check(w.URL); err != nil {
			return fmt.Errorf("%w: spec.webhooks[%d].url: %w", record.ErrRefused, i, err)
		}
	}
	for source, bl := range spec.Blobs {
		c, err := cid.Parse(bl.CID)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", record.ErrRefused, source, err)
		}
		if bl.Here() && !b.Blobs.Has(c) {
			return notUploaded(source, bl.CID)
		}
	}
	if err := b.checkModules(spec); err != nil {
		return err
	}
	if r := spec.Rounds; r != nil && r.Reduce != nil && b.Runtimes[job.RuntimeWasm] == nil {
		return fmt.Errorf("%w: rounds.reduce runs on this peer, which has no runtime %q",
			record.ErrRefused, job.RuntimeWasm)
	}
	need, err := record.MostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	return b.Wallet.Afford(ctx, "", need, spec.Count)
}

// Held refuses files that an API key has not uploaded, as if they did not exist. Knowing a CID is no permission.
func (b Rules) Held(spec job.Job, key string) error {
	if key == "" {
		return nil
	}
	for source, bl := range spec.Blobs {
		c, err := cid.Parse(bl.CID)
		if err != nil || bl.Here() && !b.Holder.Holds(key, c) {
			return notUploaded(source, bl.CID)
		}
	}
	return nil
}

func notUploaded(source, c string) error {
	return fmt.Errorf("%w: %s: its content %s is not on this peer; upload it first", record.ErrRefused, source, c)
}

// checkModules refuses invalid Wasm programs if this peer has a runtime that checks them.
func (b Rules) checkModules(spec job.Job) error {
	c, ok := b.Runtimes[job.RuntimeWasm].(runtime.Checker)
	if !ok {
		return nil
	}
	var modules []string
	if spec.Module != "" {
		modules = append(modules, spec.Module)
	}
	if r := spec.Rounds; r != nil && r.Reduce != nil {
		modules = append(modules, r.Reduce.Module)
	}
	for _, source := range modules {
		id, err := cid.Parse(spec.Blobs[source].CID)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", record.ErrRefused, source, err)
		}
		if !spec.Blobs[source].Here() {
			continue // its provider refuses it
		}
		path, err := b.Blobs.Path(id)
		if err == nil {
			err = c.CheckModule(path)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", record.ErrRefused, source, err)
		}
	}
	return nil
}

// carry refuses a job whose files cannot reach any provider, or returns a warning. It applies only to a light client,
// because all connections of a light client go through entries.
func (b Rules) carry(spec job.Job) (warning string, err error) {
	if b.Carries == nil {
		return "", nil
	}
	text, refused := exchange.OverRelay(selection.Brought(spec), b.Carries())
	if refused {
		return "", fmt.Errorf("%w: %s (with --direct, providers that can be dialled; or name another entry peer with "+
			"--peer)", record.ErrRefused, text)
	}
	return text, nil
}
