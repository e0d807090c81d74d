package programtest

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/mr-tron/base58"

	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
)

var (
	//go:embed package.json
	packageJSON []byte
	//go:embed package-lock.json
	packageLock []byte
	//go:embed litesvm.js
	script []byte
)

var addon = localnet.Addon{Name: "litesvm-1.5.0", PackageJSON: packageJSON, PackageLock: packageLock,
	File: "node_modules/litesvm-linux-x64-gnu/litesvm.linux-x64-gnu.node"}

const (
	installTimeout = 3 * time.Minute
	stopTimeout    = 10 * time.Second
	maxAnswer      = 32 << 20 // bytes
)

type liteSVM struct {
	mu      sync.Mutex // one request at a time
	in      io.WriteCloser
	out     *bufio.Scanner
	stderr  *bytes.Buffer
	process *exec.Cmd
}

// LiteSVM starts an engine that ends with the test. If it is not installed, it skips the test with the reason; with
// STARLING_LOCALNET=1 it installs it.
func LiteSVM(t testing.TB) Engine {
	t.Helper()
	if os.Getenv("STARLING_LOCALNET") != "1" && !addon.Installed() {
		t.Skipf("LiteSVM: %v; make test installs it, or set STARLING_LOCALNET=1", localnet.ErrNotInstalled)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	dir, err := addon.Install(ctx)
	if err != nil {
		t.Fatalf("installing LiteSVM: %v", err)
	}
	e, err := startLiteSVM(ctx, dir)
	if err != nil {
		t.Fatalf("starting LiteSVM: %v", err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Errorf("stopping LiteSVM: %v", err)
		}
	})
	return e
}

func startLiteSVM(ctx context.Context, dir string) (*liteSVM, error) {
	node, err := localnet.NodePath(ctx)
	if err != nil {
		return nil, err
	}
	e := &liteSVM{process: exec.Command(node, "-e", string(script)), stderr: &bytes.Buffer{}}
	e.process.Dir = dir // base of require
	e.process.Stderr = e.stderr
	e.process.WaitDelay = stopTimeout
	if e.in, err = e.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := e.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.out = bufio.NewScanner(out)
	e.out.Buffer(nil, maxAnswer)
	return e, e.process.Start()
}

// close ends the process by closing its input, and kills it after a timeout.
func (e *liteSVM) close() error {
	kill := time.AfterFunc(stopTimeout, func() { _ = e.process.Process.Kill() })
	defer kill.Stop()
	return errors.Join(e.in.Close(), e.process.Wait())
}

// request is the input of litesvm.js, answer its output.
type request struct {
	Do       string        `json:"do"`
	Key      []byte        `json:"key,omitempty"`
	Data     []byte        `json:"data,omitempty"`
	Lamports uint64        `json:"lamports,omitempty"`
	Slot     uint64        `json:"slot,omitempty"`
	Steps    []stepRequest `json:"steps,omitempty"`
	Accounts []accountJSON `json:"accounts,omitempty"`
}

type stepRequest struct {
	Slot uint64   `json:"slot"`
	Data []byte   `json:"data"`
	Keys [][]byte `json:"keys"`
}

type accountJSON struct {
	Key      []byte `json:"key,omitempty"`
	Lamports uint64 `json:"lamports"`
	Owner    []byte `json:"owner"`
	Data     []byte `json:"data"`
}

type answer struct {
	Failed    string          `json:"failed"`
	Blockhash string          `json:"blockhash"`
	Slot      uint64          `json:"slot"`
	Err       json.RawMessage `json:"err"`
	Logs      []string        `json:"logs"`
	Units     uint64          `json:"units"`
	Account   *accountJSON    `json:"account"`
	Accounts  []*accountJSON  `json:"accounts"`
	Steps     []answer        `json:"steps"`
}

func (e *liteSVM) ask(ctx context.Context, r request) (answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := e.in.Write(append(line, '\n')); err != nil {
		return answer{}, fmt.Errorf("LiteSVM: %s: %w", r.Do, err)
	}
	if !e.out.Scan() {
		return answer{}, fmt.Errorf("LiteSVM: %s: no answer: %w", r.Do, errors.Join(e.out.Err(), io.ErrUnexpectedEOF))
	}
	var a answer
	if err := json.Unmarshal(e.out.Bytes(), &a); err != nil {
		return answer{}, fmt.Errorf("LiteSVM: %s: %w", r.Do, err)
	}
	if a.Failed != "" {
		return answer{}, fmt.Errorf("LiteSVM: %s: %s", r.Do, a.Failed)
	}
	return a, nil
}

func (e *liteSVM) Name() string { return "LiteSVM" }

func (e *liteSVM) Deploy(ctx context.Context, program sign.Private, elf []byte) error {
	key := program.Key()
	_, err := e.ask(ctx, request{Do: "program", Key: key[:], Data: elf})
	return err
}

func (e *liteSVM) Fund(ctx context.Context, to sign.Key, lamports uint64) error {
	_, err := e.ask(ctx, request{Do: "fund", Key: to[:], Lamports: lamports})
	return err
}

func (e *liteSVM) Run(ctx context.Context, instructions []svm.Instruction, signers ...sign.Signer) (Result, error) {
	a, err := e.ask(ctx, request{Do: "blockhash"})
	if err != nil {
		return Result{}, err
	}
	raw, err := signed(instructions, a.Blockhash, signers)
	if err != nil {
		return Result{}, err
	}
	if a, err = e.ask(ctx, request{Do: "send", Data: raw}); err != nil {
		return Result{}, err
	}
	text, err := errText(a.Err)
	return Result{Err: text, Logs: a.Logs, Units: a.Units}, err
}

// signed returns the transaction's wire form with a blockhash in text form.
func signed(instructions []svm.Instruction, blockhash string, signers []sign.Signer) ([]byte, error) {
	hash, err := base58.Decode(blockhash)
	if err != nil || len(hash) != sign.HashSize {
		return nil, fmt.Errorf("malformed blockhash %q", blockhash)
	}
	_, raw, err := transaction.Sign(instructions, nil, sign.Hash(hash), signers...)
	return raw, err
}

func (e *liteSVM) Account(ctx context.Context, key sign.Key) (*Account, error) {
	a, err := e.ask(ctx, request{Do: "account", Key: key[:]})
	if err != nil {
		return nil, err
	}
	return a.Account.account()
}

// account returns nil if the account does not exist.
func (a *accountJSON) account() (*Account, error) {
	if a == nil || a.Lamports == 0 {
		return nil, nil
	}
	if len(a.Owner) != sign.KeySize {
		return nil, fmt.Errorf("LiteSVM: owner of %d bytes", len(a.Owner))
	}
	return &Account{Lamports: a.Lamports, Owner: sign.Key(a.Owner), Data: a.Data}, nil
}

func (e *liteSVM) Slot(ctx context.Context) (uint64, error) {
	a, err := e.ask(ctx, request{Do: "slot"})
	return a.Slot, err
}

// Warp sets the clock.
func (e *liteSVM) Warp(ctx context.Context, slot uint64) error {
	_, err := e.ask(ctx, request{Do: "warp", Slot: slot})
	return err
}
