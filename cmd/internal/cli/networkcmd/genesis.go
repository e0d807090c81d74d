// Package networkcmd has the commands that found a network and vote on its rules, below starling network.
package networkcmd

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// genesisOptions are the flags of genesis.
type genesisOptions struct {
	network, chain, mint, symbol string
	program, escrow              string
	decimals                     uint8
	slot, interval               time.Duration
	audit, window                time.Duration
	free                         bool
}

// NewNetwork makes the command `starling network`.
func NewNetwork(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupNetworks, &cobra.Command{
		Use:        "network",
		SuggestFor: []string{"genesis", "proposal"},
		Short:      "Found a network, deploy its program, vote on its rules",
		Long: `A network is a genesis file, the same for all of its peers. It names the chain and the token. A paying
network has an account in Starling's program on that chain, which stores its fees and windows; peers with bonded stake
vote on them.

A free network, for a lab or among friends, needs only the first command. A paying network needs the others too;
finalize makes the program immutable, or authority hands it to a multisig.`,
		Example: `  starling network genesis --network lab --free > lab.json
  starling init --genesis lab.json --provide --bootstrap ADDRESS && starling up

  solana config set --url https://api.devnet.solana.com
  starling network deploy --keypair id.json --rpc https://api.devnet.solana.com
  starling network finalize PROGRAM --keypair id.json --rpc https://api.devnet.solana.com
  starling network genesis --network acme --chain $(solana genesis-hash) --mint MINT --symbol USDC > acme.json
  starling network init-escrow acme.json --program PROGRAM --voting 72h --first-slot $(solana slot) \
    --keypair id.json --rpc https://api.devnet.solana.com > network.json
  starling init --genesis network.json --solana-rpc https://api.devnet.solana.com`,
	}, genesisWrite(a), genesisDeploy(a), genesisInitEscrow(a), genesisAuthority(a), genesisFinalize(a),
		proposalRules(a), newProposal(a))
}

func genesisWrite(a *cli.App) *cobra.Command {
	var o genesisOptions
	c := &cobra.Command{
		Use:   "genesis",
		Short: "Write the genesis file of a new network",
		Long: `Writes the constants of a network to standard output: its name, the Solana cluster and the payment token.
All peers of the network start from the same file; peers with different files never connect.

The file is a draft until starling network init-escrow has made the network's account in Starling's program. Or name an
existing program and network account with --program and --escrow.

With --free it is a free network, for a lab or among friends: no chain, no money, every price is 0, and no stake or
audits. Buyers and providers still sign receipts. Its peers need no Solana, and clocks within a second of each other.
It has no guardians, which an escrow pays, and no --verify replicate, which draws by the chain's blocks.`,
		Example: `  starling network genesis --network lab --free > lab.json
  starling network genesis --network acme --chain $(solana genesis-hash) --mint <address> --symbol USDC > acme.json
  starling network init-escrow acme.json --program <address> --keypair id.json --rpc https://rpc.example > escrow.json
  starling init --genesis escrow.json --solana-rpc https://rpc.example`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			make := o.genesis
			if o.free {
				if err := onlyFree(c); err != nil {
					return err
				}
				make = o.freeGenesis
			}
			g, err := make()
			if err != nil {
				return err
			}
			return a.ShowFile(g)
		},
	}
	f := c.Flags()
	f.StringVar(&o.network, "network", "", "name of the network: 1 to 16 of a-z, 0-9 and '-'")
	f.BoolVar(&o.free, "free", false, "make a free network: no chain, no money, every price is 0")
	f.StringVar(&o.chain, "chain", "", "genesis hash of the Solana cluster (`solana genesis-hash`)")
	f.StringVar(&o.mint, "mint", "", "address of the token that leases are paid in")
	f.StringVar(&o.symbol, "symbol", "", "symbol of the token: 1 to 10 of A-Z and 0-9")
	f.StringVar(&o.program, "program", "", "address of Starling's program, with --escrow (default none)")
	f.StringVar(&o.escrow, "escrow", "", "address of the network's account, as init-escrow prints it")
	f.Uint8Var(&o.decimals, "decimals", cli.DefaultDecimals, "decimals of the token")
	f.DurationVar(&o.slot, "slot", 400*time.Millisecond, "nominal length of a slot of the cluster")
	f.DurationVar(&o.interval, "interval", 10*time.Second,
		"length of a metering interval, the prepaid time at risk")
	f.DurationVar(&o.audit, "audit", time.Hour, "average time between audits of idle units; 0 disables them")
	f.DurationVar(&o.window, "audit-window", 2*time.Minute, "time between two draws of an audit")
	return c
}

