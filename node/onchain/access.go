package onchain

import (
	"context"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/solana/forward"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
)

// Access is a peer's access to the chain of its network.
type Access struct {
	Ledger  chain.Ledger
	Program settle.Chain // the same chain with Starling's program; nil on a free network, and only there
	// Escrow is the intervals at which the peer polls its escrows.
	Escrow escrow.Params
}

// Open opens the chain of a network: the cluster that c names, and Starling's program on it; or on a free network the
// clock alone.
func Open(c solana.Config, g market.Genesis) (Access, error) {
	a := Access{Escrow: Params(g)}
	if g.Free {
		a.Ledger = slots.Wall(g.SlotMillis)
		return a, nil
	}
	l, err := solana.New(c)
	a.Ledger, a.Program = l, l
	return a, err
}

// Dial opens the chain of a network for a peer, through JSON-RPC endpoints that are tried in order.
func Dial(rpc []string, fees chain.Fees, g market.Genesis, key sign.Private, owner sign.Key) (Access, error) {
	c := solana.ConfigOf(rpc, g, key)
	c.Fees, c.Owner = fees, owner
	return Open(c, g)
}

// Forward returns a function that passes a JSON-RPC call of a light client to the chain. Answers have at most most
// bytes.
func Forward(rpc []string, most int64) (func(ctx context.Context, call []byte) ([]byte, error), error) {
	f, err := forward.New(rpc, most)
	return f.Call, err
}

// Params are the intervals at which a peer polls its escrows, for the length of the network's slots.
func Params(g market.Genesis) escrow.Params {
	p := escrow.DefaultParams()
	if g.SlotMillis < defaultSlotMillis { // a test network
		p.PollEvery = p.PollEvery * time.Duration(g.SlotMillis) / defaultSlotMillis
		p.LookEvery = p.LookEvery * time.Duration(g.SlotMillis) / defaultSlotMillis
		p.RetryAfter = p.RetryAfter * time.Duration(g.SlotMillis) / defaultSlotMillis
	}
	return p
}

// defaultSlotMillis is the length of Solana's slots.
const defaultSlotMillis = 400

// Blocks returns the ledger's blocks, or nil if it serves none.
func (a Access) Blocks() chain.Blocks {
	b, _ := a.Ledger.(chain.Blocks)
	return b
}
