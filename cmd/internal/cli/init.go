package cli

import (
	"bytes"
	"cmp"
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

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/p2p"
)

const maxGenesisFile = 4096

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

func newInit(a *App) *cobra.Command {
	var o initOptions
	c := &cobra.Command{
		Use:   "init",
		Short: "Make a home directory with keys and a configuration",
		Long: `Makes the peer's home directory: its key and the owner's wallet (both in the format of the Solana command line tools)
and a configuration with every setting explained. What is there already is kept, never overwritten.`,
		Example: `  starling init
  starling init --genesis net.json --bootstrap /dns4/a.example/udp/4001/quic-v1/p2p/12D3… --solana-rpc https://rpc.example
  starling init --psk new                  a private network; give its swarm.key to the others
  starling init --owner <address>          the owner's key stays elsewhere
  starling init --home /srv/peer2 --provide --price 0.05`,
		GroupID: groupPeer,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			genesis, err := o.check()
			if err != nil {
				return err
			}
			if err := a.unheeded(c, o); err != nil {
				return err
			}
			r, err := a.initHome(o, genesis)
			if err != nil {
				return err
			}
			return a.Show(r, func(t *Table) {
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
	f.StringVar(&o.owner, "owner", "", "address of the wallet that pays and is paid (default a new one)")
	f.StringVar(&o.region, "region", "local", "where this machine is, such as eu-west")
	f.StringArrayVar(&o.bootstrap, "bootstrap", nil, "address of a peer to join by, with its /p2p/ part; may be repeated")
	f.StringArrayVar(&o.rpc, "solana-rpc", nil, "JSON-RPC address of the Solana cluster; may be repeated")
	f.BoolVar(&o.provide, "provide", false, "sell this machine's capacity")
	f.StringVar(&o.psk, "psk", "", "pre-shared key of a private network: its swarm.key file, or new to make one")
	f.BoolVar(&o.relay, "relay", false, "relay for peers that cannot be dialled and for light clients; this machine must be one that can be")
	f.BoolVar(&o.dialOut, "dial-out-only", false, "listen on nothing: be reached through relays")
	f.StringVar(&o.price, "price", "", "price of a unit-hour, in tokens (default 0.05; 0 on a free network)")
	return c
}

// unheeded refuses flags that would have no effect, since a configuration that says something else is there already.
func (a *App) unheeded(c *cobra.Command, o initOptions) error {
	home, err := a.peerHome()
	if err != nil {
		return err
	}
	there, err := os.ReadFile(filepath.Join(home, node.FileConfig))
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
	for _, name := range []string{"owner", "region", "bootstrap", "solana-rpc", "provide", "relay", "dial-out-only", "price"} {
		if f := c.Flags().Lookup(name); f != nil && f.Changed {
			lost = append(lost, "--"+name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return WithHint(Usagef("%s is there already and is never overwritten: %s would have no effect", filepath.Join(home, node.FileConfig), strings.Join(lost, ", ")),
		"write it into %s, or move that file away and run this again: the keys stay", node.FileConfig)
}

// initHome makes the missing files of the home directory.
func (a *App) initHome(o initOptions, genesis []byte) (initResult, error) {
	home, err := a.peerHome()
	if err != nil {
		return initResult{}, err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return initResult{}, fmt.Errorf("making the home directory: %w", err)
	}
	r := initResult{Home: home}
	key, file, err := keyFile(home, node.FileIdentity, "the peer's key")
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
		if key, file, err = keyFile(home, node.FileWallet, "the owner's wallet"); err != nil {
			return r, err
		}
		r.Owner, r.Files = key, append(r.Files, file)
		if file, err = newFile(home, node.FileOwner, "the owner's address", []byte(key.String()+"\n")); err != nil {
			return r, err
		}
		r.Files = append(r.Files, file)
		if there, err := node.LoadOwner(home); err != nil || there != key {
			return r, WithHint(errors.Join(err, fmt.Errorf("%s names %s, the wallet is %s", node.FileOwner, there, key)), "remove the one that is not meant")
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
	config, err := o.configText()
	if err != nil {
		return r, err
	}
	if file, err = newFile(home, node.FileConfig, "the configuration", config); err != nil {
		return r, err
	}
	r.Files = append(r.Files, file)
	if genesis != nil {
		if file, err = newFile(home, node.FileGenesis, "the network", genesis); err != nil {
			return r, err
		}
		r.Files = append(r.Files, file)
	}
	return r, nil
}

// defaultPrice is that of a unit-hour. On a free network it is 0: its peers refuse any other.
const defaultPrice = "0.05"

// check checks the options before anything is written, and returns the genesis file's text. It sets the default price.
func (o *initOptions) check() (genesis []byte, err error) {
	price := defaultPrice
	if o.genesis != "" {
		if genesis, err = readFile(o.genesis, maxGenesisFile); err != nil {
			return nil, Usagef("--genesis: %w", err)
		}
		g, err := market.ParseGenesis(genesis)
		if err != nil {
			return nil, Usagef("--genesis: %s: %w", o.genesis, err)
		}
		if g.Free {
			price = "0"
		}
	}
	o.price = cmp.Or(o.price, price)
	if o.owner != "" {
		if _, err := sign.ParseKey(o.owner); err != nil {
			return nil, Usagef("--owner: %q is not a Solana address: %w", o.owner, err)
		}
	}
	if err := market.Region(o.region).Check(); err != nil {
		return nil, Usagef("--region: %w", err)
	}
	if err := market.CheckDecimal(o.price); err != nil {
		return nil, Usagef("--price: %w", err)
	}
	for _, at := range o.bootstrap {
		if i, err := peer.AddrInfoFromString(at); err != nil || len(i.Addrs) == 0 {
			return nil, Usagef("--bootstrap: %q is not the address of a peer, such as /dns4/a.example/udp/4001/quic-v1/p2p/12D3…", at)
		}
	}
	if o.relay && o.dialOut {
		return nil, Usagef("--relay and --dial-out-only: a peer that only dials out cannot relay")
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
		return sign.Key{}, file, WithHint(fmt.Errorf("%s: %w", what, err), "move %s away, or give another --home", path)
	}
	raw, err := priv.GetPublic().Raw()
	if err != nil || len(raw) != len(sign.Key{}) {
		return sign.Key{}, file, fmt.Errorf("%s: not an Ed25519 key", path)
	}
	return sign.Key(raw), file, nil
}

// newFile writes a file of home that is not there yet; a crash leaves either nothing or the whole file.
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
	text, err := readFile(path, maxGenesisFile)
	if err != nil {
		return nil, Usagef("--psk: %w", err)
	}
	key, err := p2p.DecodePSK(text)
	if err != nil {
		return nil, Usagef("--psk: %s: %w", path, err)
	}
	return key, nil
}

// pskFile puts the key of the private network into home.
func (o initOptions) pskFile(home string) (initFile, error) {
	const what = "the private network's pre-shared key"
	path := filepath.Join(home, node.FilePSK)
	if o.psk != pskNew {
		key, err := readPSK(o.psk)
		if err != nil {
			return initFile{}, err
		}
		return newFile(home, node.FilePSK, what, p2p.EncodePSK(*key))
	}
	file := initFile{Name: node.FilePSK, What: what, State: "created"}
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
		psk = node.FilePSK
	}
	var b strings.Builder
	err = configTemplate.Execute(&b, map[string]any{
		"Region": o.region, "Bootstrap": bootstrap, "RPC": rpc, "Owner": o.owner, "Provide": o.provide, "Price": o.price,
		"PSK": psk, "Relay": o.relay, "DialOut": o.dialOut,
	})
	return []byte(b.String()), err
}

var configTemplate = template.Must(template.New(node.FileConfig).Parse(`# Configuration of a Starling peer. The values are the defaults unless init was told otherwise.

# Addresses to listen on, as multiaddrs. None: a free port on every interface, TCP and QUIC.
listen: []

# Addresses told to others instead, for a machine behind a forwarded port.
announce: []

# Peers to join the network by, with their /p2p/ part. None of them is special; two are better than one.
bootstrap: {{.Bootstrap}}

# How this peer is reached when it cannot be dialled, as behind a home router.
nat:
  # Find out whether others can dial it; if not, reserve places at relays and open direct paths through the NATs.
  auto: true
  # Ask the router for a port by UPnP.
  portMap: true
  # Listen on nothing and be reached through relays only.
  dialOutOnly: {{.DialOut}}
  # Relays to try first, with their /p2p/ part; others are found without.
  relays: []

# True makes the networks of clusters send and receive one UDP packet at a time, without the kernel's offloads: slower, for machines
# whose driver or sandbox gets those wrong. Where they are merely missing they are not used anyway.
plainUDP: false

# What this peer does for others that cannot be dialled, and for light clients, which reach the whole network through it.
relay:
  # True only on a machine that can be dialled.
  serve: {{.Relay}}
  # What one connection may carry, both ways together, and how long it may live.
  dataMiB: 4096
  duration: 24h
  # Connections at a time: in all, and of one peer. Peers with a lease here have a quarter more, and of the next.
  circuits: 256
  perPeer: 32
  # Peers that keep a place to be reached at: in all, and from one address.
  reservations: 128
  perIP: 32
  # What all of them together may carry a second; -1: no limit.
  mibPerSecond: 32

# What it does for light clients besides: it finds offers for them, gossips their orders and passes their calls to the
# chain on. They need the relay above, too.
entry:
  serve: true
  # At most so many a second for all of them; 0: 20 look-ups, 10 orders, 100 calls.
  finds: 0
  orders: 0
  calls: 0

# What it does for jobs whose owners are away (starling run --guardians): it holds their keys and files, signs with others for
# what was earned, and goes on with one whose supervisor is gone. Only where jobs are paid from escrows.
guard:
  accept: true
  maxJobs: 64
  # The part of what a job's leases can cost that it wants for it, at most 0.02.
  share: 0.005
  # Files of one job, and how long it may last.
  maxMiB: 4096
  longest: 744h

# File with the pre-shared key of a private network, from this directory. Empty: an open network.
privateNetwork: "{{.PSK}}"

# Peers that are refused: their ids or keys.
block: []

# Where this machine is, in your own word: a-z, 0-9 and '-'.
region: {{.Region}}

# Where the local API listens: empty for a unix socket in this directory, which your user alone can connect to; or a loopback address,
# where port 0 takes a free one.
api: ""

# What Prometheus reads at /metrics, without a token, where listen is a loopback address such as 127.0.0.1:7070. Without one your user alone
# reads it, over the socket of the API. libp2p: true adds what libp2p counts of its connections, streams and limits.
metrics: {listen: "", libp2p: false}

# Address of the wallet that pays and is paid. Empty: the one in owner.address. Its key need not be on this machine: wallet.json is read by
# commands that the owner signs, such as starling stake, and may be moved away (--wallet FILE).
owner: "{{.Owner}}"

solana:
  # JSON-RPC addresses of the cluster, tried in order.
  rpc: {{.RPC}}
  # What transactions bid for a place in a block, beside the fee for signatures, in lamports: maxLamports at most (0: 1000000), and no more
  # than a tenth of what is at stake, or 5000, where one whole token is worth tokenLamports (0: 5000000).
  fees: {maxLamports: 0, tokenLamports: 0}

# What this peer sells.
provide:
  enabled: {{.Provide}}
  # How many units, and what each of them has.
  units: 1
  unit: {milliCPU: 1000, memoryMiB: 1024, diskMiB: 2048}
  # Price of one unit for an hour, in tokens.
  price: "{{.Price}}"
  # The shortest and the longest time that one lease may last.
  minTime: 1s
  maxTime: 24h
  # How long outputs and logs of work that ended are kept for a buyer that is away, and what they may take together: of more, the buyer
  # that has most there loses its largest first.
  retain: 24h
  retainMiB: 20480
  # optimistic begins work at once for buyers that paid this provider in the last 30 days, with the first payment's amount at risk; funded
  # waits until the escrow was seen on chain. New buyers' work always waits.
  startWhen: optimistic
  # Payments are claimed once early, then whenever so many tokens are due or so much time has passed, and at a lease's end.
  claim: {amount: "1", every: 1h}
  # GPUs to sell, one unit each, in a class for each model (starling provider gpus lists them). Each unit has so much of the machine
  # beside its GPU. devices is written as --gpus is: "all", "device=0,1", "h100:2".
  # gpu: {price: "1.00", prices: {gpu/h100: "2.50"}, milliCPU: 4000, memoryMiB: 16384, diskMiB: 50000, devices: all}
  # Nothing is sold for less, by class or family; also not by starling provider price.
  # floor: {cpu: "0.01", gpu: "0.50"}
  # When something may be sold. No lease reaches out of these hours. Empty timeZone: the machine's own.
  # hours: ["Mon-Fri 18:00-08:00", "Sat,Sun"]
  # timeZone: Europe/Berlin
  # How much of the machine may be sold, in percent, and how many units of a class or family are kept back.
  # share: {units: 80, cpu: 75, memory: 75, keep: {gpu: 1}}
  # How many leases one buyer may have at a time; 0 is no limit.
  maxLeasesPerBuyer: 0
  # The least reputation of a buyer that is served, 0 to 1 (starling peer show PEER); 0 serves everybody. New ones have 0.0062.
  minReputation: 0
  # Which container images run here: patterns on repositories (* is one level, ** any), and digests. deny goes first.
  # images: {allow: ["docker.io/library/*"], deny: ["docker.io/library/alpine"]}
  # Buyers that are not served, with a note to yourself; and, when there are any, the only ones that are.
  # block: [{buyer: KEY, reason: did not pay}]
  # only: [KEY]

# The container engine that runs what is sold: auto offers containers when there is one on this machine, true refuses to
# start without, false offers none.
docker:
  enabled: auto
  host: ""
  # The OCI runtime that containers of jobs run under, by its name in the engine's daemon.json; "" is the engine's own (runc: the
  # jobs' programs and this machine share one kernel). gVisor gives each container a kernel of its own:
  #   {"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--host-uds=open"]}}}
  # The peer tries it at its start and offers no containers where it does not work.
  runtime: ""
  # Registries of your own network that images of jobs may come from, over plain HTTP too and from private addresses. All others
  # must be on the internet, with HTTPS: the peer reads images itself, and no job leads it into your network.
  # registries: ["registry.lan:5000"]
  # The largest image, unpacked; how full the engine's disk may be, in percent, before images that jobs brought are removed, those
  # that were used longest ago first (yours stay); and what no image may take of it. 0 is 64 GiB, 85 and 4 GiB.
  maxImageMiB: 0
  imagesPercent: 0
  freeMiB: 0

# What containers reach outside when their job asks for network: internet. They never reach this machine, its local network,
# addresses where clouds keep credentials, and mail servers (TCP ports 25, 465 and 587).
egress:
  # none, allowlist or internet; empty is none. Jobs of one container that ask for the internet come where the mode is internet,
  # those of clusters also where there is an allowlist.
  mode: ""
  # What an allow list opens: a name, all names below one, an address or a range of them, each with ports or without.
  # allow: ["pypi.org:443", "*.pythonhosted.org:443", "151.101.0.0/16:80,443", "93.184.216.34:8000-8100"]
  # For each container: connections at a time, new ones a second, Mbit/s each way (0: no limit), names looked up a
  # second, and how long a connection stays on which nothing moves. All containers together hold at most 1 GiB for connections, and
  # no more than an eighth of the memory, and begin at most 1000 a second: each has the same share.
  # limits: {flows: 512, newPerSecond: 100, mbitPerSecond: 0, namesPerSecond: 50, idle: 1h}

# Whether units may be members of clusters, whose containers send to each other through this machine's network: several peers as one
# machine for Ray, torchrun or MPI. Offers say so where they may not; up --no-clusters is the same for once.
clusters:
  accept: true
  # How many members at a time; 0 is no limit.
  maxMembers: 0

# What this peer buys for its user.
buy:
  # How long quotes for an order are waited for at the most.
  quoteWindow: 2s
  # How many jobs may run at a time.
  maxJobs: 64
  # The least reputation of a provider whose quote is taken, 0 to 1; 0 takes all, the better ones first. New ones have 0.0062.
  minReputation: 0
  # The most that is spent, in tokens: by one job, by the jobs of one UTC day, and of those with one provider. Empty is no
  # limit; starling peer key add makes API keys with limits of their own.
  limits: {perJob: "", perDay: "", perProviderPerDay: ""}
  # Whether jobs may have webhooks at addresses of this machine and of private networks.
  webhooks: {private: false}
`))