// ofChain are the flags about a chain, money or audits.
var ofChain = []string{"chain", "mint", "symbol", "program", "escrow", "decimals", "audit", "audit-window"}

// onlyFree returns an error if --free is combined with one of them.
func onlyFree(c *cobra.Command) error {
	for _, name := range ofChain {
		if c.Flags().Changed(name) {
			return cli.Usagef("--%s: a free network has no chain, no money and no audits; leave it out, or --free",
				name)
		}
	}
	return nil
}

// freeGenesis returns the genesis of a free network. Its number is random: two networks of one name never connect.
func (o genesisOptions) freeGenesis() (market.Genesis, error) {
	if o.network == "" {
		return market.Genesis{}, cli.Usagef("--network is needed")
	}
	if err := o.checkTimes(); err != nil {
		return market.Genesis{}, err
	}
	g, err := market.FreeGenesis(o.network, rand.Reader)
	if err != nil {
		return g, err
	}
	g.SlotMillis, g.IntervalSlots = uint64(o.slot.Milliseconds()), uint64(o.interval/o.slot)
	if err := g.Validate(); err != nil {
		return g, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return g, nil
}

// checkTimes returns an error if a length is not a whole number of slots.
func (o genesisOptions) checkTimes() error {
	if o.slot < time.Millisecond || o.slot%time.Millisecond != 0 {
		return cli.Usagef("--slot: %v is not a whole number of milliseconds", o.slot)
	}
	if o.interval < o.slot || o.interval%o.slot != 0 {
		return cli.Usagef("--interval: %v is not a whole number of slots of %v", o.interval, o.slot)
	}
	return nil
}

func (o genesisOptions) genesis() (market.Genesis, error) {
	for _, f := range []struct{ name, value string }{
		{"network", o.network}, {"chain", o.chain}, {"mint", o.mint}, {"symbol", o.symbol},
	} {
		if f.value == "" {
			return market.Genesis{}, cli.Usagef("--%s is needed", f.name)
		}
	}
	hash, err := chainHash(o.chain)
	if err != nil {
		return market.Genesis{}, err
	}
	mint, err := sign.ParseKey(o.mint)
	if err != nil {
		return market.Genesis{}, cli.Usagef("--mint: %q is not a Solana address", o.mint)
	}
	if err := o.checkTimes(); err != nil {
		return market.Genesis{}, err
	}
	if o.window < o.slot || o.window%o.slot != 0 {
		return market.Genesis{}, cli.Usagef("--audit-window: %v is not a whole number of slots of %v", o.window, o.slot)
	}
	if o.audit < 0 || o.audit%o.window != 0 {
		return market.Genesis{}, cli.Usagef("--audit: %v is not a whole number of windows of %v", o.audit, o.window)
	}
	g := market.Genesis{
		Network: o.network, Chain: hash, Mint: mint, Symbol: o.symbol, Decimals: o.decimals,
		SlotMillis: uint64(o.slot.Milliseconds()), IntervalSlots: uint64(o.interval / o.slot),
	}
	if o.audit > 0 {
		g.AuditSlots, g.AuditOneIn = uint64(o.window/o.slot), uint64(o.audit/o.window)
	}
	for _, f := range []struct {
		name, value string
		to          *sign.Key
	}{{"--program", o.program, &g.Program}, {"--escrow", o.escrow, &g.Escrow}} {
		if f.value == "" {
			continue
		}
		if *f.to, err = cli.Address(f.name, f.value); err != nil {
			return market.Genesis{}, err
		}
	}
	if err := g.Validate(); err != nil {
		return market.Genesis{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	text, err := json.Marshal(g)
	if err != nil {
		return market.Genesis{}, fmt.Errorf("writing the genesis: %w", err)
	}
	return market.ParseGenesis(text)
}

// chainHash parses a cluster's genesis hash in base58, as Solana prints it, or in hexadecimal.
func chainHash(text string) (sign.Hash, error) {
	if h, err := sign.ParseHash(text); err == nil {
		return h, nil
	}
	k, err := sign.ParseKey(text) // the same 32 bytes in base58
	if err != nil {
		return sign.Hash{}, cli.Usagef("--chain: %q is not a genesis hash", text)
	}
	return sign.Hash(k), nil
}
