//go:build linux

package natlab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// ErrUnavailable: this machine or user cannot make network namespaces; the text names the missing part.
var ErrUnavailable = errors.New("emulated NATs need root, and the programs ip and nft")

// Kind is the kind of router between a site and the internet.
type Kind string

// The kinds of sites.
const (
	// Public has a public address and no filter.
	Public Kind = "public"
	// Cone is a port-restricted cone NAT, the usual home router: an inside port has one outside port for all
	// destinations, and accepts packets only from addresses that it sent to.
	Cone Kind = "cone"
	// Symmetric is a NAT with a different outside port for every destination, so that ports are unpredictable.
	Symmetric Kind = "symmetric"
	// Closed has a public address behind a firewall that accepts only answers over TCP: no UDP in either direction.
	Closed Kind = "no inbound"
	// NoUDP is a cone that drops all UDP.
	NoUDP Kind = "no UDP"
	// UPnP is a cone with a router that opens ports on UPnP requests from inside.
	UPnP Kind = "UPnP"
)

// Lab is an internet with sites. It ends with this process.
//
//	site ── router ──┐
//	 192.168.N.2     ├── bridge of the internet namespace, 5.9.0.0/16
//	site ────────────┘   (addresses that libp2p takes for public)
type Lab struct {
	inet  *Namespace
	all   []*Namespace
	sites int
	wg    sync.WaitGroup
	open  []io.Closer // listeners and daemons
}

// Site is a machine on the internet.
type Site struct {
	*Namespace
	Kind   Kind
	IP     string // the machine's own address
	Public string // the address visible to other sites
}

// Available returns an error if this machine cannot emulate such sites.
func Available(kinds ...Kind) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: not root", ErrUnavailable)
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if slices.Contains(kinds, UPnP) {
		if err := igdAvailable(); err != nil {
			return err
		}
	}
	n, err := NewNamespace()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	err = n.feed(nat(Symmetric), "nft", "-f", "-")
	if slices.Contains(kinds, UPnP) {
		err = errors.Join(err, n.feed(nat(UPnP), "nft", "-f", "-"))
	}
	return errors.Join(err, n.Close())
}

// New makes an internet without sites.
func New() (*Lab, error) {
	l := &Lab{}
	var err error
	if l.inet, err = l.namespace(); err == nil {
		err = l.inet.Run("ip", "link", "add", "br0", "type", "bridge")
	}
	if err == nil {
		err = l.inet.Run("ip", "link", "set", "br0", "up")
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) namespace() (*Namespace, error) {
	n, err := NewNamespace()
	if n != nil {
		l.all = append(l.all, n)
	}
	return n, err
}

// Site adds a machine.
func (l *Lab) Site(kind Kind) (*Site, error) {
	l.sites++
	n := l.sites
	public := fmt.Sprintf("5.9.%d.1", n)
	host, err := l.namespace()
	if err != nil {
		return nil, err
	}
	s := &Site{Namespace: host, Kind: kind, IP: public, Public: public}
	if kind == Public || kind == Closed {
		if err := l.plug(host, "eth0", n, public); err != nil {
			return nil, err
		}
		if kind == Closed {
			err = host.feed(firewall, "nft", "-f", "-")
		}
		return s, err
	}
	router, err := l.namespace()
	if err != nil {
		return nil, err
	}
	s.IP = fmt.Sprintf("192.168.%d.2", n)
	gateway := fmt.Sprintf("192.168.%d.1", n)
	for _, step := range []func() error{
		func() error { return l.plug(router, "wan", n, public) },
		func() error {
			return router.Run("ip", "link", "add", "lan", "type", "veth", "peer", "name", "eth0", "netns", host.Path())
		},
		func() error { return router.Run("ip", "addr", "add", gateway+"/24", "dev", "lan") },
		func() error { return router.Run("ip", "link", "set", "lan", "up") },
		func() error { return host.Run("ip", "addr", "add", s.IP+"/24", "dev", "eth0") },
		func() error { return host.Run("ip", "link", "set", "eth0", "up") },
		func() error { return host.Run("ip", "route", "add", "default", "via", gateway) },
		router.forward,
		func() error { return router.feed(nat(kind), "nft", "-f", "-") },
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("making a site with %s: %w", kind, err)
		}
	}
	if kind != UPnP {
		return s, nil
	}
	d, err := startIGD(router, gateway+"/24")
	if err != nil {
		return nil, fmt.Errorf("making a site with %s: %w", kind, err)
	}
	l.open = append(l.open, d)
	return s, nil
}

