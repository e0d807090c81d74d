package moneycmd

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-network/starling/chain/escrow"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func newEscrow(a *cli.App) *cobra.Command {
	return cli.Noun("", &cobra.Command{
		Use:   "escrow",
		Short: "Show, top up and refund deposits on the chain",
		Long: `An escrow holds the deposit of one order in Starling's program on the chain. Each lease is a leaf of one
of its tranches, with a cap. The sum of the caps, less payments and freed amounts, is outstanding and reserved for the
providers. The rest of the deposit is free: the buyer can take it back at any time. After the deadline and the network's
margin, any key can send the remainder back to the refund owner.

These commands read the chain and call the program themselves; the peer need not run.`,
		Example: `  starling wallet escrow ls
  starling wallet escrow show 7xKX…gAsU
  starling wallet escrow top-up 7xKX…gAsU 2.5
  starling wallet escrow refund 7xKX…gAsU`,
	}, escrowLs(a), escrowShow(a), escrowTopUp(a), escrowRefund(a))
}

// escrowInfo is an escrow as the commands show it. Amounts are in base units of the mint.
type escrowInfo struct {
	Address     sign.Key       `json:"address"`
	Order       market.OrderID `json:"order"`
	State       string         `json:"state"` // open or refunded
	Mint        sign.Key       `json:"mint"`
	Buyer       sign.Key       `json:"buyer"`
	RefundOwner sign.Key       `json:"refundOwner"`
	Deposited   uint64         `json:"deposited"`
	Outstanding uint64         `json:"outstanding"`
	Paid        uint64         `json:"paid"` // to providers, with the fees
	Fees        uint64         `json:"fees"` // part of Paid
	Refunded    uint64         `json:"refunded"`
	Free        uint64         `json:"free"`
	Opened      uint64         `json:"opened"`   // slot
	Deadline    uint64         `json:"deadline"` // slot
	Closable    uint64         `json:"refundableFrom,omitempty"`
	Slot        market.Slot    `json:"slot"` // slot of this state
	Keys        market.KeySet  `json:"keys"`
	Tranches    []trancheInfo  `json:"tranches,omitempty"`
	Closed      uint16         `json:"closedTranches,omitempty"`
}

// trancheInfo is one tranche with its leaves.
type trancheInfo struct {
	Index       uint16     `json:"index"`
	By          string     `json:"by"` // buyer or keys
	Sum         uint64     `json:"sum"`
	Outstanding uint64     `json:"outstanding"`
	Leaves      []leafInfo `json:"leaves"`
}

// leafInfo is the state of a leaf. The lease has the provider and the cap; the chain has a hash of them.
type leafInfo struct {
	Index  int    `json:"index"`
	Paid   uint64 `json:"paid"`
	Freed  uint64 `json:"freed"`
	Window uint64 `json:"window,omitempty"` // last slot for a claim while the leaf is being retired
}

func newEscrowInfo(at sign.Key, e account.Escrow, vault uint64, now market.Slot) escrowInfo {
	info := escrowInfo{Address: at, Order: e.Order, State: "open", Mint: e.Mint, Buyer: e.Buyer,
		RefundOwner: e.RefundOwner, Deposited: e.Deposited,
		Outstanding: e.Outstanding, Paid: e.Paid, Fees: e.Fee + e.Swept, Refunded: e.Refunded, Opened: e.Opened,
		Deadline: e.Deadline, Slot: now,
		Keys: e.Keys, Closed: e.Closed}
	if e.State == account.EscrowRefunded {
		info.State = "refunded"
	}
	if taken := e.Outstanding + e.Fee; vault > taken {
		info.Free = vault - taken
	}
	return info
}

