package drill

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/testnet"
)

// SlashReport is the result of a double sale, as slash.json. Amounts are base units.
type SlashReport struct {
	Network  string               `json:"network"`
	Peers    []testnet.PeerReport `json:"peers"`
	Provider string               `json:"provider"`
	Unit     string               `json:"unit"`
	Evidence string               `json:"evidence"`
	Found    time.Time            `json:"found"` // by the third peer
	From     market.Slot          `json:"from"`  // slots sold twice, according to the receipts
	To       market.Slot          `json:"to"`

	StakeBefore  market.Amount `json:"stake_before"`
	StakeAfter   market.Amount `json:"stake_after"`
	Burned       market.Amount `json:"burned"`
	Buyers       [2]Victim     `json:"buyers"`
	Reporter     Reporter      `json:"reporter"`
	SupplyBefore market.Amount `json:"supply_before"` // of the token, before the slash
	SupplyAfter  market.Amount `json:"supply_after"`
	Transactions []chain.TxID  `json:"transactions"`
	// Seconds of wall time by stage.
	Seconds map[string]float64 `json:"seconds"`
}

// Victim is a buyer of a unit that was also sold to the other buyer.
type Victim struct {
	Name     string        `json:"name"`
	Key      string        `json:"key"`
	Lease    string        `json:"lease"`
	Receipts int           `json:"receipts"`
	From     market.Slot   `json:"from"` // slots of the lease's receipts
	To       market.Slot   `json:"to"`
	Loss     market.Amount `json:"loss"`    // owed to the provider by the last receipt
	Payment  market.Amount `json:"payment"` // from the stake, according to the chain
}

// Reporter is the submitter of the proof.
type Reporter struct {
	Name    string        `json:"name"`
	Key     string        `json:"key"`
	Payment market.Amount `json:"payment"`
}

// submit submits the proof to the program from the third peer.
func (s *slash) submit(ctx context.Context) (err error) {
	third := s.net.Peers[slashThird]
	s.say("\n5. %s submits the proof", third.Name)
	r := s.report
	if r.SupplyBefore, err = s.net.Chain().Supply(ctx); err != nil {
		return err
	}
	var before map[sign.Key]market.Amount
	if before, err = s.holdings(ctx); err != nil {
		return err
	}
	var out proof.Outcome
	if err := s.starling(ctx, third, &out, "proof", "submit", s.file); err != nil {
		return err
	}
	if out.Already || out.Reward == nil || len(out.Paid) != 2 {
		return fmt.Errorf("another peer slashed the provider, in slot %d", out.Slot)
	}
	r.Burned, r.Transactions = market.Amount(out.Burned), out.Transactions
	said := map[sign.Key]market.Amount{}
	for _, p := range append(out.Paid, *out.Reward) {
		said[p.Wallet] += market.Amount(p.Amount)
	}
	var got map[sign.Key]market.Amount
	if got, err = s.gained(ctx, before, said); err != nil {
		return err
	}
	for i := range r.Buyers {
		r.Buyers[i].Payment = got[s.net.Peers[slashBuyerA+i].Key]
	}
	r.Reporter = Reporter{Name: third.Name, Key: third.Key.String(), Payment: got[third.Key]}
	if r.StakeAfter, err = s.staked(ctx); err != nil {
		return err
	}
	r.SupplyAfter, err = s.net.Chain().Supply(ctx)
	return err
}

// holdings are the tokens of the buyers' and the third peer's own keys, the recipients of slashed stakes.
func (s *slash) holdings(ctx context.Context) (map[sign.Key]market.Amount, error) {
	l, err := s.net.Ledger()
	if err != nil {
		return nil, err
	}
	out := map[sign.Key]market.Amount{}
	for _, p := range s.net.Buyers() {
		n, err := l.Balance(ctx, p.Key)
		if err != nil && !errors.Is(err, chain.ErrNotFound) {
			return nil, fmt.Errorf("reading the balance of %s: %w", p.Name, err)
		}
		out[p.Key] = n
	}
	return out, nil
}

// gained waits until the reported payment is final, and returns the received amount.
func (s *slash) gained(
	ctx context.Context, before, said map[sign.Key]market.Amount,
) (map[sign.Key]market.Amount, error) {
	for {
		now, err := s.holdings(ctx)
		if err != nil {
			return nil, err
		}
		missing := ""
		for key, n := range said {
			if now[key] < before[key]+n {
				missing = s.name(key)
			}
		}
		for key := range now {
			now[key] -= before[key]
		}
		if missing == "" {
			return now, nil
		}
		if err := pause(ctx, "the chain does not show the payment to "+missing); err != nil {
			return nil, err
		}
	}
}

// check shows the table and returns an error for each wrong row.
func (s *slash) check(context.Context) error {
	r, text := s.report, s.net.Genesis.FormatAmount
	s.say("\n6. The outcome")
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(cells ...any) { fmt.Fprintf(w, "   %v\t%v\t%v\t%v\t\n", cells...) }
	row("", "before", "after", "")
	row("stake", text(r.StakeBefore), text(r.StakeAfter), "")
	row("token supply", text(r.SupplyBefore), text(r.SupplyAfter), "")
	row("", "lost", "paid out of the stake", "")
	paid := r.Burned + r.Reporter.Payment
	for _, b := range r.Buyers {
		row(b.Name, text(b.Loss), text(b.Payment), "buyer")
		paid += b.Payment
	}
	row(r.Reporter.Name, "", text(r.Reporter.Payment), "reporter")
	row("nobody", "", text(r.Burned), "burned")
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case r.StakeBefore == 0 || r.StakeAfter != 0:
		return fmt.Errorf("the stake was %s and is %s", text(r.StakeBefore), text(r.StakeAfter))
	case r.Provider != s.net.Peers[slashSeller].Key.String():
		return fmt.Errorf("the proof is against provider %s", r.Provider)
	case paid != r.StakeBefore:
		return fmt.Errorf("payments and burn add up to %s of a stake of %s", text(paid), text(r.StakeBefore))
	case 2*r.Burned < r.StakeBefore || r.SupplyBefore < r.SupplyAfter+r.Burned:
		return fmt.Errorf("%s burned, and the supply went from %s to %s",
			text(r.Burned), text(r.SupplyBefore), text(r.SupplyAfter))
	case r.Reporter.Payment == 0:
		return errors.New("the submitter received no payment")
	}
	for _, b := range r.Buyers {
		if b.Loss == 0 || b.Payment < b.Loss {
			return fmt.Errorf("%s lost %s and got %s", b.Name, text(b.Loss), text(b.Payment))
		}
	}
	return nil
}
