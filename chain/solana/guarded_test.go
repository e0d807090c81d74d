package solana

import (
	"errors"
	"strconv"
	"testing"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

var guardedDomain = sign.Domain{Network: "test", Program: sign.Key{7}}

// guardedCalls are those of a claim of 100 under the word of so many keys.
func guardedCalls(t testing.TB, keys int) []svm.Instruction {
	t.Helper()
	var signers []sign.Signer
	var of []sign.Key
	for i := range keys {
		k := sign.NewPrivate([32]byte{byte(i + 1)})
		signers, of = append(signers, k), append(of, k.Key())
	}
	set, err := market.NewKeySet(uint8(keys), of...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := verify.SignVoucher(guardedDomain, verify.Voucher{Version: verify.VoucherVersion, Lease: market.LeaseID{1}, Escrow: sign.Key{2}, Seq: 1, Cumulative: 100}, set, signers...)
	if err != nil {
		t.Fatal(err)
	}
	return []svm.Instruction{
		svm.OpenTokenAccount(sign.NewPrivate([32]byte{99}).Key(), sign.Key{5}, sign.Key{4}), program.VoucherSigned(guardedDomain, v).Instruction(),
		program.Claim{Escrow: sign.Key{2}, Tranche: sign.Key{3}, Vault: sign.Key{8}, Destination: sign.Key{9}, Mint: sign.Key{4}, Network: sign.Key{6}, Ed: 1,
			Leaf: tranche.Leaf{Version: tranche.LeafVersion, Start: 1, End: 2}}.Instruction(sign.Key{7}),
	}
}

func guardedRaw(t testing.TB, calls []svm.Instruction) []byte {
	t.Helper()
	_, raw, err := transaction.Sign(calls, nil, sign.Hash{9}, sign.NewPrivate([32]byte{99}))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// told is what an endpoint says of an account of a transaction before and after.
func told(account uint16, mint sign.Key, before, after uint64) *rpc.TransactionMeta {
	of := func(n uint64) []rpc.TokenBalance {
		return []rpc.TokenBalance{{AccountIndex: account, Mint: [32]byte(mint), UiTokenAmount: &rpc.UiTokenAmount{Amount: strconv.FormatUint(n, 10)}}}
	}
	return &rpc.TransactionMeta{PreTokenBalances: of(before), PostTokenBalances: of(after)}
}

// Of a transaction nothing counts but one claim for this network, under the word of several, which took out of its vault what was taken,
// and no more than was signed.
func TestGuardedIn(t *testing.T) {
	t.Parallel()
	two := guardedCalls(t, 2)
	more := func(in svm.Instruction) []svm.Instruction { return append(guardedCalls(t, 2), in) }
	other := two[1]
	other.Data = append([]byte(nil), other.Data...)
	other.Data[len(other.Data)-verify.VoucherSize+40] ^= 1 // the escrow
	for what, c := range map[string]struct {
		calls         []svm.Instruction
		mint, network sign.Key
		before, after uint64
		ok            bool
	}{
		"a claim":                     {two, sign.Key{4}, sign.Key{6}, 1000, 902, true},
		"with a memo":                 {more(svm.Instruction{Program: sign.Key(solanago.MemoProgramID), Data: []byte("x")}), sign.Key{4}, sign.Key{6}, 1000, 902, true},
		"one key":                     {guardedCalls(t, 1), sign.Key{4}, sign.Key{6}, 1000, 902, false},
		"another network":             {two, sign.Key{4}, sign.Key{5}, 1000, 902, false},
		"another mint":                {two, sign.Key{5}, sign.Key{6}, 1000, 902, false},
		"nothing paid":                {two, sign.Key{4}, sign.Key{6}, 1000, 1000, false},
		"paid in":                     {two, sign.Key{4}, sign.Key{6}, 1000, 1098, false},
		"more than was signed":        {two, sign.Key{4}, sign.Key{6}, 1000, 899, false},
		"two claims":                  {more(two[2]), sign.Key{4}, sign.Key{6}, 1000, 902, false},
		"refunded too":                {more(program.Refund{Escrow: sign.Key{2}, Vault: sign.Key{8}}.Instruction(sign.Key{7})), sign.Key{4}, sign.Key{6}, 1000, 902, false},
		"something that may refund":   {more(svm.Instruction{Program: sign.Key{77}}), sign.Key{4}, sign.Key{6}, 1000, 902, false},
		"no claim":                    {two[:2], sign.Key{4}, sign.Key{6}, 1000, 902, false},
		"no voucher":                  {[]svm.Instruction{two[0], two[0], two[2]}, sign.Key{4}, sign.Key{6}, 1000, 902, false},
		"a voucher of another escrow": {[]svm.Instruction{two[0], other, two[2]}, sign.Key{4}, sign.Key{6}, 1000, 902, false},
	} {
		tx, err := transaction.Parse(guardedRaw(t, c.calls))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		vault := -1
		for i, k := range tx.Message.AccountKeys {
			if sign.Key(k) == (sign.Key{8}) {
				vault = i
			}
		}
		g, err := guardedIn(tx, told(uint16(vault), c.mint, c.before, c.after), sign.Key{7}, c.network)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, chain.ErrMalformed) || c.ok && (g.Net != 98 || len(g.Keys) != 2 || g.Mint != (sign.Key{4})) {
			t.Errorf("%s: %+v, %v", what, g, err)
		}
	}
	tx, err := transaction.Parse(guardedRaw(t, two))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guardedIn(tx, &rpc.TransactionMeta{}, sign.Key{7}, sign.Key{6}); !errors.Is(err, chain.ErrMalformed) {
		t.Errorf("nothing is told: %v", err)
	}
}

// FuzzGuarded: whatever an endpoint says, nothing panics, and what counts is of several keys and no more than they signed.
func FuzzGuarded(f *testing.F) {
	f.Add(guardedRaw(f, guardedCalls(f, 2)), uint16(3), uint64(1000), uint64(902))
	f.Add(guardedRaw(f, guardedCalls(f, 3)), uint16(4), uint64(1000), uint64(902))
	f.Add([]byte{}, uint16(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, raw []byte, vault uint16, before, after uint64) {
		tx, err := transaction.Parse(raw)
		if err != nil {
			return
		}
		meta := told(vault, sign.Key{4}, before, after)
		for i := range before % 4 {
			meta.LoadedAddresses.Writable = append(meta.LoadedAddresses.Writable, [32]byte{byte(i)})
		}
		g, err := guardedIn(tx, meta, sign.Key{7}, sign.Key{6})
		if err != nil {
			if !errors.Is(err, chain.ErrMalformed) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if !g.Counts() || g.Net != before-after || after >= before {
			t.Errorf("%d of %d: %+v", after, before, g)
		}
	})
}
