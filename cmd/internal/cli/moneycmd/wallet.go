// Package moneycmd has the commands of money, below starling wallet and starling stake.
package moneycmd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// balances are those of a wallet. Tokens are in base units.
type balances struct {
	Tokens market.Amount `json:"tokens"` // of the owner
	Own    market.Amount `json:"own"`    // in the peer's own account: taken from the owner's to be spent
	// Spendable is the amount in reach of the peer's key: all if it is the owner, else Own and the owner's allowance.
	Spendable market.Amount `json:"spendable"`
	Lamports  uint64        `json:"lamports"` // of the key
}

// walletInfo is the output of wallet show.
type walletInfo struct {
	cli.Addresses
	Free bool   `json:"free,omitempty"`
	Note string `json:"note,omitempty"` // why there are no balances
	*balances
	genesis market.Genesis
}

// NewWallet makes the command `starling wallet`.
func NewWallet(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupMoney, &cobra.Command{
		Use:   "wallet",
		Short: "Show balances, spending and deposits; make and fund wallets",
		Long: `The owner's wallet pays for jobs and is paid for leases. The peer's key spends from it as its delegate,
within an allowance, and pays the chain's fees in SOL. Deposits of jobs lie in escrows on the chain.

What a job sets aside and does not spend comes back to the peer's own token account, which the next job is paid from
first: an allowance is used up by what is spent. A job takes about 0.00004 SOL for fees, more where others bid for
places in blocks, and some rent that comes back; starling quote estimates both.`,
		Example: `  starling wallet show
  starling wallet allow 100
  starling wallet spend --days 30
  starling wallet escrow ls`,
	}, walletShow(a), newSpend(a), newEscrow(a), walletAllow(a), walletCollect(a), walletNew(a), walletImport(a))
}

func walletShow(a *cli.App) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:        "show [ADDRESS]",
		SuggestFor: []string{"balance"},
		Short:      "Show the addresses and balances of owner and peer",
		Long: `Shows the owner's wallet, which pays for jobs and is paid for leases, how much of it the peer may
spend, and the peer's key, which signs and pays the chain's fees in SOL. With an ADDRESS it shows how many of the
network's tokens that wallet holds.

The running peer is asked; without one, or with --rpc, the chain is.`,
		Example: `  starling wallet show
  starling wallet show 7xKX…gAsU --rpc https://rpc.example`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				l, err := Open(a, o)
				if err != nil {
					return err
				}
				return showBalance(l, c.Context(), args[0])
			}
			w, err := wallet(a, c.Context(), o)
			if err != nil {
				return err
			}
			return a.Show(w, func(t *cli.Table) { walletTable(t, w) })
		},
	}
	o.ReadFlags(c)
	return c
}

// wallet returns the addresses of this home directory and their balances, from the running peer or else from the chain.
// If neither has them, and --rpc is not given, the note says so.
func wallet(a *cli.App, ctx context.Context, o Options) (walletInfo, error) {
	if err := a.Introduced(); err != nil {
		return walletInfo{}, err
	}
	home, err := a.Home()
	if err != nil {
		return walletInfo{}, err
	}
	at, err := cli.ReadAddresses(home)
	w := walletInfo{Addresses: at}
	if err != nil {
		return w, err
	}
	g, err := config.LoadGenesis(home)
	if err == nil && g.Free {
		w.Free, w.Note = true, "network "+g.Network+" is free"
		return w, nil
	}
	w.genesis = g
	if len(o.RPC) == 0 {
		switch n, err := a.Node(ctx); {
		case err == nil && n.Funds != nil:
			f := n.Funds
			w.genesis, w.balances = n.Genesis, &balances{f.Balance, f.Own, f.Spendable, f.Lamports}
			return w, nil
		case err == nil:
			w.Note = unreached(n)
			return w, nil
		case !errors.Is(err, api.ErrNoPeer):
			return w, err
		}
	}
	f, err := funds(a, ctx, o)
	switch {
	case err == nil:
		w.balances = &balances{f.Balance, f.Own, f.Spendable, f.Lamports}
	case len(o.RPC) > 0:
		return w, err
	case errors.Is(err, errNoEndpoint):
		w.Note = "the peer does not run; start it with `starling up`, or name an endpoint of the chain with --rpc"
	default:
		w.Note = "the peer does not run, and the chain cannot be asked: " + err.Error()
	}
	return w, nil
}

