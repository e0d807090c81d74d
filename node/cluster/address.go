package cluster

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Interface is the network interface of the overlay in every container of a cluster.
const Interface = "ovl0"

// Head is a second name of rank 0.
const Head = "head"

// perNet is how many ranks share the third byte of an address: .0, .1 and the last ones stay free.
const perNet = 250

var (
	// Prefix has every address of a cluster. Clusters use the same ones: their networks are apart.
	Prefix = netip.MustParsePrefix("10.77.0.0/16")
	// Service is the peer itself as its members see it.
	Service = netip.MustParseAddr("10.77.255.254")
)

// Address is where a rank is in the overlay. The rank is below MaxMembers.
func Address(rank uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(rank / perNet), byte(2 + rank%perNet)})
}

// RankOf is the rank that has an address.
func RankOf(a netip.Addr) (rank uint32, ok bool) {
	b := a.Unmap()
	if !b.Is4() {
		return 0, false
	}
	q := b.As4()
	if q[3] < 2 {
		return 0, false
	}
	rank = uint32(q[2])*perNet + uint32(q[3]) - 2
	return rank, rank < MaxMembers && Address(rank) == b
}

// Name is the host name of a rank.
func Name(rank uint32) string { return fmt.Sprintf("node-%d", rank) }

// Resolve answers a name of the cluster with its rank: "node-3", "node-3.<cluster>", "head", "head.<cluster>", in any
// case and with or without the last dot. The caller checks whether the cluster has the rank.
func Resolve(name, cluster string) (rank uint32, ok bool) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	name = strings.TrimSuffix(name, "."+strings.ToLower(cluster))
	if name == Head {
		return 0, true
	}
	digits, ok := strings.CutPrefix(name, "node-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n >= MaxMembers || Name(uint32(n)) != name {
		return 0, false
	}
	return uint32(n), true
}
