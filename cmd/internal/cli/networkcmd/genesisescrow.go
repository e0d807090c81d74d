package networkcmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const maxParamsFile = 4096

// founder is the key that writes to the chain before the network exists: the flags of genesis's commands.
type founder struct {
	rpc     []string
	keypair string
}

func (f *founder) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.rpc, "rpc", nil, "JSON-RPC address of the Solana cluster; may be repeated")
	c.Flags().StringVar(&f.keypair, "keypair", "",
		"keypair file of the payer of fees and rent")
}

func (f *founder) key() (sign.Private, error) {
	if len(f.rpc) == 0 || f.keypair == "" {
		return sign.Private{}, cli.Usagef("--rpc and --keypair are needed")
	}
	return moneycmd.ReadKeypair(f.keypair)
}

// failed adds a remedy to an error of the chain.
func (f *founder) failed(err error, payer sign.Key) error {
	e := &cli.Error{Code: cli.ExitPayment, Err: err}
	switch {
	case errors.Is(err, account.ErrParams):
		e.Code = cli.ExitUsage
	case errors.Is(err, chain.ErrFees):
		e.Hint = fmt.Sprintf("send SOL to %s", payer)
	case errors.Is(err, chain.ErrDown), errors.Is(err, chain.ErrDisagree):
		e.Hint = "name another endpoint with --rpc"
	}
	return e
}

// escrowOptions are the flags of network init-escrow.
type escrowOptions struct {
	founder
	program, params                        string
	treasury, authority, stakeMint         string
	stakeDecimals                          uint8
	fee, burn, pool, toTreasury, referrer  uint16
	margin, response, unbonding, evidences time.Duration
	minStake                               string
	votes                                  voteOptions
}

func genesisInitEscrow(a *cli.App) *cobra.Command {
	var o escrowOptions
	c := &cobra.Command{
		Use:   "init-escrow FILE",
		Short: "Create a network's account on the chain",
		Long: `Reads the genesis FILE of starling network genesis. Creates the network's account in Starling's program,
with the pools and the treasury's token account. Writes the genesis with program and account to standard output.
The account's address is derived from its parameters: none can ever change, and only the same parameters give the same
address. Running the command again with the same parameters completes an interrupted run.

Fees are in hundredths of a percent (bps) of the providers' claims, at least 10 and at most 1000. The four shares are in
hundredths of a percent of the fee and add up to 10000, of which at least 2000 burn. --params reads all parameters from
a JSON file instead, as -o json of this command's --dry-run prints them.

With --voting, providers with bonded stake (starling stake bond) vote on fees, windows and the least stake (starling
network proposal), confirm the rewards of an epoch (starling stake rewards), and judge audits. A genesis FILE with audit
windows (starling network genesis --audit) needs it, and false statements in its audits cost stake. A proposer needs
--least-bond of bonded stake. With --emission, providers are paid from an account that is opened empty: send the tokens
there. Payments never exceed the schedule.`,
		Example: `  starling network init-escrow acme.json --program <address> --voting 72h \
    --first-slot $(solana slot) --keypair id.json --rpc https://rpc.example > escrow.json
  starling network init-escrow acme.json --program <address> --voting 72h --emission 300000000 \
    --first-slot $(solana slot) --dry-run > params.json
  starling network init-escrow acme.json --program <address> --params params.json \
    --keypair id.json --rpc https://rpc.example`,
		Args: cli.ExactArgs(1),
	}
	var dry bool
	c.RunE = func(c *cobra.Command, args []string) error {
		g, p, err := o.read(args[0])
		if err != nil {
			return err
		}
		if dry {
			return a.ShowFile(p)
		}
		if err := initEscrow(a, c.Context(), o.founder, &g, p); err != nil {
			return err
		}
		return a.ShowFile(g)
	}
	o.founder.flags(c)
	o.votes.flags(c)
	f := c.Flags()
	f.BoolVar(&dry, "dry-run", false, "print the parameters and create nothing")
	f.StringVar(&o.program, "program", "", "address of Starling's program (starling network deploy)")
	f.StringVar(&o.params, "params", "", "JSON file with all parameters, instead of the flags below")
	f.StringVar(&o.treasury, "treasury", "", "wallet of the treasury's share (default none: it burns)")
	f.StringVar(&o.authority, "authority", "",
		"wallet for the verifiers' pool (default none: it burns)")
	f.StringVar(&o.stakeMint, "stake-mint", "", "token that providers stake (default the network's)")
	f.Uint8Var(&o.stakeDecimals, "stake-decimals", 0, "decimals of --stake-mint, if it is not the network's token")
	d := account.DefaultTerms(sign.Key{}, 0)
	f.Uint16Var(&o.fee, "fee", d.FeeBps, "fee on the providers' claims, in bps")
	f.Uint16Var(&o.burn, "burn", d.BurnBps, "share of the fee that burns, in bps of it")
	f.Uint16Var(&o.pool, "pool", d.PoolBps, "share for the verifiers' pool")
	f.Uint16Var(&o.toTreasury, "treasury-share", d.TreasuryBps, "share for the treasury")
	f.Uint16Var(&o.referrer, "referrer", d.ReferrerBps, "share for the referrer of an order")
	f.DurationVar(&o.margin, "margin", 6*time.Hour, "time for claims after an escrow's deadline")
	f.DurationVar(&o.response, "response", 6*time.Hour, "time for a claim after an early end of the lease")
	f.DurationVar(&o.unbonding, "unbonding", 14*24*time.Hour, "wait of removed stake before its withdrawal")
	f.DurationVar(&o.evidences, "evidence", 13*24*time.Hour,
		"greatest age of evidence; less than --unbonding")
	f.StringVar(&o.minStake, "min-stake", "0", "least stake of a provider, in tokens")
	return c
}

