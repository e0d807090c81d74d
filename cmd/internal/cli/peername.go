package cli

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p"
)

// shortKey matches the beginning of a key: the eight characters that tables print, or more. Fewer are too few: keys
// with equal shorter beginnings can be generated in minutes.
var shortKey = regexp.MustCompile(`^[1-9A-HJ-NP-Za-km-z]{8,43}$`)

// parsePeer reads a peer's key, or its libp2p id.
func parsePeer(text string) (sign.Key, error) {
	if k, err := sign.ParseKey(text); err == nil {
		return k, nil
	}
	if id, err := peer.Decode(text); err == nil {
		if k, err := p2p.KeyFromPeerID(id); err == nil {
			return sign.Key(k), nil
		}
	}
	return sign.Key{}, WithHint(Usagef("%.80q is neither a peer's key nor a peer id", text),
		"`starling peer ls` and `starling offers` list keys; their first eight characters are enough")
}

// PeerKey parses a peer's key, its libp2p id, or the beginning of the key of a known peer: a connected or blocked peer,
// or a provider with an offer. Only a beginning needs a request to the running peer.
func (a *App) PeerKey(ctx context.Context, text string) (sign.Key, error) {
	k, err := parsePeer(text)
	if err == nil || !shortKey.MatchString(text) {
		return k, err
	}
	client, err := a.Client()
	if err != nil {
		return k, err
	}
	for _, list := range []func(context.Context, *api.Client) ([]sign.Key, error){connectedKeys, blockedKeys,
		offeringKeys} {
		all, err := list(ctx, client)
		if err != nil {
			return k, err
		}
		slices.SortFunc(all, func(x, y sign.Key) int { return bytes.Compare(x[:], y[:]) })
		all = slices.DeleteFunc(slices.Compact(all), func(k sign.Key) bool {
			return !strings.HasPrefix(k.String(),
				text)
		})
		switch {
		case len(all) == 1:
			return all[0], nil
		case len(all) > 1:
			return k, WithHint(Usagef("%q: several keys begin so: %v and %v, want one of them whole", text, all[0],
				all[1]), "starling peer ls -o json")
		}
	}
	return k, WithHint(Usagef("%q: no peer known here has a key that begins so, want a whole key or a peer id", text),
		"`starling peer ls` lists the connected peers, `starling offers` the providers")
}

// PeerName returns a peer's name for the API: its key if text is the beginning of one, else text.
func (a *App) PeerName(ctx context.Context, text string) (string, error) {
	if _, err := parsePeer(text); err == nil || !shortKey.MatchString(text) {
		return text, nil
	}
	k, err := a.PeerKey(ctx, text)
	return k.String(), err
}

// WholeKeys replaces the beginnings of keys among texts by the keys.
func (a *App) WholeKeys(ctx context.Context, texts []string) error {
	for i, text := range texts {
		var err error
		if texts[i], err = a.PeerName(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func connectedKeys(ctx context.Context, c *api.Client) (keys []sign.Key, err error) {
	peers, err := api.ListPeers.Call(ctx, c, api.None{})
	for _, p := range peers {
		keys = append(keys, p.Key)
	}
	return keys, err
}

func blockedKeys(ctx context.Context, c *api.Client) (keys []sign.Key, err error) {
	blocks, err := api.ListBlocks.Call(ctx, c, api.None{})
	for _, b := range blocks {
		keys = append(keys, b.Peer)
	}
	return keys, err
}

func offeringKeys(ctx context.Context, c *api.Client) (keys []sign.Key, err error) {
	offers, err := api.ListOffers.Call(ctx, c, api.ByClass{})
	for _, o := range offers {
		keys = append(keys, o.Provider)
	}
	return keys, err
}
