package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/cluster"
)

// Clusters is what the API asks of the buying side about jobs that are clusters, beside what it asks about all jobs.
type Clusters interface {
	// ScaleWithin gives a cluster another number of members, and another budget unless that is 0, and returns when it has so many.
	ScaleWithin(ctx context.Context, id string, size uint32, budget market.Amount) (buyer.Job, error)
	// ClusterToken is what the cluster's engine knows its own by.
	ClusterToken(id string) (string, error)
	// Paths are what was measured of the paths between its members, before their leases were signed.
	Paths(ctx context.Context, id string) ([]cluster.Path, error)
}

// ScaleRequest is how many members a cluster is to have, and what it may cost in all.
type ScaleRequest struct {
	Size   uint32        `json:"size"`
	Budget market.Amount `json:"budget,omitempty"` // base units, not below the one it has; 0: it follows the size as it does
}

// TokenAnswer is a cluster's token: whoever has it and reaches the cluster's ports may run anything on it.
type TokenAnswer struct {
	Token string `json:"token"`
}

func (s *Server) clusterRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/jobs/{id}/scale": s.scale,
		"GET /v1/jobs/{id}/token":  s.clusterToken,
		"GET /v1/jobs/{id}/paths":  s.clusterPaths,
	}
}

// cluster is the job that a request is about, if it is a cluster.
func (s *Server) cluster(r *http.Request) (buyer.Job, error) {
	j, err := s.jobs.Job(r.PathValue("id"))
	if err == nil && j.Spec.Cluster == nil {
		err = &Error{Status: http.StatusConflict, Code: "no_cluster", Message: "job " + j.ID + " is a plain job, not a cluster",
			Hint: "`starling cluster ls` lists the clusters"}
	}
	return j, err
}

func (s *Server) scale(w http.ResponseWriter, r *http.Request) error {
	var req ScaleRequest
	if err := body(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	if req.Size == 0 {
		return &Error{Status: http.StatusBadRequest, Code: "bad_request", Message: "size: a cluster has at least one member",
			Hint: "`starling cluster down` ends it"}
	}
	j, err := s.cluster(r)
	if err != nil {
		return err
	}
	if j, err = s.jobs.ScaleWithin(r.Context(), j.ID, req.Size, req.Budget); err != nil {
		return err
	}
	return reply(w, j)
}

func (s *Server) clusterToken(w http.ResponseWriter, r *http.Request) error {
	j, err := s.cluster(r)
	if err != nil {
		return err
	}
	token, err := s.jobs.ClusterToken(j.ID)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return reply(w, TokenAnswer{Token: token})
}

// Scale gives a cluster another number of members, and another budget unless that is 0.
func (c *Client) Scale(ctx context.Context, id string, req ScaleRequest) (j buyer.Job, err error) {
	return j, c.send(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/scale", req, &j, nil)
}

func (s *Server) clusterPaths(w http.ResponseWriter, r *http.Request) error {
	j, err := s.cluster(r)
	if err != nil {
		return err
	}
	paths, err := s.jobs.Paths(r.Context(), j.ID)
	if err != nil {
		return err
	}
	return reply(w, append([]cluster.Path{}, paths...))
}

// Paths are what was measured of the paths between a cluster's members, by rank.
func (c *Client) Paths(ctx context.Context, id string) (paths []cluster.Path, err error) {
	return paths, c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/paths", &paths)
}

// ClusterToken is what the cluster's engine knows its own by; empty for an engine that asks for none.
func (c *Client) ClusterToken(ctx context.Context, id string) (string, error) {
	var a TokenAnswer
	err := c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/token", &a)
	return a.Token, err
}