// read returns the parameters, and the genesis with the address of their account.
func (o *escrowOptions) read(file string) (market.Genesis, account.Params, error) {
	text, err := cli.ReadFile(file, cli.MaxGenesisFile)
	if err != nil {
		return market.Genesis{}, account.Params{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	g, err := market.ParseGenesis(text)
	if err != nil {
		return g, account.Params{}, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", file, err)}
	}
	switch {
	case g.Free:
		return g, account.Params{}, cli.Usagef("%s is a free network: it has no token", file)
	case !g.Program.IsZero():
		return g, account.Params{}, cli.Usagef("%s names a program already", file)
	case o.program == "":
		return g, account.Params{}, cli.WithHint(cli.Usagef("--program is needed"),
			"starling network deploy puts it on a chain without it")
	}
	if g.Program, err = cli.Address("--program", o.program); err != nil {
		return g, account.Params{}, err
	}
	p, err := o.parameters(g)
	if err == nil {
		if err = cmp.Or(p.Validate(), escrow.CheckWindows(p), checkEpochs(p)); err != nil {
			err = &cli.Error{Code: cli.ExitUsage, Err: err}
		} else if p.AuditSlots > 0 && !p.Votes.On() {
			err = cli.WithHint(cli.Usagef("audits are judged by peers with bonded stake, and need --voting"),
				"add --voting 72h, or make FILE without --audit")
		}
	}
	if err != nil {
		return g, p, err
	}
	g.Escrow = account.NetworkAddress(g.Program, p)
	return g, p, nil
}

// checkEpochs returns an error if the audits of an epoch cannot be counted.
func checkEpochs(p account.Params) error {
	if !p.Votes.On() || p.AuditSlots == 0 {
		return nil
	}
	_, err := rewards.EpochOf(p.Votes, uint64(p.AuditSlots), 0)
	return err
}

// parameters returns the parameters of a network, from the file or the flags.
func (o *escrowOptions) parameters(g market.Genesis) (account.Params, error) {
	if o.params != "" {
		return paramsFile(o.params, g)
	}
	if err := o.checkTimes(); err != nil {
		return account.Params{}, err
	}
	stakeMint, decimals, err := o.stake(g)
	if err != nil {
		return account.Params{}, err
	}
	minStake, err := market.ParseDecimal(o.minStake, decimals)
	if err != nil {
		return account.Params{}, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("--min-stake: %w", err)}
	}
	margin, response := g.SlotsIn(o.margin), g.SlotsIn(o.response)
	if margin != uint64(uint32(margin)) || response != uint64(uint32(response)) {
		return account.Params{}, cli.Usagef("--margin or --response is longer than 2³² slots")
	}
	votes, err := o.votes.parameters(g, decimals)
	if err != nil {
		return account.Params{}, err
	}
	p := account.Params{Network: g.Network, Chain: g.Chain, StakeMint: stakeMint, Votes: votes,
		AuditSlots: uint32(g.AuditSlots), MarginSlots: uint32(margin), ResponseSlots: uint32(response),
		UnbondingSlots: g.SlotsIn(o.unbonding), EvidenceSlots: g.SlotsIn(o.evidences), MinStake: minStake,
		Mints: []account.MintTerms{{Mint: g.Mint, FeeBps: o.fee, BurnBps: o.burn, PoolBps: o.pool,
			TreasuryBps: o.toTreasury, ReferrerBps: o.referrer, Decimals: g.Decimals}}}
	for _, f := range []struct {
		name, value string
		to          *sign.Key
	}{{"--treasury", o.treasury, &p.Treasury}, {"--authority", o.authority, &p.Authority}} {
		if f.value == "" {
			continue
		}
		if *f.to, err = cli.Address(f.name, f.value); err != nil {
			return p, err
		}
	}
	return p, nil
}

// stake returns the token of the stake and its decimals; the flags about stake use them.
func (o *escrowOptions) stake(g market.Genesis) (sign.Key, uint8, error) {
	if o.stakeMint == "" {
		return g.Mint, g.Decimals, nil
	}
	mint, err := cli.Address("--stake-mint", o.stakeMint)
	switch {
	case err != nil:
		return mint, 0, err
	case mint == g.Mint:
		return mint, g.Decimals, nil
	case o.stakeDecimals == 0:
		return mint, 0, cli.WithHint(cli.Usagef("--stake-decimals is needed: stake is not in the network's token, %s",
			g.Mint), "`spl-token display MINT` prints them; if it has none, write all amounts with --params")
	}
	return mint, o.stakeDecimals, nil
}

// checkTimes returns an error if a time is negative.
func (o *escrowOptions) checkTimes() error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"margin", o.margin}, {"response", o.response}, {"unbonding", o.unbonding}, {"evidence", o.evidences},
		{"voting", o.votes.voting}, {"lock", o.votes.lock}, {"epoch", o.votes.epoch}} {
		if f.d < 0 {
			return cli.Usagef("--%s: %v is negative", f.name, f.d)
		}
	}
	return nil
}

