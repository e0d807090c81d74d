package solana

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	// lookPage is the number of tranches read at once: the limit of one getMultipleAccounts, less escrow and vault.
	lookPage = 98
	// lookRounds is how often the endpoints are asked again when they show different states: one may be a block
	// further.
	lookRounds = 3
	// maxLag is how many slots two endpoints may be apart that agree.
	maxLag = 150
)

var errProgram = fmt.Errorf("solana: %w: the network has no program", errConfig)

// held is an account as an endpoint shows it; nil data: there is none, or only lamports, which anybody can send
// anywhere.
type held struct {
	owner sign.Key
	data  []byte
}

// sight is one endpoint's answer for a slot.
type sight struct {
	slot     market.Slot
	accounts []held
}

func (s sight) equal(o sight) bool {
	for i, a := range s.accounts {
		if a.owner != o.accounts[i].owner || !bytes.Equal(a.data, o.accounts[i].data) {
			return false
		}
	}
	return true
}

func sightAt(ctx context.Context, c *rpc.Client, level escrow.Level, keys []solanago.PublicKey) (sight, error) {
	at := rpc.CommitmentConfirmed
	if level == escrow.Finalized {
		at = rpc.CommitmentFinalized
	}
	slot, accounts, err := readAccounts(ctx, c, at, keys)
	if err != nil {
		return sight{}, err
	}
	s := sight{slot: slot, accounts: make([]held, len(accounts))}
	for i, a := range accounts {
		if a == nil {
			continue
		}
		if data := a.Data.GetBinary(); len(data) > 0 {
			s.accounts[i] = held{owner: sign.Key(a.Owner), data: data}
		}
	}
	return s, nil
}

// agreed reads accounts, all of one slot. If several endpoints are configured, two must return the same bytes at slots
// that are close. An answer older than an earlier one at this level is not accepted. Everything else is chain.ErrDown.
// The slot is the lower one.
func (l *Ledger) agreed(ctx context.Context, level escrow.Level, keys []solanago.PublicKey) (sight, error) {
	l.mu.Lock()
	floor := l.seen[level] // as it is now: a later request may be answered earlier
	l.mu.Unlock()
	heard := make([][]sight, len(l.pool.endpoints))
	need := min(2, len(heard))
	for round := 1; ; round++ {
		answers := everyone(ctx, l.pool, func(ctx context.Context, c *rpc.Client) (sight, error) {
			return sightAt(ctx, c, level, keys)
		},
			func(now []answer[sight]) bool {
				all, _ := l.believable(heard, now, floor)
				_, ok := agreement(all, need)
				return ok
			})
		var failures []error
		heard, failures = l.believable(heard, answers, floor)
		if s, ok := agreement(heard, need); ok {
			l.mu.Lock()
			l.seen[level] = max(l.seen[level], s.slot)
			l.mu.Unlock()
			return s, nil
		}
		if err := ctx.Err(); err != nil {
			return sight{}, err
		}
		if said := len(answers) - len(failures); said < need {
			return sight{}, fmt.Errorf("%d of %d Solana RPC endpoints answer, %d must; "+
				"check that they run and keep up, or name others with --solana-rpc: %w: %w",
				said, len(answers), need, chain.ErrDown, errors.Join(failures...))
		}
		if round == lookRounds {
			return sight{}, fmt.Errorf("no two of %d Solana RPC endpoints show the same; "+
				"try again, and if it stays so, name others with --solana-rpc: %s%w",
				len(answers), l.apart(heard), chain.ErrDown)
		}
	}
}

// believable adds the endpoints' answers to their earlier ones, except answers from before a slot. The rest are
// failures.
func (l *Ledger) believable(
	heard [][]sight, answers []answer[sight], floor market.Slot,
) (all [][]sight, failures []error) {
	all = slices.Clone(heard)
	for i, a := range answers {
		if a.err == nil && a.value.slot < floor {
			a.err = fmt.Errorf("%s is behind: at slot %d, where %d was seen",
				l.pool.endpoints[i].name, a.value.slot, floor)
		}
		if a.err != nil {
			failures = append(failures, a.err)
			continue
		}
		all[i] = append(slices.Clip(heard[i]), a.value)
	}
	return all, failures
}

// agreement is the newest sight that enough endpoints had, whichever round it was in.
func agreement(heard [][]sight, need int) (best sight, ok bool) {
	take := func(s sight) {
		if !ok || s.slot > best.slot {
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
					low, high := min(a.slot, b.slot), max(a.slot, b.slot)
					if high-low <= maxLag && a.equal(b) {
						take(sight{slot: low, accounts: a.accounts})
					}
				}
			}
		}
	}
	return best, ok
}

// apart says where each endpoint was.
func (l *Ledger) apart(heard [][]sight) (text string) {
	for i, h := range heard {
		if len(h) > 0 {
			text += fmt.Sprintf("%s at slot %d; ", l.pool.endpoints[i].name, h[len(h)-1].slot)
		}
	}
	return text
}

