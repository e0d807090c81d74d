package node

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/store"
)

// Mystery has the peer rent from others now and then as a stranger would, to see what they give for the money; off without an allowance.
type Mystery struct {
	// PerDay is the most that all rentals of a day of UTC may cost together, a decimal number of tokens: "1.5".
	PerDay string `yaml:"perDay"`
	// Tasks are programs whose results are known.
	Tasks []MysteryTask `yaml:"tasks"`
	// Entries are full multiaddrs of peers that the identities enter the network by; none means those of bootstrap. This peer itself
	// should not be among them.
	Entries []string `yaml:"entries"`
}

// MysteryTask is one program and what it leaves.
type MysteryTask struct {
	Job    string            `yaml:"job"`    // path of a job file, from the home directory
	Expect map[string]string `yaml:"expect"` // CID of each output by its path: {/out: bafk…}
}

// DirMystery is where identities for mystery rentals lie, below the home directory.
const DirMystery = "mystery"

// Enabled says whether anything is rented.
func (m Mystery) Enabled() bool { return m.PerDay != "" }

func (m Mystery) check() error {
	if !m.Enabled() {
		return nil
	}
	if err := market.CheckDecimal(m.PerDay); err != nil {
		return fmt.Errorf("%w: mystery.perDay: %.40q is not an amount such as 1.5", ErrConfig, m.PerDay)
	}
	if len(m.Tasks) == 0 {
		return fmt.Errorf("%w: mystery.tasks: none; each is {job: FILE, expect: {/out: CID}}, a program whose result is known", ErrConfig)
	}
	for i, t := range m.Tasks {
		if t.Job == "" || len(t.Expect) == 0 || slices.Contains(slices.Collect(maps.Values(t.Expect)), "") {
			return fmt.Errorf("%w: mystery.tasks[%d]: want job: FILE and expect: {PATH: CID} for each of its outputs", ErrConfig, i)
		}
	}
	return nil
}

// OnOrder has f told of each order that is heard over gossip for the first time. Call it before Run; f must not wait.
func (n *Node) OnOrder(f func(market.Order)) {
	if n.orders != nil {
		n.orders.tap = f
	}
}

// Book is what this peer knows of others.
func (n *Node) Book() *reputation.Book { return n.reputation }

// Config is what the peer was opened with.
func (p *Peer) Config() Config { return p.p.Config }

// Genesis are the facts of its network.
func (p *Peer) Genesis() market.Genesis { return p.p.Genesis }

// Key is the peer's own.
func (p *Peer) Key() sign.Key { return p.p.Key.Key() }

// Journal is where it keeps what must survive.
func (p *Peer) Journal() store.Store { return p.store }

// InHome is a path from the peer's home directory.
func (p *Peer) InHome(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(p.p.Home, path)
}
