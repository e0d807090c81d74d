package server

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job/jobfile"
)

func (f *fake) ScaleWithin(_ context.Context, id string, size uint32, budget market.Amount) (record.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.job
	j.Spec.Count = size
	if budget > 0 {
		j.Spec.Payment.Budget = budget
	}
	return j, errors.Join(f.known(id), f.err)
}

func (f *fake) ClusterToken(id string) (string, error) { return "secret of " + id, f.known(id) }

func (f *fake) Paths(_ context.Context, id string) ([]cluster.Path, error) {
	return []cluster.Path{{B: 1, RTTMicros: 7}}, f.known(id)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	_, err := api.ScaleCluster.Call(t.Context(), c, api.Scale{ID: f.job.ID, Body: api.ScaleRequest{Size: 3}})
	wantError(t, err, http.StatusConflict, "no_cluster")
	_, err = api.ClusterToken.Call(t.Context(), c, api.ByID{ID: f.job.ID})
	wantError(t, err, http.StatusConflict, "no_cluster")
	spec, err := jobfile.Parse([]byte("{apiVersion: v1, kind: Cluster, metadata: {name: sweep}, spec: {size: 2, engine: ray, payment: {maxPrice: 1},\n"+
		"  image: rayproject/ray@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}}"), jobfile.Token{Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	f.change(func() { f.job.Spec = spec })
	if j, err := api.ScaleCluster.Call(t.Context(), c, api.Scale{ID: f.job.ID, Body: api.ScaleRequest{Size: 3, Budget: 77}}); err != nil || j.Spec.Count != 3 || j.Spec.Payment.Budget != 77 {
		t.Errorf("%+v, %v", j.Spec, err)
	}
	if token, err := api.ClusterToken.Call(t.Context(), c, api.ByID{ID: f.job.ID}); err != nil || token.Token != "secret of "+f.job.ID {
		t.Errorf("%q, %v", token, err)
	}
	if paths, err := api.ClusterPaths.Call(t.Context(), c, api.ByID{ID: f.job.ID}); err != nil || len(paths) != 1 || paths[0].RTTMicros != 7 {
		t.Errorf("%+v, %v", paths, err)
	}
	_, err = api.ScaleCluster.Call(t.Context(), c, api.Scale{ID: f.job.ID, Body: api.ScaleRequest{Size: 0}})
	wantError(t, err, http.StatusBadRequest, "bad_request")
	_, err = api.ScaleCluster.Call(t.Context(), c, api.Scale{ID: "jother", Body: api.ScaleRequest{Size: 3}})
	wantError(t, err, http.StatusNotFound, "not_found")
	_, err = api.ClusterToken.Call(t.Context(), c, api.ByID{ID: "jother"})
	wantError(t, err, http.StatusNotFound, "not_found")
	f.change(func() { f.err = record.ErrRefused })
	_, err = api.ScaleCluster.Call(t.Context(), c, api.Scale{ID: f.job.ID, Body: api.ScaleRequest{Size: 3}})
	wantError(t, err, http.StatusUnprocessableEntity, "refused")
}