// Look implements escrow.Ledger. A later Look at a level is never of an earlier slot than those that were over when it
// began. It returns chain.ErrMalformed for an account that is no escrow of this network. More than 98 tranches are read
// in parts, between which neither escrow nor vault changed. That suffices: moving money of a tranche changes its
// escrow, and its sums never return to earlier values.
func (l *Ledger) Look(ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level) (escrow.View, error) {
	if l.cfg.Program.IsZero() {
		return escrow.View{}, errProgram
	}
	if level != escrow.Confirmed && level != escrow.Finalized {
		return escrow.View{}, fmt.Errorf("solana: %w: a look of level %d", errConfig, level)
	}
	s, err := l.whole(ctx, at, tranches, level)
	if err != nil {
		return escrow.View{}, fmt.Errorf("looking at escrow %s: %w", at, err)
	}
	v, err := l.view(at, s, tranches)
	if err != nil {
		return escrow.View{}, fmt.Errorf("looking at escrow %s: %w", at, err)
	}
	return v, nil
}

// whole reads escrow, vault and tranches, in as many parts as it takes.
func (l *Ledger) whole(ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level) (sight, error) {
	for range lookRounds {
		s, still, err := l.parts(ctx, at, tranches, level)
		if err != nil || still {
			return s, err
		}
	}
	return sight{}, fmt.Errorf("it changes while its %d tranches are read; try again: %w", len(tranches), chain.ErrDown)
}

// parts reads them once; still is false when escrow or vault changed meanwhile.
func (l *Ledger) parts(
	ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level,
) (s sight, still bool, err error) {
	for first := 0; first == 0 || first < len(tranches); first += lookPage {
		keys := []solanago.PublicKey{solanago.PublicKey(at),
			solanago.PublicKey(program.VaultAddress(l.cfg.Program, at))}
		for _, i := range tranches[first:min(first+lookPage, len(tranches))] {
			keys = append(keys, solanago.PublicKey(program.TrancheAddress(l.cfg.Program, at, i)))
		}
		part, err := l.agreed(ctx, level, keys)
		if err != nil {
			return sight{}, false, err
		}
		if first == 0 {
			s = part
			continue
		}
		if !(sight{accounts: s.accounts[:2]}).equal(sight{accounts: part.accounts[:2]}) {
			return sight{}, false, nil
		}
		s.accounts = append(s.accounts, part.accounts[2:]...)
	}
	return s, true, nil
}

// view parses the agreed accounts: escrow, vault, tranches.
func (l *Ledger) view(at sign.Key, s sight, tranches []uint16) (escrow.View, error) {
	v := escrow.View{Slot: s.slot, Tranches: map[uint16]program.Tranche{}}
	if s.accounts[0].data == nil {
		return v, nil
	}
	e, err := l.escrowAt(at, s.accounts[0])
	if err != nil {
		return escrow.View{}, err
	}
	vault, err := program.UnmarshalToken(s.accounts[1].data)
	if err != nil || s.accounts[1].owner != program.TokenProgram || vault.Mint != e.Mint || vault.Owner != at {
		return escrow.View{}, fmt.Errorf("its vault is none: %w", chain.ErrMalformed)
	}
	v.Escrow, v.Vault = &e, market.Amount(vault.Amount)
	for i, index := range tranches {
		a := s.accounts[2+i]
		if a.data == nil {
			continue
		}
		t, err := program.UnmarshalTranche(a.data)
		if err != nil || a.owner != l.cfg.Program || t.Escrow != at || t.Index != index {
			return escrow.View{}, fmt.Errorf("its tranche %d is none: %w", index, chain.ErrMalformed)
		}
		v.Tranches[index] = t
	}
	return v, nil
}

// escrowAt parses an escrow of this network, and checks that its address follows from its content.
func (l *Ledger) escrowAt(at sign.Key, a held) (program.Escrow, error) {
	e, err := program.UnmarshalEscrow(a.data)
	if err != nil || a.owner != l.cfg.Program || e.Vault != program.VaultAddress(l.cfg.Program, at) ||
		at != program.EscrowAddress(l.cfg.Program, e.Network, e.Buyer, sign.Hash(e.Order), e.Opened) {
		return program.Escrow{}, fmt.Errorf("account %s is no escrow of program %s: %w",
			at, l.cfg.Program, chain.ErrMalformed)
	}
	if e.Network != l.cfg.Network {
		return program.Escrow{}, fmt.Errorf("escrow %s is of another network (%s): %w",
			at, e.Network, chain.ErrMalformed)
	}
	return e, nil
}

// Network reads the network's account, confirmed: its address, which the genesis names, commits to its
// parameters. chain.ErrNotFound: nobody created it.
func (l *Ledger) Network(ctx context.Context) (program.Network, error) {
	if l.cfg.Program.IsZero() {
		return program.Network{}, errProgram
	}
	s, err := l.agreed(ctx, escrow.Confirmed, []solanago.PublicKey{solanago.PublicKey(l.cfg.Network)})
	if err != nil {
		return program.Network{}, fmt.Errorf("reading the network's account: %w", err)
	}
	a := s.accounts[0]
	if a.data == nil {
		return program.Network{}, fmt.Errorf("the network's account %s: %w", l.cfg.Network, chain.ErrNotFound)
	}
	n, err := program.UnmarshalNetwork(a.data)
	if err != nil || a.owner != l.cfg.Program || program.NetworkAddress(l.cfg.Program, n.Params) != l.cfg.Network ||
		n.Params.Chain != l.cfg.Genesis && !l.cfg.Genesis.IsZero() {
		return program.Network{}, fmt.Errorf("account %s is not this network's: %w", l.cfg.Network, chain.ErrMalformed)
	}
	return n, nil
}
