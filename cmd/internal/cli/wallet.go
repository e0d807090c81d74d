package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p"
)

// walletInfo is what wallet show shows.
type walletInfo struct {
	Owner   sign.Key `json:"owner"`
	OwnerIn string   `json:"ownerIn"` // where the owner's address comes from
	Key     sign.Key `json:"key"`     // of the peer: signs, and pays the chain's fees
	Balance string   `json:"balance,omitempty"`
	Note    string   `json:"note,omitempty"` // why there is no balance
}

func newWallet(a *App) *cobra.Command {
	c := &cobra.Command{
		Use:     "wallet",
		Short:   "Make, show and ask for wallets: who pays and is paid",
		GroupID: groupMoney,
		Args:    onlyCommands,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(walletShow(a), walletBalance(a), walletNew(a), walletImport(a))
	return c
}

func walletShow(a *App) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the addresses of owner and peer, and the balance",
		Long: `Shows the owner's address, whose tokens pay for jobs and which is paid for leases, and the address of the peer's key, which
signs for it and pays the chain's fees in SOL. The balance is shown while the peer runs.`,
		Example: `  starling wallet show`,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.introduced(); err != nil {
				return err
			}
			home, err := a.Home()
			if err != nil {
				return err
			}
			w, err := readWallet(home)
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err == nil {
				var n api.NodeInfo
				if n, err = client.Node(c.Context()); err == nil {
					w.Balance = n.Genesis.FormatAmount(n.Balance)
					if n.ChainErr != "" {
						w.Balance, w.Note = "", n.ChainErr
					}
				}
			}
			switch {
			case errors.Is(err, api.ErrNoPeer):
				w.Note = "the peer does not run"
			case err != nil:
				return err
			}
			return a.Show(w, func(t *Table) {
				t.Row("owner", w.Owner, "pays and is paid, from "+w.OwnerIn)
				t.Row("peer", w.Key, "signs, and pays fees in SOL")
				if w.Balance != "" {
					t.Row("balance", w.Balance, "of the owner")
				} else {
					t.Row("balance", "not known", w.Note)
				}
			})
		},
	}
}

// balances is what wallet balance shows. Tokens are in base units.
type balances struct {
	Owner     sign.Key      `json:"owner"`
	Tokens    market.Amount `json:"tokens"`    // of the owner
	Spendable market.Amount `json:"spendable"` // of them by the peer's key: all when it is the owner, else what is delegated
	Key       sign.Key      `json:"key"`
	Lamports  uint64        `json:"lamports"` // of the key
}

const solDecimals = 9

func walletBalance(a *App) *cobra.Command {
	var o chainOptions
	c := &cobra.Command{
		Use:   "balance [ADDRESS]",
		Short: "Ask the chain what a wallet holds",
		Long: `Asks the chain, not the peer, what the owner holds, how much of it the peer may spend, and how much SOL the peer has for
fees; or how many of the network's tokens another wallet holds.`,
		Example: `  starling wallet balance
  starling wallet balance 7xKX…gAsU --rpc https://rpc.example`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := a.chain(o)
			if err != nil {
				return err
			}
			if err := l.Check(c.Context()); err != nil {
				return l.explain(err)
			}
			if len(args) == 1 {
				return l.showBalance(c, args[0])
			}
			f, err := l.Funds(c.Context())
			if err != nil {
				return l.explain(err)
			}
			b := balances{Owner: l.owner, Tokens: f.Balance, Spendable: f.Spendable, Key: l.peer.Key(), Lamports: f.Lamports}
			return a.Show(b, func(t *Table) {
				t.Row("owner", b.Owner, l.g.FormatAmount(b.Tokens))
				t.Row("peer", b.Key, "may spend "+l.g.FormatAmount(b.Spendable)+" of it")
				t.Row("fees", market.Decimal(b.Lamports, solDecimals)+" SOL", "of the peer")
			})
		},
	}
	o.readFlags(c)
	return c
}

func (l *onChain) showBalance(c *cobra.Command, text string) error {
	who, err := address("wallet", text)
	if err != nil {
		return err
	}
	n, err := l.Balance(c.Context(), who)
	if err != nil {
		return l.explain(err)
	}
	return l.a.Show(map[string]any{"owner": who, "tokens": n}, func(t *Table) { t.Row("wallet", who, l.g.FormatAmount(n)) })
}

