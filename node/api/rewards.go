package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/starling-network/starling/node/rewards"
)

// Rewards is what the API asks of the part that counts and claims rewards.
type Rewards interface {
	// Rewards is how they stand.
	Rewards() (rewards.Status, error)
	// ClaimRewards looks at once at what is to be done about them, and does it.
	ClaimRewards(ctx context.Context) (rewards.Status, error)
}

// rewardRoutes are the routes of rewards.
func (s *Server) rewardRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/rewards": func(w http.ResponseWriter, _ *http.Request) error {
			st, err := s.node.Rewards()
			if err != nil {
				return err
			}
			return reply(w, st)
		},
		"POST /v1/rewards/claim": func(w http.ResponseWriter, r *http.Request) error {
			st, err := s.node.ClaimRewards(r.Context())
			if err != nil {
				return err
			}
			return reply(w, st)
		},
	}
}

// Rewards is how rewards stand, as the peer sees it.
func (c *Client) Rewards(ctx context.Context) (st rewards.Status, err error) {
	return st, c.get(ctx, "/v1/rewards", &st)
}

// ClaimRewards has the peer look at once at what is to be done about rewards, claim what it can, and waits.
func (c *Client) ClaimRewards(ctx context.Context) (st rewards.Status, err error) {
	res, err := c.do(ctx, http.MethodPost, "/v1/rewards/claim", nil, nil)
	if err != nil {
		return st, err
	}
	defer res.Body.Close()
	return st, json.NewDecoder(res.Body).Decode(&st)
}
