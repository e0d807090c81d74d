package networkcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
)

func genesisAuthority(a *cli.App) *cobra.Command {
	var o founder
	var to string
	c := &cobra.Command{
		Use:   "authority PROGRAM",
		Short: "Show or transfer the program's upgrade authority",
		Long: `Shows the code of Starling's PROGRAM on a cluster and its upgrade authority: the key that may replace the
code. --upgrade transfers the authority to the vault of a multisig (such as Squads) or to another key; none gives it up
permanently. --keypair must be the present authority.

The upgrade authority can take every deposit and stake. At its start a peer shows the authority, warns if it is a single
key, and stops if the code differs from the code in its genesis.`,
		Example: `  starling network authority <address> --rpc https://rpc.example
  starling network authority <address> --upgrade <vault of a multisig> --keypair id.json --rpc https://rpc.example
  starling network authority <address> --upgrade none --keypair id.json --rpc https://rpc.example`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := cli.Address("PROGRAM", args[0])
			if err != nil {
				return err
			}
			var next sign.Key
			if to != "" && to != "none" {
				if next, err = cli.Address("--upgrade", to); err != nil {
					return err
				}
			}
			return handOn(a, c.Context(), o, id, next, to != "")
		},
	}
	o.flags(c)
	c.Flags().StringVar(&to, "upgrade", "", "new upgrade authority: an address, or none")
	return c
}

func genesisFinalize(a *cli.App) *cobra.Command {
	var o founder
	c := &cobra.Command{
		Use:   "finalize PROGRAM",
		Short: "Make the program immutable",
		Long: `Permanently gives up the right to replace the code of Starling's PROGRAM. It is refused unless the code
on the chain is that of this binary. Networks on it continue; a new version of the program needs a new network.`,
		Example: `  starling network finalize <address> --keypair id.json --rpc https://rpc.example`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := cli.Address("PROGRAM", args[0])
			if err != nil {
				return err
			}
			admin, payer, err := o.admin(c.Context())
			if err != nil {
				return err
			}
			d, err := admin.Deployed(c.Context(), id)
			if err != nil {
				return o.failed(err, payer)
			}
			if want := svm.CodeHash(program.ELF); d.Code != want {
				return cli.WithHint(cli.Usagef("the code of %s is %s, this binary carries %s: it is not made final",
					id, d.Code, want),
					"starling network authority --upgrade none makes any program final")
			}
			return handOn(a, c.Context(), o, id, sign.Key{}, true)
		},
	}
	o.flags(c)
	return c
}

// admin connects to the first endpoint. Without a keypair the connection is read-only.
func (f *founder) admin(ctx context.Context) (*solana.Admin, sign.Key, error) {
	payer := sign.NewPrivate([32]byte{1})
	var err error
	switch {
	case len(f.rpc) == 0:
		return nil, sign.Key{}, cli.Usagef("--rpc is needed")
	case f.keypair != "":
		if payer, err = f.key(); err != nil {
			return nil, sign.Key{}, err
		}
	}
	cluster, err := solana.Genesis(ctx, f.rpc[0])
	if err != nil {
		return nil, payer.Key(), f.failed(err, payer.Key())
	}
	admin, err := solana.NewAdmin(f.rpc[0], cluster, payer)
	if err != nil {
		return nil, payer.Key(), &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return admin, payer.Key(), nil
}

// handOn transfers the upgrade authority, if requested, and shows the result.
func handOn(a *cli.App, ctx context.Context, o founder, id, to sign.Key, change bool) error {
	if change && o.keypair == "" {
		return cli.Usagef("--keypair is needed: the file of the present upgrade authority")
	}
	admin, payer, err := o.admin(ctx)
	if err != nil {
		return err
	}
	d, err := admin.Deployed(ctx, id)
	if err != nil {
		return o.failed(err, payer)
	}
	if change && d.Authority != to {
		if d.Authority != payer {
			return cli.Usagef("%s may not change %s: %s", payer, id, whoChanges(d))
		}
		if err := admin.SetUpgradeAuthority(ctx, id, to); err != nil {
			return o.failed(err, payer)
		}
		if d, err = admin.Deployed(ctx, id); err != nil {
			return o.failed(err, payer)
		}
	}
	return a.Show(map[string]any{"program": id, "deployed": d, "carried": d.Code == svm.CodeHash(program.ELF)},
		func(t *cli.Table) {
			t.Row("program", id)
			t.Row("code", d.Code)
			if d.Code == svm.CodeHash(program.ELF) {
				t.Row("", "the code of this binary")
			}
			t.Row("deployed in slot", d.Slot)
			t.Row("changed by", whoChanges(d))
		})
}

func whoChanges(d svm.Deployed) string {
	switch {
	case d.Final():
		return "nobody, ever"
	case d.SingleKey():
		return d.Authority.String() + ", a single key"
	}
	return d.Authority.String() + ", an address of a program, such as a multisig"
}
