package cli

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
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/p2p"
)

const maxKeypair = 4096

// chainOptions are the flags of commands that read the chain or call Starling's program themselves, without the peer.
type chainOptions struct {
	rpc    []string
	wallet string // the owner's key, when it is not in the home directory
}

func (o *chainOptions) readFlags(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.rpc, "rpc", nil, "JSON-RPC address of the Solana cluster; may be repeated (default those of config.yaml)")
}

func (o *chainOptions) flags(c *cobra.Command) {
	o.readFlags(c)
	c.Flags().StringVar(&o.wallet, "wallet", "", "keypair file of the owner's wallet, in the format of the Solana command line tools (default wallet.json, when it is there)")
}

// onChain is a network's chain, seen and paid for by the peer's key.
type onChain struct {
	a *App
	*solana.Ledger
	g     market.Genesis
	peer  sign.Private
	owner sign.Key
	keys  map[sign.Key]sign.Signer // the available signers: the peer's, and the owner's if its key is there
}

// chain opens this home directory's network on its chain.
func (a *App) chain(o chainOptions) (*onChain, error) {
	g, err := a.genesis()
	if err != nil {
		return nil, err
	}
	if g.Free {
		return nil, WithHint(Usagef("network %s is a free network: it has no chain, so no balances, escrows or stake", g.Network), "starling receipts verify checks what was signed")
	}
	home, err := a.Home()
	if err != nil {
		return nil, err
	}
	if len(o.rpc) == 0 {
		cfg, err := node.LoadConfig(filepath.Join(home, node.FileConfig))
		if err != nil {
			return nil, err
		}
		o.rpc = cfg.Solana.RPC
	}
	if len(o.rpc) == 0 {
		return nil, WithHint(Usagef("no endpoint of the chain is known"), "give one with --rpc, or set solana.rpc in %s", node.FileConfig)
	}
	w, err := readWallet(home)
	if err != nil {
		return nil, err
	}
	l := &onChain{a: a, g: g, owner: w.Owner, keys: map[sign.Key]sign.Signer{}}
	if l.peer, err = readKeypair(filepath.Join(home, node.FileIdentity)); err != nil {
		return nil, err
	}
	file := o.wallet
	if file == "" {
		file = filepath.Join(home, node.FileWallet)
	}
	switch owner, err := readKeypair(file); {
	case err == nil:
		l.keys[owner.Key()] = owner
	case o.wallet != "" || !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	l.keys[l.peer.Key()] = l.peer
	cfg := solana.ConfigOf(o.rpc, g, l.peer)
	cfg.Owner = l.owner
	if l.Ledger, err = solana.New(cfg); err != nil {
		return nil, &Error{Code: ExitUsage, Err: err}
	}
	return l, nil
}

// programChain is chain on a network that settles through Starling's program.
func (a *App) programChain(o chainOptions) (*onChain, error) {
	l, err := a.chain(o)
	if err == nil && l.g.Draft() {
		return nil, WithHint(Usagef("network %s has no program yet", l.g.Network), "starling network init-escrow --help")
	}
	return l, err
}

// readKeypair reads a key file that nobody else may read.
func readKeypair(path string) (sign.Private, error) {
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		err := fmt.Errorf("%s: %w (mode %04o)", path, p2p.ErrKeyReadable, info.Mode().Perm())
		return sign.Private{}, &Error{Code: ExitUsage, Err: err, Hint: "chmod 600 " + path}
	}
	b, err := readFile(path, maxKeypair)
	if err != nil {
		return sign.Private{}, &Error{Code: ExitUsage, Err: err}
	}
	key, err := sign.ParseKeypair(b)
	if err != nil {
		return sign.Private{}, &Error{Code: ExitUsage, Err: fmt.Errorf("%s: %w", path, err)}
	}
	return key, nil
}

