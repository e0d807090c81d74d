package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/mystery"
)

func newMystery(a *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "mystery",
		Short: "Rent from others as a stranger would, to see what they give",
		Long: `A peer whose config.yaml has a section "mystery" rents from others now and then, under keys that are not its own, by the code that ordinary
light clients buy with: what it asks for is drawn from the orders that it hears of others. What comes of it counts in this peer's own
reputation of them. It is off without an allowance; no day costs more than that.

  mystery:
    perDay: "1.5"                                 # tokens, for all rentals of a day together
    tasks:                                        # programs whose results you know
      - {job: primes.yaml, expect: {/out: bafk…}} # from one run of it: starling get shows the CID
    entries: [/ip4/…/p2p/12D3Koo…]                # peers to enter by, not this one; none: those of bootstrap

"mystery new" makes an identity. Fund its wallet yourself, with tokens and a little SOL, from where nothing leads to your own wallet: a
transfer from there names you on chain. Each identity rents 8 times. What can still be linked to you is your machine's address, for an entry
peer that sees both, and programs that only you have.

Two days and the rest of a day of UTC after an identity's last purchase, once it has made all 8, this peer gives the records of its probes to everybody who
asks (starling probe ls --of PEER). They name the identity's key and come from you: so fund no two identities from one wallet.`,
		Example: `  starling mystery new
  starling mystery identities
  starling mystery ls`,
		GroupID: groupPeer,
		Args:    onlyCommands,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(mysteryNew(a), mysteryIdentities(a), mysteryLs(a))
	return c
}

// renter is an identity as it is shown.
type renter struct {
	Name   string `json:"name"`
	Wallet string `json:"wallet"`
	Uses   int    `json:"uses"`
}

func mysteryNew(a *App) *cobra.Command {
	return &cobra.Command{
		Use:     "new",
		Short:   "Make an identity to rent under",
		Example: `  starling mystery new`,
		Args:    exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			home, err := a.peerHome()
			if err != nil {
				return err
			}
			name, wallet, err := mystery.Create(home)
			if err != nil {
				return err
			}
			return a.Show(renter{Name: name, Wallet: wallet.String()}, func(t *Table) {
				t.Row("identity", name)
				t.Row("wallet", wallet.String()+", to be funded with tokens and SOL from where nothing leads to you")
			})
		},
	}
}

func mysteryIdentities(a *App) *cobra.Command {
	return &cobra.Command{
		Use:     "identities",
		Short:   "List the identities and how often each was used",
		Example: `  starling mystery identities`,
		Args:    exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			home, all, err := a.purchases()
			if err != nil {
				return err
			}
			names, err := mystery.Identities(filepath.Join(home, node.DirMystery))
			if err != nil {
				return err
			}
			shown := []renter{}
			for _, name := range names {
				wallet, err := mystery.Wallet(home, name)
				if err != nil {
					return err
				}
				r := renter{Name: name, Wallet: wallet.String()}
				for _, p := range all {
					if p.Identity == name {
						r.Uses++
					}
				}
				shown = append(shown, r)
			}
			return a.Show(shown, func(t *Table) {
				t.Head("IDENTITY", "WALLET", "RENTED")
				for _, r := range shown {
					t.Row(r.Name, r.Wallet, fmt.Sprintf("%d of %d times", r.Uses, mystery.MaxUses))
				}
			})
		},
	}
}

// maxRentals bounds what is read of them, bytes.
const maxRentals = 64 << 20

// purchases reads what a running peer tells of its mystery rentals.
func (a *App) purchases() (home string, all []mystery.Purchase, err error) {
	if home, err = a.peerHome(); err != nil {
		return home, nil, err
	}
	b, err := readFile(filepath.Join(home, node.DirMystery, mystery.FileRentals), maxRentals)
	if errors.Is(err, fs.ErrNotExist) {
		return home, nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return home, nil, fmt.Errorf("reading what was rented: %w", err)
	}
	return home, all, nil
}

func mysteryLs(a *App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List what was rented, and what it showed",
		Example: `  starling mystery ls -o json`,
		Args:    exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			_, all, err := a.purchases()
			if err != nil {
				return err
			}
			g, err := a.genesis()
			if err != nil {
				return err
			}
			if all == nil {
				all = []mystery.Purchase{}
			}
			return a.Show(all, func(t *Table) {
				t.Head("AT", "IDENTITY", "UNITS", "AT MOST", "PROVIDER", "PAID", "SAYS")
				for _, p := range all {
					units := fmt.Sprintf("%d × %d %s", p.Spec.Count, p.Spec.Resources.Units, p.Spec.Resources.Class)
					at := p.At.Local().Format(time.DateTime)
					if len(p.Findings) == 0 {
						says := "nothing came of it"
						if !p.Done {
							says = "under way"
						}
						t.Row(at, p.Identity, units, g.FormatAmount(p.Most), "-", "-", says)
					}
					for _, f := range p.Findings {
						says := "kept"
						if f.Fault != "" {
							says = f.Fault
						}
						t.Row(at, p.Identity, units, g.FormatAmount(p.Most), f.Provider.Short(), g.FormatAmount(f.Paid), clip(says, 80))
					}
				}
			})
		},
	}
}
