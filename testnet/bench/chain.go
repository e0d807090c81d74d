package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// ChainReport is the cost of settlement through the program. The figures are of transactions that landed on a local
// chain.
type ChainReport struct {
	Leases int        `json:"leases"`
	Open   CostReport `json:"open"`   // the escrow and its tranches
	Claims CostReport `json:"claims"` // of all leases, one each
	Close  CostReport `json:"close"`  // fees swept, tranches and escrow closed
	// part of the paid rent that was refunded: 1 if the payer lost only fees
	Recovered    float64        `json:"rent_recovered"`
	ClaimsPerSec float64        `json:"claims_per_second"`
	ClaimCPU     float64        `json:"claim_cpu_ms"`       // of the claiming process, for each claim
	ClaimChain   float64        `json:"claim_chain_cpu_ms"` // of the local chain
	Anchors      []AnchorReport `json:"anchors"`
}

// CostReport sums up transactions.
type CostReport struct {
	Transactions int    `json:"transactions"`
	Bytes        int    `json:"bytes"`
	Fees         uint64 `json:"fees_lamports"`
	Rent         uint64 `json:"rent_lamports"` // refundable
}

// AnchorReport is an author's cost of an anchor until its close, for each receipt.
type AnchorReport struct {
	Receipts   int     `json:"receipts"`
	PerReceipt float64 `json:"lamports_per_receipt"` // fees of both transactions: the total cost
	Rent       float64 `json:"rent_per_receipt"`     // refunded at the close
}

const (
	benchTranches = 5
	benchLeaves   = 250 // of each: 1,250 leases
	benchClaimers = 32  // concurrent claims
	benchSlots    = 100 // length of each lease
	benchLamports = 100_000_000_000
	benchTokens   = 1_000_000_000 // base units: 1,000 tokens
	benchFee      = 5000          // lamports for each signature
)

// escrowCost opens an escrow for 1,250 leases on a chain of its own, claims all of it, and closes everything.
func (b *bench) escrowCost(ctx context.Context) (err error) {
	b.say("an escrow of %d leases on a local chain", benchTranches*benchLeaves)
	net, err := localnet.Start(ctx, localnet.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	c := &costs{net: net}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	r := ChainReport{Leases: benchTranches * benchLeaves}
	before, err := c.lamports(ctx)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		into *CostReport
		do   func(context.Context) (CostReport, error)
	}{{&r.Open, c.open}, {&r.Claims, func(ctx context.Context) (CostReport, error) {
		return c.claimAll(ctx, &r)
	}}, {&r.Close, c.closeAll}} {
		if *step.into, err = step.do(ctx); err != nil {
			return err
		}
	}
	after, err := c.lamports(ctx)
	if err != nil {
		return err
	}
	spent, fees := before-after, r.Open.Fees+r.Claims.Fees+r.Close.Fees
	r.Recovered = 1 - float64(spent-fees)/float64(r.Open.Rent)
	for _, n := range []int{1024, 16384} {
		a, err := c.anchored(ctx, n)
		if err != nil {
			return fmt.Errorf("anchoring %d receipts: %w", n, err)
		}
		r.Anchors = append(r.Anchors, a)
	}
	b.report.Chain = r
	b.say("   opened in %d transactions, %d bytes; %.0f claims/s; closed",
		r.Open.Transactions, r.Open.Bytes, r.ClaimsPerSec)
	return nil
}

// costs is a buyer with its escrow; it also claims for the provider.
type costs struct {
	net      *localnet.Chain
	genesis  market.Genesis
	key      sign.Private
	provider sign.Private
	ledger   *solana.Ledger
	account  account.Network
	call     program.OpenEscrow
	mu       sync.Mutex // of sums
	leaves   [][]tranche.Leaf
	trees    []*tranche.Tree
}

