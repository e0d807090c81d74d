package moneycmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

const maxKeypair = 4096

// errNoEndpoint means that neither --rpc nor the configuration names an endpoint of the chain.
var errNoEndpoint = errors.New("no endpoint of the chain is known")

// Options are the flags of commands that read the chain or call Starling's program directly, without the peer.
type Options struct {
	RPC    []string
	wallet string // the owner's key, when it is not in the home directory
}

// ReadFlags adds the flags of commands that read the chain.
func (o *Options) ReadFlags(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.RPC, "rpc", nil,
		"JSON-RPC address, repeatable (default those of config.yaml)")
}

// Flags adds the flags of commands that may need the owner's signature.
func (o *Options) Flags(c *cobra.Command) {
	o.ReadFlags(c)
	c.Flags().StringVar(&o.wallet, "wallet", "",
		"keypair file of the owner (default wallet.json if present)")
}

// Chain is a connection to a network's chain; the peer's key pays the fees.
type Chain struct {
	App *cli.App
	*solana.Ledger
	Genesis market.Genesis
	Peer    sign.Private
	Owner   sign.Key
	Keys    map[sign.Key]sign.Signer // the available signers: the peer's, and the owner's if its key is there
}

// Open opens this home directory's network on its chain.
func Open(a *cli.App, o Options) (*Chain, error) {
	g, err := a.Genesis()
	if err != nil {
		return nil, err
	}
	if g.Free {
		return nil, cli.WithHint(cli.Usagef("network %s is a free network: it has no chain, so no balances, escrows "+
			"or stake", g.Network), "starling proof check checks the signed receipts")
	}
	home, err := a.Home()
	if err != nil {
		return nil, err
	}
	if len(o.RPC) == 0 {
		cfg, err := config.Load(filepath.Join(home, config.FileConfig))
		if err != nil {
			return nil, err
		}
		o.RPC = cfg.Solana.RPC
	}
	if len(o.RPC) == 0 {
		return nil, cli.WithHint(&cli.Error{Code: cli.ExitUsage, Err: errNoEndpoint},
			"give one with --rpc, or set solana.rpc in %s", config.FileConfig)
	}
	w, err := cli.ReadAddresses(home)
	if err != nil {
		return nil, err
	}
	l := &Chain{App: a, Genesis: g, Owner: w.Owner, Keys: map[sign.Key]sign.Signer{}}
	if l.Peer, err = ReadKeypair(filepath.Join(home, config.FileIdentity)); err != nil {
		return nil, err
	}
	file := o.wallet
	if file == "" {
		file = filepath.Join(home, config.FileWallet)
	}
	switch owner, err := ReadKeypair(file); {
	case err == nil:
		l.Keys[owner.Key()] = owner
	case o.wallet != "" || !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	l.Keys[l.Peer.Key()] = l.Peer
	cfg := solana.ConfigOf(o.RPC, g, l.Peer)
	cfg.Owner = l.Owner
	if l.Ledger, err = solana.New(cfg); err != nil {
		return nil, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return l, nil
}

// OpenProgram is chain on a network that settles through Starling's program.
func OpenProgram(a *cli.App, o Options) (*Chain, error) {
	l, err := Open(a, o)
	if err == nil && l.Genesis.Draft() {
		return nil, cli.WithHint(cli.Usagef("network %s has no program yet", l.Genesis.Network),
			"starling network init-escrow --help")
	}
	return l, err
}

// ReadKeypair reads a key file. It returns an error if other users can read the file.
func ReadKeypair(path string) (sign.Private, error) {
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		err := fmt.Errorf("%s: %w (mode %04o)", path, p2p.ErrKeyReadable, info.Mode().Perm())
		return sign.Private{}, &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "chmod 600 " + path}
	}
	b, err := cli.ReadFile(path, maxKeypair)
	if err != nil {
		return sign.Private{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	key, err := sign.ParseKeypair(b)
	if err != nil {
		return sign.Private{}, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", path, err)}
	}
	return key, nil
}

// Signer returns the signer of key k. It returns an error that names the role whom if the key is not available.
func (l *Chain) Signer(k sign.Key, whom string) (sign.Signer, error) {
	if s, ok := l.Keys[k]; ok {
		return s, nil
	}
	return nil, cli.WithHint(cli.Usagef("%s must sign this, and the key of %s is missing", whom, k),
		"give its keypair file with --wallet FILE")
}

// Spender returns the signer for the owner's tokens: the owner, or the peer as its delegate.
func (l *Chain) Spender() sign.Signer {
	if s, ok := l.Keys[l.Owner]; ok {
		return s
	}
	return l.Peer
}

// sent is the final output of a command that sends a transaction.
type sent struct {
	Did         string     `json:"did"`
	Transaction chain.TxID `json:"transaction"`
}

// Send announces an action, sends it as one transaction, waits for its confirmation, and shows it.
func (l *Chain) Send(ctx context.Context, did string, calls []svm.Instruction, signers ...sign.Signer) error {
	l.App.Say("%s; fees are paid by %s", did, l.Peer.Key())
	id, err := l.Run(ctx, calls, signers...)
	if err != nil {
		return l.Explain(err)
	}
	return l.App.Show(sent{did, id}, func(t *cli.Table) { t.Row("confirmed", id) })
}

// Explain adds a remedy to an error of the chain.
func (l *Chain) Explain(err error) error {
	e := &cli.Error{Code: cli.ExitPayment, Err: err}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, chain.ErrFees):
		e.Hint = fmt.Sprintf("send SOL to the peer's key, %s", l.Peer.Key())
	case errors.Is(err, chain.ErrAllowance):
		e.Hint = fmt.Sprintf("send %s to %s, or let its owner allow the peer more: starling wallet allow AMOUNT",
			l.Genesis.Symbol, l.Owner)
	case errors.Is(err, chain.ErrDown), errors.Is(err, chain.ErrDisagree):
		e.Hint = "name another endpoint with --rpc"
	case errors.Is(err, program.ErrEarly):
		e.Hint = "starling wallet escrow show, and stake status, show the earliest time"
	case errors.Is(err, chain.ErrMalformed):
		e.Hint = "it is of another kind or network; starling wallet escrow ls lists yours"
	}
	return e
}

