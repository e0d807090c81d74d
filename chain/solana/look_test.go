package solana

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// lookedAt is an escrow with a tranche, and how an endpoint would show it.
type lookedAt struct {
	id, network, at sign.Key
	escrow          account.Escrow
	vault           []byte
	tranche         account.Tranche
}

func newLookedAt() lookedAt {
	w := lookedAt{id: sign.Key{7}, network: sign.Key{8}}
	buyer, mint := sign.NewPrivate([32]byte{1}).Key(), sign.Key{9}
	w.at = account.EscrowAddress(w.id, w.network, buyer, sign.Hash{5}, 300)
	vault := account.VaultAddress(w.id, w.at)
	w.escrow = account.Escrow{State: account.EscrowOpen, Network: w.network, Buyer: buyer, Order: market.OrderID{5}, Mint: mint, Vault: vault,
		Opened: 300, Deadline: 900, Deposited: 70, Outstanding: 50, Tranches: 1, Keys: market.KeySet{Threshold: 1, Keys: []sign.Key{buyer}}}
	w.vault = make([]byte, svm.TokenSize)
	copy(w.vault, mint[:])
	copy(w.vault[32:], w.at[:])
	binary.LittleEndian.PutUint64(w.vault[64:], 70)
	w.vault[108] = 1
	w.tranche = account.Tranche{Escrow: w.at, Opened: 300, Sum: 50, Outstanding: 50, Leaves: []account.LeafState{{}}}
	return w
}

func accountJSON(owner sign.Key, data []byte) string {
	return fmt.Sprintf(`{"lamports":1,"owner":%q,"data":[%q,"base64"],"executable":false,"rentEpoch":0}`, owner.String(), base64.StdEncoding.EncodeToString(data))
}

func (w lookedAt) accounts() []string {
	return []string{accountJSON(w.id, w.escrow.Marshal()), accountJSON(svm.TokenProgram, w.vault), accountJSON(w.id, w.tranche.Marshal())}
}

func answerAt(slot int, accounts ...string) string {
	return fmt.Sprintf(`{"context":{"slot":%d},"value":[%s]}`, slot, strings.Join(accounts, ","))
}

