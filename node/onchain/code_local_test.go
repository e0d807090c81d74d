package onchain

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

// lines is what a peer logs.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Whoever holds the key of an upgradeable program puts other code in its place. Peers warn of that key before, and
// stop afterwards; and once the program is final it can be done no more.
func TestAttackProgramSwapped(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	ctx := t.Context()
	admin, err := solana.NewAdmin(net.URL(), sign.Hash{}, net.Faucet())
	if err != nil {
		t.Fatal(err)
	}
	deploy := func(seed byte) market.Genesis {
		t.Helper()
		at := sign.NewPrivate([32]byte{seed, 1})
		if err := net.Deploy(ctx, at, program.ELF); err != nil {
			t.Fatal(err)
		}
		return market.Genesis{Program: at.Key(), Escrow: sign.Key{9}, Mint: sign.Key{8}, Code: svm.CodeHash(program.ELF)}
	}
	// follow reads the program as a peer does, until it has said what it found or stops.
	follow := func(g market.Genesis) (string, error) {
		t.Helper()
		key := sign.NewPrivate([32]byte{3})
		l, err := solana.New(solana.ConfigOf([]string{net.URL()}, g, key))
		if err != nil {
			t.Fatal(err)
		}
		var log lines
		w := New(Config{Genesis: g, Program: l, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- w.followCode(ctx) }()
		for {
			select {
			case err := <-ended:
				return log.String(), err
			case <-time.After(20 * time.Millisecond):
				if w.code.Load() != nil {
					cancel()
				}
			}
		}
	}
	evil := slices.Clone(program.ELF)
	i := bytes.Index(evil, []byte("starling"))
	if i < 0 {
		t.Fatal("the program holds no text to change")
	}
	evil[i] ^= 1

	g := deploy(1)
	if said, err := follow(g); err != nil || !strings.Contains(said, "by one key") || !strings.Contains(said, net.Faucet().Key().String()) {
		t.Errorf("of a program that one key can change it says %q, %v", said, err)
	}
	if err := net.Upgrade(ctx, g.Program, evil); err != nil {
		t.Fatal(err)
	}
	if _, err := follow(g); !errors.Is(err, ErrCode) {
		t.Errorf("of a program that was swapped: %v", err)
	}
	if err := net.Upgrade(ctx, g.Program, program.ELF); err != nil {
		t.Fatal(err)
	}

	vault, _ := svm.FindAddress(sign.Key{5}, []byte("a multisig's vault"))
	other := deploy(2)
	if err := admin.SetUpgradeAuthority(ctx, other.Program, vault); err != nil {
		t.Fatal(err)
	}
	if said, err := follow(other); err != nil || strings.Contains(said, "one key") || !strings.Contains(said, vault.String()) {
		t.Errorf("of a program that a multisig can change it says %q, %v", said, err)
	}
	if err := net.Upgrade(ctx, other.Program, evil); err == nil {
		t.Error("whoever handed it on upgraded it all the same")
	}

	if err := admin.SetUpgradeAuthority(ctx, g.Program, sign.Key{}); err != nil {
		t.Fatal(err)
	}
	if said, err := follow(g); err != nil || !strings.Contains(said, "is final") {
		t.Errorf("of a final program it says %q, %v", said, err)
	}
	if err := net.Upgrade(ctx, g.Program, evil); err == nil {
		t.Error("a final program was upgraded")
	}
	missing := g
	missing.Program = sign.Key{77}
	if _, err := follow(missing); !errors.Is(err, ErrCode) {
		t.Errorf("of no program: %v", err)
	}
}