// unreached returns the reason why a peer or light client that runs does not know its funds, with the remedy.
func unreached(n api.NodeInfo) string {
	for _, p := range n.Problems {
		if p.Service == "entries" || p.Service == "slots" {
			return p.Problem + "; " + p.Remedy
		}
	}
	return cmp.Or(n.ChainErr, "the peer has not reached the chain yet")
}

// funds asks the chain for the money that the peer can spend.
func funds(a *cli.App, ctx context.Context, o Options) (chain.Funds, error) {
	l, err := Open(a, o)
	if err != nil {
		return chain.Funds{}, err
	}
	if err := l.Check(ctx); err != nil {
		return chain.Funds{}, l.Explain(err)
	}
	f, err := l.Funds(ctx)
	return f, l.Explain(err)
}

func walletTable(t *cli.Table, w walletInfo) {
	g := w.genesis
	switch b := w.balances; {
	case w.Free:
		t.Row("owner", w.Owner, "nothing is paid: "+w.Note)
		t.Row("peer", w.Key, "signs")
	case b == nil:
		t.Row("owner", w.Owner, "pays and is paid, from "+w.OwnerIn)
		t.Row("peer", w.Key, "signs, and pays fees in SOL")
		t.Row("balance", "not known", w.Note)
	default:
		t.Row("owner", w.Owner, g.FormatAmount(b.Tokens))
		if w.Key == w.Owner {
			t.Row("peer", w.Key, "is the owner, and may spend all")
		} else {
			t.Row("peer", w.Key, "may spend "+g.FormatAmount(b.Spendable)+", of which "+g.FormatAmount(b.Own)+
				" are in its own account")
		}
		t.Row("fees", chain.FormatSOL(b.Lamports)+" SOL", "of the peer")
	}
}

func showBalance(l *Chain, ctx context.Context, text string) error {
	who, err := cli.Address("wallet", text)
	if err != nil {
		return err
	}
	if err := l.Check(ctx); err != nil {
		return l.Explain(err)
	}
	n, err := l.Balance(ctx, who)
	if err != nil {
		return l.Explain(err)
	}
	return l.App.Show(map[string]any{"owner": who, "tokens": n}, func(t *cli.Table) {
		t.Row("wallet", who,
			l.Genesis.FormatAmount(n))
	})
}

func walletAllow(a *cli.App) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "allow AMOUNT",
		Short: "Set the peer's allowance of the owner's tokens",
		Long: `Lets the peer spend AMOUNT of the owner's tokens from now on, in place of what was left of the last
allowance. What a job sets aside and does not spend comes back to the peer's own account, and is not taken from the
allowance again: an allowance is used up by what is spent. The owner's key must sign: it is wallet.json in the home
directory, or the file that --wallet names.`,
		Example: `  starling wallet allow 100
  starling wallet allow 100 --wallet ~/cold/owner.json`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := Open(a, o)
			if err != nil {
				return err
			}
			n, err := l.Amount(args[0])
			if err != nil {
				return err
			}
			if l.Owner == l.Peer.Key() {
				return cli.Usagef("the peer is the owner of its tokens, and may spend all of them")
			}
			owner, err := l.Signer(l.Owner, "the owner")
			if err != nil {
				return err
			}
			did := fmt.Sprintf("letting peer %s spend %s of %s", l.Peer.Key(), l.Genesis.FormatAmount(n), l.Owner)
			return l.Send(c.Context(), did, []svm.Instruction{
				svm.ApproveTokens(svm.TokenAccount(l.Owner, l.Genesis.Mint), l.Genesis.Mint, l.Peer.Key(),
					l.Owner, uint64(n), l.Genesis.Decimals)}, owner)
		},
	}
	o.Flags(c)
	return c
}

