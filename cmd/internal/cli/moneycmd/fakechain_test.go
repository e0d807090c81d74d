package moneycmd

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// account is an account of the fake chain.
type stored struct {
	lamports uint64
	owner    sign.Key
	data     []byte
}

// fakeChain is a cluster as one RPC server shows it, with a network of Starling's program, and the home directory of a
// peer on it. A transaction is kept and confirmed at once, or refused.
type fakeChain struct {
	home        string
	peer, owner sign.Private
	genesis     market.Genesis
	params      account.Params

	mu       sync.Mutex
	slot     market.Slot
	accounts map[sign.Key]stored
	refuse   string              // JSON of the error that answers a transaction; empty: none
	sent     [][]svm.Instruction // without those of the budget
}

// newFakeChain makes a chain at slot 1000 with a peer that has an owner of its own, a SOL, and no tokens.
func newFakeChain(t *testing.T, change ...func(*fakeChain)) *fakeChain {
	t.Helper()
	c := &fakeChain{home: t.TempDir(), peer: sign.NewPrivate([32]byte{1}), owner: sign.NewPrivate([32]byte{2}),
		slot: 1000, accounts: map[sign.Key]stored{}}
	mint := sign.Key{9}
	c.genesis = market.Genesis{Network: "cli", Chain: sign.Hash{1}, Mint: mint, Symbol: "STAR", Decimals: 6,
		SlotMillis: 400, IntervalSlots: 150, Program: sign.Key{7}}
	c.params = account.Params{
		Network: "cli", Chain: c.genesis.Chain, StakeMint: mint, MarginSlots: 100, ResponseSlots: 100,
		UnbondingSlots: 2000, EvidenceSlots: 1000, MinStake: 30_000_000,
		Mints: []account.MintTerms{account.DefaultTerms(mint, 6), account.DefaultTerms(sign.Key{8}, 2)},
		Votes: account.Votes{VotingSlots: 50, LockSlots: 10, LeastBonded: 1, LeastBond: 1, FirstSlot: 1,
			EpochSlots: 100, EpochsOfMonth: 30},
	}
	for _, f := range change {
		f(c)
	}
	c.genesis.Escrow = account.NetworkAddress(c.genesis.Program, c.params)
	network := account.NewNetwork(c.params)
	c.accounts[c.genesis.Escrow] = stored{1, c.genesis.Program, network.Marshal()}
	token := make([]byte, 82)
	token[44], token[45] = 6, 1
	c.accounts[mint] = stored{1, svm.TokenProgram, token}
	c.accounts[c.peer.Key()] = stored{lamports: 1_000_000_000}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.write(t, config.FileGenesis, c.genesis)
	c.write(t, config.FileConfig, "solana: {rpc: ['"+s.URL+"']}\n")
	c.key(t, config.FileIdentity, c.peer)
	if err := config.SaveOwner(c.home, c.owner.Key()); err != nil {
		t.Fatal(err)
	}
	return c
}

