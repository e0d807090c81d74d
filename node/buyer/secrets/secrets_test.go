package secrets

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/store"
)

var (
	self     = sign.NewPrivate([32]byte{1})
	provider = sign.NewPrivate([32]byte{2})
)

func keeper(t *testing.T, st store.Store) *Keeper {
	t.Helper()
	k, err := Open(t.Context(), st, sealed.Boxes{Key: self, Network: "test"}, self.Key())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// secret is a job with one secret of each kind.
func secret() (record.Job, job.Values) {
	j := record.Job{ID: "j1", Spec: job.Job{
		Secrets:  []job.Secret{{Name: "key", Env: "KEY"}, {Name: "cert", File: "/run/secrets/cert"}},
		Registry: &job.Registry{},
	}}
	return j, job.Values{
		Secrets:  map[string][]byte{"key": []byte("k1"), "cert": []byte("c1")},
		Username: "me", Password: "pass", Webhooks: map[int][]byte{0: []byte("hook")},
	}
}

// The values of a job are sealed in the journal, and come back as they were, in this process and the next.
func TestValues(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	j, v := secret()
	k := keeper(t, st)
	put, err := k.Seal(j.ID, v)
	if err != nil || bytes.Contains(put.Value, []byte("k1")) {
		t.Fatalf("%q, %v", put.Value, err)
	}
	if err := st.Write(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*Keeper{"this": k, "next": keeper(t, st)} {
		got, err := k.Values(t.Context(), j)
		if err != nil || string(got.Secrets["key"]) != "k1" || got.Password != "pass" || string(got.Webhooks[0]) != "hook" {
			t.Errorf("%s process: %+v, %v", name, got, err)
		}
	}
	other := j
	if other.ID = "j2"; other.Spec.NeedsValues() {
		if _, err := k.Values(t.Context(), other); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("of another job: %v", err)
		}
	}
	if err := st.Write(t.Context(), Records.Encode("j2", put.Value)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Values(t.Context(), other); err == nil {
		t.Error("one job opens the box of another")
	}
	if got, err := k.Values(t.Context(), record.Job{ID: "j3"}); err != nil || got.Secrets != nil {
		t.Errorf("of a job without secrets: %+v, %v", got, err)
	}
}

// A provider can open the values for its lease, without those of the webhooks, and nobody else can.
func TestSealFor(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	j, v := secret()
	k := keeper(t, st)
	put, err := k.Seal(j.ID, v)
	if err == nil {
		err = st.Write(t.Context(), put)
	}
	if err != nil {
		t.Fatal(err)
	}
	lease := market.LeaseID{7}
	box, err := k.SealFor(t.Context(), j, provider.Key(), lease)
	if err != nil {
		t.Fatal(err)
	}
	theirs := sealed.Boxes{Key: provider, Network: "test"}
	plain, err := theirs.Open(useLease, lease.String(), box)
	var got nodepb.Secrets
	if err != nil || proto.Unmarshal(plain, &got) != nil {
		t.Fatalf("%q, %v", plain, err)
	}
	if got.Env["KEY"] != "k1" || len(got.Files) != 1 || got.RegistryPassword != "pass" || bytes.Contains(plain, []byte("hook")) {
		t.Errorf("%v", &got)
	}
	if _, err := theirs.Open(useLease, market.LeaseID{8}.String(), box); err == nil {
		t.Error("it opens for another lease")
	}
	if _, err := k.boxes.Open(useLease, lease.String(), box); err == nil {
		t.Error("the buyer opens a box for its provider")
	}
	if box, err := k.SealFor(t.Context(), record.Job{ID: "j2"}, provider.Key(), lease); box != nil || err != nil {
		t.Errorf("of a job without secrets: %q, %v", box, err)
	}
}

// A cluster whose engine shares a token has it in its program's files.
func TestSealForCluster(t *testing.T) {
	t.Parallel()
	k := keeper(t, store.NewMemory())
	j := record.Job{ID: "j1", Cluster: &record.Cluster{Size: 1, Begun: 1}}
	j.Spec.Cluster = &job.Cluster{Engine: "ray"}
	if !j.Engine().Program(j.Task(0)).Token {
		t.Skip("the engine shares no token")
	}
	box, err := k.SealFor(t.Context(), j, provider.Key(), market.LeaseID{7})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := sealed.Boxes{Key: provider, Network: "test"}.Open(useLease, market.LeaseID{7}.String(), box)
	var got nodepb.Secrets
	if err != nil || proto.Unmarshal(plain, &got) != nil || string(got.Files[cluster.TokenFile]) != k.Token("j1") {
		t.Errorf("%v, %v", &got, err)
	}
}

// The token is written down: a cluster that runs keeps it when its buyer is updated.
func TestToken(t *testing.T) {
	t.Parallel()
	const want = "9e2c56840e946e4446bbbb77e119c17f0be936f1f393467ef32735aafa646c02"
	k, other := &Keeper{seed: [32]byte{1, 2, 3}}, &Keeper{seed: [32]byte{1, 2}}
	if got := k.Token("jabc"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if k.Token("jabd") == want || other.Token("jabc") == want {
		t.Error("two clusters, or two buyers, have the same token")
	}
	st := store.NewMemory()
	if a, b := keeper(t, st), keeper(t, st); a.Seed() != b.Seed() || a.Seed() == ([32]byte{}) {
		t.Error("the next process has another secret")
	}
}

// The key of a job opens for that job alone, and only if it is the one that its record names.
func TestKey(t *testing.T) {
	t.Parallel()
	k := keeper(t, store.NewMemory())
	key := sign.NewPrivate([32]byte{9})
	box, err := k.SealKey("j1", [32]byte{9})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.Key("j1", box, key.Key()); err != nil || got.Key() != key.Key() {
		t.Errorf("%v", err)
	}
	if _, err := k.Key("j2", box, key.Key()); err == nil || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("of another job: %v", err)
	}
	if _, err := k.Key("j1", box, self.Key()); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("another key: %v", err)
	}
}