// plug gives a namespace a link to the internet.
func (l *Lab) plug(n *Namespace, link string, number int, addr string) error {
	port := fmt.Sprintf("p%d", number)
	return errors.Join(
		l.inet.Run("ip", "link", "add", port, "type", "veth", "peer", "name", link, "netns", n.Path()),
		l.inet.Run("ip", "link", "set", port, "master", "br0", "up"),
		n.Run("ip", "addr", "add", addr+"/16", "dev", link),
		n.Run("ip", "link", "set", link, "up"))
}

// nat returns the router's rules. Unrequested packets from outside are dropped without an answer, so that they neither
// occupy a port nor reset a connection that is being opened.
func nat(k Kind) string {
	if k == UPnP {
		return igdRules
	}
	masquerade, udp := "masquerade", ""
	switch k {
	case Symmetric:
		masquerade = "masquerade fully-random"
	case NoUDP:
		udp = "meta l4proto udp drop"
	}
	return strings.NewReplacer("MASQUERADE", masquerade, "UDP", udp).Replace(`
table ip nat {
	chain post {
		type nat hook postrouting priority 100;
		oifname "wan" MASQUERADE
	}
}
table ip filter {
	chain input {
		type filter hook input priority 0;
		iifname "wan" drop
	}
	chain forward {
		type filter hook forward priority 0; policy drop;
		UDP
		ct state established,related accept
		iifname "lan" accept
	}
}
`)
}

// firewall lets TCP out and its answers in.
const firewall = `
table ip filter {
	chain input {
		type filter hook input priority 0; policy drop;
		iifname "lo" accept
		meta l4proto tcp ct state established,related accept
	}
	chain output {
		type filter hook output priority 0; policy drop;
		oifname "lo" accept
		meta l4proto tcp accept
	}
}
`

// Cut drops every packet between two sites until Mend.
func (l *Lab) Cut(a, b *Site) error {
	return l.inet.feed(fmt.Sprintf(`
table bridge cut {
	chain forward {
		type filter hook forward priority 0;
		ip saddr %[1]s ip daddr %[2]s drop
		ip saddr %[2]s ip daddr %[1]s drop
	}
}
`, a.Public, b.Public), "nft", "-f", "-")
}

// Mend undoes Cut.
func (l *Lab) Mend() error { return l.inet.Run("nft", "delete", "table", "bridge", "cut") }

// Serve forwards a port of a site's own address to the listener at addr outside the lab, such as the chain of the
// peers.
func (l *Lab) Serve(at *Site, port int, addr string) (string, error) {
	inside := fmt.Sprintf("%s:%d", at.IP, port)
	ln, err := at.Listen("tcp", inside)
	if err != nil {
		return "", fmt.Errorf("serving %s in the lab: %w", addr, err)
	}
	l.open = append(l.open, ln)
	l.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { splice(c, addr) })
		}
	})
	return inside, nil
}

// splice copies one connection to addr until either side ends it.
func splice(c net.Conn, addr string) {
	defer c.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(to, c)
		_ = to.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(c, to)
	_ = c.Close()
	wg.Wait()
}

// Close releases the lab. Processes inside must have ended.
func (l *Lab) Close() error {
	var errs []error
	for _, c := range l.open {
		errs = append(errs, c.Close())
	}
	l.wg.Wait()
	for _, n := range l.all {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
