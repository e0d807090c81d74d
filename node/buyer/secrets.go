package buyer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
)

// kindSecrets is the journal's kind of a job's values, sealed to this peer's own key, by job id. They stay as long as
// the job does, so that it can be run again.
const kindSecrets = "jobsecrets"

// Boxes encrypts to the keys of peers. What and id are the use of a box, which must be the same when it is opened.
type Boxes interface {
	Seal(to sign.Key, what, id string, plain []byte) ([]byte, error)
	// Open opens a box that was sealed to this peer's key.
	Open(what, id string, box []byte) ([]byte, error)
}

// The uses of boxes: a job's secrets and its key in this peer's own journal, secrets on their way to a provider.
const (
	boxJob   = "job"
	boxKey   = "jobkey"
	boxLease = "lease"
)

// sealOwn returns a job's secrets for the journal.
func (b *Buyer) sealOwn(id string, v job.Values) (store.Put, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return store.Put{}, errors.New("the job's secrets cannot be encoded")
	}
	box, err := b.cfg.Boxes.Seal(b.self, boxJob, id, plain)
	clear(plain)
	if err != nil {
		return store.Put{}, fmt.Errorf("sealing the job's secrets: %w", err)
	}
	return store.Put{Kind: kindSecrets, Key: id, Value: box}, nil
}

// values opens the secrets of a job.
func (b *Buyer) values(ctx context.Context, j Job) (job.Values, error) {
	var v job.Values
	if !j.Spec.NeedsValues() {
		return v, nil
	}
	box, err := b.cfg.Store.Get(ctx, kindSecrets, j.ID)
	if err != nil {
		return v, fmt.Errorf("reading the job's secrets: %w", err)
	}
	plain, err := b.cfg.Boxes.Open(boxJob, j.ID, box)
	if err != nil {
		return v, fmt.Errorf("reading the job's secrets: %w", err)
	}
	defer clear(plain)
	if err := json.Unmarshal(plain, &v); err != nil {
		return v, errors.New("reading the job's secrets: they are not what was written")
	}
	return v, nil
}

// sealFor seals what the program of a job may know to the provider that runs it; nil when there is nothing.
func (b *Buyer) sealFor(ctx context.Context, j Job, l *leases.Lease) ([]byte, error) {
	token := j.Cluster != nil && j.Engine().Program(j.Task(0)).Token
	if len(j.Spec.Secrets) == 0 && j.Spec.Registry == nil && !token {
		return nil, nil
	}
	v, err := b.values(ctx, j)
	if err != nil {
		return nil, err
	}
	secrets := pbSecrets(j.Spec, v)
	if token {
		secrets.Files[cluster.TokenFile] = []byte(clusterToken(b.secret, j.ID))
	}
	plain, err := proto.Marshal(secrets)
	if err != nil {
		return nil, errors.New("the job's secrets cannot be encoded")
	}
	defer clear(plain)
	return b.cfg.Boxes.Seal(l.Core.Provider, boxLease, l.First.String(), plain)
}

// pbSecrets are a job's secrets as its program finds them. The key of its webhooks stays here.
func pbSecrets(spec job.Job, v job.Values) *nodepb.Secrets {
	out := &nodepb.Secrets{Files: map[string][]byte{}, Env: map[string]string{}, RegistryUsername: v.Username, RegistryPassword: v.Password}
	for _, s := range spec.Secrets {
		if name := s.FileName(); name != "" {
			out.Files[name] = v.Secrets[s.Name]
		} else {
			out.Env[s.Env] = string(v.Secrets[s.Name])
		}
	}
	return out
}

// ClusterToken is the secret that a cluster's engine shares, 64 hexadecimal digits. It follows from a secret that the
// buyer has anyway and the job's id, so that it is the same for as long as the journal lives and stands nowhere.
// ErrNoJob; ErrRefused for a plain job.
func (b *Buyer) ClusterToken(id string) (string, error) {
	j, err := b.Job(id)
	if err != nil {
		return "", err
	}
	if j.Spec.Cluster == nil {
		return "", fmt.Errorf("%w: job %s is no cluster", ErrRefused, j.ID)
	}
	return clusterToken(b.secret, j.ID), nil
}

func clusterToken(secret [32]byte, id string) string {
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte("starling/cluster/token/v1\x00" + id))
	return hex.EncodeToString(mac.Sum(nil))
}
