package buyer

import "context"

// hooks has the secrets of webhooks. It implements news.Secrets.
type hooks struct{ *Buyer }

// HookSecret implements news.Secrets.
func (b hooks) HookSecret(ctx context.Context, id string, hook int) ([]byte, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	return b.secrets.Hook(ctx, s.Snapshot(), hook)
}