func escrowLs(a *cli.App) *cobra.Command {
	var o Options
	var buyer string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the deposits of this peer, or of another buyer",
		Long: `Requests all escrows of a buyer from an endpoint: of this peer, if no other is named. Many public
endpoints refuse searches; then name another with --rpc. One endpoint is enough here, while escrow show compares two
endpoints if two are configured.`,
		Example: `  starling wallet escrow ls
  starling wallet escrow ls --buyer 7xKX…gAsU -o json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := OpenProgram(a, o)
			if err != nil {
				return err
			}
			who := l.Peer.Key()
			if buyer != "" {
				if who, err = cli.Address("--buyer", buyer); err != nil {
					return err
				}
			}
			return listEscrows(l, c.Context(), who)
		},
	}
	o.ReadFlags(c)
	c.Flags().StringVar(&buyer, "buyer", "", "the buyer's peer key (default this peer's)")
	return c
}

func listEscrows(l *Chain, ctx context.Context, buyer sign.Key) error {
	now, err := l.Slot(ctx)
	if err != nil {
		return l.Explain(err)
	}
	n, err := l.Network(ctx)
	if err != nil {
		return l.Explain(err)
	}
	found, err := l.Escrows(ctx, buyer)
	if err != nil {
		return l.Explain(err)
	}
	infos := []escrowInfo{}
	for _, f := range found {
		// The vault's balance follows from the escrow's account, except for tokens that were sent there directly.
		infos = append(infos, newEscrowInfo(f.Address, f.Escrow, f.Deposited+f.Fee-f.Paid-f.Refunded, now))
	}
	return l.App.Show(infos, func(t *cli.Table) {
		t.Head("ESCROW", "ORDER", "STATE", "DEPOSITED", "OUTSTANDING", "PAID", "FREE", "DEADLINE")
		for _, e := range infos {
			text := func(v uint64) string { return l.Text(e.Mint, v, n.Params) }
			t.Row(e.Address, e.Order.Short(), e.State, text(e.Deposited), text(e.Outstanding), text(e.Paid),
				text(e.Free), l.When(now, market.Slot(e.Deadline)))
		}
		t.Row()
		t.Row(cli.Count(len(infos), "escrow") + " of " + buyer.String())
	})
}

func escrowShow(a *cli.App) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "show ADDRESS",
		Short: "Show a deposit with its tranches and leaves",
		Example: `  starling wallet escrow show 7xKX…gAsU
  starling wallet escrow show 7xKX…gAsU -o json`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := OpenProgram(a, o)
			if err != nil {
				return err
			}
			info, n, err := readEscrow(l, c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.Show(info, func(t *cli.Table) { escrowTable(l, t, info, n.Params) })
		},
	}
	o.ReadFlags(c)
	return c
}

// readEscrow reads an escrow with all its tranches.
func readEscrow(l *Chain, ctx context.Context, text string) (escrowInfo, account.Network, error) {
	at, err := cli.Address("escrow", text)
	if err != nil {
		return escrowInfo{}, account.Network{}, err
	}
	n, err := l.Network(ctx)
	if err != nil {
		return escrowInfo{}, n, l.Explain(err)
	}
	v, err := l.Look(ctx, at, nil, escrow.Confirmed) // for the number of tranches
	if err == nil && v.Escrow != nil {
		all := make([]uint16, v.Escrow.Tranches)
		for i := range all {
			all[i] = uint16(i)
		}
		v, err = l.Look(ctx, at, all, escrow.Confirmed)
	}
	if err != nil {
		return escrowInfo{}, n, l.Explain(err)
	}
	if v.Escrow == nil {
		return escrowInfo{}, n, cli.WithHint(&cli.Error{Code: cli.ExitUsage,
			Err: fmt.Errorf("escrow %s: not found: it does not exist or was closed", at)},
			"starling wallet escrow ls")
	}
	info := newEscrowInfo(at, *v.Escrow, uint64(v.Vault), v.Slot)
	info.Closable = v.Escrow.Deadline + uint64(n.Params.MarginSlots) + 1
	for _, i := range slices.Sorted(maps.Keys(v.Tranches)) {
		info.Tranches = append(info.Tranches, newTrancheInfo(v.Tranches[i]))
	}
	return info, n, nil
}

func newTrancheInfo(t account.Tranche) trancheInfo {
	info := trancheInfo{Index: t.Index, By: "buyer", Sum: t.Sum, Outstanding: t.Outstanding}
	if t.By == account.ByKeys {
		info.By = "keys"
	}
	for i, l := range t.Leaves {
		leaf := leafInfo{Index: i, Paid: l.Paid, Freed: l.Freed}
		if l.Window > 0 {
			leaf.Window = t.Opened + uint64(l.Window)
		}
		info.Leaves = append(info.Leaves, leaf)
	}
	return info
}

func escrowTable(l *Chain, t *cli.Table, e escrowInfo, terms account.Params) {
	text := func(v uint64) string { return l.Text(e.Mint, v, terms) }
	t.Row("escrow", e.Address)
	t.Row("order", e.Order)
	t.Row("state", e.State)
	t.Row("buyer", e.Buyer)
	t.Row("refund to", e.RefundOwner)
	t.Row("deposited", text(e.Deposited))
	t.Row("outstanding", text(e.Outstanding), "reserved for the providers")
	t.Row("paid", text(e.Paid), "of which "+text(e.Fees)+" fees")
	t.Row("refunded", text(e.Refunded))
	t.Row("free", text(e.Free), "the buyer can take it back: starling wallet escrow refund")
	t.Row("opened", l.When(e.Slot, market.Slot(e.Opened)))
	t.Row("deadline", l.When(e.Slot, market.Slot(e.Deadline)))
	t.Row("all back", l.When(e.Slot, market.Slot(e.Closable)), "everything unpaid by then")
	t.Row("vouchers", fmt.Sprintf("%d of %s", e.Keys.Threshold, cli.Count(len(e.Keys.Keys), "key")))
	if e.Closed > 0 {
		t.Row("tranches", fmt.Sprintf("%d are closed", e.Closed))
	}
	if len(e.Tranches) == 0 {
		return
	}
	t.Row()
	t.Row("TRANCHE", "LEAF", "CAPS", "OUTSTANDING", "PAID", "FREED", "")
	for _, tr := range e.Tranches {
		t.Row(tr.Index, fmt.Sprintf("all %d", len(tr.Leaves)), text(tr.Sum), text(tr.Outstanding), "", "",
			"opened by the "+tr.By)
		for _, leaf := range tr.Leaves {
			note := ""
			if leaf.Window > 0 {
				note = "being retired, claims until " + l.When(e.Slot, market.Slot(leaf.Window))
			}
			t.Row("", leaf.Index, "", "", text(leaf.Paid), text(leaf.Freed), note)
		}
	}
}

func escrowTopUp(a *cli.App) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "top-up ADDRESS AMOUNT",
		Short: "Add to a deposit",
		Long: `Moves AMOUNT tokens from the owner's wallet into an open escrow. The owner signs if its key is
available, else the peer as its delegate. The added amount is free until a tranche uses it.`,
		Example: `  starling wallet escrow top-up 7xKX…gAsU 2.5`,
		Args:    cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := OpenProgram(a, o)
			if err != nil {
				return err
			}
			n, err := l.Amount(args[1])
			if err != nil {
				return err
			}
			e, _, err := readEscrow(l, c.Context(), args[0])
			if err != nil {
				return err
			}
			if e.Mint != l.Genesis.Mint {
				return cli.Usagef("escrow %s holds another token, %s", e.Address, e.Mint)
			}
			if e.State != "open" {
				return cli.Usagef("escrow %s was refunded: nothing can be added", e.Address)
			}
			by := l.Spender()
			call := program.TopUp{Escrow: e.Address, Vault: account.VaultAddress(l.Genesis.Program, e.Address),
				Source:    svm.TokenAccount(l.Owner, e.Mint),
				Authority: by.Key(), Mint: e.Mint, Amount: uint64(n)}
			return l.Send(c.Context(), fmt.Sprintf("adding %s of %s to escrow %s", l.Genesis.FormatAmount(n), l.Owner,
				e.Address),
				[]svm.Instruction{call.Instruction(l.Genesis.Program)}, by)
		},
	}
	o.Flags(c)
	return c
}

func escrowRefund(a *cli.App) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "refund ADDRESS",
		Short: "Take back the free part of a deposit",
		Long: `Before the deadline and the network's margin have passed, the buyer takes back the free part; the
outstanding part stays for the providers. Afterwards any key can send back everything unpaid, and no provider can claim.
The refund goes to the refund owner's wallet; a missing token account is created.`,
		Example: `  starling wallet escrow refund 7xKX…gAsU`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := OpenProgram(a, o)
			if err != nil {
				return err
			}
			e, _, err := readEscrow(l, c.Context(), args[0])
			if err != nil {
				return err
			}
			return refund(l, c.Context(), e)
		},
	}
	o.Flags(c)
	return c
}

