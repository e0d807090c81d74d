package buyer

import (
	"context"
	"fmt"
)

// hooks has the secrets of webhooks. It implements news.Secrets.
type hooks struct{ *Buyer }

// HookSecret implements news.Secrets.
func (b hooks) HookSecret(ctx context.Context, id string, hook int) ([]byte, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	v, err := b.secrets.Values(ctx, s.Snapshot())
	if err != nil {
		return nil, err
	}
	secret := v.Webhooks[hook]
	if len(secret) == 0 {
		return nil, fmt.Errorf("webhook %d of job %s has no secret", hook, id)
	}
	return secret, nil
}
