package account

import (
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// The seeds of the program's addresses, with the address below each.

// NetworkSeeds begin with the parameters' hash.
func NetworkSeeds(p Params) [][]byte {
	h := p.Hash()
	return [][]byte{[]byte("network"), h[:]}
}

// NetworkAddress is the account of the network with these parameters. Other parameters have another address.
func NetworkAddress(program sign.Key, p Params) sign.Key {
	return svm.Address(program, NetworkSeeds(p)...)
}

// PoolSeeds are of a network and a mint.
func PoolSeeds(network, mint sign.Key) [][]byte { return [][]byte{[]byte("pool"), network[:], mint[:]} }

// PoolAddress is the token account of the network's verifiers' pool for one mint.
func PoolAddress(program, network, mint sign.Key) sign.Key {
	return svm.Address(program, PoolSeeds(network, mint)...)
}

// EscrowSeeds are of a network, a buyer, an order and the slot of opening.
func EscrowSeeds(network, buyer sign.Key, order sign.Hash, opened uint64) [][]byte {
	return [][]byte{[]byte("escrow"), network[:], buyer[:], order[:], fields.Data{}.U64(opened)}
}

// EscrowAddress is the escrow of an order, opened by the buyer in a slot. The slot makes it an address that never
// returns.
func EscrowAddress(program, network, buyer sign.Key, order sign.Hash, opened uint64) sign.Key {
	return svm.Address(program, EscrowSeeds(network, buyer, order, opened)...)
}

// VaultSeeds are of an escrow.
func VaultSeeds(escrow sign.Key) [][]byte { return [][]byte{[]byte("vault"), escrow[:]} }

// VaultAddress is the token account of an escrow.
func VaultAddress(program, escrow sign.Key) sign.Key {
	return svm.Address(program, VaultSeeds(escrow)...)
}

// TrancheSeeds are of an escrow and a number.
func TrancheSeeds(escrow sign.Key, index uint16) [][]byte {
	return [][]byte{[]byte("tranche"), escrow[:], fields.Data{}.U16(index)}
}

// TrancheAddress is an escrow's tranche by number.
func TrancheAddress(program, escrow sign.Key, index uint16) sign.Key {
	return svm.Address(program, TrancheSeeds(escrow, index)...)
}

// ProviderSeeds are of a network and a peer key.
func ProviderSeeds(network, peer sign.Key) [][]byte {
	return [][]byte{[]byte("provider"), network[:], peer[:]}
}

// ProviderAddress is the registration of a provider by the peer key that it first had.
func ProviderAddress(program, network, peer sign.Key) sign.Key {
	return svm.Address(program, ProviderSeeds(network, peer)...)
}

// StakeSeeds are of a provider's address.
func StakeSeeds(provider sign.Key) [][]byte { return [][]byte{[]byte("stake"), provider[:]} }

// StakeAddress is the token account of a provider's stake.
func StakeAddress(program, provider sign.Key) sign.Key {
	return svm.Address(program, StakeSeeds(provider)...)
}

// AnchorSeeds are made of the anchoring authority and the root.
func AnchorSeeds(authority sign.Key, root sign.Hash) [][]byte {
	return [][]byte{[]byte("anchor"), authority[:], root[:]}
}

// AnchorAddress is the account of a batch root, by its authority.
func AnchorAddress(program, authority sign.Key, root sign.Hash) sign.Key {
	return svm.Address(program, AnchorSeeds(authority, root)...)
}

// EmissionSeeds are of a network.
func EmissionSeeds(network sign.Key) [][]byte { return [][]byte{[]byte("emission"), network[:]} }

// EmissionAddress is the token account that a network's emission is paid from.
func EmissionAddress(program, network sign.Key) sign.Key {
	return svm.Address(program, EmissionSeeds(network)...)
}

// BallotSeeds are of a network, the provider that opens the ballot, and the slot that it names.
func BallotSeeds(network, provider sign.Key, opened uint64) [][]byte {
	return [][]byte{[]byte("ballot"), network[:], provider[:], fields.Data{}.U64(opened)}
}

// BallotAddress is the ballot that a provider opened naming a slot. The slot makes it an address that never returns.
func BallotAddress(program, network, provider sign.Key, opened uint64) sign.Key {
	return svm.Address(program, BallotSeeds(network, provider, opened)...)
}

// VoteSeeds are of a ballot's topic and a provider.
func VoteSeeds(topic sign.Hash, provider sign.Key) [][]byte {
	return [][]byte{[]byte("vote"), topic[:], provider[:]}
}

// VoteAddress is the note that a provider voted on a topic (Ballot.Topic).
func VoteAddress(program sign.Key, topic sign.Hash, provider sign.Key) sign.Key {
	return svm.Address(program, VoteSeeds(topic, provider)...)
}

// PayoutSeeds are of a network, a source of rewards and an epoch.
func PayoutSeeds(network sign.Key, source uint8, epoch uint64) [][]byte {
	return [][]byte{[]byte("payout"), network[:], {source}, fields.Data{}.U64(epoch)}
}

// PayoutAddress is the account of an epoch's accepted rewards.
func PayoutAddress(program, network sign.Key, source uint8, epoch uint64) sign.Key {
	return svm.Address(program, PayoutSeeds(network, source, epoch)...)
}

// RewardsSeeds are of a payout.
func RewardsSeeds(payout sign.Key) [][]byte { return [][]byte{[]byte("rewards"), payout[:]} }

// RewardsAddress is the token account out of which a payout pays.
func RewardsAddress(program, payout sign.Key) sign.Key {
	return svm.Address(program, RewardsSeeds(payout)...)
}
