package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

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
		Short:   "Show who pays and is paid",
		GroupID: groupMoney,
		Args:    onlyCommands,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:   "show",
		Short: "Show the addresses of owner and peer, and the balance",
		Long: `Shows the owner's address, whose tokens pay for jobs and which is paid for leases, and the address of the peer's key, which
signs for it and pays the chain's fees in SOL. The balance is shown while the peer runs.`,
		Example: `  starling wallet show`,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
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
	})
	return c
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