// paramsFile reads parameters and checks that they match the genesis's network and token.
func paramsFile(path string, g market.Genesis) (p account.Params, err error) {
	text, err := cli.ReadFile(path, maxParamsFile)
	if err != nil {
		return p, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", path, err)}
	}
	if p.Network != g.Network || p.Chain != g.Chain {
		return p, cli.Usagef("%s: wrong network: got %q on chain %s, want %q on %s", path, p.Network, p.Chain,
			g.Network, g.Chain)
	}
	if p.AuditSlots != 0 && uint64(p.AuditSlots) != g.AuditSlots {
		return p, cli.Usagef("%s has windows of audits of %d slots, the genesis of %d", path, p.AuditSlots,
			g.AuditSlots)
	}
	for _, m := range p.Mints {
		if m.Mint == g.Mint && m.Decimals == g.Decimals {
			return p, nil
		}
	}
	return p, cli.Usagef("%s has no terms for the network's token, %s with %d decimals", path, g.Mint, g.Decimals)
}

// initEscrow creates the account on the chain, and adds the hash of the program's code to the genesis.
func initEscrow(a *cli.App, ctx context.Context, f founder, g *market.Genesis, p account.Params) error {
	payer, err := f.key()
	if err != nil {
		return err
	}
	l, err := solana.New(solana.ConfigOf(f.rpc, *g, payer))
	if err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	a.Say("creating the account of network %s, %s, paid by %s", g.Network, g.Escrow, payer.Key())
	if err := l.CreateNetwork(ctx, p); err != nil {
		return f.failed(err, payer.Key())
	}
	if _, err := l.Network(ctx); err != nil {
		return f.failed(err, payer.Key())
	}
	a.Say("the account exists, with the pools of %s", cli.Count(len(p.Mints), "token"))
	d, err := l.Deployed(ctx)
	if err != nil {
		return f.failed(err, payer.Key())
	}
	if d.Code != svm.CodeHash(program.ELF) {
		a.Say("the program there is not that of this binary: the genesis names its code, %s", d.Code)
	}
	if g.Code = d.Code; !d.Final() {
		a.Say("the program can be changed by %s: see starling network finalize", whoChanges(d))
	}
	if p.Votes.Emission > 0 {
		of := moneycmd.Chain{Genesis: *g}
		a.Say("the emission is paid from token account %s: send up to %s there",
			account.EmissionAddress(g.Program, g.Escrow), of.Text(p.StakeMint, p.Votes.Emission, p))
	}
	return nil
}

func genesisDeploy(a *cli.App) *cobra.Command {
	var o founder
	c := &cobra.Command{
		Use:   "deploy",
		Short: "Deploy Starling's program to a cluster",
		Long: fmt.Sprintf(`Deploys the program in this binary (%d bytes, SHA-256 %s) under a new address, through
Solana's upgradeable loader, and prints the address. The payer is its upgrade authority until it transfers that
(starling network authority) or gives it up (starling network finalize). Networks on an upgradeable program depend on
the holder of that key.`,
			len(program.ELF), sign.Sum(program.ELF)),
		Example: `  starling network deploy --keypair id.json --rpc http://127.0.0.1:8899`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			payer, err := o.key()
			if err != nil {
				return err
			}
			cluster, err := solana.Genesis(c.Context(), o.rpc[0])
			if err != nil {
				return o.failed(err, payer.Key())
			}
			admin, err := solana.NewAdmin(o.rpc[0], cluster, payer)
			if err != nil {
				return &cli.Error{Code: cli.ExitUsage, Err: err}
			}
			var seed [32]byte
			if _, err := rand.Read(seed[:]); err != nil {
				return fmt.Errorf("making an address: %w", err)
			}
			at := sign.NewPrivate(seed)
			a.Say("deploying %d bytes at %s, paid by %s", len(program.ELF), at.Key(), payer.Key())
			if err := admin.Deploy(c.Context(), at, program.ELF); err != nil {
				return o.failed(err, payer.Key())
			}
			return a.Show(map[string]any{"program": at.Key()}, func(t *cli.Table) { t.Row("program", at.Key()) })
		},
	}
	o.flags(c)
	return c
}
