package cli_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// named is a command that shows the keys of the peers that it is given.
func named(a *cli.App) *cobra.Command {
	return &cobra.Command{Use: "named", RunE: func(c *cobra.Command, args []string) error {
		if err := a.WholeKeys(c.Context(), args); err != nil {
			return err
		}
		for _, text := range args {
			k, err := a.PeerKey(c.Context(), text)
			if err != nil {
				return err
			}
			a.Say("%s is %s", text, k)
		}
		return nil
	}}
}

// asks is a command that asks the peer for its offers.
func asks(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{Use: "asks"}, 0, cli.Get(api.GetOwnOffers), func(t *cli.Table, p cli.Peer, o api.OwnOffers) {
		t.Row(o.State, p.Genesis.Network)
	})
}

var commands = []func(*cli.App) *cobra.Command{named, asks}

// alike are two keys with the same first eight characters in base58.
func alike(k sign.Key) (sign.Key, sign.Key) {
	other := k
	other[31] ^= 1
	return k, other
}

// The beginning of a key stands for the one key that begins so, of a peer that is connected, blocked or sells.
func TestPeerKey(t *testing.T) {
	t.Parallel()
	connected, blocked, sells := sign.NewPrivate([32]byte{1}).Key(), sign.NewPrivate([32]byte{2}).Key(), sign.NewPrivate([32]byte{3}).Key()
	one, two := alike(sign.NewPrivate([32]byte{4}).Key())
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{
		"GET /v1/peers": []api.PeerInfo{{Key: connected}, {Key: one}, {Key: two}, {Key: connected}}, "GET /v1/blocks": []block.Entry{{Peer: blocked}},
		"GET /v1/offers": []api.OfferInfo{{Provider: sells}, {Provider: sells}},
	})
	for _, k := range []sign.Key{connected, blocked, sells} {
		for _, n := range []int{8, 20, 40} {
			p.CLI(t, "named", k.String()[:n]).Want(t, cli.ExitOK, `^`+k.String()+` is `+k.String()+`$`)
		}
	}
	p.Asked()
	id, err := peer.IDFromPrivateKey(p2ptest.Key(5))
	if err != nil {
		t.Fatal(err)
	}
	p.CLI(t, "named", one.String(), id.String()).Want(t, cli.ExitOK, `^`+one.String()+` is `+one.String()+`$`, `^`+id.String()+` is \w+$`)
	if asked := p.Asked(); len(asked) > 0 {
		t.Errorf("whole keys need no peer; asked for %q", asked)
	}
	p.CLI(t, "named", one.String()[:8]).Want(t, cli.ExitUsage, `several keys begin so: .*`+one.String(), `^hint: starling peer ls -o json$`)
	p.CLI(t, "named", "zzzzzzzz").Want(t, cli.ExitUsage, `"zzzzzzzz": no peer known here has a key that begins so`, `^hint: `)
	p.Asked()
	for _, text := range []string{connected.String()[:7], "0OIl0OIl", "", "a b", strings.Repeat("z", 3000), "../../v1"} {
		r := p.CLI(t, "named", text).Want(t, cli.ExitUsage, `is neither a peer's key nor a peer id`, `^hint: `)
		if asked := p.Asked(); len(asked) > 0 || len(r.Err) > 400 {
			t.Errorf("%.20q: asked for %q, said %d bytes", text, asked, len(r.Err))
		}
	}
}

// The error of a peer without a list of its peers is the error of the command.
func TestPeerKeyFails(t *testing.T) {
	t.Parallel()
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/peers": []api.PeerInfo{},
		"GET /v1/blocks": &api.Error{Status: http.StatusInternalServerError, Code: api.CodePeer, Message: "the journal failed", Hint: "look"}})
	p.CLI(t, "named", "zzzzzzzz").Want(t, cli.ExitPeer, `^starling: the journal failed$`, `^hint: look$`)
	if asked := p.Asked(); !slices.Equal(asked, []string{"GET /v1/peers", "GET /v1/blocks"}) {
		t.Errorf("asked for %q", asked)
	}
	none := clitest.NewHome(t.TempDir(), commands)
	none.CLI(t, "named", "zzzzzzzz").Want(t, cli.ExitUnreachable, `no peer is running here`)
}

// A command that asks for one thing shows it with its network, takes no other arguments, and passes a refusal on.
func TestAsk(t *testing.T) {
	t.Parallel()
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers/own": api.OwnOffers{State: "paused\x1b"}})
	p.CLI(t, "asks").Want(t, cli.ExitOK, `^paused +cli$`)
	p.CLI(t, "asks", "-o", "yaml").Want(t, cli.ExitOK, `^  "state": "paused\\u001b",$`).Not(t, "\x1b")
	p.CLI(t, "asks", "more").Want(t, cli.ExitUsage, `asks does not take "more"`)
	p = clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"GET /v1/offers/own": &api.Error{Status: http.StatusNotFound, Message: "sells nothing"}})
	p.CLI(t, "asks", "-o", "json").Want(t, cli.ExitUsage, `^\{"error":\{"code":"usage","message":"sells nothing"\}\}$`)
}