// ledger of endpoints that answer so; an empty answer is an endpoint that is down.
func (w lookedAt) ledger(t *testing.T, answers ...string) *Ledger {
	t.Helper()
	var urls []string
	for _, a := range answers {
		url := "http://127.0.0.1:1"
		if a != "" {
			url = fake(t, map[string]string{"getMultipleAccounts": a})
		}
		urls = append(urls, url)
	}
	l, err := New(Config{RPC: urls, Key: sign.NewPrivate([32]byte{1}), Mint: w.escrow.Mint, Program: w.id, Network: w.network})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLook: what several endpoints show is believed when two show the same at about the same time, and never otherwise.
func TestLook(t *testing.T) {
	t.Parallel()
	w := newLookedAt()
	other := newLookedAt()
	other.escrow.Outstanding = 20
	here, richer := w.accounts(), other.accounts()
	lamports := accountJSON(svm.SystemProgram, nil)
	for name, c := range map[string]struct {
		answers []string
		slot    market.Slot
		open    bool
		err     error
	}{
		"one alone":            {[]string{answerAt(500, here...)}, 500, true, nil},
		"two":                  {[]string{answerAt(500, here...), answerAt(510, here...)}, 500, true, nil},
		"one of two":           {[]string{answerAt(500, here...), ""}, 0, false, chain.ErrDown},
		"none":                 {[]string{"", ""}, 0, false, chain.ErrDown},
		"two of three":         {[]string{answerAt(500, here...), "", answerAt(502, here...)}, 500, true, nil},
		"a liar of three":      {[]string{answerAt(500, richer...), answerAt(501, here...), answerAt(502, here...)}, 501, true, nil},
		"a liar of two":        {[]string{answerAt(500, richer...), answerAt(500, here...)}, 0, false, chain.ErrDown},
		"one is far behind":    {[]string{answerAt(500, here...), answerAt(500+cluster.MaxLag+1, here...)}, 0, false, chain.ErrDown},
		"one knows the future": {[]string{answerAt(1<<62, here...), answerAt(500, here...), answerAt(501, here...)}, 500, true, nil},
		"nothing there":        {[]string{answerAt(500, "null", "null", "null")}, 500, false, nil},
		"lamports alone":       {[]string{answerAt(500, lamports, lamports, lamports), answerAt(500, "null", "null", "null")}, 500, false, nil},
		"one shows nothing":    {[]string{answerAt(500, here...), answerAt(500, "null", "null", "null")}, 0, false, chain.ErrDown},
		"too few accounts":     {[]string{answerAt(500, here[0])}, 0, false, chain.ErrDown},
		"an error":             {[]string{`error {"code":-32016,"message":"Minimum context slot has not been reached"}`}, 0, false, chain.ErrDown},
		"not an answer":        {[]string{`raw <html>`}, 0, false, chain.ErrDown},
		"no such method":       {[]string{`error {"code":-32601,"message":"no"}`, answerAt(500, here...)}, 0, false, chain.ErrDown},
		"data that is not":     {[]string{answerAt(500, `{"lamports":1,"owner":"11111111111111111111111111111111","data":{"a":1}}`, "null", "null")}, 0, false, chain.ErrDown},
	} {
		v, err := w.ledger(t, c.answers...).Look(t.Context(), w.at, []uint16{0}, escrow.Confirmed)
		if !errors.Is(err, c.err) || v.Slot != c.slot || (v.Escrow != nil) != c.open {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		if c.open && (v.Vault != 70 || v.Escrow.Outstanding != 50 || v.Tranches[0].Outstanding != 50) {
			t.Errorf("%s: %+v", name, v)
		}
		if err != nil && (!strings.Contains(err.Error(), "--solana-rpc") || strings.Contains(err.Error(), "secret-key")) {
			t.Errorf("%s says %v", name, err)
		}
	}
}

// byHost answers calls by the endpoint that they are for; one without an answer hangs until its caller has enough.
type byHost map[string]string

func (b byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	var call struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		return nil, err
	}
	answer := map[string]string{"getMultipleAccounts": b[r.URL.Host], "getSlot": "600", "getBlockHeight": "500",
		"getSignatureStatuses": `{"context":{"slot":600},"value":[{"slot":400,"confirmationStatus":"finalized","confirmations":null,"err":null}]}`}[call.Method]
	if b[r.URL.Host] == "" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, answer)))}, nil
}

// An endpoint that hangs holds nobody up when two others agree on an escrow, and for a short time only where all are heard.
func TestOneEndpointHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLookedAt()
		l, err := New(Config{RPC: []string{"http://a", "http://b", "http://c"}, Key: sign.NewPrivate([32]byte{1}), Mint: w.escrow.Mint, Program: w.id,
			Network: w.network, Transport: byHost{"b": answerAt(500, w.accounts()...), "c": answerAt(502, w.accounts()...)}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if v, err := l.Look(t.Context(), w.at, []uint16{0}, escrow.Confirmed); err != nil || v.Slot != 500 || time.Since(began) > 0 {
			t.Errorf("a look took %v: slot %d, %v", time.Since(began), v.Slot, err)
		}
		began = time.Now()
		id := solanago.Signature{1}.String()
		if s, err := l.Status(t.Context(), chain.Prepared{ID: chain.TxID(id), LastValid: 100}); err != nil || s.State != chain.Finalized || time.Since(began) > cluster.Straggle {
			t.Errorf("a status took %v: %+v, %v", time.Since(began), s, err)
		}
	})
}

