package chain

import (
	"math"
	"math/bits"

	"github.com/starling-network/starling/market"
)

// Fees are a peer's limits on priority fees, beside the fee for signatures. A price is in millionths of a lamport for
// each compute unit that the transaction requests.
type Fees struct {
	Least         uint64 // price that is always bid
	Most          uint64 // lamports that a transaction costs at most
	TokenLamports uint64 // the worth of one whole token, to compute the worth of a transaction
}

const (
	// feeShare bounds a bid to one part in feeShare of the amount at stake.
	feeShare = 10
	// feeAlways is the minimum ceiling of a bid in lamports, regardless of the stake: the fee of a signature.
	feeAlways = 5000
	// microLamports are a lamport.
	microLamports = 1_000_000
)

// SignatureFee is the chain's fee for each signature of a transaction, in lamports. Signatures that its Ed25519
// instructions check count as well (solana.com/docs/core/fees).
const SignatureFee = 5000

// DefaultFees bid at most 0.001 SOL for a transaction, and take a token to be worth 0.005 SOL.
func DefaultFees() Fees { return Fees{Least: 1000, Most: 1_000_000, TokenLamports: 5_000_000} }

// Ceiling is the highest bid, in lamports, for a transaction with this amount at stake, in base units of a token with
// these decimals. It is a tenth of its worth, at least 5,000, and never more than Most.
func (f Fees) Ceiling(stake market.Amount, decimals uint8) uint64 {
	worth := uint64(math.MaxUint64)
	hi, lo := bits.Mul64(uint64(stake), f.TokenLamports)
	unit := uint64(1)
	for range min(decimals, 19) {
		unit *= 10
	}
	if hi < unit {
		worth, _ = bits.Div64(hi, lo, unit)
	}
	return min(f.Most, max(worth/feeShare, feeAlways))
}

// Price is the bid for each of a number of compute units. recent is the price of recent transactions of others. The bid
// doubles with each of the retries after transactions that did not land; its total never exceeds ceiling lamports.
func (f Fees) Price(recent uint64, retries uint8, units uint32, ceiling uint64) uint64 {
	price := max(recent, f.Least)
	if s := uint(retries); s >= uint(bits.LeadingZeros64(price)) {
		price = math.MaxUint64
	} else {
		price <<= s
	}
	most := uint64(math.MaxUint64)
	hi, lo := bits.Mul64(ceiling, microLamports)
	if n := max(uint64(units), 1); hi < n {
		most, _ = bits.Div64(hi, lo, n)
	}
	return min(price, most)
}

// CostAtMost is the most that a transaction with this many signatures and this stake can cost, in lamports.
func (f Fees) CostAtMost(signatures uint64, stake market.Amount, decimals uint8) uint64 {
	return signatures*SignatureFee + f.Ceiling(stake, decimals)
}

// BidLamports is the cost of a price for a number of compute units, in lamports, rounded up as the chain does.
func BidLamports(price uint64, units uint32) uint64 {
	hi, lo := bits.Mul64(price, uint64(units))
	if hi >= microLamports {
		return math.MaxUint64
	}
	q, r := bits.Div64(hi, lo, microLamports)
	if r > 0 && q < math.MaxUint64 {
		q++
	}
	return q
}