func walletCollect(a *cli.App) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "collect",
		Short: "Move the peer's own tokens back to the owner",
		Long: `Moves the tokens in the peer's own account, which it took from the owner's to be spent, back to the
owner. Jobs take what they need from the allowance again. While jobs run, wait for them: what they set aside comes
back to the peer's account.`,
		Example: `  starling wallet collect`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := Open(a, o)
			if err != nil {
				return err
			}
			f, err := l.Funds(c.Context())
			if err != nil {
				return l.Explain(err)
			}
			if f.Own == 0 {
				return cli.Usagef("the peer's own account holds nothing")
			}
			key := l.Peer.Key()
			return l.Send(c.Context(), fmt.Sprintf("moving %s to %s", l.Genesis.FormatAmount(f.Own), l.Owner),
				[]svm.Instruction{
					svm.OpenTokenAccount(key, l.Owner, l.Genesis.Mint),
					svm.TransferTokens(svm.TokenAccount(key, l.Genesis.Mint),
						svm.TokenAccount(l.Owner, l.Genesis.Mint), l.Genesis.Mint, key, uint64(f.Own),
						l.Genesis.Decimals)})
		},
	}
	o.Flags(c)
	return c
}

func walletNew(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "new [FILE]",
		Short: "Make a wallet: a key that holds tokens",
		Long: `Makes a new key in the format of the Solana command line tools and writes it to FILE, readable by you
alone; without FILE, to wallet.json in the peer's home directory, whose owner it then is. A file that is there is
never overwritten. Whoever has the file has the tokens, and without it they are lost: keep a copy.`,
		Example: `  starling wallet new
  starling wallet new ~/cold/owner.json    then, on the peer: starling init --owner <address>`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var seed [32]byte
			if _, err := rand.Read(seed[:]); err != nil {
				return fmt.Errorf("making a key: %w", err)
			}
			if len(args) == 1 {
				return saveWallet(a, args[0], sign.NewPrivate(seed))
			}
			return ownWallet(a, sign.NewPrivate(seed))
		},
	}
}

func walletImport(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Take a wallet that you have as the owner of this peer",
		Long: `Copies a keypair file of the Solana command line tools to wallet.json in the peer's home directory,
whose owner it then is. A wallet that is there is never overwritten. The peer takes notice when it starts the next
time.`,
		Example: `  starling wallet import ~/.config/solana/id.json`,
		Args:    cli.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := ReadKeypair(args[0])
			if err != nil {
				return err
			}
			return ownWallet(a, key)
		},
	}
}

// ownWallet makes a key the owner of this home directory's peer.
func ownWallet(a *cli.App, key sign.Private) error {
	home, err := a.Home()
	if err != nil {
		return err
	}
	cfg, err := config.Load(filepath.Join(home, config.FileConfig))
	if err != nil {
		return err
	}
	if cfg.Owner != "" && cfg.Owner != key.Key().String() {
		return cli.WithHint(cli.Usagef("%s names another owner, %s", config.FileConfig, cfg.Owner),
			"take `owner` out of %s first, or write the key to a FILE elsewhere", config.FileConfig)
	}
	switch there, err := config.LoadOwner(home); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case there != key.Key():
		return cli.WithHint(cli.Usagef("%s names another owner, %s", config.FileOwner, there), "remove %s first",
			filepath.Join(home, config.FileOwner))
	}
	if err := saveWallet(a, filepath.Join(home, config.FileWallet), key); err != nil {
		return err
	}
	return config.SaveOwner(home, key.Key())
}

// saveWallet writes a key where none is, and shows its address.
func saveWallet(a *cli.App, path string, key sign.Private) error {
	_, err := p2p.SaveIdentity(path, key.Seed())
	if errors.Is(err, fs.ErrExist) {
		return cli.WithHint(cli.Usagef("%s is there already: a key is never overwritten", path),
			"move it away first, and keep it: who loses it loses what it holds")
	}
	if err != nil {
		return err
	}
	return a.Show(map[string]any{"address": key.Key(), "file": path}, func(t *cli.Table) {
		t.Row("address", key.Key())
		t.Row("file", path)
	})
}