// write writes a file of the home directory: a text as it is, all else as JSON.
func (c *fakeChain) write(t *testing.T, name string, v any) {
	t.Helper()
	text, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if err := os.WriteFile(filepath.Join(c.home, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// key writes a key file of the home directory and returns its path.
func (c *fakeChain) key(t *testing.T, name string, k sign.Private) string {
	t.Helper()
	path := filepath.Join(c.home, name)
	if _, err := p2p.SaveIdentity(path, k.Seed()); err != nil {
		t.Fatal(err)
	}
	return path
}

// tokens gives a wallet an account of the network's token, of which the peer may spend a part.
func (c *fakeChain) tokens(wallet sign.Key, amount, delegated uint64) {
	b := make([]byte, svm.TokenSize)
	copy(b, c.genesis.Mint[:])
	copy(b[32:], wallet[:])
	binary.LittleEndian.PutUint64(b[64:], amount)
	if delegated > 0 {
		peer := c.peer.Key()
		b[72] = 1
		copy(b[76:], peer[:])
		binary.LittleEndian.PutUint64(b[121:], delegated)
	}
	b[108] = 1
	c.accounts[svm.TokenAccount(wallet, c.genesis.Mint)] = stored{1, svm.TokenProgram, b}
}

// escrow is an escrow of the peer with a tranche of two leaves, of which one is being retired: 5 tokens, 2 outstanding.
func (c *fakeChain) escrow(change func(*account.Escrow)) sign.Key {
	buyer := c.peer.Key()
	at := account.EscrowAddress(c.genesis.Program, c.genesis.Escrow, buyer, sign.Hash{5}, 900)
	e := account.Escrow{State: account.EscrowOpen, Network: c.genesis.Escrow, Buyer: buyer, Order: market.OrderID{5},
		Mint: c.genesis.Mint, Vault: account.VaultAddress(c.genesis.Program, at), RefundOwner: c.owner.Key(),
		Opened: 900, Deadline: 5000, Deposited: 5_000_000, Outstanding: 2_000_000, Paid: 1_000_000, Fee: 20_000,
		Tranches: 1, Keys: market.KeySet{Threshold: 1, Keys: []sign.Key{buyer}}}
	if change != nil {
		change(&e)
	}
	c.accounts[at] = stored{1, c.genesis.Program, e.Marshal()}
	vault := make([]byte, svm.TokenSize)
	copy(vault, e.Mint[:])
	copy(vault[32:], at[:])
	binary.LittleEndian.PutUint64(vault[64:], e.Deposited+e.Fee-e.Paid-e.Refunded)
	vault[108] = 1
	c.accounts[e.Vault] = stored{1, svm.TokenProgram, vault}
	tranche := account.Tranche{By: account.ByKeys, Escrow: at, Opened: 900, Sum: 3_000_000, Outstanding: 2_000_000,
		Leaves: []account.LeafState{{Paid: 1_000_000}, {Freed: 7, Window: 350}}}
	c.accounts[account.TrancheAddress(c.genesis.Program, at, 0)] = stored{1, c.genesis.Program, tranche.Marshal()}
	return at
}

// register registers a provider of the owner: 40 tokens of stake, of which 30 are bonded.
func (c *fakeChain) register(change func(*account.Provider)) {
	p := account.Provider{Network: c.genesis.Escrow, Peer: c.peer.Key(), Owner: c.owner.Key(), Payout: c.owner.Key(),
		Stake: 40_000_000, Bonded: 30_000_000, Registered: 10}
	if change != nil {
		change(&p)
	}
	at := account.ProviderAddress(c.genesis.Program, c.genesis.Escrow, p.Peer)
	c.accounts[at] = stored{1, c.genesis.Program, p.Marshal()}
}

func (c *fakeChain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage
		Method string
		Params []json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	result, failure := c.answer(call.Method, call.Params)
	if failure != "" {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, call.ID, failure)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
}

func (c *fakeChain) answer(method string, params []json.RawMessage) (result, failure string) {
	context := fmt.Sprintf(`"context":{"slot":%d}`, c.slot)
	switch method {
	case "getGenesisHash":
		return fmt.Sprintf("%q", sign.Key(c.genesis.Chain)), ""
	case "getSlot", "getBlockHeight":
		return fmt.Sprint(c.slot), ""
	case "getRecentPrioritizationFees":
		return "[]", ""
	case "getLatestBlockhash":
		return fmt.Sprintf(`{%s,"value":{"blockhash":%q,"lastValidBlockHeight":%d}}`, context, sign.Key{3},
			c.slot+150), ""
	case "getMultipleAccounts":
		var keys []sign.Key
		_ = json.Unmarshal(params[0], &keys)
		var shown []string
		for _, k := range keys {
			shown = append(shown, c.show(k))
		}
		return fmt.Sprintf(`{%s,"value":[%s]}`, context, strings.Join(shown, ",")), ""
	case "getProgramAccounts": // all, whatever is asked for
		var shown []string
		for k, a := range c.accounts {
			if a.owner == c.genesis.Program {
				shown = append(shown, fmt.Sprintf(`{"pubkey":%q,"account":%s}`, k, c.show(k)))
			}
		}
		return "[" + strings.Join(shown, ",") + "]", ""
	case "sendTransaction":
		if c.refuse != "" {
			return "", c.refuse
		}
		return c.take(params[0])
	case "getSignatureStatuses":
		return fmt.Sprintf(`{%s,"value":[{"slot":%d,"err":null,"confirmationStatus":"confirmed"}]}`, context, c.slot), ""
	}
	return "", `{"code":-32601,"message":"no such method"}`
}

func (c *fakeChain) show(k sign.Key) string {
	a, ok := c.accounts[k]
	if !ok {
		return "null"
	}
	return fmt.Sprintf(`{"lamports":%d,"owner":%q,"data":[%q,"base64"],"executable":false,"rentEpoch":0}`, a.lamports,
		a.owner, base64.StdEncoding.EncodeToString(a.data))
}

// take keeps the instructions of a transaction.
func (c *fakeChain) take(encoded json.RawMessage) (result, failure string) {
	var text string
	_ = json.Unmarshal(encoded, &text)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) < 1+64*int(raw[0]) {
		return "", `{"code":-32602,"message":"not a transaction"}`
	}
	_, in, err := transaction.ParseMessage(raw[1+64*int(raw[0]):])
	if err != nil {
		return "", `{"code":-32602,"message":"not a message"}`
	}
	calls, _, _, _ := svm.SplitBudget(in)
	c.sent = append(c.sent, calls)
	return fmt.Sprintf("%q", sign.Signature(raw[1:65])), ""
}

// wantNot checks that a text has no match of a pattern.
func wantNot(t *testing.T, text, pattern string) {
	t.Helper()
	if found := regexp.MustCompile(pattern).FindString(text); found != "" {
		t.Errorf("%q is in\n%s", found, text)
	}
}
