package solana

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// ProgramAddress is the canonical address that the program signs for with these seeds, and its bump.
func ProgramAddress(program sign.Key, seeds ...[]byte) (sign.Key, uint8, error) {
	address, bump, err := solanago.FindProgramAddress(seeds, solanago.PublicKey(program))
	if err != nil {
		return sign.Key{}, 0, fmt.Errorf("program address: %w", err)
	}
	return sign.Key(address), bump, nil
}

// Sizes of the upgradeable loader's accounts, and how much of a program fits into one transaction.
const (
	loaderBufferHead  = 37
	loaderProgramSize = 36
	loaderChunk       = 900
	deployers         = 32 // concurrent transactions
)

// loaderBuffer is the first field of a buffer's account.
const loaderBuffer = 1

// Instruction numbers of the upgradeable loader.
const (
	loaderInitializeBuffer = 0
	loaderWrite            = 1
	loaderDeploy           = 2
	loaderUpgrade          = 3
	loaderSetAuthority     = 4
)

// Deploy puts a program on chain under the address of program's key, which is of no use afterwards, through the
// upgradeable loader. The payer's key may upgrade it.
func (a *Admin) Deploy(ctx context.Context, program sign.Signer, elf []byte) error {
	payer := solanago.PublicKey(a.payer.Key())
	buffer, err := solanago.NewRandomPrivateKey()
	if err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	bufferSigner := sign.NewPrivate([32]byte(buffer[:32]))
	loader := solanago.BPFLoaderUpgradeableProgramID
	create, err := a.createAccount(ctx, buffer.PublicKey(), uint64(loaderBufferHead+len(elf)), loader)
	if err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	err = a.run(ctx, []solanago.Instruction{create, solanago.NewInstruction(loader, solanago.AccountMetaSlice{
		solanago.Meta(buffer.PublicKey()).WRITE(), solanago.Meta(payer)}, loaderData(loaderInitializeBuffer))},
		bufferSigner)
	if err != nil {
		return fmt.Errorf("deploying: making a buffer: %w", err)
	}
	if err := a.upload(ctx, buffer.PublicKey(), elf); err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	return a.DeployBuffer(ctx, program, sign.Key(buffer.PublicKey()), len(elf))
}

// DeployBuffer is the last step of Deploy: it makes a program of size bytes out of a buffer of the upgradeable loader.
// The buffer's authority must be the payer.
func (a *Admin) DeployBuffer(ctx context.Context, program sign.Signer, buffer sign.Key, size int) error {
	payer, loader := solanago.PublicKey(a.payer.Key()), solanago.BPFLoaderUpgradeableProgramID
	id := solanago.PublicKey(program.Key())
	data, _, err := solanago.FindProgramAddress([][]byte{id[:]}, loader)
	if err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	create, err := a.createAccount(ctx, id, loaderProgramSize, loader)
	if err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	err = a.run(ctx, []solanago.Instruction{create, solanago.NewInstruction(loader, solanago.AccountMetaSlice{
		solanago.Meta(payer).WRITE().SIGNER(), solanago.Meta(data).WRITE(), solanago.Meta(id).WRITE(),
		solanago.Meta(solanago.PublicKey(buffer)).WRITE(), solanago.Meta(solanago.SysVarRentPubkey),
		solanago.Meta(solanago.SysVarClockPubkey), solanago.Meta(solanago.SystemProgramID),
		solanago.Meta(payer).SIGNER(),
	}, binary.LittleEndian.AppendUint64(loaderData(loaderDeploy), uint64(size)))}, program)
	if err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	return a.nextSlot(ctx) // from which it can be called
}

// LoaderBuffer is the upgradeable loader, and the data of a buffer account of its with a program.
func LoaderBuffer(authority sign.Key, elf []byte) (loader sign.Key, data []byte) {
	data = append(loaderData(loaderBuffer), 1) // there is an authority
	return sign.Key(solanago.BPFLoaderUpgradeableProgramID), append(append(data, authority[:]...), elf...)
}

