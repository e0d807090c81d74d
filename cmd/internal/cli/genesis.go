package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// genesisOptions are the flags of genesis.
type genesisOptions struct {
	network, chain, mint, symbol string
	program, escrow              string
	decimals                     uint8
	slot, interval, audit        time.Duration
}

func newGenesis(a *App) *cobra.Command {
	var o genesisOptions
	c := &cobra.Command{
		Use:   "genesis",
		Short: "Write the genesis file of a new network",
		Long: `Writes what never changes on a network to standard output: its name, the Solana cluster and the token that it pays in.
Everybody who joins starts from the same file; peers whose files differ never talk to each other.

Such a network settles directly: buyers pay providers what their vouchers say. One that settles through Starling's program,
with deposits and stake, is made from the file by starling genesis init-escrow; or name a program and the account of a
network that were made before, with --program and --escrow.`,
		Example: `  starling genesis --network acme --chain $(solana genesis-hash) --mint <address> --symbol USDC > acme.json
  starling genesis init-escrow acme.json --program <address> --keypair id.json --rpc https://rpc.example > escrow.json
  starling init --genesis escrow.json --solana-rpc https://rpc.example`,
		GroupID: groupSetUp,
		Args:    exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			g, err := o.genesis()
			if err != nil {
				return err
			}
			return a.showFile(g)
		},
	}
	f := c.Flags()
	f.StringVar(&o.network, "network", "", "name of the network: 1 to 16 of a-z, 0-9 and '-'")
	f.StringVar(&o.chain, "chain", "", "genesis hash of the Solana cluster, as `solana genesis-hash` prints it")
	f.StringVar(&o.mint, "mint", "", "address of the token that leases are paid in")
	f.StringVar(&o.symbol, "symbol", "", "what the token is called: 1 to 10 of A-Z and 0-9")
	f.StringVar(&o.program, "program", "", "address of Starling's program, with --escrow (default none: direct settlement)")
	f.StringVar(&o.escrow, "escrow", "", "address of the program's account of this network, as init-escrow prints it")
	f.Uint8Var(&o.decimals, "decimals", defaultDecimals, "decimals of the token")
	f.DurationVar(&o.slot, "slot", 400*time.Millisecond, "nominal length of a slot of the cluster")
	f.DurationVar(&o.interval, "interval", 10*time.Second, "length of a metering interval: what is paid ahead and so at risk")
	f.DurationVar(&o.audit, "audit", time.Hour, "length of a window in which every unit on sale shows once what it is; 0: none does")
	c.AddCommand(genesisInitEscrow(a), genesisDeploy(a), genesisAuthority(a), genesisFinalize(a))
	return c
}

func (o genesisOptions) genesis() (market.Genesis, error) {
	for _, f := range []struct{ name, value string }{
		{"network", o.network}, {"chain", o.chain}, {"mint", o.mint}, {"symbol", o.symbol},
	} {
		if f.value == "" {
			return market.Genesis{}, Usagef("--%s is needed", f.name)
		}
	}
	hash, err := chainHash(o.chain)
	if err != nil {
		return market.Genesis{}, err
	}
	mint, err := sign.ParseKey(o.mint)
	if err != nil {
		return market.Genesis{}, Usagef("--mint: %q is not a Solana address", o.mint)
	}
	if o.slot < time.Millisecond || o.slot%time.Millisecond != 0 {
		return market.Genesis{}, Usagef("--slot: %v is not a whole number of milliseconds", o.slot)
	}
	if o.interval < o.slot || o.interval%o.slot != 0 {
		return market.Genesis{}, Usagef("--interval: %v is not a whole number of slots of %v", o.interval, o.slot)
	}
	if o.audit < 0 || o.audit%o.slot != 0 {
		return market.Genesis{}, Usagef("--audit: %v is not a whole number of slots of %v", o.audit, o.slot)
	}
	g := market.Genesis{
		Network: o.network, Chain: hash, Mint: mint, Symbol: o.symbol, Decimals: o.decimals,
		SlotMillis: uint64(o.slot.Milliseconds()), IntervalSlots: uint64(o.interval / o.slot),
		AuditSlots: uint64(o.audit / o.slot),
	}
	for _, f := range []struct {
		name, value string
		to          *sign.Key
	}{{"--program", o.program, &g.Program}, {"--escrow", o.escrow, &g.Escrow}} {
		if f.value == "" {
			continue
		}
		if *f.to, err = address(f.name, f.value); err != nil {
			return market.Genesis{}, err
		}
	}
	if err := g.Validate(); err != nil {
		return market.Genesis{}, &Error{Code: ExitUsage, Err: err}
	}
	text, err := json.Marshal(g)
	if err != nil {
		return market.Genesis{}, fmt.Errorf("writing the genesis: %w", err)
	}
	return market.ParseGenesis(text)
}

// chainHash reads a cluster's genesis hash as Solana writes it, in base58, or in hexadecimal.
func chainHash(text string) (sign.Hash, error) {
	if h, err := sign.ParseHash(text); err == nil {
		return h, nil
	}
	k, err := sign.ParseKey(text) // the same 32 bytes in base58
	if err != nil {
		return sign.Hash{}, Usagef("--chain: %q is not a genesis hash", text)
	}
	return sign.Hash(k), nil
}
