package testnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet/localnet"
)

// homeName matches the home directories that a testnet makes for its peers.
var homeName = regexp.MustCompile(`^(peer|buyer)-[0-9]+$`)

// clear deletes the homes of an earlier testnet in the directory.
func (n *Network) clear() error {
	names, err := homes(n.Dir)
	if err != nil || len(names) == 0 {
		return err
	}
	n.opts.Say("a new network replaces that in %s: keys, wallets, jobs and receipts of its %d peers "+
		"are deleted", n.Dir, len(names))
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(n.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// makeHomes writes the peers' homes and funds their wallets.
func (n *Network) makeHomes(ctx context.Context) error {
	o := n.opts
	ports, err := freePorts(o.Providers + o.Buyers)
	if err != nil {
		return err
	}
	var wallets []localnet.Wallet
	var boot []string
	var homes []homeConfig
	for i := range o.Providers + o.Buyers {
		p := &Peer{Name: fmt.Sprintf("peer-%d", i+1), binary: o.Binary, env: o.Env}
		p.place = n.placeOf(i, ports[i])
		cfg := homeConfig{Place: p.place, Units: o.Units, Unit: o.Unit, Registries: o.Registries}
		if cfg.Provide = i < o.Providers; cfg.Provide {
			p.yields = o.Providers+o.Buyers > many
			cfg.Price, cfg.GPUs = o.Price(i), o.GPUs(i)
			if o.Engine != nil {
				cfg.Engine = o.Engine(i)
			}
		} else {
			p.Name = fmt.Sprintf("buyer-%d", i+1-o.Providers)
		}
		p.Home = filepath.Join(o.Dir, p.Name)
		of, twin := o.Twin[i]
		if twin {
			err = p.copyKeys(n.Peers[of])
		} else {
			var wallet sign.Private
			p.Key, wallet, err = makeKeys(p.Home)
			p.Owner = wallet.Key()
			wallets = append(wallets, localnet.Wallet{Owner: wallet, Delegate: p.Key, Tokens: fundTokens,
				Allowance: fundTokens, Lamports: fundLamports})
		}
		if err != nil {
			return fmt.Errorf("making %s: %w", p.Home, err)
		}
		if p.place.Boot != "" {
			at, err := p.at(p.place.Boot)
			if err != nil {
				return err
			}
			boot = append(boot, at)
		}
		n.Peers = append(n.Peers, p)
		homes = append(homes, cfg)
	}
	for i := range homes {
		if err := n.acquaint(i, &homes[i], boot); err != nil {
			return err
		}
	}
	if err := n.writeHomes(homes); err != nil {
		return err
	}
	if n.chain == nil {
		return nil
	}
	o.Say("funding %d wallets", len(wallets))
	return n.chain.Fund(ctx, wallets...)
}

// placeOf returns the place of peer i, which has a port of loopback.
func (n *Network) placeOf(i, port int) Place {
	o := n.opts
	p := Place{RPC: n.RPC, Config: "relay: {serve: true}", Listen: []string{
		fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", port), fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", port),
	}}
	if o.BuyersRelay && i < o.Providers {
		p.Config = ""
	}
	if p.Boot = p.Listen[0]; i >= bootstraps {
		p.Boot = ""
	}
	if o.PSK != "" {
		p.Listen = p.Listen[:1]
		p.Config += "\nprivateNetwork: " + strconv.Quote(o.PSK)
	}
	if o.Engine != nil && i < o.Providers {
		p.Config += "\negress: {mode: internet}"
	}
	if o.Place != nil {
		p = o.Place(i)
	}
	if o.Config != "" {
		p.Config += "\n" + o.Config
	}
	p.Late = p.Late || slices.Contains(o.Late, i)
	return p
}

// at returns an address of the peer with its id.
func (p *Peer) at(addr string) (string, error) {
	id, err := p2p.PeerIDFromKey(p.Key)
	return addr + "/p2p/" + id.String(), err
}

// acquaint sets the bootstrap peers and the refused peers of peer i.
func (n *Network) acquaint(i int, cfg *homeConfig, boot []string) error {
	links, given := n.opts.Links[i]
	if !given {
		cfg.Bootstrap = boot
	}
	for _, to := range links {
		at, err := n.Peers[to].at(n.Peers[to].place.Listen[0])
		if err != nil {
			return err
		}
		cfg.Bootstrap = append(cfg.Bootstrap, at)
	}
	for _, who := range n.opts.Refuse[i] {
		cfg.Block = append(cfg.Block, n.Peers[who].Key.String())
	}
	return nil
}

// writeHomes writes the files of every home besides its keys.
func (n *Network) writeHomes(homes []homeConfig) error {
	genesis, err := json.MarshalIndent(n.Genesis, "", "  ")
	if err != nil {
		return err
	}
	for i, cfg := range homes {
		var text strings.Builder
		if err := homeTemplate.Execute(&text, cfg); err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(filepath.Join(n.Peers[i].Home, config.FileGenesis), genesis, 0o600),
			os.WriteFile(filepath.Join(n.Peers[i].Home, config.FileConfig), []byte(text.String()), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

type homeConfig struct {
	Place
	Bootstrap  []string
	Block      []string
	Provide    bool
	Units      uint32
	Unit       config.Unit
	Price      string
	Engine     string
	Registries []string
	GPUs       GPUs
}

var homeTemplate = template.Must(template.New("config").Parse(`# A peer of a local testnet.
listen:
{{- range .Listen}}
  - {{.}}
{{- end}}
bootstrap:
{{- range .Bootstrap}}
  - {{.}}
{{- end}}
{{- if .Block}}
block:
{{- range .Block}}
  - {{.}}
{{- end}}
{{- end}}
region: {{or .Region "local"}}
{{- if .RPC}}
solana:
  rpc: ["{{.RPC}}"]
{{- end}}
{{- if .Provide}}
provide:
  enabled: true
  units: {{.Units}}
  unit: {milliCPU: {{.Unit.MilliCPU}}, memoryMiB: {{.Unit.MemoryMiB}}, diskMiB: {{.Unit.DiskMiB}}}
  price: "{{.Price}}"
  claim: {every: 5s}
{{- if .GPUs.Devices}}
  gpu:
    mock: "{{.GPUs.Mock}}"
    devices: "{{.GPUs.Devices}}"
    price: "{{.Price}}"
    milliCPU: {{.Unit.MilliCPU}}
    memoryMiB: {{.Unit.MemoryMiB}}
    diskMiB: {{.Unit.DiskMiB}}
{{- end}}
{{- end}}
{{- if or .Engine .Registries}}
docker:
{{- if .Engine}}
  enabled: "true"
  host: "{{.Engine}}"
{{- end}}
  registries: [{{range $i, $r := .Registries}}{{if $i}}, {{end}}"{{$r}}"{{end}}]
{{- end}}
{{.Config}}
`))

// makeKeys makes a home with a peer key and an owner's wallet.
func makeKeys(home string) (sign.Key, sign.Private, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	priv, err := p2p.CreateIdentity(filepath.Join(home, config.FileIdentity))
	if err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	seed, err := p2p.SeedOf(priv)
	if err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	w, err := p2p.CreateIdentity(filepath.Join(home, config.FileWallet))
	if err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	wseed, err := p2p.SeedOf(w)
	if err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	owner := sign.NewPrivate(wseed)
	return sign.NewPrivate(seed).Key(), owner, config.SaveOwner(home, owner.Key())
}

// copyKeys gives p the key and the wallet of another peer.
func (p *Peer) copyKeys(of *Peer) error {
	if err := os.MkdirAll(p.Home, 0o700); err != nil {
		return err
	}
	for _, file := range []string{config.FileIdentity, config.FileWallet, config.FileOwner} {
		b, err := os.ReadFile(filepath.Join(of.Home, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(p.Home, file), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	p.Key, p.Owner = of.Key, of.Owner
	return nil
}
