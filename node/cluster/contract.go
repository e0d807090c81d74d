package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Paths of the cluster's files in a container; the files change while it runs, when members go or come.
const (
	FileHosts    = "/etc/hosts"                // names of all ranks
	FileResolv   = "/etc/resolv.conf"          // resolves by the peer
	FileHostfile = "/etc/cluster/hostfile"     // "node-0 slots=8", as mpirun reads it
	FileNames    = "/etc/cluster/hosts"        // "node-0", one a line
	FileCluster  = "/etc/cluster/cluster.json" // Description
)

// Contract is the environment of one rank's program: contract v1.
type Contract struct {
	Cluster string
	Rank    uint32
	Size    uint32
	Version uint64 // of the plan
	MTU     uint32
	Engine  string
	Nodes   []Node // the present members, ascending ranks
	Paths   []Path // the known paths between them, in the order of [comparePaths]
}

// Node is one member as the others see it.
type Node struct {
	Rank      uint32     `json:"rank"`
	Epoch     uint32     `json:"epoch"`
	Name      string     `json:"name"`
	Address   netip.Addr `json:"address"`
	GPUs      uint32     `json:"gpus"`
	Slots     uint32     `json:"slots"`
	MilliCPU  uint32     `json:"milli_cpu"`
	MemoryMiB uint32     `json:"memory_mib"`
}

// Contract is the contract of the plan's rank.
func (p Plan) Contract() Contract {
	c := Contract{Cluster: p.ID, Rank: p.Rank, Size: p.Size, Version: p.Version, MTU: p.MTU, Engine: p.Engine}
	for _, m := range p.Members {
		c.Nodes = append(c.Nodes, Node{
			Rank: m.Rank, Epoch: m.Epoch, Name: Name(m.Rank), Address: Address(m.Rank),
			GPUs: m.GPUs, Slots: m.Slots, MilliCPU: m.MilliCPU, MemoryMiB: m.MemoryMiB,
		})
	}
	c.Paths = p.known()
	return c
}

// Hostname is that of the container.
func (c Contract) Hostname() string { return Name(c.Rank) }

// Address is the container's own.
func (c Contract) Address() netip.Addr { return Address(c.Rank) }

// Env is the environment of every engine's containers at their start. An engine's template adds its own.
func (c Contract) Env() map[string]string {
	head, own := Address(0).String(), c.Address().String()
	var names []string
	for r := range c.Size {
		names = append(names, Name(r))
	}
	return map[string]string{
		"CLUSTER_ID":                     c.Cluster,
		"CLUSTER_SIZE":                   utoa(c.Size),
		"NODE_RANK":                      utoa(c.Rank),
		"NODE_IP":                        own,
		"HEAD_IP":                        head,
		"NODE_HOSTS":                     strings.Join(names, ","),
		"GPUS_PER_NODE":                  c.gpus(),
		"MASTER_ADDR":                    head,
		"MASTER_PORT":                    strconv.Itoa(PortTorch),
		"NNODES":                         utoa(c.Size),
		"NCCL_SOCKET_IFNAME":             Interface,
		"NCCL_SOCKET_FAMILY":             "AF_INET",
		"NCCL_IB_DISABLE":                "1",
		"GLOO_SOCKET_IFNAME":             Interface,
		"TP_SOCKET_IFNAME":               Interface,
		"UCX_NET_DEVICES":                Interface,
		"OMPI_MCA_btl_tcp_if_include":    Interface,
		"OMPI_MCA_oob_tcp_if_include":    Interface,
		"OMPI_MCA_orte_default_hostfile": FileHostfile,
		"PRTE_MCA_prte_default_hostfile": FileHostfile,
		"HYDRA_HOST_FILE":                FileHostfile,
		"HYDRA_IFACE":                    Interface,
		"VLLM_HOST_IP":                   own,
	}
}

// WithEnv is Env with the workload's own environment, which takes precedence.
func (c Contract) WithEnv(own map[string]string) map[string]string {
	env := c.Env()
	maps.Copy(env, own)
	return env
}

// gpus returns the number of GPUs of each node: one number if all are equal, else one for each present node.
func (c Contract) gpus() string {
	var each []string
	for _, n := range c.Nodes {
		each = append(each, utoa(n.GPUs))
	}
	if len(slices.Compact(slices.Clone(each))) == 1 {
		return each[0]
	}
	return strings.Join(each, ",")
}

// Description is the content of cluster.json; paths follow, see [Contract.paths].
type Description struct {
	Cluster string     `json:"cluster"`
	Version uint64     `json:"version"` // of the plan: counts up whenever a member goes or comes
	Size    uint32     `json:"size"`
	Rank    uint32     `json:"rank"` // of the reader
	Engine  string     `json:"engine"`
	MTU     uint32     `json:"mtu"`
	Head    netip.Addr `json:"head"`
	Service netip.Addr `json:"service"`         // the peer: DNS and its services
	Class   Class      `json:"class,omitempty"` // of the slowest path between members; empty while some are unknown
	Members []Node     `json:"members"`         // the present members
}

// AloneFiles returns the files of a container outside a cluster, which make its peer resolve names.
func AloneFiles() map[string][]byte { return map[string][]byte{FileResolv: resolv()} }

func resolv() []byte {
	return fmt.Appendf(nil, "nameserver %s\noptions timeout:2 attempts:3\n", Service)
}

// Files returns the container's files by path. They are bounded, and rewritten with each plan.
func (c Contract) Files() map[string][]byte {
	var hosts, hostfile, names strings.Builder
	fmt.Fprintf(&hosts, "127.0.0.1 localhost\n%s %s %s.%s%s\n",
		c.Address(), Name(c.Rank), Name(c.Rank), c.Cluster, alias(c.Rank))
	for r := range c.Size {
		if r != c.Rank {
			fmt.Fprintf(&hosts, "%s %s %s.%s%s\n", Address(r), Name(r), Name(r), c.Cluster, alias(r))
		}
	}
	for _, n := range c.Nodes {
		fmt.Fprintf(&hostfile, "%s slots=%d\n", n.Name, n.Slots)
		fmt.Fprintln(&names, n.Name)
	}
	d := Description{
		Cluster: c.Cluster, Version: c.Version, Size: c.Size, Rank: c.Rank, Engine: c.Engine, MTU: c.MTU,
		Head: Address(0), Service: Service, Class: c.class(), Members: c.Nodes,
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		panic(err) // numbers, names and addresses
	}
	return map[string][]byte{
		FileHosts:    []byte(hosts.String()),
		FileResolv:   resolv(),
		FileHostfile: []byte(hostfile.String()),
		FileNames:    []byte(names.String()),
		FileCluster:  c.withPaths(text),
	}
}

func alias(rank uint32) string {
	if rank == 0 {
		return " " + Head
	}
	return ""
}

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
