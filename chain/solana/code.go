package solana

import (
	"context"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Deployed reads the code of the network's program and its upgrade authority, confirmed, as two endpoints agree if two
// are configured. It returns chain.ErrNotFound if there is no such program, and chain.ErrMalformed if the upgradeable
// loader did not deploy it.
func (l *Accounts) Deployed(ctx context.Context) (svm.Deployed, error) {
	if l.cfg.Program.IsZero() {
		return svm.Deployed{}, errProgram
	}
	return l.deployed(ctx, l.cfg.Program)
}

func (l *Accounts) deployed(ctx context.Context, id sign.Key) (svm.Deployed, error) {
	s, err := l.cluster.Agreed(ctx, rpc.CommitmentConfirmed, []solanago.PublicKey{solanago.PublicKey(id),
		solanago.PublicKey(svm.DataAddress(id))})
	if err != nil {
		return svm.Deployed{}, fmt.Errorf("reading program %s: %w", id, err)
	}
	account, data := s.Accounts[0], s.Accounts[1]
	switch {
	case account.Data == nil:
		return svm.Deployed{}, fmt.Errorf("program %s: %w", id, chain.ErrNotFound)
	case account.Owner != svm.LoaderProgram || data.Owner != svm.LoaderProgram:
		return svm.Deployed{}, fmt.Errorf("program %s belongs to %s, not to the upgradeable loader: %w",
			id, account.Owner, chain.ErrMalformed)
	}
	d, err := svm.ParseDeployed(id, account.Data, data.Data)
	if err != nil {
		return d, fmt.Errorf("%w: %w", chain.ErrMalformed, err)
	}
	return d, nil
}

// Deployed reads a program as Ledger.Deployed does.
func (a *Admin) Deployed(ctx context.Context, id sign.Key) (svm.Deployed, error) {
	return a.ledger.deployed(ctx, id)
}

// SetUpgradeAuthority transfers the payer's upgrade authority over a program to another address. If the address is
// zero, it removes the authority permanently.
func (a *Admin) SetUpgradeAuthority(ctx context.Context, id, to sign.Key) error {
	accounts := solanago.AccountMetaSlice{solanago.Meta(solanago.PublicKey(svm.DataAddress(id))).WRITE(),
		solanago.Meta(solanago.PublicKey(a.payer.Key())).SIGNER()}
	if !to.IsZero() {
		accounts = append(accounts, solanago.Meta(solanago.PublicKey(to)))
	}
	if err := a.run(ctx, []solanago.Instruction{solanago.NewInstruction(solanago.PublicKey(svm.LoaderProgram),
		accounts, loaderData(loaderSetAuthority))}); err != nil {
		return fmt.Errorf("handing on the upgrade authority of %s: %w", id, err)
	}
	return nil
}

// UpgradeBuffer puts the code in a buffer of the upgradeable loader in a program's place. The payer is the authority of
// both.
func (a *Admin) UpgradeBuffer(ctx context.Context, id, buffer sign.Key) error {
	payer := solanago.PublicKey(a.payer.Key())
	err := a.run(ctx, []solanago.Instruction{solanago.NewInstruction(solanago.PublicKey(svm.LoaderProgram),
		solanago.AccountMetaSlice{
			solanago.Meta(solanago.PublicKey(svm.DataAddress(id))).WRITE(),
			solanago.Meta(solanago.PublicKey(id)).WRITE(), solanago.Meta(solanago.PublicKey(buffer)).WRITE(),
			solanago.Meta(payer).WRITE(), solanago.Meta(solanago.SysVarRentPubkey),
			solanago.Meta(solanago.SysVarClockPubkey), solanago.Meta(payer).SIGNER(),
		}, loaderData(loaderUpgrade))})
	if err != nil {
		return fmt.Errorf("upgrading %s: %w", id, err)
	}
	return a.nextSlot(ctx)
}
