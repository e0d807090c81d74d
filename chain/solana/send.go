package solana

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	// runAttempts is how often an expired transaction is signed again: on a machine under load a blockhash may be old
	// before it is used.
	runAttempts = 5
	// confirmFirst and confirmMost are how long Run waits between two looks, which grows: a public endpoint counts
	// calls.
	confirmFirst = 100 * time.Millisecond
	confirmMost  = time.Second
)

// recent is a blockhash that a transaction can be signed with now.
type recent struct {
	blockhash solanago.Hash
	lastValid uint64      // last block height that takes it
	since     market.Slot // in which it was the newest
}

func latest(ctx context.Context, c *rpc.Client) (recent, error) {
	out, err := c.GetLatestBlockhash(ctx, rpc.CommitmentConfirmed)
	if err != nil {
		return recent{}, err
	}
	if out == nil || out.Value == nil {
		return recent{}, fmt.Errorf("no blockhash: %w", chain.ErrMalformed)
	}
	return recent{out.Value.Blockhash, out.Value.LastValidBlockHeight, market.Slot(out.Context.Slot)}, nil
}

// latestAnd reads a blockhash and accounts from one endpoint, in parallel.
func (l *Wallet) latestAnd(
	ctx context.Context, keys []solanago.PublicKey,
) (now recent, accounts []*rpc.Account, err error) {
	accounts, err = cluster.Ask(ctx, l.cluster, func(
		ctx context.Context, c *rpc.Client,
	) (accounts []*rpc.Account, err error) {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() (err error) {
			now, err = latest(ctx, c)
			return err
		})
		g.Go(func() (err error) {
			_, accounts, err = cluster.ReadAccounts(ctx, c, rpc.CommitmentConfirmed, keys)
			return err
		})
		err = g.Wait()
		return accounts, err
	})
	return now, accounts, err
}

// sign makes a transaction that the ledger's key pays for and signs, beside the others.
func (l *Wallet) sign(
	now recent, instructions []solanago.Instruction, tables []svm.Table, others []sign.Signer,
) (chain.Prepared, error) {
	id, raw, err := transaction.SignLibrary(instructions, tables, now.blockhash, l.payer,
		append(slices.Clone(others), l.cfg.Key)...)
	if err != nil {
		return chain.Prepared{}, err
	}
	return chain.Prepared{ID: id, Raw: raw, LastValid: now.lastValid, Since: now.since}, nil
}

// Sign implements escrow.Ledger. The key must hold the fee, with the budget's bid, the rent of all accounts that the
// instructions make at its cost, and its own rent. Otherwise it returns chain.ErrFees.
func (l *Wallet) Sign(
	ctx context.Context, instructions []svm.Instruction, tables []svm.Table, others ...sign.Signer,
) (chain.Prepared, error) {
	if len(instructions) == 0 {
		return chain.Prepared{}, fmt.Errorf("%w: a transaction without instructions", chain.ErrPayment)
	}
	if err := l.Check(ctx); err != nil {
		return chain.Prepared{}, err
	}
	opens := l.opens(instructions)
	now, accounts, err := l.latestAnd(ctx, append([]solanago.PublicKey{l.payer}, opens...))
	if err != nil {
		return chain.Prepared{}, err
	}
	rent := l.rent(instructions)
	for _, a := range accounts[1:] {
		if a == nil || a.Owner != solanago.TokenProgramID {
			rent += tokenRent
		}
	}
	held, signatures := uint64(0), l.signatures(instructions)
	if accounts[0] != nil {
		held = accounts[0].Lamports
	}
	if fee, bid := signatures*chain.SignatureFee, bidOf(instructions); held < fee+bid+rent+walletRent {
		return chain.Prepared{}, fmt.Errorf("key %s holds %d lamports, %d needed: %d for %d signatures, "+
			"%d bid for a place in a block, %d rent of new accounts, %d for its own: %w",
			l.payer, held, fee+bid+rent+walletRent, fee, signatures, bid, rent, uint64(walletRent), chain.ErrFees)
	}
	return l.sign(now, transaction.Library(instructions), tables, others)
}