// Amount reads a number of whole tokens.
func (l *Chain) Amount(text string) (market.Amount, error) {
	n, err := baseUnits(text, l.Genesis.Decimals)
	return market.Amount(n), err
}

// baseUnits converts a number of whole tokens greater than 0 into base units.
func baseUnits(text string, decimals uint8) (uint64, error) {
	n, err := market.ParseDecimal(text, decimals)
	if err != nil {
		return 0, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	if n == 0 {
		return 0, cli.Usagef("amount must be greater than zero")
	}
	return n, nil
}

// Text formats an amount of any token of the network.
func (l *Chain) Text(mint sign.Key, n uint64, terms account.Params) string {
	if mint == l.Genesis.Mint {
		return l.Genesis.FormatAmount(market.Amount(n))
	}
	for _, m := range terms.Mints {
		if m.Mint == mint {
			return market.Decimal(n, m.Decimals) + " of " + mint.Short()
		}
	}
	return fmt.Sprintf("%d base units of %s", n, mint.Short())
}

// When formats a slot with its estimated time.
func (l *Chain) When(now, slot market.Slot) string {
	if slot <= now {
		return fmt.Sprintf("slot %d, %s ago", slot, cli.Span(l.Slots(now-slot)))
	}
	left := l.Slots(slot - now)
	return fmt.Sprintf("slot %d, in about %s (%s)", slot, cli.Span(left), time.Now().Add(left).Format(time.DateTime))
}

// Slots is the duration of a number of slots, at most a hundred years.
func (l *Chain) Slots(n market.Slot) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	if uint64(n) > uint64(most/time.Millisecond)/l.Genesis.SlotMillis {
		return most
	}
	return time.Duration(uint64(n)*l.Genesis.SlotMillis) * time.Millisecond
}