func refund(l *Chain, ctx context.Context, e escrowInfo) error {
	over := uint64(e.Slot) >= e.Closable
	back := e.Free
	if over {
		back += e.Outstanding
	}
	buyer, mine := l.Keys[e.Buyer]
	switch {
	case !over && !mine:
		return cli.WithHint(cli.Usagef("before the deadline and the margin have passed only the buyer, %s, takes "+
			"back the free part", e.Buyer),
			"wait until %s", l.When(e.Slot, market.Slot(e.Closable)))
	case back == 0 && e.State == "refunded":
		return cli.Usagef("escrow %s was refunded already", e.Address)
	case back == 0:
		return cli.WithHint(cli.Usagef("nothing is free in escrow %s", e.Address),
			"the outstanding part can be taken back from %s", l.When(e.Slot, market.Slot(e.Closable)))
	}
	call := program.Refund{Escrow: e.Address, Vault: account.VaultAddress(l.Genesis.Program, e.Address),
		Destination: svm.TokenAccount(e.RefundOwner, e.Mint),
		Mint:        e.Mint, Network: l.Genesis.Escrow}
	var signers []sign.Signer
	if !over {
		call.Buyer, signers = e.Buyer, []sign.Signer{buyer}
	}
	return l.Send(ctx, fmt.Sprintf("taking %s back from escrow %s to %s", l.Text(e.Mint, back, account.Params{}),
		e.Address, e.RefundOwner),
		[]svm.Instruction{svm.OpenTokenAccount(l.Peer.Key(), e.RefundOwner, e.Mint),
			call.Instruction(l.Genesis.Program)}, signers...)
}
