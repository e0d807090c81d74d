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

// balances are the balances of a wallet. Tokens are in base units.
type balances struct {
	Tokens market.Amount `json:"tokens"` // of the owner
	Own    market.Amount `json:"own"`    // in the peer's own account: taken from the owner's to be spent
	// Spendable is the amount that the peer's key can spend: all if it is the owner, else Own plus the allowance.
	Spendable market.Amount `json:"spendable"`
	Lamports  uint64        `json:"lamports"` // of the key
}

// walletInfo is the output of wallet show.
type walletInfo struct {
	cli.Addresses
	Free bool   `json:"free,omitempty"`
	Note string `json:"note,omitempty"` // reason for missing balances
	*balances
	genesis market.Genesis
}

// NewWallet makes the command `starling wallet`.
func NewWallet(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupMoney, &cobra.Command{
		Use:   "wallet",
		Short: "Show balances, spending and deposits; make and fund wallets",
		Long: `The owner's wallet pays for jobs and receives payments for leases. The peer's key spends from it as its
delegate, within an allowance, and pays the chain's fees in SOL. Deposits of jobs are in escrows on the chain.

The unspent part of a deposit returns to the peer's own token account, which pays the next job first. Only spending
uses up an allowance. A job costs about 0.00004 SOL for fees, more if priority fees rise, and some rent that is
refunded; starling quote estimates both.`,
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
		Long: `Shows the owner's wallet, which pays for jobs and receives payments for leases, the peer's allowance, and
the peer's key, which signs and pays the chain's fees in SOL. With an ADDRESS it shows that wallet's balance of the
network's tokens.

The data comes from the running peer; without one, or with --rpc, from the chain.`,
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
// If neither is available and --rpc is not given, Note has the reason.
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
		w.Note = "the peer does not run, and the chain cannot be read: " + err.Error()
	}
	return w, nil
}

// unreached returns the reason why a running peer or light client has no balances, with the remedy.
func unreached(n api.NodeInfo) string {
	for _, p := range n.Problems {
		if p.Service == "entries" || p.Service == "slots" {
			return p.Problem + "; " + p.Remedy
		}
	}
	return cmp.Or(n.ChainErr, "the peer has not reached the chain yet")
}

// funds reads the money that the peer can spend from the chain.
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
		Long: `Lets the peer spend AMOUNT of the owner's tokens from now on, in place of the rest of the last allowance.
The unspent part of a deposit returns to the peer's own account and does not use up the allowance. The owner's key must
sign: it is wallet.json in the home directory, or the file of --wallet.`,
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
		Long: `Moves the tokens in the peer's own account back to the owner's. Later jobs take their deposits from the
allowance again. Wait until running jobs have ended: their unspent deposits return to the peer's account.`,
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
alone; without FILE, to wallet.json in the peer's home directory, as the peer's owner. An existing file is never
overwritten. The file controls the tokens, and without it they are lost: keep a copy.`,
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
		Short: "Import an existing wallet as the owner of this peer",
		Long: `Copies a keypair file of the Solana command line tools to wallet.json in the peer's home directory, as
the peer's owner. An existing wallet is never overwritten. The peer uses it from its next start.`,
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

// ownWallet makes a key the owner key of this home directory's peer.
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

// saveWallet writes a key to a new file, and shows its address.
func saveWallet(a *cli.App, path string, key sign.Private) error {
	_, err := p2p.SaveIdentity(path, key.Seed())
	if errors.Is(err, fs.ErrExist) {
		return cli.WithHint(cli.Usagef("%s exists: a key is never overwritten", path),
			"move it away first, and keep it: it controls its tokens")
	}
	if err != nil {
		return err
	}
	return a.Show(map[string]any{"address": key.Key(), "file": path}, func(t *cli.Table) {
		t.Row("address", key.Key())
		t.Row("file", path)
	})
}