// TestLookIsNeverOlder: an endpoint that is behind what was seen is no witness, nor a reason to forget.
func TestLookIsNeverOlder(t *testing.T) {
	t.Parallel()
	w := newLookedAt()
	results := map[string]string{"getMultipleAccounts": answerAt(500, w.accounts()...)}
	l, err := New(Config{RPC: []string{fake(t, results)}, Key: sign.NewPrivate([32]byte{1}), Mint: w.escrow.Mint, Program: w.id, Network: w.network})
	if err != nil {
		t.Fatal(err)
	}
	look := func(slot int, level escrow.Level) error {
		results["getMultipleAccounts"] = answerAt(slot, w.accounts()...)
		_, err := l.Look(t.Context(), w.at, []uint16{0}, level)
		return err
	}
	if err := errors.Join(look(500, escrow.Confirmed), look(500, escrow.Confirmed), look(470, escrow.Finalized), look(501, escrow.Confirmed)); err != nil {
		t.Fatal(err)
	}
	if err := look(500, escrow.Confirmed); !errors.Is(err, chain.ErrDown) || !strings.Contains(err.Error(), "behind") {
		t.Errorf("a slot back: %v", err)
	}
	if err := look(469, escrow.Finalized); !errors.Is(err, chain.ErrDown) {
		t.Errorf("a slot back, final: %v", err)
	}
	if err := look(501, escrow.Confirmed); err != nil {
		t.Errorf("caught up: %v", err)
	}
}