// opens are the token accounts that the instructions open at the key's cost where they are missing.
func (l *Wallet) opens(instructions []svm.Instruction) []solanago.PublicKey {
	var keys []solanago.PublicKey
	for _, in := range instructions {
		if k, ok := in.Opens(); ok && in.Accounts[0].Key == l.cfg.Key.Key() &&
			!slices.Contains(keys, solanago.PublicKey(k)) {
			keys = append(keys, solanago.PublicKey(k))
		}
	}
	return keys
}

// rent of all accounts that calls of the program, and lookup tables that are made, cost the key.
func (l *Wallet) rent(instructions []svm.Instruction) (lamports uint64) {
	for _, in := range instructions {
		payer := 0
		if in.Program == svm.TableProgram {
			payer = 2
		}
		if len(in.Accounts) > payer && in.Accounts[payer].Key == l.cfg.Key.Key() {
			lamports += program.RentOf(l.cfg.Program, in)
		}
	}
	return lamports
}

// signatures counts the signatures that the chain charges for: the transaction's own, and the precompile's.
func (l *Wallet) signatures(instructions []svm.Instruction) (n uint64) {
	signers := map[sign.Key]bool{l.cfg.Key.Key(): true}
	for _, in := range instructions {
		if in.Program == svm.Ed25519Program && len(in.Data) > 0 {
			n += uint64(in.Data[0])
		}
		for _, m := range in.Accounts {
			if m.Signer {
				signers[m.Key] = true
			}
		}
	}
	return n + uint64(len(signers))
}

// Run signs a transaction and sends it until it is confirmed. If the transaction expires before it lands, Run signs it
// anew with twice the bid. It bids the recent price, at most this peer's limit for any transaction. It is for callers
// that wait for one call; state that must survive a crash is journalled after Sign. If the program refused a call, the
// error is its program.Code. After any other error the named transaction may have landed.
func (l *Wallet) Run(
	ctx context.Context, instructions []svm.Instruction, others ...sign.Signer,
) (chain.TxID, error) {
	return l.run(ctx, func(retries uint8) (chain.Prepared, error) {
		in, err := l.bid(ctx, instructions, l.cfg.Fees.Most, retries)
		if err != nil {
			return chain.Prepared{}, err
		}
		return l.Sign(ctx, in, nil, others...)
	})
}

func (l *Wallet) run(ctx context.Context, sign func(retries uint8) (chain.Prepared, error)) (chain.TxID, error) {
	for attempt := 1; ; attempt++ {
		tx, err := sign(uint8(attempt - 1))
		if err != nil {
			return "", err
		}
		landed, err := l.Confirm(ctx, tx)
		switch {
		case err != nil && !errors.Is(err, chain.ErrRejected):
			return tx.ID, fmt.Errorf("transaction %s: %w", tx.ID, err)
		case err != nil || landed:
			return tx.ID, err
		case attempt == runAttempts:
			return tx.ID, fmt.Errorf("transaction %s expired before it landed, as did those before it", tx.ID)
		}
	}
}

// Confirm sends a transaction until it is confirmed, or has expired and can never land.
func (l *Wallet) Confirm(ctx context.Context, tx chain.Prepared) (landed bool, err error) {
	sent := false // perhaps, where no endpoint answered
	for wait := confirmFirst; ; wait = min(wait*5/4, confirmMost) {
		// An RPC server that has not seen the blockhash yet drops the transaction silently, so it is sent each time. A
		// repeated send may be refused because the transaction has landed: its status decides.
		err := l.Send(ctx, tx)
		if err != nil && !errors.Is(err, chain.ErrDown) && !sent {
			return false, err
		}
		sent = true
		status, err := l.Status(ctx, tx)
		switch {
		case err != nil && !errors.Is(err, chain.ErrDown):
			return false, err
		case status.Err != "":
			return false, errors.New(status.Err)
		case status.State == chain.Confirmed || status.State == chain.Finalized:
			return true, nil
		case status.State == chain.Expired:
			return false, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		case <-timer.C:
		}
	}
}