func (c *costs) prepare(ctx context.Context) (err error) {
	if c.genesis, err = c.net.EscrowGenesis(ctx, "bench", benchSlots); err != nil {
		return err
	}
	for _, k := range []*sign.Private{&c.key, &c.provider} {
		var seed [32]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return err
		}
		*k = sign.NewPrivate(seed)
	}
	if c.ledger, err = solana.New(solana.ConfigOf([]string{c.net.URL()}, c.genesis, c.key)); err != nil {
		return err
	}
	if c.account, err = c.ledger.Network(ctx); err != nil {
		return err
	}
	if err := c.net.Fund(ctx, localnet.Wallet{Owner: c.key, Tokens: benchTokens, Lamports: benchLamports},
		localnet.Wallet{Owner: c.provider, Tokens: 1, Lamports: benchLamports}); err != nil {
		return err
	}
	slot, err := c.ledger.Slot(ctx)
	if err != nil {
		return err
	}
	keys, err := market.NewKeySet(1, c.key.Key())
	if err != nil {
		return err
	}
	id, opened := c.genesis.Program, uint64(slot)
	order := market.OrderID(sign.Sum([]byte("bench order")))
	c.call = program.OpenEscrow{Payer: c.key.Key(), Buyer: c.key.Key(),
		Source: svm.TokenAccount(c.key.Key(), c.genesis.Mint), Authority: c.key.Key(),
		Mint: c.genesis.Mint, Network: c.genesis.Escrow, Order: order,
		Opened: opened, Deadline: opened + 1_000_000, Deposit: benchTranches * benchLeaves * benchSlots,
		RefundOwner: c.key.Key(), Keys: keys}
	c.call.Escrow = c.call.Address(id)
	c.call.Vault = account.VaultAddress(id, c.call.Escrow)
	for t := range benchTranches {
		leaves := make([]tranche.Leaf, benchLeaves)
		for i := range leaves {
			leaves[i] = tranche.Leaf{Version: tranche.LeafVersion, Index: uint16(i), Provider: c.provider.Key(),
				Payout: c.provider.Key(), Lease: market.LeaseID(sign.Sum([]byte{byte(t), byte(i)})),
				Rate: market.RateScale, Cap: benchSlots, Start: slot, End: slot + benchSlots}
		}
		tree, err := tranche.Build(leaves)
		if err != nil {
			return err
		}
		c.leaves, c.trees = append(c.leaves, leaves), append(c.trees, tree)
	}
	return nil
}