// signer is the key that must sign as whom.
func (l *onChain) signer(k sign.Key, whom string) (sign.Signer, error) {
	if s, ok := l.keys[k]; ok {
		return s, nil
	}
	return nil, WithHint(Usagef("%s must sign this, and the key of %s is not here", whom, k), "give its keypair file with --wallet FILE")
}

// spender is the signer for the owner's tokens: the owner, or the peer as its delegate.
func (l *onChain) spender() sign.Signer {
	if s, ok := l.keys[l.owner]; ok {
		return s
	}
	return l.peer
}

// sent is the final output of a command that sends a transaction.
type sent struct {
	Did         string     `json:"did"`
	Transaction chain.TxID `json:"transaction"`
}

// send announces its action, does it in one transaction, waits until that is confirmed, and shows it.
func (l *onChain) send(ctx context.Context, did string, calls []program.Instruction, signers ...sign.Signer) error {
	l.a.say("%s; fees are paid by %s", did, l.peer.Key())
	id, err := l.Run(ctx, calls, signers...)
	if err != nil {
		return l.explain(err)
	}
	return l.a.Show(sent{did, id}, func(t *Table) { t.Row("confirmed", id) })
}

// explain adds a remedy to an error of the chain.
func (l *onChain) explain(err error) error {
	e := &Error{Code: ExitPayment, Err: err}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, chain.ErrFees):
		e.Hint = fmt.Sprintf("send SOL to the peer's key, %s", l.peer.Key())
	case errors.Is(err, chain.ErrAllowance):
		e.Hint = fmt.Sprintf("send %s to %s, or let its owner allow the peer more: starling wallet allow AMOUNT", l.g.Symbol, l.owner)
	case errors.Is(err, chain.ErrDown), errors.Is(err, chain.ErrDisagree):
		e.Hint = "name another endpoint with --rpc"
	case errors.Is(err, program.ErrEarly):
		e.Hint = "starling wallet escrow show, and stake status, say from when it can be done"
	case errors.Is(err, chain.ErrMalformed):
		e.Hint = "it is of another kind or network; starling wallet escrow ls lists yours"
	}
	return e
}

// amount reads a number of whole tokens.
func (l *onChain) amount(text string) (market.Amount, error) {
	n, err := market.ParseDecimal(text, l.g.Decimals)
	if err != nil {
		return 0, &Error{Code: ExitUsage, Err: err}
	}
	if n == 0 {
		return 0, Usagef("nothing is not an amount")
	}
	return market.Amount(n), nil
}

// text is an amount of any token of the network.
func (l *onChain) text(mint sign.Key, n uint64, terms program.Params) string {
	if mint == l.g.Mint {
		return l.g.FormatAmount(market.Amount(n))
	}
	for _, m := range terms.Mints {
		if m.Mint == mint {
			return market.Decimal(n, m.Decimals) + " of " + mint.Short()
		}
	}
	return fmt.Sprintf("%d base units of %s", n, mint.Short())
}

// when is a slot as a time, as far as slots keep theirs.
func (l *onChain) when(now, slot market.Slot) string {
	if slot <= now {
		return fmt.Sprintf("slot %d, %s ago", slot, span(l.slots(now-slot)))
	}
	left := l.slots(slot - now)
	return fmt.Sprintf("slot %d, in about %s (%s)", slot, span(left), time.Now().Add(left).Format(time.DateTime))
}

// slots is the duration of a number of slots, at most a hundred years.
func (l *onChain) slots(n market.Slot) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	if uint64(n) > uint64(most/time.Millisecond)/l.g.SlotMillis {
		return most
	}
	return time.Duration(uint64(n)*l.g.SlotMillis) * time.Millisecond
}

// address reads one of the command line.
func address(what, text string) (sign.Key, error) {
	k, err := sign.ParseKey(text)
	if err != nil {
		return k, Usagef("%s: %q is not a Solana address", what, clip(text, 60))
	}
	return k, nil
}
