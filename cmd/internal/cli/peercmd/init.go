package peercmd

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// initOptions are the flags of init.
type initOptions struct {
	genesis   string
	owner     string
	region    string
	bootstrap []string
	rpc       []string
	provide   bool
	price     string
	psk       string // "new", the file of a key to copy, or ""
	relay     bool
	dialOut   bool
}

// initResult is the output of init.
type initResult struct {
	Home   string     `json:"home"`
	Peer   string     `json:"peer"` // libp2p peer id
	Key    sign.Key   `json:"key"`  // the same key as a Solana address
	Owner  sign.Key   `json:"owner"`
	Files  []initFile `json:"files"`
	Tokens string     `json:"tokens,omitempty"` // symbol of the network's token
}

// initFile is one file with its result.
type initFile struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	State string `json:"state"` // "created" or "kept"
}

// NewInit makes the command `starling init`.
func NewInit(a *cli.App) *cobra.Command {
	var o initOptions
	c := &cobra.Command{
		Use:   "init",
		Short: "Make a home directory with keys and a configuration",
		Long: `Makes the peer's home directory: its key and the owner's wallet (both in the format of the Solana
command line tools) and a configuration with every setting explained. Existing files are never overwritten.

Without --owner it makes a wallet. A buying peer spends from its owner's wallet as its delegate, within an allowance
(starling wallet allow). The peer's key needs a little SOL for fees; a provider claims its earnings with it.

A private network has a pre-shared key, and its peers connect only to peers with that key. One peer makes the key with
--psk new; copy its swarm.key to the others, and to no other machine. Such peers use TCP alone, since QUIC has no
pre-shared keys.`,
		Example: `  starling init
  starling init --genesis net.json --bootstrap /dns4/a.example/udp/4001/quic-v1/p2p/12D3… \
    --solana-rpc https://rpc.example
  starling init --psk new                  a private network; give its swarm.key to the others
  starling init --owner <address>          the owner's key stays elsewhere
  starling init --home /srv/peer2 --provide --price 0.05`,
		GroupID: cli.GroupPeer,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			genesis, err := o.check()
			if err != nil {
				return err
			}
			if err := unheeded(a, c, o); err != nil {
				return err
			}
			r, err := initHome(a, o, genesis)
			if err != nil {
				return err
			}
			return a.Show(r, func(t *cli.Table) {
				t.Row("home", r.Home)
				t.Row("peer", r.Peer)
				t.Row("key", r.Key)
				t.Row("owner", r.Owner)
				t.Row()
				for _, f := range r.Files {
					t.Row(f.Name, f.State, f.What)
				}
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.genesis, "genesis", "", "genesis file of the network to join")
	f.StringVar(&o.owner, "owner", "", "wallet that pays and is paid (default a new one)")
	f.StringVar(&o.region, "region", "local", "region of this machine, such as eu-west")
	f.StringArrayVar(&o.bootstrap, "bootstrap", nil,
		"address of a peer to join through, with /p2p/; repeatable")
	f.StringArrayVar(&o.rpc, "solana-rpc", nil, "JSON-RPC address of the Solana cluster; may be repeated")
	f.BoolVar(&o.provide, "provide", false, "sell this machine's capacity")
	f.StringVar(&o.psk, "psk", "", "swarm.key file of a private network, or new to make one")
	f.BoolVar(&o.relay, "relay", false, "relay for other peers; needs a public address")
	f.BoolVar(&o.dialOut, "dial-out-only", false, "do not listen; be reachable through relays only")
	f.StringVar(&o.price, "price", "", "price of a unit-hour, in tokens (default 0.05; free network 0)")
	return c
}

// unheeded returns an error for flags that would have no effect, because a different configuration exists.
func unheeded(a *cli.App, c *cobra.Command, o initOptions) error {
	home, err := a.PeerHome()
	if err != nil {
		return err
	}
	there, err := os.ReadFile(filepath.Join(home, config.FileConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if text, err := o.configText(); err != nil || bytes.Equal(text, there) {
		return err
	}
	var lost []string
	for _, name := range []string{"owner", "region", "bootstrap", "solana-rpc", "provide", "relay", "dial-out-only",
		"price"} {
		if f := c.Flags().Lookup(name); f != nil && f.Changed {
			lost = append(lost, "--"+name)
		}
	}
	// A key that the configuration does not name has no effect.
	set, err := config.Load(filepath.Join(home, config.FileConfig))
	if o.psk != "" && err == nil && set.PrivateNetwork != config.FilePSK {
		lost = append(lost, "--psk")
	}
	if len(lost) == 0 {
		return nil
	}
	return cli.WithHint(cli.Usagef("%s exists and is never overwritten: %s would have no effect",
		filepath.Join(home, config.FileConfig), strings.Join(lost, ", ")),
		"write it into %s, or move that file away and run this again: the keys stay", config.FileConfig)
}

// initHome makes the missing files of the home directory.
func initHome(a *cli.App, o initOptions, genesis []byte) (initResult, error) {
	home, err := a.PeerHome()
	if err != nil {
		return initResult{}, err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return initResult{}, fmt.Errorf("making the home directory: %w", err)
	}
	r := initResult{Home: home}
	key, file, err := keyFile(home, config.FileIdentity, "the peer's key")
	if err != nil {
		return r, err
	}
	r.Key, r.Files = key, append(r.Files, file)
	id, err := p2p.PeerIDFromKey(key)
	if err != nil {
		return r, fmt.Errorf("naming the peer: %w", err)
	}
	r.Peer = id.String()
	if o.owner == "" {
		if key, file, err = keyFile(home, config.FileWallet, "the owner's wallet"); err != nil {
			return r, err
		}
		r.Owner, r.Files = key, append(r.Files, file)
		if file, err = newFile(home, config.FileOwner, "the owner's address", []byte(key.String()+"\n")); err != nil {
			return r, err
		}
		r.Files = append(r.Files, file)
		if there, err := config.LoadOwner(home); err != nil || there != key {
			return r, cli.WithHint(errors.Join(err, fmt.Errorf("%s names %s, the wallet is %s", config.FileOwner, there,
				key)), "remove the wrong file")
		}
	} else if r.Owner, err = sign.ParseKey(o.owner); err != nil {
		return r, fmt.Errorf("reading --owner: %w", err)
	}
	if o.psk != "" {
		if file, err = o.pskFile(home); err != nil {
			return r, err
		}
		r.Files = append(r.Files, file)
	}
	text, err := o.configText()
	if err != nil {
		return r, err
	}
	if file, err = newFile(home, config.FileConfig, "the configuration", text); err != nil {
		return r, err
	}
	r.Files = append(r.Files, file)
	if genesis != nil {
		if file, err = newFile(home, config.FileGenesis, "the network", genesis); err != nil {
			return r, err
		}
		r.Files = append(r.Files, file)
	}
	return r, nil
}

// defaultPrice is the default price of a unit-hour. On a free network it is 0: its peers refuse any other price.
const defaultPrice = "0.05"

// check checks the options before anything is written, and returns the genesis file's text. It sets the default price.
func (o *initOptions) check() (genesis []byte, err error) {
	price := defaultPrice
	if o.genesis != "" {
		if genesis, err = cli.ReadFile(o.genesis, cli.MaxGenesisFile); err != nil {
			return nil, cli.Usagef("--genesis: %w", err)
		}
		g, err := market.ParseGenesis(genesis)
		if err != nil {
			return nil, cli.Usagef("--genesis: %s: %w", o.genesis, err)
		}
		if g.Free {
			price = "0"
		}
	}
	o.price = cmp.Or(o.price, price)
	if o.owner != "" {
		if _, err := sign.ParseKey(o.owner); err != nil {
			return nil, cli.Usagef("--owner: %q is not a Solana address: %w", o.owner, err)
		}
	}
	if err := market.Region(o.region).Check(); err != nil {
		return nil, cli.Usagef("--region: %w", err)
	}
	if err := market.CheckDecimal(o.price); err != nil {
		return nil, cli.Usagef("--price: %w", err)
	}
	for _, at := range o.bootstrap {
		if i, err := peer.AddrInfoFromString(at); err != nil || len(i.Addrs) == 0 {
			return nil, cli.Usagef("--bootstrap: %q is not the address of a peer, such as "+
				"/dns4/a.example/udp/4001/quic-v1/p2p/12D3…", at)
		}
	}
	if o.relay && o.dialOut {
		return nil, cli.Usagef("--relay and --dial-out-only: a peer that only dials out cannot relay")
	}
	if o.psk != "" && o.psk != pskNew {
		if _, err := readPSK(o.psk); err != nil {
			return nil, err
		}
	}
	return genesis, nil
}

// keyFile loads a key file of home, or makes a new one.
func keyFile(home, name, what string) (sign.Key, initFile, error) {
	path := filepath.Join(home, name)
	file := initFile{Name: name, What: what, State: "kept"}
	priv, err := p2p.LoadIdentity(path)
	if errors.Is(err, fs.ErrNotExist) {
		file.State = "created"
		priv, err = p2p.CreateIdentity(path)
	}
	if err != nil {
		return sign.Key{}, file, cli.WithHint(fmt.Errorf("%s: %w", what, err), "move %s away, or give another --home",
			path)
	}
	raw, err := priv.GetPublic().Raw()
	if err != nil || len(raw) != len(sign.Key{}) {
		return sign.Key{}, file, fmt.Errorf("%s: not an Ed25519 key", path)
	}
	return sign.Key(raw), file, nil
}

// newFile writes a file of home that does not exist; a crash leaves either no file or the whole file.
func newFile(home, name, what string, text []byte) (initFile, error) {
	file := initFile{Name: name, What: what, State: "kept"}
	path := filepath.Join(home, name)
	if _, err := os.Lstat(path); err == nil {
		return file, nil
	}
	tmp, err := os.CreateTemp(home, ".new-*")
	if err != nil {
		return file, fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Link(tmp.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		return file, nil
	}
	if err != nil {
		return file, fmt.Errorf("writing %s: %w", path, err)
	}
	file.State = "created"
	return file, nil
}

// pskNew is the value of --psk for a new key.
const pskNew = "new"

func readPSK(path string) (*[32]byte, error) {
	text, err := cli.ReadFile(path, cli.MaxGenesisFile)
	if err != nil {
		return nil, cli.Usagef("--psk: %w", err)
	}
	key, err := p2p.DecodePSK(text)
	if err != nil {
		return nil, cli.Usagef("--psk: %s: %w", path, err)
	}
	return key, nil
}

// pskFile writes the key of the private network into home.
func (o initOptions) pskFile(home string) (initFile, error) {
	const what = "the private network's pre-shared key"
	path := filepath.Join(home, config.FilePSK)
	if o.psk != pskNew {
		key, err := readPSK(o.psk)
		if err != nil {
			return initFile{}, err
		}
		return newFile(home, config.FilePSK, what, p2p.EncodePSK(*key))
	}
	file := initFile{Name: config.FilePSK, What: what, State: "created"}
	_, err := p2p.CreatePSK(path)
	if errors.Is(err, fs.ErrExist) {
		file.State = "kept"
		_, err = p2p.LoadPSK(path)
	}
	return file, err
}

// configText is config.yaml with every setting explained.
func (o initOptions) configText() ([]byte, error) {
	quoted := func(texts []string) (string, error) {
		if texts == nil {
			texts = []string{}
		}
		b, err := json.Marshal(texts) // JSON is YAML
		return string(b), err
	}
	bootstrap, err := quoted(o.bootstrap)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	rpc, err := quoted(o.rpc)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	psk := ""
	if o.psk != "" {
		psk = config.FilePSK
	}
	var b strings.Builder
	err = configTemplate.Execute(&b, map[string]any{
		"Region": o.region, "Bootstrap": bootstrap, "RPC": rpc, "Owner": o.owner, "Provide": o.provide,
		"Price": o.price,
		"PSK":   psk, "Relay": o.relay, "DialOut": o.dialOut,
	})
	return []byte(b.String()), err
}

//go:embed config.yaml.tmpl
var configText string

var configTemplate = template.Must(template.New(config.FileConfig).Parse(configText))