// TestLookInParts: tranches that do not fit into one call are believed when the escrow stood still between, else it is read anew.
func TestLookInParts(t *testing.T) {
	t.Parallel()
	w, later := newLookedAt(), newLookedAt()
	later.escrow.Paid = 10
	many := make([]uint16, lookPage+5)
	for i := range many {
		many[i] = uint16(i)
	}
	for name, c := range map[string]struct {
		changes int // at so many calls, from the second on
		err     error
	}{"stands still": {0, nil}, "changes once": {1, nil}, "changes all the time": {100, chain.ErrDown}} {
		calls := 0
		answer := func(body []byte) string {
			var call struct{ Params []json.RawMessage }
			var keys []sign.Key
			if err := errors.Join(json.Unmarshal(body, &call), json.Unmarshal(call.Params[0], &keys)); err != nil {
				t.Error(err)
			}
			shown := w.accounts()
			if calls++; calls > 1 && (calls-1 <= c.changes && calls%2 == 0) {
				shown = later.accounts()
			}
			out := shown[:2:2]
			for _, k := range keys[2:] {
				if k == account.TrancheAddress(w.id, w.at, 0) {
					out = append(out, shown[2])
				} else {
					out = append(out, "null")
				}
			}
			return `{"jsonrpc":"2.0","id":1,"result":` + answerAt(500+calls, out...) + `}`
		}
		l, err := New(Config{RPC: []string{"http://one"}, Key: sign.NewPrivate([32]byte{1}), Mint: w.escrow.Mint, Program: w.id, Network: w.network, Transport: answering(answer)})
		if err != nil {
			t.Fatal(err)
		}
		v, err := l.Look(t.Context(), w.at, many, escrow.Confirmed)
		if !errors.Is(err, c.err) || c.err == nil && (err != nil || len(v.Tranches) != 1 || v.Escrow.Paid != 0) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

// TestForgedEscrow: what all endpoints show is still refused when it cannot be an escrow of this network at this address.
func TestForgedEscrow(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*lookedAt){
		"another buyer":              func(w *lookedAt) { w.escrow.Buyer = sign.Key{4} },
		"another order":              func(w *lookedAt) { w.escrow.Order = market.OrderID{6} },
		"another slot of opening":    func(w *lookedAt) { w.escrow.Opened++ },
		"another vault":              func(w *lookedAt) { w.escrow.Vault = sign.Key{4} },
		"another program":            func(w *lookedAt) { w.id = sign.Key{4} },
		"a vault of another mint":    func(w *lookedAt) { w.vault[0] ^= 1 },
		"a vault of another owner":   func(w *lookedAt) { w.vault[32] ^= 1 },
		"no vault":                   func(w *lookedAt) { w.vault = nil },
		"a tranche of another":       func(w *lookedAt) { w.tranche.Escrow = sign.Key{4} },
		"a tranche of another index": func(w *lookedAt) { w.tranche.Index = 1 },
		"a tranche that is cut off":  func(w *lookedAt) { w.tranche.Leaves = nil },
	} {
		w, shown := newLookedAt(), newLookedAt()
		change(&shown)
		_, err := w.ledger(t, answerAt(500, shown.accounts()...)).Look(t.Context(), w.at, []uint16{0}, escrow.Confirmed)
		if !errors.Is(err, chain.ErrMalformed) || errors.Is(err, chain.ErrDown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := newLookedAt()
	l := w.ledger(t, answerAt(500, w.accounts()...))
	l.Wallet.cfg.Network = sign.Key{99}
	if _, err := l.Look(t.Context(), w.at, []uint16{0}, escrow.Confirmed); !errors.Is(err, chain.ErrMalformed) || !strings.Contains(err.Error(), "another network") {
		t.Errorf("an escrow of another network: %v", err)
	}
}

// TestForgedNetwork: the address, which the genesis names, is the only proof that the parameters need.
func TestForgedNetwork(t *testing.T) {
	t.Parallel()
	id := sign.Key{7}
	p := account.Params{Network: "test", Chain: sign.Hash{3}, StakeMint: sign.Key{9}, ResponseSlots: 1, UnbondingSlots: 2, EvidenceSlots: 1,
		Mints: []account.MintTerms{account.DefaultTerms(sign.Key{9}, 6)}}
	cheaper := p
	cheaper.Mints = []account.MintTerms{cheaper.Mints[0]}
	cheaper.Mints[0].FeeBps = 100
	elsewhere := p
	elsewhere.Chain = sign.Hash{4}
	for name, c := range map[string]struct {
		owner    sign.Key
		address  account.Params
		shown    account.Params
		err      error
		accounts string
	}{
		"as it is":        {owner: id, address: p, shown: p},
		"other fees":      {owner: id, address: p, shown: cheaper, err: chain.ErrMalformed},
		"another program": {owner: sign.Key{6}, address: p, shown: p, err: chain.ErrMalformed},
		"another chain":   {owner: id, address: elsewhere, shown: elsewhere, err: chain.ErrMalformed},
		"none":            {address: p, accounts: "null", err: chain.ErrNotFound},
	} {
		if c.accounts == "" {
			c.accounts = accountJSON(c.owner, account.NewNetwork(c.shown).Marshal())
		}
		url := fake(t, map[string]string{"getMultipleAccounts": answerAt(500, c.accounts), "getGenesisHash": `"` + sign.Key(p.Chain).String() + `"`})
		l, err := New(Config{RPC: []string{url}, Genesis: p.Chain, Key: sign.NewPrivate([32]byte{1}), Mint: sign.Key{9}, Program: id, Network: account.NetworkAddress(id, c.address)})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := l.Network(t.Context()); !errors.Is(err, c.err) || err == nil && n.Params.Hash() != p.Hash() {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// TestRefusedByTheProgram: what Starling's program refused is told by its own code, what another refused is not.
func TestRefusedByTheProgram(t *testing.T) {
	t.Parallel()
	id := sign.Key{7}
	for by, want := range map[sign.Key]error{id: program.ErrEarly, svm.TokenProgram: chain.ErrRejected} {
		said := fmt.Sprintf(`error {"code":-32002,"message":"failed: custom program error: 0x6d","data":{"logs":["Program log: x",7,"Program %s failed: custom program error: 0x6d"]}}`, by)
		l, err := New(Config{RPC: []string{fake(t, map[string]string{"sendTransaction": said})}, Key: sign.NewPrivate([32]byte{1}), Mint: sign.Key{9}, Program: id, Network: sign.Key{8}})
		if err != nil {
			t.Fatal(err)
		}
		txID, raw, err := transaction.Sign([]svm.Instruction{{Program: id}}, nil, sign.Hash{1}, l.Wallet.cfg.Key)
		if err != nil {
			t.Fatal(err)
		}
		err = l.Send(t.Context(), chain.Prepared{ID: txID, Raw: raw})
		if !errors.Is(err, want) || !errors.Is(err, chain.ErrRejected) || errors.Is(err, program.ErrEarly) != (by == id) {
			t.Errorf("%s: %v", by, err)
		}
	}
}

// Registrations of this network at their own addresses are listed; what an endpoint puts among them is left out, and a list with
// nothing in a place is refused.
func TestProviders(t *testing.T) {
	t.Parallel()
	w := newLookedAt()
	entry := func(at, owner sign.Key, p account.Provider) string {
		return fmt.Sprintf(`{"pubkey":%q,"account":%s}`, at.String(), accountJSON(owner, p.Marshal()))
	}
	one, two := account.Provider{Network: w.network, Peer: sign.Key{1}, Stake: 5}, account.Provider{Network: w.network, Peer: sign.Key{2}}
	elsewhere := account.Provider{Network: sign.Key{7}, Peer: sign.Key{3}}
	address := func(p account.Provider) sign.Key { return account.ProviderAddress(w.id, p.Network, p.Peer) }
	ledger := func(entries ...string) *Ledger {
		l, err := New(Config{RPC: []string{fake(t, map[string]string{"getProgramAccounts": "[" + strings.Join(entries, ",") + "]"})},
			Key: sign.NewPrivate([32]byte{1}), Mint: w.escrow.Mint, Program: w.id, Network: w.network})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	got, err := ledger(
		entry(address(two), w.id, two), entry(address(one), w.id, one), entry(address(two), w.id, one), entry(address(one), sign.Key{9}, one),
		entry(address(elsewhere), w.id, elsewhere), fmt.Sprintf(`{"pubkey":%q,"account":%s}`, w.at.String(), w.accounts()[0]),
	).Providers(t.Context())
	first, second := one, two
	if a, b := address(one), address(two); slices.Compare(a[:], b[:]) > 0 {
		first, second = two, one
	}
	if err != nil || !slices.Equal(got, []account.Provider{first, second}) {
		t.Errorf("%+v: %v", got, err)
	}
	for name, entries := range map[string][]string{
		"null":                        {"null", entry(address(one), w.id, one)},
		"an entry without an account": {entry(address(one), w.id, one), fmt.Sprintf(`{"pubkey":%q,"account":null}`, w.at.String())},
	} {
		if got, err := ledger(entries...).Providers(t.Context()); !errors.Is(err, chain.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := ledger().Providers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("none: %+v, %v", got, err)
	}
}

// answering is a server that answers a call's bytes.
type answering func(body []byte) string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(a(body))), Request: r}, err
}

// FuzzAnswers: nothing that an endpoint says makes a reader panic, and no escrow is believed that cannot be where it is said to be.
func FuzzAnswers(f *testing.F) {
	w := newLookedAt()
	result := func(text string) []byte { return []byte(`{"jsonrpc":"2.0","id":1,"result":` + text + `}`) }
	f.Add(result(answerAt(500, w.accounts()...)))
	f.Add(result(answerAt(500, "null", "null", "null")))
	f.Add(result(`[{"pubkey":"` + w.at.String() + `","account":` + w.accounts()[0] + `}]`))
	f.Add(result("null"))
	f.Add(result(`[null,{"pubkey":"` + w.at.String() + `","account":null}]`))
	f.Add(result(`{"context":{"slot":1},"value":{"blockhash":"` + sign.Key{1}.String() + `","lastValidBlockHeight":5}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := New(Config{RPC: []string{"http://one"}, Key: sign.NewPrivate([32]byte{1}), Mint: w.escrow.Mint, Program: w.id, Network: w.network, Transport: answering(func([]byte) string { return string(body) })})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := l.Look(t.Context(), w.at, []uint16{0}, escrow.Confirmed); err == nil && v.Escrow != nil && (v.Escrow.Order != w.escrow.Order || v.Escrow.Buyer != w.escrow.Buyer) {
			t.Fatalf("believed %+v", v.Escrow)
		}
		found, _ := l.Escrows(t.Context(), w.escrow.Buyer)
		for _, e := range found {
			if e.Address != account.EscrowAddress(w.id, w.network, w.escrow.Buyer, sign.Hash(e.Order), e.Opened) {
				t.Fatalf("found %+v", e)
			}
		}
		providers, _ := l.Providers(t.Context())
		for _, p := range providers {
			if p.Network != w.network {
				t.Fatalf("found %+v", p)
			}
		}
		_, _, _ = l.Provider(t.Context(), w.escrow.Buyer)
		_, _ = l.Network(t.Context())
		l.mintOK = true
		_, _ = l.Sign(t.Context(), []svm.Instruction{{Program: w.id}}, nil)
	})
}