// land sends a transaction and adds its cost to the sums.
func (c *costs) land(ctx context.Context, sum *CostReport, calls ...svm.Instruction) error {
	tx, err := c.ledger.Sign(ctx, calls, nil)
	if err != nil {
		return err
	}
	landed, err := c.ledger.Confirm(ctx, tx)
	if err != nil {
		return err
	}
	if !landed {
		return fmt.Errorf("transaction %s expired before it landed", tx.ID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sum.Transactions++
	sum.Bytes += len(tx.Raw)
	signatures := uint64(tx.Raw[0]) // the first byte is their number
	for _, in := range calls {
		if in.Program == svm.Ed25519Program {
			signatures += uint64(in.Data[0])
		}
		sum.Rent += program.RentOf(c.genesis.Program, in)
	}
	sum.Fees += signatures * benchFee
	return nil
}

func (c *costs) lamports(ctx context.Context) (uint64, error) {
	f, err := c.ledger.Funds(ctx)
	return f.Lamports, err
}

func (c *costs) tranche(t int) sign.Key {
	return account.TrancheAddress(c.genesis.Program, c.call.Escrow, uint16(t))
}

func (c *costs) open(ctx context.Context) (r CostReport, err error) {
	calls := []svm.Instruction{c.call.Instruction(c.genesis.Program)}
	for t, tree := range c.trees {
		calls = append(calls, program.AddTranche{Payer: c.key.Key(), Buyer: c.key.Key(), Escrow: c.call.Escrow,
			Vault: c.call.Vault, Tranche: c.tranche(t), Index: uint16(t),
			Root: tree.Root()}.Instruction(c.genesis.Program))
	}
	return r, c.land(ctx, &r, calls...)
}

// claim returns the instructions of one claim.
func (c *costs) claim(t, i int) ([]svm.Instruction, error) {
	leaf := c.leaves[t][i]
	proof, err := c.trees[t].Prove(i)
	if err != nil {
		return nil, err
	}
	v, err := verify.SignVoucher(c.genesis.Domain(),
		verify.Voucher{Version: verify.VoucherVersion, Lease: leaf.Lease, Escrow: c.call.Escrow, Seq: 1,
			Cumulative: leaf.Cap}, c.call.Keys, c.key)
	if err != nil {
		return nil, err
	}
	return []svm.Instruction{program.VoucherSigned(c.genesis.Domain(), v).Instruction(),
		program.Claim{Escrow: c.call.Escrow, Tranche: c.tranche(t), Vault: c.call.Vault,
			Destination: svm.TokenAccount(leaf.Payout, c.genesis.Mint), Mint: c.genesis.Mint,
			Network: c.genesis.Escrow, Leaf: leaf, Proof: proof}.Instruction(c.genesis.Program)}, nil
}

// claimAll claims every lease in full, after all of them have run.
func (c *costs) claimAll(ctx context.Context, r *ChainReport) (sum CostReport, err error) {
	if err := c.until(ctx, uint64(c.leaves[0][0].End)); err != nil {
		return sum, err
	}
	var before, after [2]usage // of this process, and of the chain's
	measure := func(into *[2]usage) (err error) {
		if into[0], err = usageOf(os.Getpid()); err == nil {
			into[1], err = usageOf(c.net.PID())
		}
		return err
	}
	if err := measure(&before); err != nil {
		return sum, err
	}
	began := time.Now()
	if err := c.claimSideBySide(ctx, &sum); err != nil {
		return sum, err
	}
	took := time.Since(began)
	if err := measure(&after); err != nil {
		return sum, err
	}
	n := float64(sum.Transactions)
	r.ClaimsPerSec = n / took.Seconds()
	r.ClaimCPU, r.ClaimChain = millis(after[0].cpu-before[0].cpu)/n, millis(after[1].cpu-before[1].cpu)/n
	return sum, nil
}

func (c *costs) claimSideBySide(ctx context.Context, sum *CostReport) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	free := make(chan struct{}, benchClaimers)
	for n := range benchTranches * benchLeaves {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			calls, err := c.claim(n/benchLeaves, n%benchLeaves)
			if err == nil && ctx.Err() == nil {
				err = c.land(ctx, sum, calls...)
			}
			if err != nil {
				cancel(fmt.Errorf("claim %d: %w", n, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (c *costs) until(ctx context.Context, slot uint64) error {
	for {
		now, err := c.ledger.Slot(ctx)
		if err != nil || uint64(now) > slot {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// closeAll closes the escrow once its opening slot is too old to open anything.
func (c *costs) closeAll(ctx context.Context) (r CostReport, err error) {
	if err := c.until(ctx, c.call.Opened+account.OpeningSlots); err != nil {
		return r, err
	}
	id, mint := c.genesis.Program, c.genesis.Mint
	var calls []svm.Instruction
	for t := range c.trees {
		calls = append(calls, program.CloseTranche{Escrow: c.call.Escrow, Tranche: c.tranche(t),
			RentPayer: c.key.Key()}.Instruction(id))
	}
	calls = append(calls,
		program.Sweep{Escrow: c.call.Escrow, Vault: c.call.Vault, Mint: mint, Network: c.genesis.Escrow,
			Pool:     account.PoolAddress(id, c.genesis.Escrow, mint),
			Treasury: svm.TokenAccount(c.account.Params.Treasury, mint)}.Instruction(id),
		program.CloseEscrow{Escrow: c.call.Escrow, Vault: c.call.Vault,
			Destination: svm.TokenAccount(c.key.Key(), mint), Mint: mint, RentPayer: c.key.Key(),
			Buyer: c.key.Key()}.Instruction(id))
	return r, c.land(ctx, &r, calls...)
}

// anchored anchors a batch and closes the anchor.
func (c *costs) anchored(ctx context.Context, receipts int) (AnchorReport, error) {
	root := sign.Sum(fmt.Appendf(nil, "%d receipts", receipts)) // the program does not check it
	call := program.Anchor{Authority: c.key.Key(), Root: root, Count: uint64(receipts)}
	call.Anchor = account.AnchorAddress(c.genesis.Program, call.Authority, call.Root)
	before, err := c.lamports(ctx)
	if err != nil {
		return AnchorReport{}, err
	}
	if _, err := c.ledger.Run(ctx, program.Instructions(c.genesis.Program, call)); err != nil {
		return AnchorReport{}, err
	}
	between, err := c.lamports(ctx)
	if err != nil {
		return AnchorReport{}, err
	}
	closing := program.CloseAnchor{Authority: c.key.Key(), Anchor: call.Anchor}
	if _, err := c.ledger.Run(ctx, program.Instructions(c.genesis.Program, closing)); err != nil {
		return AnchorReport{}, err
	}
	after, err := c.lamports(ctx)
	if err != nil {
		return AnchorReport{}, err
	}
	n := float64(receipts)
	return AnchorReport{Receipts: receipts, PerReceipt: float64(before-after) / n, Rent: float64(after-between) / n},
		nil
}