func walletNew(a *App) *cobra.Command {
	return &cobra.Command{
		Use:   "new [FILE]",
		Short: "Make a wallet: a key that holds tokens",
		Long: `Makes a new key in the format of the Solana command line tools and writes it to FILE, readable by you alone; without FILE, to
wallet.json in the peer's home directory, whose owner it then is. A file that is there is never overwritten. Whoever has the
file has the tokens, and without it they are lost: keep a copy.`,
		Example: `  starling wallet new
  starling wallet new ~/cold/owner.json    then, on the peer: starling init --owner <address>`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var seed [32]byte
			if _, err := rand.Read(seed[:]); err != nil {
				return fmt.Errorf("making a key: %w", err)
			}
			if len(args) == 1 {
				return a.saveWallet(args[0], sign.NewPrivate(seed))
			}
			return a.ownWallet(sign.NewPrivate(seed))
		},
	}
}

func walletImport(a *App) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Take a wallet that you have as the owner of this peer",
		Long: `Copies a keypair file of the Solana command line tools to wallet.json in the peer's home directory, whose owner it then is. A
wallet that is there is never overwritten. The peer takes notice when it starts the next time.`,
		Example: `  starling wallet import ~/.config/solana/id.json`,
		Args:    exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := readKeypair(args[0])
			if err != nil {
				return err
			}
			return a.ownWallet(key)
		},
	}
}

// ownWallet makes a key the owner of this home directory's peer.
func (a *App) ownWallet(key sign.Private) error {
	home, err := a.Home()
	if err != nil {
		return err
	}
	cfg, err := node.LoadConfig(filepath.Join(home, node.FileConfig))
	if err != nil {
		return err
	}
	if cfg.Owner != "" && cfg.Owner != key.Key().String() {
		return WithHint(Usagef("%s names another owner, %s", node.FileConfig, cfg.Owner), "take `owner` out of %s first, or write the key to a FILE elsewhere", node.FileConfig)
	}
	return a.saveWallet(filepath.Join(home, node.FileWallet), key)
}

// saveWallet writes a key where none is, and shows its address.
func (a *App) saveWallet(path string, key sign.Private) error {
	_, err := p2p.SaveIdentity(path, key.Seed())
	if errors.Is(err, fs.ErrExist) {
		return WithHint(Usagef("%s is there already: a key is never overwritten", path), "move it away first, and keep it: who loses it loses what it holds")
	}
	if err != nil {
		return err
	}
	return a.Show(map[string]any{"address": key.Key(), "file": path}, func(t *Table) {
		t.Row("address", key.Key())
		t.Row("file", path)
	})
}

// readWallet finds the addresses that the home directory has.
func readWallet(home string) (walletInfo, error) {
	var w walletInfo
	var err error
	if w.Key, err = keyOf(filepath.Join(home, node.FileIdentity)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = WithHint(&Error{Code: ExitUsage, Err: fmt.Errorf("no peer was set up in %s", home)}, "starling init")
		}
		return w, err
	}
	cfg, err := node.LoadConfig(filepath.Join(home, node.FileConfig))
	if err != nil {
		return w, err
	}
	if cfg.Owner != "" {
		w.OwnerIn = node.FileConfig
		w.Owner, err = sign.ParseKey(cfg.Owner)
		return w, err
	}
	w.OwnerIn = node.FileWallet
	w.Owner, err = keyOf(filepath.Join(home, node.FileWallet))
	if errors.Is(err, fs.ErrNotExist) {
		w.Owner, w.OwnerIn, err = w.Key, node.FileIdentity, nil
	}
	return w, err
}

// keyOf is the address of a key file.
func keyOf(path string) (sign.Key, error) {
	priv, err := p2p.LoadIdentity(path)
	if err != nil {
		return sign.Key{}, err
	}
	raw, err := priv.GetPublic().Raw()
	if err != nil || len(raw) != len(sign.Key{}) {
		return sign.Key{}, fmt.Errorf("%s: not an Ed25519 key", path)
	}
	return sign.Key(raw), nil
}
