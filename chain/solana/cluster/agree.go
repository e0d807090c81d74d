package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	// Rounds is how often the endpoints are polled again if their states differ: one may be a block ahead.
	Rounds = 3
	// MaxLag is the maximum difference in slots of two agreeing endpoints.
	MaxLag = 150
)

// Held is an account as an endpoint shows it. Data is nil if the account does not exist, or has only lamports, which
// any wallet can send to any address.
type Held struct {
	Owner sign.Key
	Data  []byte
}

// Sight is one endpoint's answer for a slot.
type Sight struct {
	Slot     market.Slot
	Accounts []Held
}

// Equal reports whether two endpoints show the same accounts.
func (s Sight) Equal(o Sight) bool {
	for i, a := range s.Accounts {
		if a.Owner != o.Accounts[i].Owner || !bytes.Equal(a.Data, o.Accounts[i].Data) {
			return false
		}
	}
	return true
}

func sightAt(ctx context.Context, c *rpc.Client, level rpc.CommitmentType, keys []solanago.PublicKey) (Sight, error) {
	slot, accounts, err := ReadAccounts(ctx, c, level, keys)
	if err != nil {
		return Sight{}, err
	}
	s := Sight{Slot: slot, Accounts: make([]Held, len(accounts))}
	for i, a := range accounts {
		if a == nil {
			continue
		}
		if data := a.Data.GetBinary(); len(data) > 0 {
			s.Accounts[i] = Held{Owner: sign.Key(a.Owner), Data: data}
		}
	}
	return s, nil
}

// Agreed reads accounts, all of one slot. If several endpoints are configured, two must return the same bytes at slots
// that are close. An answer older than an earlier one at this level is not accepted. Everything else is chain.ErrDown.
// The slot is the lower one.
func (c *Cluster) Agreed(ctx context.Context, level rpc.CommitmentType, keys []solanago.PublicKey) (Sight, error) {
	c.mu.Lock()
	floor := c.seen[level] // as it is now: a later request may be answered earlier
	c.mu.Unlock()
	heard := make([][]Sight, len(c.endpoints))
	need := min(2, len(heard))
	for round := 1; ; round++ {
		answers := Everyone(ctx, c, func(ctx context.Context, e *rpc.Client) (Sight, error) {
			return sightAt(ctx, e, level, keys)
		},
			func(now []Answer[Sight]) bool {
				all, _ := c.believable(heard, now, floor)
				_, ok := agreement(all, need)
				return ok
			})
		var failures []error
		heard, failures = c.believable(heard, answers, floor)
		if s, ok := agreement(heard, need); ok {
			c.mu.Lock()
			c.seen[level] = max(c.seen[level], s.Slot)
			c.mu.Unlock()
			return s, nil
		}
		if err := ctx.Err(); err != nil {
			return Sight{}, err
		}
		if said := len(answers) - len(failures); said < need {
			return Sight{}, fmt.Errorf("%d of %d Solana RPC endpoints answered, want %d; "+
				"check that they run and keep up, or name others with --solana-rpc: %w: %w",
				said, len(answers), need, chain.ErrDown, errors.Join(failures...))
		}
		if round == Rounds {
			return Sight{}, fmt.Errorf("no two of %d Solana RPC endpoints show the same; "+
				"try again, and if it stays so, name others with --solana-rpc: %s%w",
				len(answers), c.apart(heard), chain.ErrDown)
		}
	}
}

// believable adds the endpoints' answers to their earlier ones, except answers from before a slot. The rest are
// failures.
func (c *Cluster) believable(
	heard [][]Sight, answers []Answer[Sight], floor market.Slot,
) (all [][]Sight, failures []error) {
	all = slices.Clone(heard)
	for i, a := range answers {
		if a.Err == nil && a.Value.Slot < floor {
			a.Err = fmt.Errorf("%s is behind: at slot %d, where %d was seen",
				c.endpoints[i].name, a.Value.Slot, floor)
		}
		if a.Err != nil {
			failures = append(failures, a.Err)
			continue
		}
		all[i] = append(slices.Clip(heard[i]), a.Value)
	}
	return all, failures
}

// agreement returns the newest Sight that enough endpoints had, in any round.
func agreement(heard [][]Sight, need int) (best Sight, ok bool) {
	take := func(s Sight) {
		if !ok || s.Slot > best.Slot {
			best, ok = s, true
		}
	}
	for i, mine := range heard {
		for _, a := range mine {
			if need == 1 {
				take(a)
			}
			for _, others := range heard[i+1:] {
				for _, b := range others {
					low, high := min(a.Slot, b.Slot), max(a.Slot, b.Slot)
					if high-low <= MaxLag && a.Equal(b) {
						take(Sight{Slot: low, Accounts: a.Accounts})
					}
				}
			}
		}
	}
	return best, ok
}

// apart returns the slots of the endpoints as text.
func (c *Cluster) apart(heard [][]Sight) (text string) {
	for i, h := range heard {
		if len(h) > 0 {
			text += fmt.Sprintf("%s at slot %d; ", c.endpoints[i].name, h[len(h)-1].Slot)
		}
	}
	return text
}

// ReadAccounts reads accounts at one slot, in order.
func ReadAccounts(
	ctx context.Context, c *rpc.Client, at rpc.CommitmentType, keys []solanago.PublicKey,
) (market.Slot, []*rpc.Account, error) {
	out, err := c.GetMultipleAccountsWithOpts(ctx, keys,
		&rpc.GetMultipleAccountsOpts{Encoding: solanago.EncodingBase64, Commitment: at})
	if err != nil {
		return 0, nil, err
	}
	if len(out.Value) != len(keys) {
		return 0, nil, fmt.Errorf("%d accounts for %d keys: %w", len(out.Value), len(keys), chain.ErrMalformed)
	}
	for _, a := range out.Value {
		if a != nil && (a.Data == nil || a.Data.GetRawJSON() != nil) {
			return 0, nil, fmt.Errorf("account without data: %w", chain.ErrMalformed)
		}
	}
	return market.Slot(out.Context.Slot), out.Value, nil
}
