// Package secrets keeps the secrets of jobs: the values that their programs and webhooks need, the keys of jobs with
// guardians, and the tokens of clusters. In the journal they are sealed to this peer's own key; for the provider that
// runs a program they are sealed to the provider's.
package secrets

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
)

// Records are the values of jobs in the journal, sealed, by job. They stay as long as the job does, so that it can be
// run again.
var Records = journal.DefineRaw("jobsecrets")

// seeds has the secret of the peer, under the key hold: ids of holds and tokens of clusters follow from it.
var seeds = journal.DefineRaw("secret")

const seedKey = "hold"

// Boxes encrypts to the keys of peers. The use of a box and an id must be the same when it is opened.
type Boxes interface {
	Seal(to sign.Key, use, id string, plain []byte) ([]byte, error)
	// Open opens a box that was sealed to this peer's key.
	Open(use, id string, box []byte) ([]byte, error)
}

// The uses of boxes: a job's values and its key in this peer's own journal, and values on their way to a provider.
const (
	useJob   = "job"
	useKey   = "jobkey"
	useLease = "lease"
)

// Keeper keeps the secrets of a peer's jobs.
type Keeper struct {
	boxes Boxes
	store journal.Store
	self  sign.Key
	seed  [32]byte
}

// Open returns the keeper of a peer. It draws the peer's secret if the journal has none.
func Open(ctx context.Context, st journal.Store, boxes Boxes, self sign.Key) (*Keeper, error) {
	k := &Keeper{boxes: boxes, store: st, self: self}
	v, err := seeds.Get(ctx, st, seedKey)
	switch {
	case err == nil && len(v) == len(k.seed):
		copy(k.seed[:], v)
		return k, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	if _, err := rand.Read(k.seed[:]); err != nil {
		return nil, err
	}
	var made journal.Batch
	seeds.Put(&made, seedKey, k.seed[:])
	return k, made.Commit(ctx, st)
}

// Seed returns the secret of the peer, from which the ids of its holds follow.
func (k *Keeper) Seed() [32]byte { return k.seed }

// Seal returns the values of a new job for the journal.
func (k *Keeper) Seal(id string, v job.Values) (store.Put, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return store.Put{}, errors.New("the job's secrets cannot be encoded")
	}
	defer clear(plain)
	box, err := k.boxes.Seal(k.self, useJob, id, plain)
	if err != nil {
		return store.Put{}, fmt.Errorf("sealing the job's secrets: %w", err)
	}
	return Records.Encode(id, box), nil
}

// Hook returns the secret of a job's webhook.
func (k *Keeper) Hook(ctx context.Context, j record.Job, hook int) ([]byte, error) {
	v, err := k.Values(ctx, j)
	if err != nil {
		return nil, err
	}
	secret := v.Webhooks[hook]
	if len(secret) == 0 {
		return nil, fmt.Errorf("webhook %d of job %s has no secret", hook, j.ID)
	}
	return secret, nil
}

// Values returns the values of a job.
func (k *Keeper) Values(ctx context.Context, j record.Job) (v job.Values, err error) {
	if !j.Spec.NeedsValues() {
		return v, nil
	}
	box, err := Records.Get(ctx, k.store, j.ID)
	if err != nil {
		return v, err
	}
	plain, err := k.boxes.Open(useJob, j.ID, box)
	if err != nil {
		return v, fmt.Errorf("reading the job's secrets: %w", err)
	}
	defer clear(plain)
	if err := json.Unmarshal(plain, &v); err != nil {
		return v, errors.New("reading the job's secrets: malformed")
	}
	return v, nil
}

// SealFor seals the values that the program of a job may have to the provider of a lease. It returns nil if there are
// none.
func (k *Keeper) SealFor(ctx context.Context, j record.Job, to sign.Key, lease market.LeaseID) ([]byte, error) {
	token := j.Cluster != nil && j.Engine().Program(j.Task(0)).Token
	if len(j.Spec.Secrets) == 0 && j.Spec.Registry == nil && !token {
		return nil, nil
	}
	v, err := k.Values(ctx, j)
	if err != nil {
		return nil, err
	}
	values := programs(j.Spec, v)
	if token {
		values.Files[cluster.TokenFile] = []byte(k.Token(j.ID))
	}
	plain, err := proto.Marshal(values)
	if err != nil {
		return nil, errors.New("the job's secrets cannot be encoded")
	}
	defer clear(plain)
	return k.boxes.Seal(to, useLease, lease.String(), plain)
}

// programs returns a job's values as its program finds them. The keys of its webhooks stay here.
func programs(spec job.Job, v job.Values) *nodepb.Secrets {
	out := &nodepb.Secrets{
		Files: map[string][]byte{}, Env: map[string]string{},
		RegistryUsername: v.Username, RegistryPassword: v.Password,
	}
	for _, s := range spec.Secrets {
		if name := s.FileName(); name != "" {
			out.Files[name] = v.Secrets[s.Name]
		} else {
			out.Env[s.Env] = string(v.Secrets[s.Name])
		}
	}
	return out
}

// SealKey seals the key of a job to this peer.
func (k *Keeper) SealKey(id string, seed [32]byte) ([]byte, error) {
	box, err := k.boxes.Seal(k.self, useKey, id, seed[:])
	if err != nil {
		return nil, fmt.Errorf("sealing the job's key: %w", err)
	}
	return box, nil
}

// Key returns the private key of a job. It returns an error if its public key is not want.
func (k *Keeper) Key(id string, box []byte, want sign.Key) (sign.Private, error) {
	seed, err := k.boxes.Open(useKey, id, box)
	if err != nil || len(seed) != 32 {
		return sign.Private{}, fmt.Errorf("opening the key of job %s: malformed", id)
	}
	defer clear(seed)
	key := sign.NewPrivate([32]byte(seed))
	if key.Key() != want {
		return sign.Private{}, fmt.Errorf("opening the key of job %s: it is another one", id)
	}
	return key, nil
}

// Token returns the secret that the engine of a cluster shares, 64 hexadecimal digits. It follows from the peer's
// secret and the job's id, so that it is the same for as long as the journal lives, and is written nowhere.
func (k *Keeper) Token(id string) string {
	mac := hmac.New(sha256.New, k.seed[:])
	mac.Write([]byte("starling/cluster/token/v1\x00" + id))
	return hex.EncodeToString(mac.Sum(nil))
}