// nextSlot waits until the newest confirmed slot is another.
func (a *Admin) nextSlot(ctx context.Context) error {
	from, err := a.ledger.Slot(ctx)
	tick := time.NewTicker(confirmFirst)
	defer tick.Stop()
	for err == nil {
		var now market.Slot
		if now, err = a.ledger.Slot(ctx); err == nil && now > from {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return err
}

// CreateNetwork creates the account of a network with these parameters, its mints' pools, the treasury's token
// accounts, and the emission's account, unless they exist. The ledger must be configured for the network.
func (l *Wallet) CreateNetwork(ctx context.Context, p account.Params) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if l.cfg.Program.IsZero() || account.NetworkAddress(l.cfg.Program, p) != l.cfg.Network {
		return fmt.Errorf("solana: %w: account %s: not of these parameters", cluster.ErrConfig, l.cfg.Network)
	}
	payer := l.cfg.Key.Key()
	missing := []svm.Instruction{program.InitNetwork{Payer: payer,
		Network: l.cfg.Network, Params: p}.Instruction(l.cfg.Program)}
	keys := []solanago.PublicKey{solanago.PublicKey(l.cfg.Network)}
	for i, m := range p.Mints {
		pool := account.PoolAddress(l.cfg.Program, l.cfg.Network, m.Mint)
		keys = append(keys, solanago.PublicKey(pool))
		missing = append(missing, program.InitPool{Payer: payer, Network: l.cfg.Network, Mint: m.Mint, Pool: pool,
			Index: uint8(i)}.Instruction(l.cfg.Program))
	}
	if !p.Treasury.IsZero() {
		for _, m := range p.Mints {
			keys = append(keys, solanago.PublicKey(svm.TokenAccount(p.Treasury, m.Mint)))
			missing = append(missing, svm.OpenTokenAccount(payer, p.Treasury, m.Mint))
		}
	}
	if p.Votes.Emission > 0 {
		from := account.EmissionAddress(l.cfg.Program, l.cfg.Network)
		keys = append(keys, solanago.PublicKey(from))
		missing = append(missing, program.InitEmission{Payer: payer, Network: l.cfg.Network, Mint: p.StakeMint,
			Emission: from}.Instruction(l.cfg.Program))
	}
	accounts, err := l.accounts(ctx, keys...)
	for i, in := range missing {
		// one by one: together they may not fit
		if err == nil && (accounts[i] == nil || len(accounts[i].Data.GetBinary()) == 0) {
			_, err = l.Run(ctx, []svm.Instruction{in})
		}
	}
	if err != nil {
		return fmt.Errorf("creating network %s: %w", p.Network, err)
	}
	return nil
}

// upload writes the program into the buffer, several pieces in parallel.
func (a *Admin) upload(ctx context.Context, buffer solanago.PublicKey, elf []byte) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	free := make(chan struct{}, deployers)
	for at := 0; at < len(elf); at += loaderChunk {
		piece := elf[at:min(len(elf), at+loaderChunk)]
		data := binary.LittleEndian.AppendUint32(loaderData(loaderWrite), uint32(at))
		data = append(binary.LittleEndian.AppendUint64(data, uint64(len(piece))), piece...)
		write := solanago.NewInstruction(solanago.BPFLoaderUpgradeableProgramID, solanago.AccountMetaSlice{
			solanago.Meta(buffer).WRITE(), solanago.Meta(solanago.PublicKey(a.payer.Key())).SIGNER()}, data)
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if err := a.run(ctx, []solanago.Instruction{write}); err != nil {
				mu.Lock()
				failed = errors.Join(failed, fmt.Errorf("writing %d bytes at %d: %w", len(piece), at, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

func loaderData(number uint32) []byte { return binary.LittleEndian.AppendUint32(nil, number) }

// createAccount is the system program's instruction for a rent-exempt account that the payer pays for.
func (a *Admin) createAccount(
	ctx context.Context, address solanago.PublicKey, size uint64, owner solanago.PublicKey,
) (solanago.Instruction, error) {
	rent, err := cluster.Ask(ctx, a.cluster, func(ctx context.Context, c *rpc.Client) (uint64, error) {
		return c.GetMinimumBalanceForRentExemption(ctx, size, rpc.CommitmentConfirmed)
	})
	if err != nil {
		return nil, err
	}
	data := binary.LittleEndian.AppendUint32(nil, 0) // create account
	data = binary.LittleEndian.AppendUint64(data, rent)
	data = binary.LittleEndian.AppendUint64(data, size)
	data = append(data, owner[:]...)
	return solanago.NewInstruction(solanago.SystemProgramID, solanago.AccountMetaSlice{
		solanago.Meta(solanago.PublicKey(a.payer.Key())).WRITE().SIGNER(), solanago.Meta(address).WRITE().SIGNER()},
		data), nil
}
